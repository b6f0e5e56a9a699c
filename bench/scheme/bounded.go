package scheme

import (
	"fmt"
	"math"
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
	p := &boundedRingPlacement{circle: *c, bounds: make([]float64, len(backends))}
	total := 0.0
	for _, b := range backends {
		total += float64(b.Weight)
	}
	for i, b := range backends {
		p.bounds[i] = s.factor * float64(b.Weight) / total
	}
	return p, nil
}

// boundedRingPlacement takes, beside the ring, a load and a bound of 8 bytes a
// backend.
type boundedRingPlacement struct {
	circle[uint64]
	bounds []float64 // as a part of all keys
}

func (p *boundedRingPlacement) Bytes() int { return p.circle.Bytes() + 8*len(p.bounds) }

func (p *boundedRingPlacement) Pick(keys []Key, owners []int32) {
	room := make([]int, len(p.bounds))
	for i, b := range p.bounds {
		room[i] = int(math.Ceil(b * float64(len(keys))))
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
	bound, err := maglev.NewBoundedLoad(uint32(math.Round(100*s.factor)), hosts(backends), nil)
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
