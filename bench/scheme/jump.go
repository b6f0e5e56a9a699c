package scheme

import "net/netip"

// jumpHash is jump consistent hash (Lamping and Veach, 2014): a bucket in [0, n),
// which for n + 1 stays the same or becomes n.
func jumpHash(hash uint64, n int) int {
	bucket, next := int64(-1), int64(0)
	for next < int64(n) {
		bucket = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(bucket+1) * (float64(1<<31) / float64(hash>>33+1)))
	}
	return int(bucket)
}

// jump is jump hash over the list of backends: made for adding and removing at
// its end. A backend that leaves the middle shifts all that follow.
type jump struct{}

func (jump) Spec() string   { return "jump" }
func (jump) Kind() string   { return "jump" }
func (jump) Weighted() bool { return false }

func (jump) Place(backends []Backend, _ Placement) (Placement, error) {
	if err := check(backends); err != nil {
		return nil, err
	}
	return jumpPlacement(len(backends)), nil
}

// jumpPlacement is the number of backends.
type jumpPlacement int

func (p jumpPlacement) Bytes() int { return 8 }

func (p jumpPlacement) Pick(keys []Key, owners []int32) {
	for i := range keys {
		owners[i] = int32(jumpHash(hashOf(&keys[i]), int(p)))
	}
}

// jumpIndirect is jump hash over buckets that name backends. A backend that
// leaves, leaves its bucket empty; the keys of an empty bucket are hashed again
// until they meet one that is not. One that returns gets its bucket back, a new
// one an empty bucket, or one more. So any removal or return moves the keys of
// that backend and no others.
type jumpIndirect struct{}

func (jumpIndirect) Spec() string   { return "jump-indirect" }
func (jumpIndirect) Kind() string   { return "jump-indirect" }
func (jumpIndirect) Weighted() bool { return false }

func (jumpIndirect) Place(backends []Backend, former Placement) (Placement, error) {
	if err := check(backends); err != nil {
		return nil, err
	}
	p := &indirectPlacement{}
	if former, ok := former.(*indirectPlacement); ok {
		p.names = append(p.names, former.names...)
	}
	p.backends = make([]int32, len(p.names))
	bucket := make(map[netip.AddrPort]int, len(p.names))
	for i, name := range p.names {
		bucket[name], p.backends[i] = i, -1
	}
	var fresh []int
	for i, b := range backends {
		if at, ok := bucket[b.Addr]; ok {
			p.backends[at] = int32(i)
		} else {
			fresh = append(fresh, i)
		}
	}
	at := 0
	for _, i := range fresh {
		for at < len(p.backends) && p.backends[at] >= 0 {
			at++
		}
		if at == len(p.backends) {
			p.backends, p.names = append(p.backends, 0), append(p.names, netip.AddrPort{})
		}
		p.backends[at], p.names[at] = int32(i), backends[i].Addr
	}
	return p, nil
}

// indirectPlacement takes 4 bytes a bucket for lookups. There are as many buckets
// as there ever were backends at a time.
type indirectPlacement struct {
	backends []int32          // by bucket; -1 if it is empty
	names    []netip.AddrPort // who has, or last had, each bucket
}

func (p *indirectPlacement) Bytes() int { return 4 * len(p.backends) }

func (p *indirectPlacement) Pick(keys []Key, owners []int32) {
	for i := range keys {
		hash := hashOf(&keys[i])
		owner := p.backends[jumpHash(hash, len(p.backends))]
		for owner < 0 {
			hash = mix64(hash + 0x9e3779b97f4a7c15)
			owner = p.backends[jumpHash(hash, len(p.backends))]
		}
		owners[i] = owner
	}
}
