package xdp

import (
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/maglev"
)

// service is one listener: its backends by the indices that conntrack and the maps know them by, its state,
// and what the maps hold of it.
type service struct {
	name     string
	listener *dataplane.Listener
	steering *conntrack.Steering
	members  []*member // by index; nil where nobody is
	byID     map[identity]uint16
	last     conntrack.Desired // applied last
	inputs   inputs
	placed   placed
	rebuilt  map[*maglev.Table]rebuilt
	// capture is one packet in so many, 0 for none.
	capture uint32
	// failed is why the maps do not hold the service, nil if they do.
	failed   error
	draining bool
}

// inputs are what a service was built from: equal ones lead to an equal service.
type inputs struct {
	listener *dataplane.Listener
	clusters []*dataplane.Cluster
	hops     []uint64 // versions of the next hops of the members
}

func (a inputs) equal(b inputs) bool {
	return a.listener == b.listener && slices.Equal(a.clusters, b.clusters) && slices.Equal(a.hops, b.hops)
}

// member is a backend of a service.
type member struct {
	id         identity
	cluster    *dataplane.Cluster // nil until a snapshot names it
	host       *dataplane.Host
	forwarding string
	wanted     bool // the newest snapshot names it
	state      conntrack.State
	hop        hop
	blocked    error // why packets cannot be brought to it, whatever the next hop
	// idle counts the scans of all flows since it was wanted last that found none of it.
	idle int
	// counted is what its counters were when they were read last, total what they have grown by since this
	// agent has known it.
	counted, total bpf.BackendCounters
	countedAt      uint32 // the index in backends, and 1
	adopted        bool
}

func newService(name string) *service {
	return &service{name: name, steering: &conntrack.Steering{}, byID: map[identity]uint16{}, rebuilt: map[*maglev.Table]rebuilt{}}
}

// clusterHash names a cluster in 8 bytes.
func clusterHash(name string) uint64 { return xxhash.Sum64String(name) }

// enlist finds the indices of the hosts that a service has now, and gives those that are new one. Whoever is
// not among them lingers.
func (s *service) enlist(clusters []*dataplane.Cluster) map[*dataplane.Host]uint16 {
	for _, m := range s.members {
		if m != nil {
			m.wanted = false
		}
	}
	index := map[*dataplane.Host]uint16{}
	for _, c := range clusters {
		if c == nil {
			continue
		}
		seen := map[identity]uint8{}
		for _, h := range c.Hosts {
			id := identity{cluster: clusterHash(c.Name), addr: h.Address}
			n := seen[id]
			seen[id] = n + 1
			id.copy = n
			i, ok := s.byID[id]
			if !ok {
				if i, ok = s.freeIndex(); !ok {
					continue
				}
				s.byID[id] = i
				s.members[i] = &member{id: id}
			}
			m := s.members[i]
			m.cluster, m.host, m.wanted, m.idle = c, h, true, 0
			m.forwarding = forwardingOf(c, h)
			m.blocked = reachable(s.listener, c, h)
			index[h] = i
		}
	}
	return index
}

// freeIndex returns an index that nobody has, false if there is none.
func (s *service) freeIndex() (uint16, bool) {
	if i := slices.Index(s.members, nil); i >= 0 {
		return uint16(i), true
	}
	if len(s.members) >= int(conntrack.NoBackend)-1 {
		return 0, false
	}
	s.members = append(s.members, nil)
	return uint16(len(s.members) - 1), true
}

// stateOf sorts a member into the states of conntrack's rules.
func (m *member) stateOf(inTable bool) conntrack.State {
	if m.host == nil { // of a former agent, and not wanted since
		return conntrack.Removed
	}
	health := m.host.Health
	if !m.wanted {
		health = m.host.State.Health()
		if (health &^ (dataplane.EDSStatusDraining | dataplane.AdminDraining)).Failed() {
			return conntrack.RemovedFailing
		}
		return conntrack.Removed
	}
	failing := health &^ (dataplane.EDSStatusDraining | dataplane.AdminDraining)
	switch {
	case inTable && health.Failed():
		return conntrack.Panicking
	case failing&dataplane.FailedActiveHC != 0:
		return conntrack.FailedCheck
	case failing.Failed():
		return conntrack.FailedOther
	case health.Draining():
		return conntrack.Draining
	case health.Degraded():
		return conntrack.Degraded
	}
	return conntrack.In
}

func (m *member) serves(proto dataplane.Protocol) bool {
	policy := conntrack.Policy{}
	if m.cluster != nil {
		policy.CloseOnFailure = m.cluster.CloseOnHealthFailure
		policy.MoveDraining = m.cluster.UDPDraining == dataplane.MoveSessions
	}
	return conntrack.CanServe(conntrack.Proto(proto), m.state, policy)
}

// names tells which members the service's slots name, as owners or former ones.
func names(v conntrack.View) map[uint16]bool {
	named := map[uint16]bool{}
	for _, a := range v.Arrays {
		if !a.Leaf {
			continue
		}
		last := uint32(0xfffeffff)
		for _, w := range a.Slots {
			if w == last {
				continue
			}
			last = w
			named[conntrack.Owner(w)] = true
			if f, open := conntrack.Former(w); open {
				named[f] = true
			}
		}
	}
	return named
}

// release ends the members that are not wanted and that neither a slot nor a flow needs any more. It reports
// whether there were any.
func (s *service) release(now time.Duration) bool {
	var gone []int
	var named map[uint16]bool
	for i, m := range s.members {
		if m == nil || m.wanted || m.idle < 2 && m.serves(s.listener.Protocol) {
			continue
		}
		if named == nil {
			named = names(s.steering.View())
		}
		if !named[uint16(i)] {
			gone = append(gone, i)
		}
	}
	if len(gone) == 0 {
		return false
	}
	d := s.last
	d.Members = slices.Clone(d.Members)
	for _, i := range gone {
		d.Members[i] = conntrack.Member{}
	}
	if _, err := s.steering.Apply(d, now); err != nil {
		return false // it stays; the next Apply says what is wrong
	}
	s.last = d
	for _, i := range gone {
		delete(s.byID, s.members[i].id)
		s.members[i] = nil
	}
	return true
}
