package conntrack

import (
	"slices"
	"time"
)

// Image is a Steering as of one moment, for a data plane that keeps a copy of
// it, such as the maps of an XDP program. It is immutable, and cheap to take.
type Image struct{ v *view }

// Image returns the state in force, and false before the first Apply.
func (s *Steering) Image() (Image, bool) {
	v := s.view.Load()
	return Image{v}, v != nil
}

// Arrays returns a number that the indices of all arrays lie below.
func (i Image) Arrays() int { return len(i.v.arrays) }

// Array returns the array of slots or classes with an index, and false if
// there is none. Index 0 is the root, from which every hash sets out: one class.
func (i Image) Array(index int) (ArrayImage, bool) {
	a := i.v.arrays[index]
	return ArrayImage{a}, a != nil
}

// Only returns the index of the table that is all there is: the root is settled
// on it.
func (i Image) Only() (int, bool) {
	return slices.Index(i.v.arrays, i.v.only), i.v.only != nil
}

// Members returns the number of backends, those that serve no more included.
func (i Image) Members() int { return len(i.v.members) }

// Member returns a backend and its generation, which ends with the ability to
// serve or when another backend takes the index. A remembered flow of another
// generation is void.
func (i Image) Member(b Backend) (Member, uint32) {
	m := i.v.members[b]
	return m.Member, m.gen
}

// Track returns which flows are remembered.
func (i Image) Track() Track { return i.v.track }

// Idle returns the time without a packet after which a flow is over.
func (i Image) Idle() time.Duration { return i.v.idle }

// ArrayImage is an array of slots or of classes.
type ArrayImage struct{ a *array }

// Len returns the number of slots or classes; at least one.
func (a ArrayImage) Len() int { return len(a.a.slots) }

// Leaf reports whether owners are backends; otherwise they are indices of arrays.
func (a ArrayImage) Leaf() bool { return a.a.leaf }

// By returns which hash picks the slot or class.
func (a ArrayImage) By() HashKind { return a.a.by }

// Same reports whether both are the same array with the same slots, without
// looking at these: versions of an array that did not change share one.
func (a ArrayImage) Same(b ArrayImage) bool { return a.a == b.a }

// Copy copies the slots to dst, which must be as long: the owner in the low
// half, in the high half the former owner of an open slot, 0xffff for a settled
// and 0xfffe for an excepted one.
func (a ArrayImage) Copy(dst []uint32) {
	_ = dst[len(a.a.slots)-1]
	for i, s := range a.a.slots {
		dst[i] = uint32(s)
	}
}
