package scheme

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/guideway/guideway/maglev"
)

// boundedRing is consistent hashing with bounded loads (Mirrokni, Thorup and
// Zadimoghaddam, 2018): no backend has more than factor times its fair share of
// all keys; what finds its backend full goes on along the ring.
type boundedRing struct {
	ring   ring
	factor float64
}

func (s boundedRing) Spec() string {
	return fmt.Sprintf("bounded-ring:v=%d,c=%s", s.ring.points, ftoa(s.factor))
}

func (s boundedRing) Kind() string   { return "bounded-ring" }
func (s boundedRing) Weighted() bool { return true }

func (s boundedRing) Place(backends []Backend, _ Placement) (Placement, error) {
	c, err := s.ring.circle(backends)
	if err != nil {
		return nil, err
	}
	p := &boundedRingPlacement{circle: *c, percent: percent(s.factor), weights: make([]uint32, len(backends))}
	for i, b := range backends {
		p.weights[i] = b.Weight
		p.total += uint64(b.Weight)
	}
	return p, nil
}

// boundedRingPlacement takes, beside the ring, a load and a weight: 8 bytes a
// backend.
type boundedRingPlacement struct {
	circle[uint64]
	percent uint32
	weights []uint32
	total   uint64 // of the weights
}

func (p *boundedRingPlacement) Bytes() int { return p.circle.Bytes() + 8*len(p.weights) }

// bound is how many of a number of keys a backend may have: percent of its share,
// rounded up. It is counted in integers, since 102 % of a third of 600 is 204 and
// no more.
func (p *boundedRingPlacement) bound(weight uint32, keys int) int {
	high, low := bits.Mul64(uint64(p.percent)*uint64(keys), uint64(weight))
	quotient, rest := bits.Div64(high, low, 100*p.total)
	if rest > 0 {
		quotient++
	}
	return int(quotient)
}

func (p *boundedRingPlacement) Pick(keys []Key, owners []int32) {
	room := make([]int, len(p.weights))
	for i, w := range p.weights {
		room[i] = p.bound(w, len(keys))
	}
	for i := range keys {
		at := p.next(hashOf(&keys[i]))
		for room[p.owners[at]] == 0 {
			if at++; at == len(p.owners) {
				at = 0
			}
		}
		room[p.owners[at]]--
		owners[i] = int32(p.owners[at])
	}
}

// percent is a factor as Envoy writes it. Parse allows no finer ones.
func percent(factor float64) uint32 { return uint32(math.Round(100 * factor)) }

// boundedMaglev is Envoy's hash_balance_factor on a Maglev table: a key whose
// backend has more than its bound of the keys so far goes to another, in an
// order that depends on the key.
type boundedMaglev struct {
	table  maglevScheme
	factor float64
}

func (s boundedMaglev) Spec() string {
	if s.table.size == maglev.DefaultTableSize {
		return "bounded-maglev:c=" + ftoa(s.factor)
	}
	return fmt.Sprintf("bounded-maglev:c=%s,m=%d", ftoa(s.factor), s.table.size)
}

func (s boundedMaglev) Kind() string   { return "bounded-maglev" }
func (s boundedMaglev) Weighted() bool { return true }

func (s boundedMaglev) Place(backends []Backend, _ Placement) (Placement, error) {
	table, err := s.table.build(backends)
	if err != nil {
		return nil, err
	}
	bound, err := maglev.NewBoundedLoad(percent(s.factor), hosts(backends), nil)
	if err != nil {
		return nil, err
	}
	return &boundedMaglevPlacement{maglevPlacement{table}, bound}, nil
}

// boundedMaglevPlacement takes, beside the table, a load and a share of 12 bytes
// a backend.
type boundedMaglevPlacement struct {
	maglev maglevPlacement
	bound  *maglev.BoundedLoad
}

func (p *boundedMaglevPlacement) Bytes() int { return p.maglev.Bytes() + 12*p.maglev.table.Len() }

func (p *boundedMaglevPlacement) Pick(keys []Key, owners []int32) {
	active := make([]uint32, p.maglev.table.Len())
	load := func(host int) uint32 { return active[host] }
	for i := range keys {
		hash := hashOf(&keys[i])
		owner := p.bound.Pick(p.maglev.table.Lookup(hash), hash, uint32(i), load)
		active[owner]++
		owners[i] = int32(owner)
	}
}

func ftoa(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func utoa(u uint64) string { return strconv.FormatUint(u, 10) }
