package maglev

import (
	"math"
	"math/bits"
	"sync"
)

// A cursor is a host's place in its own sequence of slots, which visits every
// slot once in M steps. The position stands for Envoy's counter n, which it
// determines: position = (offset + n*skip) mod M. 8 bytes a host.
type cursor struct {
	position uint32 // the next slot of the sequence
	skip     uint32 // the step to the one after it, 1 to M-1
}

// newCursor is the start of the sequence of a key in a table of size slots.
func newCursor(key string, size uint32) cursor {
	return cursor{
		position: uint32(KeyHash(key) % uint64(size)),
		skip:     uint32(seededXXH64(key, 1)%uint64(size-1)) + 1,
	}
}

// A filler hands out the slots of a table. How many probes a host needs for a
// free slot grows with the table's fill, M/free on average. So it goes through
// four stages, which give the same slots, each at the least cost for its fill:
//
//   - while most are free, the first slot of the sequence mostly is one;
//   - then the answer is mostly among the next four, which are looked at
//     together, as a branch on any one of them would often be mispredicted;
//   - then most are taken, which the processor predicts, and four interleaved
//     walks keep one addition from waiting for the one before;
//   - the last few are solved for: slot s comes up in the sequence after
//     (s - position) / skip steps, modulo M, and the free slot of the fewest
//     steps is the one.
type filler[S uint16 | uint32] struct {
	size    uint32
	free    int    // slots not taken
	stages  [3]int // the numbers of free slots at which the later stages begin
	slots   []S
	owners  []S      // what to write into a slot, by rank
	cursors []cursor // by rank
	*scratch
}

func newFiller[S uint16 | uint32](slots []S, owners []S, cursors []cursor, scratch *scratch) *filler[S] {
	size := uint32(len(slots))
	scratch.clear(size)
	return &filler[S]{
		size: size,
		free: len(slots),
		// These only decide how long a build takes.
		stages:  [3]int{int(size) * 7 / 10, int(size) / 5, int(math.Sqrt(float64(size)))},
		slots:   slots,
		owners:  owners,
		cursors: cursors,
		scratch: scratch,
	}
}

// scratch is memory that builds use one after another.
type scratch struct {
	taken []uint64 // a bit a slot, M/8 bytes
	left  []uint32 // the free slots of the last stage
	units []uint64 // of the last stage, by rank; 0 is not computed yet
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) clear(size uint32) {
	words := int(size+63) / 64
	if cap(s.taken) < words {
		s.taken = make([]uint64, words)
	} else {
		s.taken = s.taken[:words]
		clear(s.taken)
	}
	s.left = s.left[:0]
}

// skipSecondStage is for a table most of whose slots go to one host: it mostly
// finds its next slot free, and its turns, one after another, would each wait
// for all four slots of the one before.
func (f *filler[S]) skipSecondStage() { f.stages[0] = f.stages[1] }

// take gives the hosts of these ranks one slot each, in this order, as long as
// there are free slots.
func (f *filler[S]) take(ranks []uint32) {
	for len(ranks) > 0 && f.free > 0 {
		n := len(ranks)
		switch {
		case f.free > f.stages[0]:
			n = min(n, f.free-f.stages[0])
			f.takeFirst(ranks[:n])
		case f.free > f.stages[1]:
			n = min(n, f.free-f.stages[1])
			f.takeOfFour(ranks[:n])
		case f.free > f.stages[2]:
			n = min(n, f.free-f.stages[2])
			f.takeByWalks(ranks[:n])
		default:
			n = min(n, f.free)
			f.takeSolved(ranks[:n])
		}
		f.free -= n
		ranks = ranks[n:]
	}
}

// advance is (p + skip) mod M without a division, and without a branch, which
// would be mispredicted every other time; back is M - skip.
func advance(p, back, size uint32) uint32 {
	next := p - back
	return next + size&uint32(int32(next)>>31)
}

// fourth is what advance needs, in place of back, to take four steps at once.
func fourth(skip, back, size uint32) uint32 {
	two := advance(skip, back, size)
	return size - advance(two, size-two, size)
}

func (f *filler[S]) takeFirst(ranks []uint32) {
	taken, slots, owners, cursors, size := f.taken, f.slots, f.owners, f.cursors, f.size
	for _, rank := range ranks {
		c := &cursors[rank]
		back := size - c.skip
		p := c.position
		for taken[p>>6]&(1<<(p&63)) != 0 {
			p = advance(p, back, size)
		}
		taken[p>>6] |= 1 << (p & 63)
		slots[p] = owners[rank]
		c.position = advance(p, back, size)
	}
}

func (f *filler[S]) takeOfFour(ranks []uint32) {
	taken, slots, owners, cursors, size := f.taken, f.slots, f.owners, f.cursors, f.size
	for _, rank := range ranks {
		c := &cursors[rank]
		back := size - c.skip
		far := fourth(c.skip, back, size)
		var p [4]uint32
		p[0] = c.position
		p[1] = advance(p[0], back, size)
		p[2] = advance(p[1], back, size)
		p[3] = advance(p[2], back, size)
		for {
			found := taken[p[0]>>6]>>(p[0]&63)&1 |
				taken[p[1]>>6]>>(p[1]&63)&1<<1 |
				taken[p[2]>>6]>>(p[2]&63)&1<<2 |
				taken[p[3]>>6]>>(p[3]&63)&1<<3
			if found != 1<<4-1 {
				p[0] = p[bits.TrailingZeros64(^found)&3]
				break
			}
			p[0] = advance(p[0], far, size)
			p[1] = advance(p[1], far, size)
			p[2] = advance(p[2], far, size)
			p[3] = advance(p[3], far, size)
		}
		taken[p[0]>>6] |= 1 << (p[0] & 63)
		slots[p[0]] = owners[rank]
		c.position = advance(p[0], back, size)
	}
}

