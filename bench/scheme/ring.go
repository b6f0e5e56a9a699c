package scheme

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/guideway/guideway/maglev"
)

// maxTableEntries bounds what weights and virtual nodes can multiply to.
const maxTableEntries = 1 << 26

func errTooManyEntries(scheme, what string) error {
	return fmt.Errorf("%s: more than %d entries: use smaller %s", scheme, maxTableEntries, what)
}

// ring is consistent hashing (Karger et al., 1997): each backend has v points
// for each unit of its weight, a key belongs to the next point.
type ring struct {
	points int  // of a backend of weight 1
	plain  bool // all backends have as many, whatever their weight
}

func (s ring) Spec() string {
	if s.plain {
		return fmt.Sprintf("ring:v=%d,weights=off", s.points)
	}
	return fmt.Sprintf("ring:v=%d", s.points)
}

func (s ring) Kind() string   { return "ring" }
func (s ring) Weighted() bool { return !s.plain }

func (s ring) Place(backends []Backend, _ Placement) (Placement, error) {
	c, err := s.circle(backends)
	if err != nil {
		return nil, err
	}
	return &ringPlacement{*c}, nil
}

func (s ring) circle(backends []Backend) (*circle[uint64], error) {
	if err := check(backends); err != nil {
		return nil, err
	}
	b := builder[uint64]{names: names(backends)}
	var text []byte
	for i, backend := range backends {
		n := uint64(s.points)
		if !s.plain {
			n *= uint64(backend.Weight)
		}
		if uint64(len(b.points))+n > maxTableEntries {
			return nil, errTooManyEntries("ring", "weights or fewer virtual nodes")
		}
		for j := range n {
			text = append(append(text[:0], b.names[i]...), '#')
			text = strconv.AppendUint(text, j, 10)
			b.add(xxhash.Sum64(text), i)
		}
	}
	return b.circle(len(backends)), nil
}

type ringPlacement struct{ circle[uint64] }

func (p *ringPlacement) Pick(keys []Key, owners []int32) {
	for i := range keys {
		owners[i] = int32(p.owners[p.next(hashOf(&keys[i]))])
	}
}

func (p *ringPlacement) Top(dst []int32, key *Key, k int) []int32 {
	return p.top(dst, p.next(hashOf(key)), k)
}

// circle is a ring of points. It takes 12 bytes a point of 64 bits, and 8 a
// point of 32.
type circle[H uint32 | uint64] struct {
	hashes   []H      // ascending
	owners   []uint32 // the backend of each
	backends int      // that have at least one point
}

// next returns the index of the first point at or after a hash.
func (c *circle[H]) next(hash H) int {
	low, high := 0, len(c.hashes)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if c.hashes[middle] < hash {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(c.hashes) {
		return 0
	}
	return low
}

// top appends the first k backends met from a point on.
func (c *circle[H]) top(dst []int32, at, k int) []int32 {
	from := len(dst)
	k = min(k, c.backends)
	for len(dst)-from < k {
		dst = distinct(dst, from, int32(c.owners[at]))
		if at++; at == len(c.owners) {
			at = 0
		}
	}
	return dst
}

func (c *circle[H]) Bytes() int {
	var h H
	width := 4
	if uint64(^h) > 1<<32 {
		width = 8
	}
	return (width + 4) * len(c.hashes)
}

// builder collects the points of a circle.
type builder[H uint32 | uint64] struct {
	names  []string // of the backends
	points []point[H]
}

type point[H uint32 | uint64] struct {
	hash  H
	owner uint32
}

func (b *builder[H]) add(hash H, owner int) {
	b.points = append(b.points, point[H]{hash, uint32(owner)})
}

// circle sorts the points. Those with equal hashes go by the backends' names, so
// that the ring depends on the set of backends only: the first of them gets the
// keys.
func (b *builder[H]) circle(backends int) *circle[H] {
	slices.SortFunc(b.points, func(x, y point[H]) int {
		if c := cmp.Compare(x.hash, y.hash); c != 0 {
			return c
		}
		return cmp.Compare(b.names[x.owner], b.names[y.owner])
	})
	c := &circle[H]{hashes: make([]H, len(b.points)), owners: make([]uint32, len(b.points))}
	present := make([]bool, backends)
	for i, p := range b.points {
		c.hashes[i], c.owners[i] = p.hash, p.owner
		if !present[p.owner] {
			present[p.owner] = true
			c.backends++
		}
	}
	return c
}

func names(backends []Backend) []string {
	out := make([]string, len(backends))
	for i, b := range backends {
		out[i] = maglev.HostKey(b.Addr)
	}
	return out
}
