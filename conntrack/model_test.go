package conntrack

import "time"

// bend is a rule that a model leaves out or gets wrong, to show that the
// histories notice.
type bend int

const (
	straight bend = iota
	secondChangeTakesNewFormer
	secondClassChangeTakesNewFormer
	exceptedDoesNotReopen
	deadFormerStays
	noGenerations
	deadEntriesHold
	voidEntryMeansOwner
	newFlowToFormer
	oldFlowToOwner
	newFlowForgotten
	oldFlowForgotten
	closesEarly
	openSettles
	exceptedSlotSettles
	exceptedClassSettles
	classShiftDoesNotOpen
	classIsNotLookedAt
	classFormerIgnoresItsSlot
	classDoesNotRemember
	touchDoesNotRefresh
	reopenKeepsClock
	bends // how many
)

var bendNames = map[bend]string{
	secondChangeTakesNewFormer:      "a second change of an open slot replaces its former",
	secondClassChangeTakesNewFormer: "a second change of an open class replaces its former",
	exceptedDoesNotReopen:           "a changed excepted slot does not open",
	deadFormerStays:                 "a former that cannot serve is kept",
	noGenerations:                   "remembered flows hold again when their backend returns",
	deadEntriesHold:                 "remembered flows hold though their backend cannot serve",
	voidEntryMeansOwner:             "a void entry sends to the owner instead of counting as none",
	newFlowToFormer:                 "a new flow goes to the former",
	oldFlowToOwner:                  "an unknown flow that is not new goes to the owner",
	newFlowForgotten:                "new flows of open slots are not remembered",
	oldFlowForgotten:                "old flows of open slots are not remembered",
	closesEarly:                     "open slots close before the idle timeout",
	openSettles:                     "open slots settle at once",
	exceptedSlotSettles:             "excepted slots settle though flows differ",
	exceptedClassSettles:            "excepted classes settle though flows differ",
	classShiftDoesNotOpen:           "a changed class does not open",
	classIsNotLookedAt:              "only the slot says whether to look up",
	classFormerIgnoresItsSlot:       "the way through a former class ignores that its slot is open",
	classDoesNotRemember:            "open classes do not remember",
	touchDoesNotRefresh:             "a packet does not keep a remembered flow alive",
	reopenKeepsClock:                "a slot that opens again keeps its old clock",
}

// modelSlot is a slot or class of the model. Nobody is -1.
type modelSlot struct {
	owner, former int
	state         slotState
	since         time.Duration
}

type modelFlow struct {
	backend, gen int
	last         time.Duration
	class, hash  uint64
}

// model is the rules in their shortest form, for services with at most one
// level of classes: maps, no bounds, no concern for time or space.
type model struct {
	bend    bend
	byClass bool
	idle    time.Duration
	window  time.Duration
	all     bool
	off     bool
	serves  func(int) bool
	gen     map[int]int
	tables  map[ID][]*modelSlot
	classes []*modelSlot // owners are IDs
	flows   map[int]*modelFlow
}

func newModel(b bend) *model {
	return &model{bend: b, gen: map[int]int{}, tables: map[ID][]*modelSlot{}, flows: map[int]*modelFlow{}}
}

func (m *model) is(b bend) bool { return m.bend == b }

// apply puts d in force. lost holds the backends that cannot serve any more, or
// not without a break.
func (m *model) apply(d Desired, lost map[int]bool, now time.Duration) error {
	m.idle, m.window, m.all, m.off = d.Idle, d.window(), d.Track == TrackAll, d.Track == TrackOff
	m.serves = func(b int) bool { return b >= 0 && b < len(d.Members) && d.Members[b].Serves }
	keeps := func(b int) bool { return m.serves(b) && !lost[b] }
	for b := range lost {
		m.gen[b]++
	}
	for _, t := range d.Tables {
		fresh := m.tables[t.ID] == nil
		for i, o := range t.Slots {
			owner := int(o)
			if o == NoBackend {
				owner = -1
			}
			if fresh {
				m.tables[t.ID] = append(m.tables[t.ID], &modelSlot{owner, -1, settled, now})
				continue
			}
			s := m.tables[t.ID][i]
			m.change(s, owner, keeps, now, m.is(secondChangeTakesNewFormer))
			if s.state == open && (!keeps(s.former) && !m.is(deadFormerStays) || s.former == s.owner) {
				s.former, s.state = -1, excepted
			}
		}
	}
	to := []ID{d.Top}
	for _, c := range d.Classes {
		if c.ID == d.Top {
			to, m.byClass = c.To, c.By == ByClassHash
		}
	}
	for i, id := range to {
		if i >= len(m.classes) {
			m.classes = append(m.classes, &modelSlot{int(id), -1, settled, now})
		}
		c := m.classes[i]
		if m.is(classShiftDoesNotOpen) {
			c.owner = int(id)
		}
		m.change(c, int(id), func(int) bool { return true }, now, m.is(secondClassChangeTakesNewFormer))
		if c.state == open && c.owner == c.former {
			c.former, c.state = -1, excepted
		}
	}
	if m.off {
		m.flows = map[int]*modelFlow{}
		for _, s := range append(m.allSlots(), m.classes...) {
			s.former, s.state = -1, settled
		}
	}
	return nil
}

