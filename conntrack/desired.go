package conntrack

import (
	"fmt"
	"math"
	"net/netip"
	"time"
)

// ID names a table or an array of classes of a service. It is the caller's
// choice; what keeps its ID is compared slot by slot when it changes.
type ID uint32

// Track says which flows of a service are remembered.
type Track uint8

// The ways to track.
const (
	// TrackChanged remembers the flows whose backend differs, or may differ,
	// from what the tables say now.
	TrackChanged Track = iota
	// TrackAll remembers every flow from its first packet.
	TrackAll
	// TrackOff remembers nothing: a packet follows the table as it is.
	TrackOff
)

// HashKind says which of a packet's two hashes picks a class.
type HashKind uint8

// The hashes of a packet.
const (
	// ByHash is Packet.Hash, which also picks the slot of a table.
	ByHash HashKind = iota
	// ByClassHash is Packet.ClassHash: the flow under a second seed, so that the
	// choice of a cluster does not bias the choice inside it.
	ByClassHash
)

// Desired is what a service ought to be from the next packet on: who is there,
// and how hashes lead to them. Apply copies what it keeps of it.
type Desired struct {
	// Members holds the backends, by index. An index whose Addr changes, or
	// that lies beyond the end, is one whose backend is gone for good.
	Members []Member
	// Tables and Classes form a tree (or share branches) below Top, at most
	// maxDepth levels deep. IDs are unique over both.
	Tables  []Table
	Classes []Classes
	Top     ID

	Track Track
	// Idle is the time without a packet after which a flow is over; required.
	// DefaultIdle has Envoy's defaults; NoIdle switches it off.
	Idle time.Duration
	// LearningWindow, if set and shorter than Idle, is how long a slot stays
	// open. A live flow that is silent for the whole of it may move.
	LearningWindow time.Duration
}

// Member is a backend as the flows see it.
type Member struct {
	Addr netip.AddrPort
	// Serves is CanServe of the backend now. Once it is lost, the flows that are
	// remembered on the backend are void, even if it returns.
	Serves bool
}

// Table maps slots to backends: hash h belongs to Slots[h mod len(Slots)].
type Table struct {
	ID ID
	// Slots holds NoBackend, or the index of a member that can serve.
	Slots []Backend
}

// Classes maps classes to tables or to further classes: hash h goes on in
// To[h mod len(To)]. Envoy's priorities are 100 of them by ByHash, a Maglev
// table of clusters' weights is one by ByClassHash.
type Classes struct {
	ID ID
	By HashKind
	To []ID
}

// NoIdle is an idle timeout that is never reached.
const NoIdle = time.Duration(math.MaxInt64)

// DefaultIdle returns Envoy's default idle timeout: 1 h for TCP (tcp_proxy),
// 60 s for UDP (udp_proxy).
func DefaultIdle(proto Proto) time.Duration {
	if proto == TCP {
		return time.Hour
	}
	return time.Minute
}

// window returns how long a slot stays open.
func (d *Desired) window() time.Duration {
	if d.LearningWindow > 0 && d.LearningWindow < d.Idle {
		return d.LearningWindow
	}
	return d.Idle
}

// Priorities in clusters by weight make three levels with the tables. The
// fourth is there for what comes; a data plane unrolls them.
const maxDepth = 4

// check returns an error that says what is wrong with d, if anything is. Only a
// control plane that contradicts itself meets one.
func (d *Desired) check() error {
	if d.Idle <= 0 {
		return fmt.Errorf("idle timeout %v is not positive: set conntrack.NoIdle to switch it off", d.Idle)
	}
	if len(d.Members) > maxIndex {
		return fmt.Errorf("%d backends, at most %d have an index", len(d.Members), maxIndex)
	}
	if n := len(d.Tables) + len(d.Classes); n >= maxIndex {
		return fmt.Errorf("%d tables and arrays of classes, at most %d have an index", n, maxIndex-1)
	}
	tables, classes := map[ID]bool{}, map[ID]*Classes{}
	for _, t := range d.Tables {
		if tables[t.ID] {
			return fmt.Errorf("two tables have the ID %d: give each its own", t.ID)
		}
		tables[t.ID] = true
		if len(t.Slots) == 0 {
			return fmt.Errorf("table %d has no slots: fill them with NoBackend if nobody serves it", t.ID)
		}
		for i, b := range t.Slots {
			if b != NoBackend && (int(b) >= len(d.Members) || !d.Members[b].Serves) {
				return fmt.Errorf("slot %d of table %d names backend %d, which cannot serve: leave it out of the table", i, t.ID, b)
			}
		}
	}
	for i, c := range d.Classes {
		if tables[c.ID] || classes[c.ID] != nil {
			return fmt.Errorf("classes %d have the ID of others: give each its own", c.ID)
		}
		classes[c.ID] = &d.Classes[i]
		if len(c.To) == 0 {
			return fmt.Errorf("classes %d are empty: there must be at least one", c.ID)
		}
	}
	// Depth by walking: short, since classes of classes are few and small. seen
	// keeps it from walking a shared branch again at the same depth.
	seen := map[[2]uint32]bool{}
	var walk func(id ID, depth uint32) error
	walk = func(id ID, depth uint32) error {
		if depth > maxDepth {
			return fmt.Errorf("classes lead through more than %d levels to %d, or in a circle", maxDepth, id)
		}
		at := [2]uint32{uint32(id), depth}
		if tables[id] || seen[at] {
			return nil
		}
		seen[at] = true
		c := classes[id]
		if c == nil {
			return fmt.Errorf("there is no table and there are no classes with the ID %d", id)
		}
		for _, to := range c.To {
			if err := walk(to, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	for _, c := range d.Classes {
		if err := walk(c.ID, 1); err != nil {
			return err
		}
	}
	return walk(d.Top, 1)
}
