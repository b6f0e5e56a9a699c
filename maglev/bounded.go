package maglev

import (
	"fmt"
	"iter"
	"math"
	"sync"
)

// MinBalanceFactor is the smallest hash_balance_factor, in percent.
const MinBalanceFactor = 100

// BoundedLoad moves picks away from hosts that carry more than their share: a
// table or ring pick stands unless its host already has more active requests
// than hash_balance_factor percent of what its weight would give it.
//
// A BoundedLoad does not change, so any number of goroutines may use it.
type BoundedLoad struct {
	factor  uint32
	shares  []share   // in host-set order
	weights []float64 // by host; NaN without a share
}

// NewBoundedLoad returns the bound of a factor, in percent, for the hosts and
// localities a table or ring was built from. Their order counts, as for
// [BuildRing].
func NewBoundedLoad(factor uint32, hosts []Host, localities []Locality) (*BoundedLoad, error) {
	if factor < MinBalanceFactor {
		return nil, fmt.Errorf("hash balance factor %d is too small (the smallest is %d)", factor, MinBalanceFactor)
	}
	shares, err := normalise(hosts, localities)
	if err != nil {
		return nil, err
	}
	b := &BoundedLoad{factor: factor, shares: shares, weights: make([]float64, len(hosts))}
	for i := range b.weights {
		b.weights[i] = math.NaN()
	}
	for _, s := range shares {
		b.weights[s.host] = s.weight
	}
	return b, nil
}

// Pick returns the host to use instead of picked, which has the hash in the
// table or ring; usually that is picked itself. total is the number of active
// requests of the cluster, active that of a host, both without the one at hand.
//
// If picked is overloaded, the other hosts are tried in an order that depends
// on the hash only; if all are, it is the least overloaded. A picked of -1, or
// without a share, stands.
func (b *BoundedLoad) Pick(picked int, hash uint64, total uint32, active func(host int) uint32) int {
	if picked < 0 || math.IsNaN(b.weights[picked]) {
		return picked
	}
	least := b.overload(total, active(picked), b.weights[picked])
	if least <= 1 {
		return picked
	}
	best := picked
	for i := range probeOrder(hash, len(b.shares)) {
		s := b.shares[i]
		if int(s.host) == picked {
			continue
		}
		load := b.overload(total, active(int(s.host)), s.weight)
		if load <= 1 {
			return int(s.host)
		}
		if load < least {
			best, least = int(s.host), load
		}
	}
	return best
}

// overload is a host's active requests over what it may have. The first step is
// in uint32, and wraps, as in Envoy.
func (b *BoundedLoad) overload(total, active uint32, weight float64) float64 {
	slots := ((total+1)*b.factor + 99) / 100
	bound := max(uint32(math.Ceil(float64(slots)*weight)), 1)
	return float64(active) / float64(bound)
}

// A shuffle is what it takes to go through hosts in the order of a hash.
type shuffle struct {
	random    mersenneTwister
	positions []uint32
}

var shuffles = sync.Pool{New: func() any { return new(shuffle) }}

// probeOrder yields 0 to n-1 in an order that depends on the low 32 bits of the
// hash: a Fisher-Yates shuffle, done as far as it is asked for.
func probeOrder(hash uint64, n int) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		s := shuffles.Get().(*shuffle)
		defer shuffles.Put(s)
		s.random.seed(uint32(hash))
		s.positions = s.positions[:0]
		for i := range n {
			s.positions = append(s.positions, uint32(i))
		}
		for i := range s.positions {
			rest := s.positions[i:]
			j := s.random.below(uint32(len(rest)))
			rest[0], rest[j] = rest[j], rest[0]
			if !yield(rest[0]) {
				return
			}
		}
	}
}