func (m *model) allSlots() (slots []*modelSlot) {
	for _, t := range m.tables {
		slots = append(slots, t...)
	}
	return slots
}

func (m *model) change(s *modelSlot, owner int, keeps func(int) bool, now time.Duration, newFormer bool) {
	switch {
	case owner == s.owner:
	case s.state == open:
		if newFormer {
			s.former = s.owner
		}
		s.owner = owner
	case s.state == excepted && m.is(exceptedDoesNotReopen):
		s.owner = owner
	case s.owner >= 0 && keeps(s.owner):
		since := now
		if s.state == excepted && m.is(reopenKeepsClock) {
			since = s.since
		}
		*s = modelSlot{owner, s.owner, open, since}
	default:
		s.owner = owner
	}
}

func (m *model) live(id int, now time.Duration) *modelFlow {
	f := m.flows[id]
	if f == nil || now-f.last > m.idle || f.gen != m.gen[f.backend] && !m.is(noGenerations) && !m.is(deadEntriesHold) {
		return nil
	}
	return f
}

func (m *model) class(hash, classHash uint64) *modelSlot {
	if m.byClass {
		hash = classHash
	}
	return m.classes[hash%uint64(len(m.classes))]
}

func (m *model) slot(table int, hash uint64) *modelSlot {
	t := m.tables[ID(table)]
	return t[hash%uint64(len(t))]
}

func (m *model) sweep(now time.Duration) {
	window := m.window
	if m.is(closesEarly) {
		window /= 3
	}
	for _, s := range append(m.allSlots(), m.classes...) {
		if s.state == open && now-s.since > window {
			s.former, s.state = -1, excepted
			if m.is(openSettles) {
				s.state = settled
			}
		}
	}
	differs := map[*modelSlot]bool{}
	for id := range m.flows {
		f := m.live(id, now)
		if f == nil {
			delete(m.flows, id)
			continue
		}
		c := m.class(f.hash, f.class)
		if s := m.slot(c.owner, f.hash); s.owner != f.backend {
			differs[c], differs[s] = true, true
		}
	}
	for _, s := range m.allSlots() {
		if s.state == excepted && (!differs[s] || m.is(exceptedSlotSettles)) {
			s.state = settled
		}
	}
	for _, c := range m.classes {
		if c.state == excepted && (!differs[c] || m.is(exceptedClassSettles)) {
			c.state = settled
		}
	}
}

func (m *model) unsettled() int {
	n := len(m.flows)
	for _, s := range append(m.allSlots(), m.classes...) {
		if s.state != settled {
			n++
		}
	}
	return n
}

// packet returns the backend, -1 for none.
func (m *model) packet(id int, p Packet, now time.Duration) (int, error) {
	c := m.class(p.Hash, p.ClassHash)
	s := m.slot(c.owner, p.Hash)
	owner := s.owner
	if !m.all && s.state == settled && (c.state == settled || m.is(classIsNotLookedAt)) {
		return owner, nil
	}
	if f := m.live(id, now); f != nil && (m.serves(f.backend) || m.is(deadEntriesHold)) && !m.off {
		if !m.is(touchDoesNotRefresh) {
			f.last = now
		}
		return f.backend, nil
	}
	isOpen := s.state == open || c.state == open && !m.is(classDoesNotRemember)
	b := owner
	toFormer := !p.New && !m.is(oldFlowToOwner) || p.New && m.is(newFlowToFormer)
	if m.flows[id] != nil && m.is(voidEntryMeansOwner) {
		toFormer = false
	}
	if toFormer {
		if c.state == open {
			s = m.slot(c.former, p.Hash)
			if m.is(classFormerIgnoresItsSlot) {
				b = s.owner
			}
		}
		if b = s.owner; s.state == open && !(c.state == open && m.is(classFormerIgnoresItsSlot)) {
			b = s.former
		}
		if b < 0 || !m.serves(b) && !m.is(deadFormerStays) {
			b = owner
		}
	}
	forget := p.New && m.is(newFlowForgotten) || !p.New && m.is(oldFlowForgotten)
	if b >= 0 && (isOpen && !forget || m.all) {
		m.flows[id] = &modelFlow{b, m.gen[b], now, p.ClassHash, p.Hash}
	}
	return b, nil
}
