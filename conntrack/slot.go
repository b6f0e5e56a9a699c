package conntrack

// Backend is the index of a backend in Desired.Members. Tables are slices of
// it. Indices from 0xfffe on are not backends.
type Backend = uint16

// NoBackend is the owner of a slot that nobody serves.
const NoBackend Backend = 0xffff

// Indices of backends and of arrays lie below this.
const maxIndex = 0xfffe

// SlotState is one of the three states of a slot or class.
type SlotState uint8

// The states of a slot or class.
const (
	// Settled: every flow in it belongs to the owner. No flow is looked up.
	Settled SlotState = 1 << iota
	// Excepted: a remembered flow goes where it is remembered, any other belongs
	// to the owner. Nothing new is remembered.
	Excepted
	// Open: the owner has changed. What is not remembered and did not begin just
	// now began under the former owner. Every flow heard of is remembered.
	Open
)

// Slot is the state of a slot of a table, or of a class, in 4 bytes, so that
// one load gives all of it: the owner in the low half (a backend's index; for a
// class the index of an array), in the high half the former owner if the slot
// is open, otherwise 0xffff for a settled and 0xfffe for an excepted one. An
// array of them is what the XDP program's map holds.
type Slot uint32

const (
	settledMark  = 0xffff
	exceptedMark = 0xfffe
)

func settledSlot(owner uint16) Slot        { return settledMark<<16 | Slot(owner) }
func exceptedSlot(owner uint16) Slot       { return exceptedMark<<16 | Slot(owner) }
func openSlot(owner, former uint16) Slot   { return Slot(former)<<16 | Slot(owner) }
func (s Slot) withOwner(owner uint16) Slot { return s&^0xffff | Slot(owner) }

// Owner returns who gets the new flows: a backend, or NoBackend.
func (s Slot) Owner() uint16 { return uint16(s) }

// Former returns who keeps the flows from before the change. It means
// something in an open slot only.
func (s Slot) Former() uint16 { return uint16(s >> 16) }

// State returns the state of the slot.
func (s Slot) State() SlotState {
	switch s >> 16 {
	case settledMark:
		return Settled
	case exceptedMark:
		return Excepted
	}
	return Open
}

// before returns who has the flows that are not remembered and are not new.
func (s Slot) before() uint16 {
	if s.State() == Open {
		return s.Former()
	}
	return s.Owner()
}

// reassign returns what the slot becomes when its owner is to be owner. keeps
// tells whether one that had the slot until now may keep the flows it has.
func (s Slot) reassign(owner uint16, keeps func(uint16) bool) Slot {
	if owner != s.Owner() {
		switch {
		case s.State() == Open:
			// The former stays, and so does the clock: what began since the slot
			// opened is remembered.
			s = s.withOwner(owner)
		case s.Owner() != NoBackend && keeps(s.Owner()):
			s = openSlot(owner, s.Owner())
		default:
			s = s.withOwner(owner) // the flows of the old owner have nowhere to stay
		}
	}
	if s.State() == Open && (s.Former() == s.Owner() || !keeps(s.Former())) {
		// What is not remembered is the owner's from here on, for good: a former
		// that comes back finds its flows settled elsewhere.
		s = exceptedSlot(s.Owner())
	}
	return s
}
