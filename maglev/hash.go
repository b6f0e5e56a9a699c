package maglev

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/cespare/xxhash/v2"
)

// SourceIPHash returns the hash Envoy's source_ip policies give a connection or
// session from addr: XXH64 with seed 0 of the address as [AppendAddr] prints
// it, without port or brackets.
//
// Envoy unmaps the IPv4-mapped peers of a dual-stack socket before it hashes
// them, but takes an address from a PROXY protocol header as it stands. Only
// the caller knows which it has, so unmapping is the caller's.
func SourceIPHash(addr netip.Addr) uint64 {
	var buf [maxAddrText + 11]byte
	return xxhash.Sum64(AppendAddr(buf[:0], addr))
}

// KeyHash returns the hash of a constant key, as Envoy's udp_proxy hash policy
// "key" gives it to every session.
func KeyHash(key string) uint64 { return xxhash.Sum64String(key) }

// AttemptHash returns the hash that picks the table slot of a retry: the hash
// itself for attempt 0, and another one for each attempt after that.
func AttemptHash(hash uint64, attempt uint32) uint64 { return hash ^ -uint64(attempt) }

// The primes of XXH64
// (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
const (
	xxPrime1 uint64 = 0x9E3779B185EBCA87
	xxPrime2 uint64 = 0xC2B2AE3D27D4EB4F
	xxPrime3 uint64 = 0x165667B19E3779F9
	xxPrime4 uint64 = 0x85EBCA77C2B2AE63
	xxPrime5 uint64 = 0x27D4EB2F165667C5
)

// seededXXH64 is XXH64 of s with a seed, in one shot. The xxhash package has
// seeds only in its streaming form, which takes more than twice as long for
// keys as short as ours.
func seededXXH64(s string, seed uint64) uint64 {
	h := seed + xxPrime5
	n := len(s)
	if n >= 32 {
		a, b, c, d := seed+xxPrime1+xxPrime2, seed+xxPrime2, seed, seed-xxPrime1
		for len(s) >= 32 {
			a = xxRound(a, load64(s))
			b = xxRound(b, load64(s[8:]))
			c = xxRound(c, load64(s[16:]))
			d = xxRound(d, load64(s[24:]))
			s = s[32:]
		}
		h = bits.RotateLeft64(a, 1) + bits.RotateLeft64(b, 7) + bits.RotateLeft64(c, 12) + bits.RotateLeft64(d, 18)
		for _, lane := range [4]uint64{a, b, c, d} {
			h = (h^xxRound(0, lane))*xxPrime1 + xxPrime4
		}
	}
	h += uint64(n)
	for ; len(s) >= 8; s = s[8:] {
		h = bits.RotateLeft64(h^xxRound(0, load64(s)), 27)*xxPrime1 + xxPrime4
	}
	if len(s) >= 4 {
		h = bits.RotateLeft64(h^uint64(load32(s))*xxPrime1, 23)*xxPrime2 + xxPrime3
		s = s[4:]
	}
	for i := range len(s) {
		h = bits.RotateLeft64(h^uint64(s[i])*xxPrime5, 11) * xxPrime1
	}
	h = (h ^ h>>33) * xxPrime2
	h = (h ^ h>>29) * xxPrime3
	return h ^ h>>32
}

func xxRound(acc, lane uint64) uint64 {
	return bits.RotateLeft64(acc+lane*xxPrime2, 31) * xxPrime1
}

// murmur2Seed is the seed of Envoy's MURMUR_HASH_2, which is that of
// std::hash<std::string> in libstdc++.
const murmur2Seed = 0xc70f6907

// murmur2 is MurmurHash64A (https://github.com/aappleby/smhasher) of s with
// Envoy's seed.
func murmur2(s []byte) uint64 {
	const mul = 0xc6a4a7935bd1e995
	h := murmur2Seed ^ uint64(len(s))*mul
	for ; len(s) >= 8; s = s[8:] {
		k := binary.LittleEndian.Uint64(s) * mul
		h = (h ^ (k^k>>47)*mul) * mul
	}
	if len(s) > 0 {
		var tail uint64
		for i, b := range s {
			tail |= uint64(b) << (8 * i)
		}
		h = (h ^ tail) * mul
	}
	h = (h ^ h>>47) * mul
	return h ^ h>>47
}

func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}
