package maglev

import "math/bits"

// Envoy's loop asks every host in every round whether it takes a slot:
//
//	if round * weight < target { skip } else { target += heaviest; take }
//
// in float64. A schedule gives the same rounds without asking: a host whose
// weight is the heaviest takes one slot in every round, any other host's next
// round follows from its target.
//
// That the heaviest never skip a round, in spite of target being a rounded sum:
// after r rounds it is r*heaviest to within r*r*2^-53*heaviest, and there are no
// more rounds than slots, so with r <= MaxTableSize it is off by less than
// 0.003*heaviest.
type schedule struct {
	always  []uint64 // a bit a rank: the heaviest
	due     []uint64 // a ring of window rounds, a bit a rank in each
	far     []uint32 // ranks whose round is beyond the window
	words   int      // of a round's bits
	waiting []turn   // by rank
	ranks   []uint32 // of the rounds at hand
	round   uint32
}

// A turn is what Envoy's loop knows of a host. 32 bytes.
type turn struct {
	weight  float64
	inverse float64 // of weight
	target  float64
	round   uint32 // the first with round*weight >= target
}

// windowRounds is the number of rounds a schedule holds bits for: 8 bytes a host.
const windowRounds = 64

// enough is the number of ranks that are worth a call.
const enough = 256

// never is a round that does not come: a build has at most one for each slot.
const never = MaxTableSize + 1

func newSchedule(weights []float64, heaviest float64) *schedule {
	n := len(weights)
	words := (n + 63) / 64
	bitmaps := make([]uint64, words*(1+windowRounds))
	s := &schedule{
		always:  bitmaps[:words],
		due:     bitmaps[words:],
		words:   words,
		waiting: make([]turn, n),
		ranks:   make([]uint32, 0, n+enough),
		round:   1,
	}
	for rank, w := range weights {
		s.waiting[rank] = turn{weight: w, inverse: 1 / w}
		if w == heaviest {
			s.always[rank/64] |= 1 << (rank % 64)
		} else {
			// The target is 0, so everybody takes a slot in round 1.
			s.due[words+rank/64] |= 1 << (rank % 64)
		}
	}
	return s
}

// next returns the ranks that take a slot in the next rounds, in order: those of
// as many rounds as it takes for some hundred, as a call for each round would
// cost more than a round of few hosts. The slice is valid until the next call.
func (s *schedule) next(heaviest float64) []uint32 {

	s.ranks = s.ranks[:0]
	for len(s.ranks) < enough {
		if s.round%windowRounds == 0 {
			s.bringNear()
		}
		due := s.due[int(s.round%windowRounds)*s.words:][:s.words]
		for w, always := range s.always {
			turns := due[w]
			for set := always | turns; set != 0; set &= set - 1 {
				s.ranks = append(s.ranks, uint32(w*64+bits.TrailingZeros64(set)))
			}
			if turns == 0 {
				continue
			}
			due[w] = 0
			for ; turns != 0; turns &= turns - 1 {
				s.postpone(uint32(w*64+bits.TrailingZeros64(turns)), heaviest)
			}
		}
		s.round++
	}
	return s.ranks
}

// postpone puts a host that takes a slot now down for its next round.
func (s *schedule) postpone(rank uint32, heaviest float64) {
	t := &s.waiting[rank]
	t.target += heaviest
	t.round = firstRound(t.weight, t.inverse, t.target, s.round+1)
	switch {
	case t.round < s.round+windowRounds:
		s.due[int(t.round%windowRounds)*s.words+int(rank/64)] |= 1 << (rank % 64)
	case t.round < never:
		s.far = append(s.far, rank)
	}
}

// bringNear moves the hosts whose round has come within the window.
func (s *schedule) bringNear() {
	kept := s.far[:0]
	for _, rank := range s.far {
		if round := s.waiting[rank].round; round < s.round+windowRounds {
			s.due[int(round%windowRounds)*s.words+int(rank/64)] |= 1 << (rank % 64)
		} else {
			kept = append(kept, rank)
		}
	}
	s.far = kept
}

// firstRound returns the smallest round, but at least from, with
// round*weight >= target. The product is rounded, and grows with the round, so
// an estimate, as good as the weight's inverse, says where to look.
func firstRound(weight, inverse, target float64, from uint32) uint32 {
	estimate := target * inverse
	if !(estimate < never) {
		return never
	}
	round := uint32(estimate) + 1
	for round > from && float64(round-1)*weight >= target {
		round--
	}
	for float64(round)*weight < target {
		round++
	}
	return max(round, from)
}
