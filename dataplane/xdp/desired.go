package xdp

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
	"github.com/guideway/guideway/maglev"
)

// weightTable is the size of the Maglev table that picks one of several clusters by their weights: shares
// come out to a hundredth of a percent.
const weightTable = 10_007

// guePort is what a decapsulator of GUE listens on (IANA: gue).
const guePort = 6080

// rebuilt is a table without the hosts that could not be reached when it was built.
type rebuilt struct {
	out   string // who they were
	table lb.Table
}

// clustersOf returns the clusters of a listener with their weights. Those that are not there are nil.
func clustersOf(l *dataplane.Listener, all map[string]*dataplane.Cluster) (names []string, clusters []*dataplane.Cluster, weights []uint32) {
	if l.Protocol == dataplane.UDP {
		return []string{l.UDP.Only}, []*dataplane.Cluster{all[l.UDP.Only]}, []uint32{1}
	}
	p, err := onlyProxy(l)
	if err != nil {
		return nil, nil, nil
	}
	for _, w := range p.Clusters {
		names, clusters, weights = append(names, w.Name), append(clusters, all[w.Name]), append(weights, w.Weight)
	}
	return names, clusters, weights
}

// desire makes of a listener and its clusters what conntrack is to be told, given the members' next hops.
func (s *service) desire(names []string, clusters []*dataplane.Cluster, weights []uint32, index map[*dataplane.Host]uint16) (conntrack.Desired, error) {
	var d conntrack.Desired
	ids := idMaker{}
	inTable := map[uint16]bool{}
	tops := make([]conntrack.ID, len(clusters))
	fresh := map[*maglev.Table]rebuilt{}
	for i, c := range clusters {
		top, err := s.clusterTables(&d, ids, names[i], c, index, inTable, fresh)
		if err != nil {
			return d, fmt.Errorf("cluster %q: %w", names[i], err)
		}
		tops[i] = top
	}
	s.rebuilt = fresh
	d.Top = tops[0]
	if len(tops) > 1 {
		hosts := make([]maglev.Host, len(tops))
		for i := range hosts {
			hosts[i] = maglev.Host{Key: names[i], Addr: names[i], Weight: weights[i]}
		}
		t, err := maglev.Build(weightTable, hosts, nil)
		if err != nil {
			return d, fmt.Errorf("share out the clusters by weight: %w", err)
		}
		to := make([]conntrack.ID, t.Size())
		for slot := range to {
			to[slot] = tops[t.Owner(uint32(slot))]
		}
		d.Top = ids.id("clusters")
		d.Classes = append(d.Classes, conntrack.Classes{ID: d.Top, By: conntrack.ByClassHash, To: to})
	}

	// Settings of flows are one service's; with several clusters the first that is there decides.
	var settings *dataplane.Cluster
	for _, c := range clusters {
		if c != nil {
			settings = c
			break
		}
	}
	d.Idle = s.idle()
	if settings != nil {
		d.Track, d.LearningWindow = trackOf(settings.Track), settings.LearningWindow
	}
	d.Members = make([]conntrack.Member, len(s.members))
	for i, m := range s.members {
		if m != nil {
			m.state = m.stateOf(inTable[uint16(i)])
			d.Members[i] = conntrack.Member{Addr: m.id.addr, Serves: m.serves(s.listener.Protocol)}
		}
	}
	return d, nil
}

