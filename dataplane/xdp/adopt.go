package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
)

// adopt reads what a former agent left in the maps: each service goes on from where it was once a snapshot
// names it. Nothing is written.
func (p *Plane) adopt() error {
	p.adopted = map[serviceKey]*service{}
	all, err := p.pub.maps.services()
	if err != nil {
		return fmt.Errorf("read the services of the former agent: %w", err)
	}
	// No generation that any backend ever had may be used again, whatever becomes of its service.
	for i := range p.pub.maps.capacity().backends {
		b, err := p.pub.maps.backend(i)
		if err != nil {
			return fmt.Errorf("read the backends of the former agent: %w", err)
		}
		p.pub.generation = max(p.pub.generation, b.Generation)
	}
	devices, err := p.pub.maps.devices()
	if err != nil {
		return fmt.Errorf("read the device map: %w", err)
	}
	for _, d := range devices {
		p.pub.devices[d] = true
	}
	keys := map[uint32][]serviceKey{} // by the service's id
	for k, e := range all {
		if e.Flags&bpf.ServiceVIP == 0 {
			keys[e.Id] = append(keys[e.Id], k)
		}
	}
	adopted, flows := 0, 0
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		of := keys[id]
		slices.SortFunc(of, compareServiceKeys)
		s, err := p.adoptService(of, all[of[0]])
		if err != nil {
			p.log.Warn("a service of the former agent cannot be taken over: its remembered flows follow the tables", "vip", of[0].vip, "reason", err)
			continue
		}
		adopted++
		flows += len(s.members)
		for _, k := range of {
			p.adopted[k] = s
			p.pub.vips[vipKey(k.vip.Addr())]++
		}
	}
	if adopted > 0 {
		p.log.Info("the former agent's services are taken over", "services", adopted, "backends", flows)
	}
	return nil
}

func compareServiceKeys(a, b serviceKey) int {
	return cmp.Or(a.vip.Compare(b.vip), cmp.Compare(a.proto, b.proto))
}

// adoptService reads one service.
func (p *Plane) adoptService(keys []serviceKey, e bpf.Service) (*service, error) {
	s := newService("")
	s.placed.keys, s.placed.entry, s.placed.id = keys, e, e.Id
	if e.Id == 0 || e.Idle == 0 {
		return nil, errors.New("its entry is incomplete")
	}
	arrays, err := p.adoptArrays(s, e)
	if err != nil {
		closeNew(s.placed.tables, nil)
		return nil, err
	}
	v := conntrack.View{Arrays: arrays, Only: -1, Track: conntrack.Track(e.Track), Idle: time.Duration(e.Idle)}
	s.placed.arrays = span{e.Arrays, uint32(len(arrays))}
	s.placed.backends = span{e.Backends, e.Members}
	for i := range e.Members {
		b, err := p.pub.maps.backend(e.Backends + i)
		if err != nil {
			return nil, err
		}
		id, err := p.pub.maps.identity(e.Backends + i)
		if err != nil {
			return nil, err
		}
		serves := b.Generation&1 == 0
		v.Members = append(v.Members, conntrack.ViewMember{Member: conntrack.Member{Addr: id.addr, Serves: serves}})
		s.placed.members = append(s.placed.members, placedMember{id: id, serves: serves, entry: b})
		if !id.addr.IsValid() || id.addr.Addr().IsUnspecified() {
			s.members = append(s.members, nil)
			v.Members[i].Addr = conntrack.Member{}.Addr
			continue
		}
		s.members = append(s.members, &member{id: id, forwarding: forwardingName(b.Forwarding), adopted: true})
		s.byID[id] = uint16(i)
		if b.Flags&bpf.BackendResolved != 0 {
			p.hops.seed(id.addr.Addr().Unmap(), b.Ifindex, b.DstMac)
		}
	}
	if s.steering, err = conntrack.Restore(v, p.now()); err != nil {
		closeNew(s.placed.tables, nil)
		return nil, err
	}
	// What was read becomes the arrays that the Steering holds, so that it is known to be in force.
	for i, a := range s.steering.View().Arrays {
		if i < len(s.placed.tables) {
			s.placed.tables[i].array = a
		}
	}
	for _, r := range []struct {
		spans *spans
		span  span
	}{{&p.pub.arrays, s.placed.arrays}, {&p.pub.backends, s.placed.backends}, {&p.pub.ids, span{e.Id - 1, 1}}} {
		if !r.spans.reserve(r.span) {
			closeNew(s.placed.tables, nil)
			return nil, fmt.Errorf("its %s overlap another service's", r.spans.what)
		}
	}
	return s, nil
}

