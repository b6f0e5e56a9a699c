package xdp

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
)

// Services lists the services in the order of the configuration.
func (p *Plane) Services() []dataplane.ServiceStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := map[uint32]string{}
	list := make([]dataplane.ServiceStatus, 0, len(p.order))
	for _, name := range p.order {
		s := p.services[name]
		out := dataplane.ServiceStatus{Listener: name, Protocol: s.listener.Protocol.String(), XDP: p.describe(s, names)}
		for _, a := range s.listener.Addresses {
			out.Addresses = append(out.Addresses, a.Addr)
		}
		list = append(list, out)
	}
	return list
}

// describe tells of one service. names keeps the names of interfaces.
func (p *Plane) describe(s *service, names map[uint32]string) *dataplane.XDPService {
	v := s.steering.View()
	x := &dataplane.XDPService{
		InSync: s.failed == nil && !s.placed.unsure,
		Track:  [...]string{"changed", "all", "off"}[v.Track],
		Hash:   [...]string{"five_tuple", "source_ip", "key", "none"}[s.policy().Kind],
	}
	if s.failed != nil {
		x.Error = s.failed.Error()
	}
	owned := make([]int, len(s.members))
	var sum xxhash.Digest
	sum.Reset()
	for _, a := range v.Arrays {
		x.Slots, x.Open, x.Excepted = x.Slots+len(a.Slots), x.Open+a.Open, x.Excepted+a.Excepted
		fmt.Fprintf(&sum, "%016x", digest(a.Slots))
		if !a.Leaf {
			continue
		}
		for _, w := range a.Slots {
			if o := int(conntrack.Owner(w)); o < len(owned) {
				owned[o]++
			}
		}
	}
	x.Digest = fmt.Sprintf("%016x", sum.Sum64())
	t := p.serviceStats(s)
	x.Packets, x.Bytes, x.Flows, x.Lookups, x.Dropped = t.packets.Value(), t.bytes.Value(), t.flows.Value(), t.lookups.Value(), t.dropped.Value()
	for i, m := range s.members {
		if m == nil {
			continue
		}
		b := dataplane.BackendInfo{
			Address: m.id.addr, Forwarding: m.forwarding, Serves: m.serves(s.listener.Protocol), Lingers: !m.wanted, Slots: owned[i],
			Neighbour: m.hop.state, MTU: int(m.hop.mtu), Problem: m.hop.reason,
			Packets: m.total.Packets, Bytes: m.total.Bytes, Flows: m.total.Flows,
		}
		if m.cluster != nil {
			b.Cluster, b.Health = m.cluster.Name, m.host.Health.String()
		}
		if m.blocked != nil {
			b.Problem = m.blocked.Error()
		}
		if m.hop.ifindex != 0 {
			b.NextHop = m.hop.gateway
			b.Interface = names[m.hop.ifindex]
			if b.Interface == "" {
				if i, err := net.InterfaceByIndex(int(m.hop.ifindex)); err == nil {
					b.Interface = i.Name
					names[m.hop.ifindex] = i.Name
				}
			}
		}
		if m.hop.hasMAC {
			b.MAC = net.HardwareAddr(m.hop.dst[:]).String()
		}
		x.Backends = append(x.Backends, b)
	}
	return x
}

// Flows yields the flows that the program remembers.
func (p *Plane) Flows(ctx context.Context, yield func(dataplane.FlowStatus) bool) error {
	type owner struct {
		name    string
		members []placedMember
		idle    time.Duration
	}
	p.mu.Lock()
	of := map[serviceKey]owner{}
	for _, s := range p.services {
		for _, k := range s.placed.keys {
			of[k] = owner{s.name, s.placed.members, s.idle()}
		}
	}
	now := p.now()
	p.mu.Unlock()
	return p.flows.flows(func(f rememberedFlow) bool {
		o := of[serviceKey{f.flow.Dst, uint8(f.flow.Proto)}]
		out := dataplane.FlowStatus{
			Listener: o.name, Protocol: dataplane.Protocol(f.flow.Proto).String(), Client: f.flow.Src, VIP: f.flow.Dst,
			Idle: max(0, now-time.Duration(f.entry.Last)), HalfOpen: f.halfOpen, NAT: f.nat, Void: true,
		}
		if int(f.entry.Backend) < len(o.members) {
			m := o.members[f.entry.Backend]
			out.Backend = m.id.addr
			out.Void = m.entry.Generation != f.entry.Generation || out.Idle > o.idle
		}
		return yield(out) && ctx.Err() == nil
	})
}