func (f *filler[S]) takeByWalks(ranks []uint32) {
	taken, slots, owners, cursors, size := f.taken, f.slots, f.owners, f.cursors, f.size
	for _, rank := range ranks {
		c := &cursors[rank]
		back := size - c.skip
		p := c.position
		if taken[p>>6]&(1<<(p&63)) == 0 {
			// A host that owns most slots has its next one free.
			taken[p>>6] |= 1 << (p & 63)
			slots[p] = owners[rank]
			c.position = advance(p, back, size)
			continue
		}
		far := fourth(c.skip, back, size)
		p1 := advance(p, back, size)
		p2 := advance(p1, back, size)
		p3 := advance(p2, back, size)
		for {
			if taken[p>>6]&(1<<(p&63)) == 0 {
				break
			}
			p = advance(p, far, size)
			if taken[p1>>6]&(1<<(p1&63)) == 0 {
				p = p1
				break
			}
			p1 = advance(p1, far, size)
			if taken[p2>>6]&(1<<(p2&63)) == 0 {
				p = p2
				break
			}
			p2 = advance(p2, far, size)
			if taken[p3>>6]&(1<<(p3&63)) == 0 {
				p = p3
				break
			}
			p3 = advance(p3, far, size)
		}
		taken[p>>6] |= 1 << (p & 63)
		slots[p] = owners[rank]
		c.position = advance(p, back, size)
	}
}

// takeSolved finds the free slot that comes up first by arithmetic.
//
// With r = skip^-1 mod M, slot s comes up after (s - position)*r mod M steps.
// Only which slot has the fewest matters, so the steps are compared as
// fractions of M, in units of 2^-64: with f = floor(r * 2^64 / M), the product
// (s - position)*f modulo 2^64 is that fraction, off by less than |s - position|
// < 2^23 units, while two fractions differ by at least 2^64/M > 2^41 of them.
// That leaves the low bits free for the slot's index in the list.
func (f *filler[S]) takeSolved(ranks []uint32) {
	if len(f.left) == 0 {
		f.listFree()
	}
	left, cursors := f.left, f.cursors
	for _, rank := range ranks {
		c := &cursors[rank]
		unit := f.units[rank]
		if unit == 0 {
			unit = stepUnit(c.skip, f.size)
			f.units[rank] = unit
		}
		first := fewestSteps(left, unit, uint64(c.position)*unit)
		slot := left[first]
		left[first] = left[len(left)-1]
		left = left[:len(left)-1]
		f.slots[slot] = f.owners[rank]
		c.position = advance(slot, f.size-c.skip, f.size)
	}
	f.left = left
}

// indexBits holds an index into the list of free slots of the last stage,
// whose length is at most the square root of MaxTableSize.
const indexBits = 12

// fewestSteps returns the index of the slot that has the least s*unit - start.
func fewestSteps(left []uint32, unit, start uint64) int {
	const indexMask = 1<<indexBits - 1
	// Two minima, so that one comparison need not wait for the one before.
	even, odd := uint64(math.MaxUint64), uint64(math.MaxUint64)
	i := 0
	for ; i+1 < len(left); i += 2 {
		even = min(even, (uint64(left[i])*unit-start)&^indexMask|uint64(i))
		odd = min(odd, (uint64(left[i+1])*unit-start)&^indexMask|uint64(i+1))
	}
	if i < len(left) {
		even = min(even, (uint64(left[i])*unit-start)&^indexMask|uint64(i))
	}
	return int(min(even, odd) & indexMask)
}

// stepUnit is floor(skip^-1 * 2^64 / size), the inverse taken modulo size.
func stepUnit(skip, size uint32) uint64 {
	// Extended Euclid: a*inverse ≡ r and a*next ≡ s modulo size.
	r, s := int64(skip), int64(size)
	inverse, next := int64(1), int64(0)
	for s != 0 {
		q := r / s
		r, s = s, r-q*s
		inverse, next = next, inverse-q*next
	}
	if inverse < 0 {
		inverse += int64(size)
	}
	unit, _ := bits.Div64(uint64(inverse), 0, uint64(size))
	return unit
}

// listFree collects the free slots for the last stage.
func (f *filler[S]) listFree() {
	for w, taken := range f.taken {
		for free := ^taken; free != 0; free &= free - 1 {
			if slot := uint32(w*64 + bits.TrailingZeros64(free)); slot < f.size {
				f.left = append(f.left, slot)
			}
		}
	}
	if cap(f.units) < len(f.cursors) {
		f.units = make([]uint64, len(f.cursors))
	} else {
		f.units = f.units[:len(f.cursors)]
		clear(f.units)
	}
}