// adoptArrays reads a service's arrays, from the root on.
func (p *Plane) adoptArrays(s *service, e bpf.Service) ([]conntrack.Array, error) {
	var arrays []conntrack.Array
	todo := []uint16{0}
	for len(todo) > 0 {
		i := int(todo[0])
		todo = todo[1:]
		for i >= len(arrays) {
			arrays = append(arrays, conntrack.Array{})
			s.placed.tables = append(s.placed.tables, placedTable{})
		}
		if len(arrays[i].Slots) > 0 {
			continue
		}
		t, err := p.pub.maps.openTable(e.Arrays + uint32(i))
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, fmt.Errorf("its array %d is not there", i)
		}
		s.placed.tables[i].table = t
		a, claimed, err := t.read()
		if err != nil {
			return nil, err
		}
		if digest(a.Slots) != claimed {
			return nil, fmt.Errorf("array %d: %w", i, errMismatch)
		}
		arrays[i] = a
		if a.Leaf {
			continue
		}
		for _, w := range a.Slots {
			todo = append(todo, conntrack.Owner(w))
			if f, open := conntrack.Former(w); open {
				todo = append(todo, f)
			}
		}
		slices.Sort(todo)
		todo = slices.Compact(todo)
	}
	return arrays, nil
}

func forwardingName(f uint8) string {
	return [...]string{bpf.ForwardIPIP: "ipip", bpf.ForwardGUE: "gue", bpf.ForwardL2: "l2", bpf.ForwardNAT: "nat"}[f&3]
}

// claim returns the service of a listener: one that the former agent had at one of its addresses, or a new one.
func (p *Plane) claim(l *dataplane.Listener) *service {
	for _, k := range keysOf(l) {
		s := p.adopted[k]
		if s == nil {
			continue
		}
		for _, k := range s.placed.keys {
			delete(p.adopted, k)
		}
		s.name = l.Name
		return s
	}
	return newService(l.Name)
}

// reconcile makes the maps hold nothing but what they should: what others wrote into them, or an agent left
// that ended in the middle of a change, goes; a service that is not as it was written is written again.
func (p *Plane) reconcile() {
	for _, s := range p.adopted { // what no listener of the snapshot wanted
		for _, k := range s.placed.keys {
			delete(p.adopted, k)
		}
		if err := p.pub.remove(&s.placed); err != nil {
			p.log.Error("a service of the former agent is still in the maps", "reason", err)
		}
	}
	known := map[serviceKey]bool{}
	used := map[uint32]bool{barrierTable: true}
	devices := map[uint32]bool{}
	for _, s := range p.services {
		for _, k := range s.placed.keys {
			known[k], known[vipKey(k.vip.Addr())] = true, true
		}
		for _, x := range append(slices.Clone(s.placed.litterArrays), s.placed.arrays) {
			for i := x.first; i < x.end(); i++ {
				used[i] = true
			}
		}
		for _, m := range s.placed.members {
			devices[m.entry.Ifindex] = true
		}
		if s.failed == nil && !s.placed.unsure {
			if err := p.pub.verify(&s.placed); err != nil {
				p.log.Error("the maps were changed by somebody else; they are written again", "listener", s.name, "reason", err)
				s.placed.unsure = true
			}
		}
	}
	if err := p.removeExtras(known, used, devices); err != nil {
		p.log.Error("what does not belong into the maps is still there", "reason", err)
	}
}

func (p *Plane) removeExtras(known map[serviceKey]bool, used, devices map[uint32]bool) error {
	m := p.pub.maps
	all, err := m.services()
	if err != nil {
		return err
	}
	for k := range all {
		if known[k] {
			continue
		}
		if err := m.deleteService(k); err != nil {
			return err
		}
		if err := m.barrier(); err != nil {
			return err
		}
	}
	inForce := map[uint32]bool{}
	for i := range m.capacity().tables {
		id, err := m.tableID(i)
		if err != nil {
			return err
		}
		switch {
		case id == 0:
		case used[i]:
			inForce[id] = true
		default:
			if err := m.deleteTable(i); err != nil {
				return err
			}
		}
	}
	if err := m.dropPins(inForce); err != nil {
		return err
	}
	for d := range p.pub.devices {
		if !devices[d] && !p.attachedTo(d) {
			if err := m.deleteDevice(d); err != nil {
				return err
			}
			delete(p.pub.devices, d)
		}
	}
	return p.addDevices()
}

func (p *Plane) attachedTo(ifindex uint32) bool {
	return p.program != nil && slices.ContainsFunc(p.program.attached, func(a *attachment) bool { return uint32(a.device.ifindex) == ifindex })
}

// addDevices puts the interfaces that clients come in by into the device map: NAT answers leave by them.
func (p *Plane) addDevices() error {
	if p.program == nil {
		return nil
	}
	for _, a := range p.program.attached {
		if err := p.pub.device(bpf.Backend{Ifindex: uint32(a.device.ifindex)}); err != nil {
			return err
		}
	}
	return nil
}
