package scheme

import (
	"crypto/md5"
	"encoding/binary"
	"math"
	"strconv"
)

// ketama is the ring of memcached clients, as libmemcached builds it with
// MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED: MD5, four points a digest, 160 points a
// host of average weight. Of points that collide the host first in address order
// counts; libmemcached leaves that to qsort.
type ketama struct{}

const (
	ketamaPoints    = 160   // of a host of average weight
	ketamaPerDigest = 4     // points made from one MD5
	memcachedPort   = 11211 // left out of what is hashed
)

func (ketama) Spec() string   { return "ketama" }
func (ketama) Kind() string   { return "ketama" }
func (ketama) Weighted() bool { return true }

func (ketama) Place(backends []Backend, _ Placement) (Placement, error) {
	if err := check(backends); err != nil {
		return nil, err
	}
	total := uint64(0)
	for _, b := range backends {
		total += uint64(b.Weight)
	}
	build := builder[uint32]{names: names(backends)}
	for i, b := range backends {
		// In float, as in C: another order of rounding gives other rings.
		share := float32(b.Weight) / float32(total)
		quarter := share * ketamaPoints / ketamaPerDigest * float32(len(backends))
		digests := int(math.Floor(float64(float32(float64(quarter) + 0.0000000001))))
		name := b.Addr.Addr().String()
		if b.Addr.Port() != memcachedPort {
			// An IPv6 address gets no brackets: this is no address, but a text to hash.
			name += ":" + strconv.Itoa(int(b.Addr.Port()))
		}
		for j := range digests {
			digest := md5.Sum([]byte(name + "-" + strconv.Itoa(j)))
			for k := range ketamaPerDigest {
				build.add(binary.LittleEndian.Uint32(digest[4*k:]), i)
			}
		}
	}
	return &ketamaPlacement{*build.circle(len(backends))}, nil
}

type ketamaPlacement struct{ circle[uint32] }

func (p *ketamaPlacement) hash(key *Key) uint32 {
	digest := md5.Sum(key[:])
	return binary.LittleEndian.Uint32(digest[:])
}

func (p *ketamaPlacement) Pick(keys []Key, owners []int32) {
	for i := range keys {
		owners[i] = int32(p.owners[p.next(p.hash(&keys[i]))])
	}
}

func (p *ketamaPlacement) Top(dst []int32, key *Key, k int) []int32 {
	return p.top(dst, p.next(p.hash(key)), k)
}
