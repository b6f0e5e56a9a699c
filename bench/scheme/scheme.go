package scheme

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cespare/xxhash/v2"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/maglev"
)

// MaxBackends is how many backends a placement has at most.
const MaxBackends = 65535

// Key is what is placed: an IPv4 5-tuple in Guideway's frozen form.
type Key = conntrack.Key4

// Backend is one backend as schemes see it.
type Backend struct {
	// Addr identifies the backend; it is what schemes hash.
	Addr   netip.AddrPort
	Weight uint32 // at least 1
}

// Scheme is a way to place keys.
type Scheme interface {
	// Spec is the scheme's text in its shortest form; [Parse] reads it back.
	Spec() string
	// Kind is the part of Spec before its options.
	Kind() string
	// Weighted says whether backends get keys in proportion to their weights.
	Weighted() bool
	// Place returns the placement for a set of backends, listed as an operator
	// would list them. former is the placement before the change, of the same
	// scheme, or nil; schemes without a memory do not look at it.
	Place(backends []Backend, former Placement) (Placement, error)
}

// Placement says which backend each key belongs to. It does not change, so any
// number of goroutines may use it.
type Placement interface {
	// Pick sets owners[i] to the index of the backend that has keys[i], and all
	// of keys are taken to be there at once, in their order: under bounded loads
	// a key's owner depends on the others. owners is as long as keys.
	Pick(keys []Key, owners []int32)
	// Bytes is the size of what a lookup reads, without the backends themselves.
	Bytes() int
}

// Replicated is a placement that also names further backends for a key.
type Replicated interface {
	Placement
	// Top appends the k backends that have a key to dst, the owner first, and
	// all backends if there are fewer than k.
	Top(dst []int32, key *Key, k int) []int32
}

// hashOf is the 64-bit hash of a key for the schemes that do not come with one
// of their own: XXH64, seed 0, as in Guideway and Envoy.
func hashOf(key *Key) uint64 { return xxhash.Sum64(key[:]) }

// mix64 is the finaliser of MurmurHash3: a bijection in which each bit of the
// input changes half of the output.
func mix64(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}

// check says whether a placement may have these backends.
func check(backends []Backend) error {
	if len(backends) == 0 {
		return errors.New("no backend is left to place keys on")
	}
	if len(backends) > MaxBackends {
		return fmt.Errorf("%d backends are too many: at most %d", len(backends), MaxBackends)
	}
	seen := make(map[netip.AddrPort]bool, len(backends))
	for _, b := range backends {
		if b.Weight == 0 {
			return fmt.Errorf("backend %v has weight 0: use at least 1, or leave it out", b.Addr)
		}
		if seen[b.Addr] {
			return fmt.Errorf("backend %v is there twice", b.Addr)
		}
		seen[b.Addr] = true
	}
	return nil
}

// equalWeights says whether weights make no difference.
func equalWeights(backends []Backend) bool {
	for _, b := range backends[1:] {
		if b.Weight != backends[0].Weight {
			return false
		}
	}
	return true
}

// hosts returns the backends as package maglev takes them.
func hosts(backends []Backend) []maglev.Host {
	out := make([]maglev.Host, len(backends))
	for i, b := range backends {
		key := maglev.HostKey(b.Addr)
		out[i] = maglev.Host{Key: key, Addr: key, Weight: b.Weight}
	}
	return out
}

// distinct appends owner to dst[from:] unless it is there.
func distinct(dst []int32, from int, owner int32) []int32 {
	for _, o := range dst[from:] {
		if o == owner {
			return dst
		}
	}
	return append(dst, owner)
}
