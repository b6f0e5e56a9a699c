package conntrack

// Backend is the index of a backend in Desired.Members. Tables are slices of
// it. Indices from 0xfffe on are not backends.
type Backend = uint16

// NoBackend is the owner of a slot that nobody serves.
const NoBackend Backend = 0xffff

// Indices of backends and of arrays lie below this.
const maxIndex = 0xfffe

// slotState is one of the three states of a slot or class.
type slotState uint8

// The states of a slot or class.
const (
	// settled: every flow in it belongs to the owner. No flow is looked up.
	settled slotState = 1 << iota
	// excepted: a remembered flow goes where it is remembered, any other belongs
	// to the owner. Nothing new is remembered.
	excepted
	// open: the owner has changed. What is not remembered and did not begin just
	// now began under the former owner. Every flow heard of is remembered.
	open
)

// slot is the state of a slot of a table, or of a class, in 4 bytes, so that
// one load gives all of it: the owner in the low half (a backend's index; for a
// class the index of an array), in the high half the former owner if the slot
// is open, otherwise 0xffff for a settled and 0xfffe for an excepted one. An
// array of them is what the XDP program's map holds.
type slot uint32

const (
	settledMark  = 0xffff
	exceptedMark = 0xfffe
)

func settledSlot(owner uint16) slot        { return settledMark<<16 | slot(owner) }
func exceptedSlot(owner uint16) slot       { return exceptedMark<<16 | slot(owner) }
func openSlot(owner, former uint16) slot   { return slot(former)<<16 | slot(owner) }
func (s slot) withOwner(owner uint16) slot { return s&^0xffff | slot(owner) }

// owner returns who gets the new flows: a backend, or NoBackend.
func (s slot) owner() uint16 { return uint16(s) }

// former returns who keeps the flows from before the change. It means
// something in an open slot only.
func (s slot) former() uint16 { return uint16(s >> 16) }

// state returns the state of the slot.
func (s slot) state() slotState {
	switch s >> 16 {
	case settledMark:
		return settled
	case exceptedMark:
		return excepted
	}
	return open
}

// before returns who has the flows that are not remembered and are not new.
func (s slot) before() uint16 {
	if s.state() == open {
		return s.former()
	}
	return s.owner()
}

// reassign returns what the slot becomes when its owner is to be owner. keeps
// tells whether one that had the slot until now may keep the flows it has.
func (s slot) reassign(owner uint16, keeps func(uint16) bool) slot {
	if owner != s.owner() {
		switch {
		case s.state() == open:
			// The former stays, and so does the clock: what began since the slot
			// opened is remembered.
			s = s.withOwner(owner)
		case s.owner() != NoBackend && keeps(s.owner()):
			s = openSlot(owner, s.owner())
		default:
			s = s.withOwner(owner) // the flows of the old owner have nowhere to stay
		}
	}
	if s.state() == open && (s.former() == s.owner() || !keeps(s.former())) {
		// What is not remembered is the owner's from here on, for good: a former
		// that comes back finds its flows settled elsewhere.
		s = exceptedSlot(s.owner())
	}
	return s
}
