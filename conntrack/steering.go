package conntrack

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Steering is the state of one service: its tables and classes, each slot with
// its former owner, and the generations of its backends. It holds no flows;
// Tracker adds them for data planes in Go, a BPF program has its own.
//
// Its methods may be called from several goroutines. Readers see either all of
// a change or nothing of it.
type Steering struct {
	view atomic.Pointer[view]
	// gate makes a change wait for the decisions that look at flows and may
	// remember one, and those wait for the change.
	gate sync.RWMutex

	sweeping sync.Mutex // held for a whole sweep
	control  sync.Mutex // held for each change, and for what follows
	window   time.Duration
	wanted   map[uint16]bool // the arrays that the last Apply named, by index
}

// view is one state of a service, immutable once published.
type view struct {
	// arrays by index; nil where one was dropped. 0 is the root: one class, all
	// hashes, so that a change of what stands at the top (the size of the only
	// table, priorities where there were none) is a change of a class.
	arrays  []*array
	members []member
	// only is the table of a service that has no classes and none in
	// transition, else nil.
	only  *array
	track Track
	idle  time.Duration
}

// array is a table (a leaf: its slots' owners are backends) or classes (their
// owners are indices of arrays).
type array struct {
	id    ID
	by    HashKind
	leaf  bool
	slots []slot
	// since is when each open slot opened, in whole seconds, rounded up; nil in
	// an array where none is open. Under Steering.control; versions of an array
	// share it.
	since          []uint32
	open, excepted int
}

// member is a backend in its present generation. Those that an index had
// before, or that this one had before it could not serve, are void.
type member struct {
	Member
	gen uint32
}

const root = 0

func (a *array) at(hash, classHash uint64) slot { return a.slots[a.index(hash, classHash)] }

func (a *array) index(hash, classHash uint64) int {
	if a.by == ByClassHash {
		hash = classHash
	}
	return int(hash % uint64(len(a.slots)))
}

// follow returns the owner of the hashes and the states on the way to it, or-ed
// together.
func (v *view) follow(hash, classHash uint64) (Backend, slotState) {
	if v.only != nil {
		s := v.only.slots[hash%uint64(len(v.only.slots))]
		return s.owner(), s.state()
	}
	var states slotState
	for a := v.arrays[root]; ; {
		s := a.at(hash, classHash)
		states |= s.state()
		if a.leaf {
			return s.owner(), states
		}
		a = v.arrays[s.owner()]
	}
}

// before returns who has a flow of the hashes that is not remembered and did
// not begin just now: the way through the former owners. Where nobody is left
// there, it is the owner's.
func (v *view) before(hash, classHash uint64, owner Backend) Backend {
	for a := v.arrays[root]; ; {
		i := a.at(hash, classHash).before()
		if a.leaf {
			if v.serves(i) {
				return i
			}
			return owner
		}
		a = v.arrays[i]
	}
}

func (v *view) serves(b Backend) bool {
	return int(b) < len(v.members) && v.members[b].Serves
}

// live reports whether a remembered flow still holds at the time now. A
// generation lives while its backend serves, so that one comparison tells both.
func (v *view) live(b Backend, gen uint32, last, now time.Duration) bool {
	return int(b) < len(v.members) && v.members[b].gen == gen && now-last <= v.idle
}

// Change says what an Apply did.
type Change struct {
	// Moved slots and classes have another owner than before.
	Moved int
	// Opened ones, among them, keep their flows on the former owner.
	Opened int
}

// Apply makes the service what d says. When it returns, no packet goes to a
// backend that cannot serve, but for those whose table lookup had already
// happened. If d contradicts itself, it returns an error and nothing has
// changed. Applying what is in force already does nothing.
func (s *Steering) Apply(d Desired, now time.Duration) (Change, error) {
	if err := d.check(); err != nil {
		return Change{}, fmt.Errorf("conntrack: %w", err)
	}
	s.control.Lock()
	defer s.control.Unlock()
	old := s.view.Load()
	if old == nil {
		old = &view{arrays: []*array{nil}, track: d.Track}
	}
	next := &view{arrays: slices.Clone(old.arrays), track: d.Track, idle: d.Idle}
	next.members = enroll(old.members, d.Members, d.Track == TrackOff && old.track != TrackOff)

	// Until now and still there, under this index and without a break.
	keeps := make([]bool, len(next.members))
	for i := range old.members {
		keeps[i] = old.members[i].Serves && old.members[i].gen == next.members[i].gen
	}
	keepsBackend := func(b uint16) bool { return int(b) < len(keeps) && keeps[b] }
	keepsArray := func(uint16) bool { return true } // it may hold any backend; its slots tell

	p := next.place(d)
	var change Change
	for i, a := range next.arrays {
		if a == nil {
			continue
		}
		keeps := keepsArray
		if a.leaf {
			keeps = keepsBackend
		}
		to, wanted := p.owners[uint16(i)]
		if !wanted {
			// Nobody gets here but on the way through former owners.
			to = a.slots
		}
		next.arrays[i] = a.reassign(to, keeps, d.Track == TrackOff, now, &change)
	}
	for i, a := range p.created {
		next.arrays[i] = a
	}
	s.window, s.wanted = d.window(), map[uint16]bool{}
	for i := range p.owners {
		s.wanted[i] = true
	}
	next.prune(s.wanted)
	if !next.equal(old) {
		s.publish(next)
	}
	return change, nil
}

