package maglev

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

const (
	// DefaultMinRingSize and DefaultMaxRingSize are Envoy's bounds of a ring,
	// in entries.
	DefaultMinRingSize = 1024
	DefaultMaxRingSize = 8388608
	// MaxRingSize is the largest value Envoy's schema allows for either bound.
	MaxRingSize = 8388608
)

// RingHash is the function that places hosts on a ring.
type RingHash int

const (
	XXHash     RingHash = iota // Envoy's XX_HASH, its default
	MurmurHash                 // Envoy's MURMUR_HASH_2
)

// RingOptions are the settings of RING_HASH.
type RingOptions struct {
	MinSize uint64 // in entries, usually DefaultMinRingSize
	MaxSize uint64 // in entries, usually DefaultMaxRingSize
	Hash    RingHash
}

// Check says whether a ring may have these options.
func (o RingOptions) Check() error {
	switch {
	case o.MinSize > MaxRingSize:
		return fmt.Errorf("ring hash: minimum_ring_size %d is too large (the largest is %d)", o.MinSize, MaxRingSize)
	case o.MaxSize > MaxRingSize:
		return fmt.Errorf("ring hash: maximum_ring_size %d is too large (the largest is %d)", o.MaxSize, MaxRingSize)
	case o.MinSize > o.MaxSize:
		return fmt.Errorf("ring hash: minimum_ring_size (%d) > maximum_ring_size (%d)", o.MinSize, o.MaxSize)
	case o.Hash != XXHash && o.Hash != MurmurHash:
		return fmt.Errorf("ring hash: unknown hash function %d", o.Hash)
	}
	return nil
}

// Ring is Envoy's consistent-hashing ring. A ring without hosts has no entries,
// and every lookup in it fails.
//
// A Ring does not change, so any number of goroutines may use it. It takes 12
// bytes an entry.
type Ring struct {
	hashes            []uint64 // ascending
	owners            []uint32 // the host of each
	counts            []uint32 // entries of each host
	size              uint32   // as computed; rounding can make len(hashes) one more
	smallest, largest uint32
}

// BuildRing builds Envoy's ring for these hosts, which are those of one
// priority that are healthy, or all of them in panic; localities are as for
// [Build].
//
// The order of the hosts, and of the localities, counts: it is Envoy's host set
// order, in which hosts are listed as in the assignment, and localities with
// the node's own first and the others by region, zone and sub-zone.
func BuildRing(options RingOptions, hosts []Host, localities []Locality) (*Ring, error) {
	if err := options.Check(); err != nil {
		return nil, err
	}
	return buildRing(options, hosts, localities)
}

// buildRing also takes a minimum above the maximum, for which Envoy's
// arithmetic has an answer too.
func buildRing(options RingOptions, hosts []Host, localities []Locality) (*Ring, error) {
	shares, err := normalise(hosts, localities)
	if err != nil {
		return nil, err
	}
	r := &Ring{counts: make([]uint32, len(hosts))}
	if len(shares) == 0 {
		return r, nil
	}
	type entry struct {
		hash  uint64
		owner uint32
	}
	lightest, _ := lightestAndHeaviest(shares)
	// As many entries as give the lightest host a whole number of them.
	scale := min(math.Ceil(lightest*float64(options.MinSize))/lightest, float64(options.MaxSize))
	r.size = uint32(math.Ceil(scale))
	r.smallest = r.size
	entries := make([]entry, 0, r.size)
	var target float64
	var text []byte
	for _, s := range shares {
		text = append(append(text[:0], hosts[s.host].Key...), '_')
		prefix := len(text)
		// The conversion keeps the compiler from fusing the two operations,
		// which would round once instead of twice.
		target += float64(scale * s.weight)
		count := uint32(0)
		for float64(len(entries)) < target {
			text = strconv.AppendUint(text[:prefix], uint64(count), 10)
			entries = append(entries, entry{ringHash(options.Hash, text), s.host})
			count++
		}
		r.counts[s.host] = count
		r.smallest = min(r.smallest, count)
		r.largest = max(r.largest, count)
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
	r.hashes = make([]uint64, len(entries))
	r.owners = make([]uint32, len(entries))
	for i, e := range entries {
		r.hashes[i], r.owners[i] = e.hash, e.owner
	}
	return r, nil
}

func ringHash(function RingHash, text []byte) uint64 {
	if function == MurmurHash {
		return murmur2(text)
	}
	return xxhash.Sum64(text)
}

// Lookup returns the index of the host that has a hash, or -1 in an empty ring.
func (r *Ring) Lookup(hash uint64) int { return r.LookupAttempt(hash, 0) }

// LookupAttempt returns the index of the host for a retry, which is as many
// entries further on; attempt 0 is [Ring.Lookup].
func (r *Ring) LookupAttempt(hash uint64, attempt uint32) int {
	size := len(r.hashes)
	if size == 0 {
		return -1
	}
	i := sort.Search(size, func(i int) bool { return r.hashes[i] >= hash })
	if i == size {
		i = 0
	}
	return int(r.owners[(uint64(i)+uint64(attempt))%uint64(size)])
}

// Count returns the number of entries of the i-th host.
func (r *Ring) Count(i int) uint32 { return r.counts[i] }

// Len returns the number of entries.
func (r *Ring) Len() int { return len(r.hashes) }

// Entries returns the size of the ring and the smallest and largest number of
// entries a host has: Envoy's gauges size, min_hashes_per_host and
// max_hashes_per_host. Hosts that have no share do not count. The size is what
// Envoy computes before it places the hosts; rounding may make it one entry
// less than [Ring.Len].
func (r *Ring) Entries() (size, smallest, largest uint32) {
	return r.size, r.smallest, r.largest
}
