package controlplane

import (
	"slices"
	"sync"
	"time"

	"github.com/guideway/guideway/controlplane/plan"
	"github.com/guideway/guideway/dataplane"
)

const (
	// keptChanges is how many records of changes are kept.
	keptChanges = 100
	// mostPending bounds the changes that wait to be recorded; what comes after is told with the last.
	mostPending = 64
	// lookShare bounds the time for looking at every flow to one in so many, and quickLook is what it may
	// take ahead of an urgent change.
	lookShare = 20
	quickLook = 2 * time.Millisecond
	// lookCost is what it takes a flow, rather too much. (Measured time would be that of a busy machine.)
	lookCost = time.Microsecond
)

// changeLog records what each change did. To compare two tables takes about as long as to build one, so that
// is done beside the loop.
type changeLog struct {
	// Owned by the loop: when flows were looked at last, and about how long that took.
	looked time.Time
	cost   time.Duration

	mu         sync.Mutex
	list       []*plan.Change // oldest first
	disruption map[string]*Disruption
	pending    []applied
	working    bool
}

// applied is a change that waits to be recorded. before is nil where flows were not looked at.
type applied struct {
	older, newer  *dataplane.Snapshot
	before, after []dataplane.Flow
	at            time.Time
	took          time.Duration
}

// Disruption is what the last change of a cluster's tables moved, in slots over all priorities.
type Disruption struct {
	// Moved slots changed their owner; Minimum is what any table had to move.
	Moved, Minimum, Size uint32
}

// Changes returns the records of the last changes, newest first.
func (c *Control) Changes() []*plan.Change {
	c.changes.mu.Lock()
	defer c.changes.mu.Unlock()
	list := slices.Clone(c.changes.list)
	slices.Reverse(list)
	return list
}

// lastDisruption is what the last change of a cluster moved; nil if none did.
func (c *Control) lastDisruption(cluster string) *Disruption {
	c.changes.mu.Lock()
	defer c.changes.mu.Unlock()
	return c.changes.disruption[cluster]
}

// look lists the flows of the data plane, if it can.
func (k *changeLog) look(c *Control) []dataplane.Flow {
	flows := flowsOf(c.Dataplane)
	k.looked, k.cost = time.Now(), time.Duration(len(flows))*lookCost
	return flows
}

// flowsOf lists the flows of a data plane; nil if it does not know them.
func flowsOf(p dataplane.Dataplane) []dataplane.Flow {
	if l, ok := p.(dataplane.FlowLister); ok {
		if flows := l.LiveFlows(); flows != nil {
			return flows
		}
		return []dataplane.Flow{}
	}
	return nil
}

// before looks at the flows ahead of a change; nil if there is no time for it.
func (k *changeLog) before(c *Control, pressing bool) []dataplane.Flow {
	switch {
	case c.inForce == nil:
		return nil
	case pressing && k.cost > quickLook, time.Since(k.looked) < lookShare*k.cost:
		return nil
	}
	return k.look(c)
}

// same reports whether two snapshots hold the same clusters and listeners.
func same(a, b *dataplane.Snapshot) bool {
	if len(a.Clusters) != len(b.Clusters) || !slices.Equal(a.Listeners, b.Listeners) {
		return false
	}
	for name, c := range a.Clusters {
		if b.Clusters[name] != c {
			return false
		}
	}
	return true
}

// record notes a change that has come into force.
func (k *changeLog) record(c *Control, before []dataplane.Flow, s *dataplane.Snapshot, took time.Duration) {
	if same(c.inForce, s) {
		return
	}
	a := applied{older: c.inForce, newer: s, before: before, at: time.Now(), took: took}
	if before != nil {
		a.after = k.look(c)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.pending); n == mostPending {
		last := &k.pending[n-1]
		a.older, a.before, a.after = last.older, nil, nil
		*last = a
	} else {
		k.pending = append(k.pending, a)
	}
	if !k.working {
		k.working = true
		go k.work(c)
	}
}

// work records what is pending.
func (k *changeLog) work(c *Control) {
	for {
		k.mu.Lock()
		if len(k.pending) == 0 {
			k.working = false
			k.mu.Unlock()
			return
		}
		a := k.pending[0]
		k.pending = slices.Delete(k.pending, 0, 1)
		k.mu.Unlock()
		k.write(c, &a)
	}
}

func (k *changeLog) write(c *Control, a *applied) {
	change := plan.Compare(a.older, a.newer)
	if change.Empty() {
		return
	}
	if a.before != nil {
		change.Flows = plan.Observe(a.before, a.after, a.older, a.newer)
	}
	change.Time, change.Generation = a.at, a.newer.Generation
	change.Milliseconds = float64(a.took.Microseconds()) / 1000
	c.counters.changed(change)
	k.mu.Lock()
	if k.list = append(k.list, change); len(k.list) > keptChanges {
		k.list = slices.Delete(k.list, 0, len(k.list)-keptChanges)
	}
	if k.disruption == nil {
		k.disruption = map[string]*Disruption{}
	}
	for _, cluster := range change.Clusters {
		delete(k.disruption, cluster.Name)
		if len(cluster.Tables) == 0 {
			continue
		}
		d := &Disruption{}
		for _, t := range cluster.Tables {
			d.Moved += uint32(t.Moved)
			d.Minimum += uint32(t.Unavoidable)
			d.Size += uint32(t.Size)
		}
		k.disruption[cluster.Name] = d
	}
	k.mu.Unlock()
	attrs := []any{
		"generation", change.Generation, "clusters", len(change.Clusters), "listeners", len(change.Listeners),
		"slots_moved", change.Slots.Moved, "unavoidable", change.Slots.Unavoidable, "collateral", change.Slots.Collateral,
	}
	if f := change.Flows; f != nil {
		attrs = append(attrs, "flows", f.TCP+f.UDP, "remembered", f.Remembered, "broken", f.Broken)
	}
	if len(change.Clusters) == 1 {
		attrs = append([]any{"cluster", change.Clusters[0].Name}, attrs...)
	}
	c.Log.For("upstream").Info("a change is in force", attrs...)
}

func (k *counters) changed(c *plan.Change) {
	k.changes.Inc()
	k.slotsMoved.Add(c.Slots.Moved)
	k.slotsUnavoidable.Add(c.Slots.Unavoidable)
	k.slotsCollateral.Add(c.Slots.Collateral)
	if c.Flows != nil {
		k.flowsRemembered.Add(uint64(c.Flows.Remembered))
		k.flowsBroken.Add(uint64(c.Flows.Broken))
	}
}