// enroll returns the members of the next view: the wanted ones, and the indices
// beyond them, which serve no more. A generation ends with the ability to serve,
// with the backend's place taken by another, or, for all of them, with endAll.
func enroll(old []member, want []Member, endAll bool) []member {
	next := make([]member, max(len(old), len(want)))
	copy(next, old)
	for i := range next {
		m := Member{Addr: next[i].Addr}
		if i < len(want) {
			m = want[i]
		}
		if i < len(old) && (old[i].Serves && !m.Serves || old[i].Addr != m.Addr || endAll) {
			next[i].gen++
		}
		next[i].Member = m
	}
	return next
}

// placement says where the wanted tables and classes stand among the arrays.
type placement struct {
	owners  map[uint16][]slot // of each wanted array, by index; only their owners count
	created map[uint16]*array
}

// place finds the arrays that d names, in v, and makes those that are not
// there. One of the same ID and another shape is another array: where its
// hashes land has nothing to do with where they did.
func (v *view) place(d Desired) placement {
	p := placement{owners: map[uint16][]slot{}, created: map[uint16]*array{}}
	index := map[ID]uint16{}
	put := func(want array) uint16 {
		i := slices.IndexFunc(v.arrays[1:], func(a *array) bool {
			return a != nil && a.id == want.id && a.leaf == want.leaf && a.by == want.by && len(a.slots) == len(want.slots)
		}) + 1
		if i > 0 {
			return uint16(i)
		}
		for i = 1; i < len(v.arrays); i++ {
			if _, taken := p.created[uint16(i)]; v.arrays[i] == nil && !taken {
				break
			}
		}
		if i == len(v.arrays) {
			v.arrays = append(v.arrays, nil)
		}
		p.created[uint16(i)] = &want
		return uint16(i)
	}
	allSettled := func(n int, owner func(int) uint16) []slot {
		slots := make([]slot, n)
		for i := range slots {
			slots[i] = settledSlot(owner(i))
		}
		return slots
	}
	for _, t := range d.Tables {
		slots := allSettled(len(t.Slots), func(i int) uint16 { return t.Slots[i] })
		i := put(array{id: t.ID, leaf: true, slots: slots})
		index[t.ID], p.owners[i] = i, slots
	}
	// Classes may name classes that come after them: first their places.
	for _, c := range d.Classes {
		index[c.ID] = put(array{id: c.ID, by: c.By, slots: make([]slot, len(c.To))})
	}
	for _, c := range d.Classes {
		slots := allSettled(len(c.To), func(i int) uint16 { return index[c.To[i]] })
		p.owners[index[c.ID]] = slots
		if a := p.created[index[c.ID]]; a != nil {
			a.slots = slots
		}
	}
	top := []slot{settledSlot(index[d.Top])}
	p.owners[root] = top
	if v.arrays[root] == nil {
		p.created[root] = &array{slots: top}
	}
	return p
}

// reassign returns the array with the owners of to, or a itself if that changes
// nothing.
func (a *array) reassign(to []slot, keeps func(uint16) bool, off bool, now time.Duration, change *Change) *array {
	next := a
	for i, was := range a.slots {
		is := was.reassign(to[i].owner(), keeps)
		if off {
			is = settledSlot(to[i].owner())
		}
		if is == was {
			continue
		}
		if next == a {
			next = a.copy()
		}
		next.slots[i] = is
		next.count(was, is)
		if is.owner() != was.owner() {
			change.Moved++
			if is.state() == open {
				change.Opened++
			}
		}
		if is.state() == open && was.state() != open {
			if next.since == nil {
				next.since = make([]uint32, len(a.slots))
			}
			next.since[i] = uint32((now + time.Second - 1) / time.Second)
		}
	}
	if next.open == 0 {
		next.since = nil
	}
	return next
}

// copy returns a version of the array whose slots may be changed.
func (a *array) copy() *array {
	c := *a
	c.slots = slices.Clone(a.slots)
	return &c
}

func (a *array) count(was, is slot) {
	for _, x := range []struct {
		s slot
		n int
	}{{was, -1}, {is, 1}} {
		switch x.s.state() {
		case open:
			a.open += x.n
		case excepted:
			a.excepted += x.n
		}
	}
}

// prune drops the arrays that nothing leads to, neither now nor through former
// owners, from the root or one that is wanted, and finds out whether one table
// is all there is.
func (v *view) prune(wanted map[uint16]bool) {
	reached := make([]bool, len(v.arrays))
	var mark func(i uint16)
	mark = func(i uint16) {
		if reached[i] {
			return
		}
		reached[i] = true
		if a := v.arrays[i]; !a.leaf {
			for _, s := range a.slots {
				mark(s.owner())
				if s.state() == open {
					mark(s.former())
				}
			}
		}
	}
	mark(root)
	for i := range wanted {
		mark(i)
	}
	for i := range v.arrays {
		if !reached[i] {
			v.arrays[i] = nil
		}
	}
	v.only = nil
	if top := v.arrays[root].slots[0]; top.state() == settled && v.arrays[top.owner()].leaf {
		v.only = v.arrays[top.owner()]
	}
}

// equal reports whether no packet can tell the views apart. Arrays are compared
// by identity: unchanged ones are shared.
func (v *view) equal(o *view) bool {
	return v.track == o.track && v.idle == o.idle &&
		slices.Equal(v.members, o.members) && slices.Equal(v.arrays, o.arrays)
}

// publish puts the view in force and returns when no decision that remembers
// flows is under way in an older one.
func (s *Steering) publish(v *view) {
	s.gate.Lock()
	s.view.Store(v)
	s.gate.Unlock()
}
