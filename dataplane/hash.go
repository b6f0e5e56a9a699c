package dataplane

import (
	"net/netip"

	"github.com/cespare/xxhash/v2"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/maglev"
)

// HashOf returns the hash that the policy gives a flow; false means none: the pick is random. src and
// dst are what the proxy takes for the client's and its own address, so after a PROXY header; IPv4
// clients of dual-stack sockets come unmapped.
func (p HashPolicy) HashOf(proto Protocol, src, dst netip.AddrPort) (uint64, bool) {
	switch p.Kind {
	case HashFiveTuple:
		return conntrack.Hash5Tuple(p.Seed, conntrack.Flow{Src: src, Dst: dst, Proto: conntrack.Proto(proto)}), true
	case HashSourceIP:
		return maglev.SourceIPHash(src.Addr()), true
	case HashKey:
		return xxhash.Sum64String(p.Key), true
	}
	return 0, false
}
