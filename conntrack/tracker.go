package conntrack

import (
	"iter"
	"sync/atomic"
	"time"
)

// Tracker steers the packets of one service: its Steering, and the flows that
// are remembered. The rules are those that the XDP program follows, which is
// tested against it.
//
// When more flows need to be remembered than there is room for, the ones
// longest without a packet are forgotten and follow the tables; no packet is
// ever refused for it. Stats counts them.
type Tracker struct {
	Steering
	proto Proto
	flows *flowTable
	// Counters by a few bits of the hash, so that cores do not fight for them.
	counters [8]counters
}

type counters struct {
	packets, lookups atomic.Uint64
	_                [48]byte // a cache line each
}

// Packet is what the rules need to know of a packet from a client.
type Packet struct {
	Flow Flow
	// Hash picks the slot, and a class by ByHash: Envoy's hash, or Hash5Tuple.
	Hash uint64
	// ClassHash picks a class by ByClassHash.
	ClassHash uint64
	// New: it begins a flow. A TCP SYN without ACK; for a proxy, which knows its
	// sessions, a datagram that belongs to none. XDP cannot tell for UDP: false.
	New bool
}

// NewTracker returns the tracker of a service that has no backend yet. It
// remembers at most capacity flows and halfOpen TCP flows that have sent a SYN
// and nothing else, each of either address family (about 170 bytes a flow,
// taken as they come).
func NewTracker(proto Proto, capacity, halfOpen int) (*Tracker, error) {
	flows, err := newFlowTable(capacity, halfOpen)
	if err != nil {
		return nil, err
	}
	return &Tracker{proto: proto, flows: flows}, nil
}

// Packet returns the backend that the packet goes to, or NoBackend.
func (t *Tracker) Packet(p Packet, now time.Duration) Backend {
	n := &t.counters[p.Hash>>32%uint64(len(t.counters))]
	n.packets.Add(1)
	v := t.view.Load()
	if v == nil {
		return NoBackend
	}
	owner, states := v.follow(p.Hash, p.ClassHash)
	if v.track != TrackAll && states == settled {
		return owner
	}
	n.lookups.Add(1)
	return t.lookUp(p, now)
}

// lookUp decides where the owner alone does not.
func (t *Tracker) lookUp(p Packet, now time.Duration) Backend {
	t.gate.RLock()
	defer t.gate.RUnlock()
	v := t.view.Load() // it cannot be replaced from here on
	owner, states := v.follow(p.Hash, p.ClassHash)
	c := clock{v, now}
	syn := p.New && t.proto == TCP
	// An entry that is void counts as none. It says nothing of where the flow has
	// been since: the slot may have settled on another backend meanwhile, which
	// is the former now.
	if b, ok := t.flows.touch(p.Flow, syn, c); ok {
		return b
	}
	b := owner
	if !p.New {
		b = v.before(p.Hash, p.ClassHash, owner)
	}
	if b != NoBackend && (states&open != 0 || v.track == TrackAll) {
		t.flows.remember(p.Flow, Remembered{
			Hash: p.Hash, ClassHash: p.ClassHash,
			Last: now, Generation: v.members[b].gen, Backend: b,
		}, syn, c)
	}
	return b
}

// Sweep forgets the flows that are over, and closes and settles slots; see
// Steering.Sweep.
func (t *Tracker) Sweep(now time.Duration) {
	v := t.view.Load()
	if v == nil {
		return
	}
	t.flows.expire(clock{v, now})
	t.Steering.Sweep(now, func(yield func(Remembered) bool) {
		for _, r := range t.flows.all() {
			if !yield(r) {
				return
			}
		}
	})
}

// Flows yields the flows that are remembered, those that are over but not swept
// yet included.
func (t *Tracker) Flows() iter.Seq2[Flow, Remembered] { return t.flows.all() }

// Stats are counts of a Tracker.
type Stats struct {
	Packets uint64 // packets steered
	Lookups uint64 // of these, those that looked their flow up

	Remembered, HalfOpen int // flows now; half-open ones are not in Remembered
	// Live flows forgotten for want of room. To be alerted on.
	Overflow, HalfOpenOverflow uint64

	SlotCounts
}

// SlotCounts says how far a service is from being settled.
type SlotCounts struct {
	OpenSlots, ExceptedSlots     int // of tables
	OpenClasses, ExceptedClasses int // of all arrays of classes
}

// Stats returns the counts as they are now.
func (t *Tracker) Stats() Stats {
	s := Stats{SlotCounts: t.SlotCounts()}
	for i := range t.counters {
		s.Packets += t.counters[i].packets.Load()
		s.Lookups += t.counters[i].lookups.Load()
	}
	whole4, half4 := t.flows.v4.len()
	whole6, half6 := t.flows.v6.len()
	s.Remembered, s.HalfOpen = whole4+whole6, half4+half6
	s.Overflow = t.flows.v4.overflow.Load() + t.flows.v6.overflow.Load()
	s.HalfOpenOverflow = t.flows.v4.halfOver.Load() + t.flows.v6.halfOver.Load()
	return s
}

// SlotCounts returns how many slots and classes are not settled.
func (s *Steering) SlotCounts() SlotCounts {
	var n SlotCounts
	v := s.view.Load()
	if v == nil {
		return n
	}
	for _, a := range v.arrays {
		switch {
		case a == nil:
		case a.leaf:
			n.OpenSlots, n.ExceptedSlots = n.OpenSlots+a.open, n.ExceptedSlots+a.excepted
		default:
			n.OpenClasses, n.ExceptedClasses = n.OpenClasses+a.open, n.ExceptedClasses+a.excepted
		}
	}
	return n
}
