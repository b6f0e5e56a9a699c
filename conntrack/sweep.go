package conntrack

import (
	"iter"
	"time"
)

// Remembered is a flow as conntrack needs to know it for a sweep.
type Remembered struct {
	Hash, ClassHash uint64
	Last            time.Duration // when its last packet came
	Generation      uint32        // of the backend, when it was remembered
	Backend         Backend
}

// Sweep closes the slots that have been open for long enough and settles the
// excepted ones in which no live flow is remembered on another backend than
// the owner. Call it from time to time, every few seconds; late is always safe.
// flows yields every remembered flow, and is not asked for if nothing is
// excepted. Changes are not held up while it runs.
func (s *Steering) Sweep(now time.Duration, flows iter.Seq[Remembered]) {
	w := s.BeginSweep(now)
	if w.Needed() {
		for f := range flows {
			w.See(f)
		}
	}
	w.End(true)
}

func (v *view) excepted() bool {
	for _, a := range v.arrays {
		if a != nil && a.excepted > 0 {
			return true
		}
	}
	return false
}

// closeOpen makes excepted what has been open for longer than the window, and
// returns the view that is in force then. Nothing that is remembered under an
// older one is still on its way.
func (s *Steering) closeOpen(now time.Duration) *view {
	s.control.Lock()
	defer s.control.Unlock()
	return s.update(func(_ int, a *array) *array {
		if a.open == 0 {
			return a
		}
		next := a
		for i, was := range a.slots {
			if was.state() != open || now-time.Duration(a.since[i])*time.Second <= s.window {
				continue
			}
			if next == a {
				next = a.copy()
			}
			next.slots[i] = exceptedSlot(was.owner())
			next.count(was, next.slots[i])
		}
		if next.open == 0 {
			next.since = nil
		}
		return next
	})
}

// mark notes, by array, the slots that lie on the way of a live flow to an owner
// that it is not with.
func (v *view) mark(f Remembered, marks map[*array]map[int]bool) {
	if owner, _ := v.follow(f.Hash, f.ClassHash); owner == f.Backend {
		return
	}
	for a := v.arrays[root]; ; {
		i := a.index(f.Hash, f.ClassHash)
		if a.slots[i].state() == excepted {
			if marks[a] == nil {
				marks[a] = map[int]bool{}
			}
			marks[a][i] = true
		}
		if a.leaf {
			return
		}
		a = v.arrays[a.slots[i].owner()]
	}
}

// settle settles the excepted slots of v that are not marked. Arrays that have
// changed since v wait for the next sweep. In those that have not, an excepted
// slot gained no flow that differs meanwhile, unless another slot on the flow's
// way is open, and that one still makes it look itself up.
func (s *Steering) settle(v *view, differs map[*array]map[int]bool) {
	s.control.Lock()
	defer s.control.Unlock()
	s.update(func(i int, a *array) *array {
		if i >= len(v.arrays) || v.arrays[i] != a || a.excepted == len(differs[a]) {
			return a
		}
		next := a.copy()
		for i, was := range a.slots {
			if was.state() == excepted && !differs[a][i] {
				next.slots[i] = settledSlot(was.owner())
				next.count(was, next.slots[i])
			}
		}
		return next
	})
}

// update puts the view in force that results from change on each array, which
// returns its argument if there is nothing to do, and returns it. It returns
// nil before the first Apply.
func (s *Steering) update(change func(i int, a *array) *array) *view {
	old := s.view.Load()
	if old == nil {
		return nil
	}
	next := *old
	next.arrays = make([]*array, len(old.arrays))
	changed := false
	for i, a := range old.arrays {
		if a != nil {
			next.arrays[i] = change(i, a)
			changed = changed || next.arrays[i] != a
		}
	}
	if !changed {
		return old
	}
	next.prune(s.wanted)
	s.publish(&next)
	return &next
}