// clusterTables adds a cluster's tables, and its priorities if it has several that get load.
func (s *service) clusterTables(d *conntrack.Desired, ids idMaker, name string, c *dataplane.Cluster, index map[*dataplane.Host]uint16, inTable map[uint16]bool, fresh map[*maglev.Table]rebuilt) (conntrack.ID, error) {
	nobody := func() conntrack.ID {
		id := ids.id(name, "nobody")
		d.Tables = append(d.Tables, conntrack.Table{ID: id, Slots: []conntrack.Backend{conntrack.NoBackend}})
		return id
	}
	if c == nil {
		return nobody(), nil
	}
	of := map[int]conntrack.ID{} // the table of each priority
	for _, t := range lb.Tables(c.Balancer) {
		slots, err := s.slots(t, index, inTable, fresh)
		if err != nil {
			return 0, err
		}
		id := ids.id(name, strconv.Itoa(t.Priority))
		d.Tables = append(d.Tables, conntrack.Table{ID: id, Slots: slots})
		of[t.Priority] = id
	}
	// Which priority a hash gets depends on the hash mod 100 alone.
	const classes = 100
	to := make([]conntrack.ID, classes)
	one := true
	var none conntrack.ID
	for h := range to {
		priority, _, _ := lb.Explain(c.Balancer, uint64(h))
		id, ok := of[priority]
		if !ok {
			if none == 0 {
				none = nobody()
			}
			id = none
		}
		to[h] = id
		one = one && id == to[0]
	}
	if one {
		return to[0], nil
	}
	id := ids.id(name, "priorities")
	d.Classes = append(d.Classes, conntrack.Classes{ID: id, By: conntrack.ByHash, To: to})
	return id, nil
}

// slots returns a table with the members' indices. Members without a next hop have no slots; if nobody has
// one, nor has anybody a slot.
func (s *service) slots(t lb.Table, index map[*dataplane.Host]uint16, inTable map[uint16]bool, fresh map[*maglev.Table]rebuilt) ([]conntrack.Backend, error) {
	var out []byte
	unreachable := func(h *dataplane.Host) bool {
		i, ok := index[h]
		return !ok || s.members[i].blocked != nil || !s.members[i].hop.resolved
	}
	for i, h := range t.Hosts {
		if unreachable(h) {
			out = binary.NativeEndian.AppendUint32(out, uint32(i))
		}
	}
	of := t.Table
	kept := s.rebuilt[of]
	if len(out) > 0 && (kept.table.Table == nil || kept.out != string(out)) {
		var err error
		kept.out = string(out)
		if kept.table, err = t.Without(unreachable); err != nil {
			return nil, err
		}
	}
	if len(out) > 0 {
		fresh[of] = kept
		t = kept.table
	}
	slots := make([]conntrack.Backend, t.Size())
	owners := make([]uint16, len(t.Hosts))
	for i, h := range t.Hosts {
		owners[i] = index[h]
		if t.Count(i) > 0 {
			inTable[owners[i]] = true
		}
	}
	for i := range slots {
		slots[i] = conntrack.NoBackend
		if !t.Empty() {
			slots[i] = owners[t.Owner(uint32(i))]
		}
	}
	return slots, nil
}

func (s *service) idle() time.Duration {
	idle := time.Duration(0)
	if s.listener.Protocol == dataplane.UDP {
		idle = s.listener.UDP.IdleTimeout
	} else if p, err := onlyProxy(s.listener); err == nil {
		idle = p.IdleTimeout
	}
	if idle <= 0 {
		return conntrack.NoIdle
	}
	return idle
}

func trackOf(s string) conntrack.Track {
	switch s {
	case "all":
		return conntrack.TrackAll
	case "off":
		return conntrack.TrackOff
	}
	return conntrack.TrackChanged
}

// idMaker gives the tables of a service IDs that depend on their names alone, so that an agent finds the
// tables of the one before it.
type idMaker map[conntrack.ID]string

func (m idMaker) id(parts ...string) conntrack.ID {
	var d xxhash.Digest
	d.Reset()
	for _, p := range parts {
		d.WriteString(p)
		d.Write([]byte{0})
	}
	name := fmt.Sprint(parts)
	for id := conntrack.ID(d.Sum64()); ; id++ {
		if other, taken := m[id]; id != 0 && (!taken || other == name) {
			m[id] = name
			return id
		}
	}
}

