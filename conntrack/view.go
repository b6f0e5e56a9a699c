package conntrack

import (
	"fmt"
	"slices"
	"time"
	"unsafe"
)

// View is the state of a Steering for a data plane that follows the rules in
// memory of its own (the XDP program's maps). What it holds is shared and must
// not be changed.
type View struct {
	// Arrays by index; one without Slots is not there. Array 0 is the root.
	Arrays []Array
	// Members by index, those that are gone included.
	Members []ViewMember
	// Only is the index of the table that is all there is, -1 if the root and
	// what is below it decide.
	Only  int
	Track Track
	Idle  time.Duration
}

// Array is a table (Leaf: the owners are backends) or classes (arrays).
type Array struct {
	ID   ID
	By   HashKind
	Leaf bool
	// Slots in the form that slot.go describes: the owner in the low half; in
	// the high half the former one, 0xffff if settled or 0xfffe if excepted.
	Slots          []uint32
	Open, Excepted int
}

// ViewMember is a backend in its present generation.
type ViewMember struct {
	Member
	Generation uint32
}

// Same reports whether the two are one version of one array: what Apply and
// sweeps leave alone, they share.
func (a Array) Same(b Array) bool {
	return len(a.Slots) == len(b.Slots) && unsafe.SliceData(a.Slots) == unsafe.SliceData(b.Slots) && a.ID == b.ID
}

// View returns the state in force; its zero value before the first Apply.
func (s *Steering) View() View {
	v := s.view.Load()
	if v == nil {
		return View{Only: -1}
	}
	out := View{Only: -1, Track: v.track, Idle: v.idle, Arrays: make([]Array, len(v.arrays)), Members: make([]ViewMember, len(v.members))}
	for i, a := range v.arrays {
		if a == nil {
			continue
		}
		out.Arrays[i] = Array{ID: a.id, By: a.by, Leaf: a.leaf, Slots: words(a.slots), Open: a.open, Excepted: a.excepted}
		if a == v.only {
			out.Only = i
		}
	}
	for i, m := range v.members {
		out.Members[i] = ViewMember{Member: m.Member, Generation: m.gen}
	}
	return out
}

func words(s []slot) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.SliceData(s)), len(s))
}

// Owner returns the backend or array that a slot of a View belongs to.
func Owner(word uint32) uint16 { return slot(word).owner() }

// Former returns the former owner of an open slot of a View; false if the slot is not open.
func Former(word uint32) (uint16, bool) { return slot(word).former(), slot(word).state() == open }

// Restore returns a Steering whose state is v, as a data plane that outlived its
// control plane holds it. The next Apply is a change from there: flows stay where
// v has them. Open slots count as opened at the time now, so they stay open
// longer than they had to. Members keep their generations. If v contradicts
// itself, Restore returns an error.
func Restore(v View, now time.Duration) (*Steering, error) {
	next := &view{track: v.Track, idle: v.Idle, arrays: make([]*array, len(v.Arrays))}
	for _, m := range v.Members {
		next.members = append(next.members, member{Member: m.Member, gen: m.Generation})
	}
	for i, from := range v.Arrays {
		if len(from.Slots) == 0 {
			continue
		}
		a := &array{id: from.ID, by: from.By, leaf: from.Leaf, slots: make([]slot, len(from.Slots))}
		for j, w := range from.Slots {
			a.slots[j] = slot(w)
			switch a.slots[j].state() {
			case open:
				if a.since == nil {
					a.since = make([]uint32, len(a.slots))
				}
				a.since[j] = uint32((now + time.Second - 1) / time.Second)
				a.open++
			case excepted:
				a.excepted++
			}
		}
		next.arrays[i] = a
	}
	if err := next.check(); err != nil {
		return nil, fmt.Errorf("conntrack: restore: %w", err)
	}
	s := &Steering{window: v.Idle, wanted: map[uint16]bool{}}
	for i, a := range next.arrays {
		s.wanted[uint16(i)] = a != nil
	}
	next.prune(nil)
	s.view.Store(next)
	return s, nil
}

// check reports what would make a walk through the arrays fail.
func (v *view) check() error {
	if len(v.arrays) == 0 || v.arrays[root] == nil || v.arrays[root].leaf || len(v.arrays[root].slots) != 1 {
		return fmt.Errorf("there is no root of one class")
	}
	if v.idle <= 0 {
		return fmt.Errorf("idle timeout %v is not positive", v.idle)
	}
	depth := make([]int, len(v.arrays)) // of what has been walked: its height
	var walk func(i uint16, level int) error
	walk = func(i uint16, level int) error {
		if int(i) >= len(v.arrays) || v.arrays[i] == nil {
			return fmt.Errorf("a class names array %d, which is not there", i)
		}
		if level > maxDepth+1 {
			return fmt.Errorf("classes lead through more than %d levels to array %d, or in a circle", maxDepth, i)
		}
		if depth[i] >= level {
			return nil
		}
		depth[i] = level
		a := v.arrays[i]
		if a.leaf {
			for _, s := range a.slots {
				if b := s.owner(); b != NoBackend && int(b) >= len(v.members) {
					return fmt.Errorf("a slot of array %d names backend %d of %d", i, b, len(v.members))
				}
			}
			return nil
		}
		for _, s := range a.slots {
			if err := walk(s.owner(), level+1); err != nil {
				return err
			}
			if s.state() == open {
				if err := walk(s.former(), level+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(root, 1); err != nil {
		return err
	}
	// What nothing leads to is dropped, so that prune need not know about it.
	for i := range v.arrays {
		if depth[i] == 0 {
			v.arrays[i] = nil
		}
	}
	v.arrays = v.arrays[:len(v.arrays)-trailingNil(v.arrays)]
	return nil
}

func trailingNil(arrays []*array) int {
	n := 0
	for _, a := range slices.Backward(arrays) {
		if a != nil {
			break
		}
		n++
	}
	return n
}

// Sweeping is a sweep under way, for a data plane that has the flows of many
// services in one place and reads them once for all. Nothing else sweeps the
// Steering meanwhile.
type Sweeping struct {
	s     *Steering
	v     *view
	now   time.Duration
	marks map[*array]map[int]bool
}

// BeginSweep closes the slots that have been open for long enough. The data
// plane then puts the View in force, and shows (See) all flows that it remembers
// from there on. End must follow.
func (s *Steering) BeginSweep(now time.Duration) *Sweeping {
	s.sweeping.Lock()
	return &Sweeping{s: s, v: s.closeOpen(now), now: now, marks: map[*array]map[int]bool{}}
}

// Needed reports whether there is anything that flows could tell: excepted slots.
func (w *Sweeping) Needed() bool { return w.v != nil && w.v.excepted() }

// See takes a remembered flow into account, and reports whether it is alive.
func (w *Sweeping) See(f Remembered) bool {
	if w.v == nil || !w.v.live(f.Backend, f.Generation, f.Last, w.now) {
		return false
	}
	w.v.mark(f, w.marks)
	return true
}

// End settles the excepted slots that no flow seen keeps so, if all flows were
// shown, and ends the sweep.
func (w *Sweeping) End(all bool) {
	if all && w.Needed() {
		w.s.settle(w.v, w.marks)
	}
	w.s.sweeping.Unlock()
}
