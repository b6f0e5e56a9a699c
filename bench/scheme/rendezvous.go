package scheme

import (
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// rendezvous is highest random weight hashing (Thaler and Ravishankar, 1998):
// every backend has a score for the key, the highest wins. With weights the score
// is -w / ln u for the uniform number u of key and backend (Schindelhauer and
// Schomaker, 2005).
type rendezvous struct{ plain bool }

func (s rendezvous) Spec() string {
	if s.plain {
		return "rendezvous:weights=off"
	}
	return "rendezvous"
}

func (s rendezvous) Kind() string   { return "rendezvous" }
func (s rendezvous) Weighted() bool { return !s.plain }

func (s rendezvous) Place(backends []Backend, _ Placement) (Placement, error) {
	if err := check(backends); err != nil {
		return nil, err
	}
	p := &rendezvousPlacement{seeds: make([]uint64, len(backends)), order: make([]int32, len(backends))}
	byName := names(backends)
	for i := range backends {
		p.seeds[i], p.order[i] = xxhash.Sum64String(byName[i]), int32(i)
	}
	if !s.plain && !equalWeights(backends) {
		p.weights = make([]float64, len(backends))
		for i, b := range backends {
			p.weights[i] = float64(b.Weight)
		}
	}
	// Equal scores go by name. The seeds are walked in that order, so the first of
	// them is kept.
	slices.SortFunc(p.order, func(a, b int32) int {
		if byName[a] < byName[b] {
			return -1
		}
		return 1
	})
	seeds, weights := make([]uint64, len(backends)), make([]float64, len(p.weights))
	for at, i := range p.order {
		seeds[at] = p.seeds[i]
		if p.weights != nil {
			weights[at] = p.weights[i]
		}
	}
	p.seeds = seeds
	if p.weights != nil {
		p.weights = weights
	}
	return p, nil
}

// rendezvousPlacement has the backends in the order of their names. It takes 12
// bytes a backend, 20 with weights.
type rendezvousPlacement struct {
	seeds   []uint64
	weights []float64 // nil if they make no difference
	order   []int32   // the index of each in the list of backends
}

func (p *rendezvousPlacement) Bytes() int { return 12*len(p.seeds) + 8*len(p.weights) }

// score is what one backend bids for a key. It is a number from 0 on that only
// compares.
func (p *rendezvousPlacement) score(at int, hash uint64) float64 {
	u := (float64(mix64(hash^p.seeds[at])>>11) + 0.5) / (1 << 53)
	return -p.weights[at] / math.Log(u)
}

func (p *rendezvousPlacement) Pick(keys []Key, owners []int32) {
	for i := range keys {
		hash, winner := hashOf(&keys[i]), 0
		if p.weights == nil {
			best := mix64(hash ^ p.seeds[0])
			for at := 1; at < len(p.seeds); at++ {
				if s := mix64(hash ^ p.seeds[at]); s > best {
					best, winner = s, at
				}
			}
		} else {
			best := p.score(0, hash)
			for at := 1; at < len(p.seeds); at++ {
				if s := p.score(at, hash); s > best {
					best, winner = s, at
				}
			}
		}
		owners[i] = p.order[winner]
	}
}

// Top takes the k highest scores.
func (p *rendezvousPlacement) Top(dst []int32, key *Key, k int) []int32 {
	hash, from := hashOf(key), len(dst)
	k = min(k, len(p.seeds))
	for len(dst)-from < k {
		winner, best := -1, 0.0
		var bestInt uint64
		for at := range p.seeds {
			if slices.Contains(dst[from:], p.order[at]) {
				continue
			}
			if p.weights == nil {
				if s := mix64(hash ^ p.seeds[at]); winner < 0 || s > bestInt {
					bestInt, winner = s, at
				}
			} else if s := p.score(at, hash); winner < 0 || s > best {
				best, winner = s, at
			}
		}
		dst = append(dst, p.order[winner])
	}
	return dst
}