// target returns what the maps are to hold of the service.
func (s *service) target(sources sources) target {
	t := target{keys: keysOf(s.listener), view: s.steering.View()}
	t.entry = bpf.Service{Idle: uint64(min(t.view.Idle, math.MaxInt64)), Track: uint8(t.view.Track)}
	policy := s.policy()
	switch policy.Kind {
	case dataplane.HashSourceIP:
		t.entry.Hash = bpf.HashSourceIP
	case dataplane.HashKey:
		t.entry.Hash = bpf.HashConstant
		t.entry.Seed, _ = policy.HashOf(s.listener.Protocol, netip.AddrPort{}, netip.AddrPort{})
	default:
		t.entry.Hash = bpf.HashFiveTuple
		t.entry.Seed = policy.Seed
	}
	t.entry.ClassSeed = s.classSeed()
	if s.capture > 0 {
		t.entry.Flags |= bpf.ServiceCapture
		t.entry.Sample = s.capture
	}
	t.members = make([]reach, len(t.view.Members))
	for i := range t.members {
		if i >= len(s.members) || s.members[i] == nil {
			continue
		}
		m := s.members[i]
		t.members[i] = reach{id: m.id, entry: m.entry(sources)}
		if m.forwarding == "nat" {
			t.entry.Flags |= bpf.ServiceNAT
		}
	}
	return t
}

// policy is the hash policy of the service's flows.
func (s *service) policy() dataplane.HashPolicy {
	policy := dataplane.HashPolicy{}
	if s.listener.Protocol == dataplane.UDP {
		policy = s.listener.UDP.Hash
	} else if p, err := onlyProxy(s.listener); err == nil {
		policy = p.Hash
	}
	for _, c := range s.inputs.clusters {
		if c != nil {
			return c.HashPolicy(policy)
		}
	}
	return policy
}

// classSeed is the seed of the hash that picks among weighted clusters: another one than the hash policy's.
func (s *service) classSeed() uint64 { return s.policy().Seed ^ 0x9e3779b97f4a7c15 }

// sources are the prefixes that outer source addresses are taken from, if they are to vary with the flow.
// Without one, the source is the balancer's address on the way to the backend.
type sources struct{ v4, v6 netip.Prefix }

// entry is the member's entry in the maps, but for its generation.
func (m *member) entry(sources sources) bpf.Backend {
	var b bpf.Backend
	addr := m.id.addr.Addr().Unmap()
	source := m.hop.source
	switch m.forwarding {
	case "gue":
		b.Forwarding, b.Port = bpf.ForwardGUE, bpf.BigEndian(guePort)
	case "l2":
		b.Forwarding = bpf.ForwardL2
	case "nat":
		b.Forwarding, b.Port = bpf.ForwardNAT, bpf.BigEndian(m.id.addr.Port())
	default:
		b.Forwarding = bpf.ForwardIPIP
	}
	if addr.Is4() {
		put4(&b.Addr, addr)
	} else {
		b.Addr = addr.As16()
		b.Flags |= bpf.BackendIPv6
	}
	if m.forwarding != "nat" && m.forwarding != "l2" {
		prefix := sources.v6
		if addr.Is4() {
			prefix = sources.v4
		}
		if prefix.IsValid() {
			source = prefix.Addr()
			b.SourceBits = uint8(min(32, source.BitLen()-prefix.Bits()))
		}
	}
	if source.IsValid() {
		if addr.Is4() {
			put4(&b.Source, source)
		} else {
			b.Source = source.As16()
		}
	}
	b.Ifindex, b.DstMac, b.SrcMac, b.Mtu = m.hop.ifindex, m.hop.dst, m.hop.src, m.hop.mtu
	if m.hop.hasMAC {
		b.Flags |= bpf.BackendResolved
	}
	return b
}

func put4(into *[16]byte, a netip.Addr) {
	if a = a.Unmap(); a.Is4() {
		v := a.As4()
		copy(into[:], v[:])
	}
}
