package conntrack

import (
	"encoding/binary"
	"net/netip"

	"github.com/cespare/xxhash/v2"
)

// Proto is an IP protocol number.
type Proto uint8

// The protocols that are balanced.
const (
	TCP Proto = 6
	UDP Proto = 17
)

// Flow is what the packets of one direction of a connection or exchange have
// in common: protocol, client, and the address the client sends to.
type Flow struct {
	Src, Dst netip.AddrPort
	Proto    Proto
}

// Key4 is an IPv4 flow as 16 bytes, the form in which it is hashed and in which
// the XDP program keys its map. Ports and addresses are in network byte order:
//
//	 0..3   source address
//	 4..7   destination address
//	 8..9   source port
//	10..11  destination port
//	12      protocol
//	13..15  zero
type Key4 [16]byte

// Key6 is an IPv6 flow as 40 bytes:
//
//	 0..15  source address
//	16..31  destination address
//	32..33  source port
//	34..35  destination port
//	36      protocol
//	37..39  zero
//
// A scope (fe80::1%eth0) is no part of it: a packet does not carry one.
type Key6 [40]byte

// Key4 returns the flow's key, and true if both of its addresses are IPv4.
// IPv4-mapped IPv6 addresses (::ffff:10.0.0.1) are IPv4: they are how a
// dual-stack socket shows an IPv4 client.
func (f Flow) Key4() (k Key4, ok bool) {
	src, dst := f.Src.Addr().Unmap(), f.Dst.Addr().Unmap()
	if !src.Is4() || !dst.Is4() {
		return k, false
	}
	s, d := src.As4(), dst.As4()
	copy(k[0:4], s[:])
	copy(k[4:8], d[:])
	binary.BigEndian.PutUint16(k[8:10], f.Src.Port())
	binary.BigEndian.PutUint16(k[10:12], f.Dst.Port())
	k[12] = byte(f.Proto)
	return k, true
}

// Key6 returns the flow's key for any pair of addresses. An IPv4 address beside
// an IPv6 one, which no packet has, stands in its mapped form.
func (f Flow) Key6() (k Key6) {
	s, d := f.Src.Addr().As16(), f.Dst.Addr().As16()
	copy(k[0:16], s[:])
	copy(k[16:32], d[:])
	binary.BigEndian.PutUint16(k[32:34], f.Src.Port())
	binary.BigEndian.PutUint16(k[34:36], f.Dst.Port())
	k[36] = byte(f.Proto)
	return k
}

// Flow returns the flow that the key stands for.
func (k Key4) Flow() Flow {
	return Flow{
		Src:   netip.AddrPortFrom(netip.AddrFrom4([4]byte(k[0:4])), binary.BigEndian.Uint16(k[8:10])),
		Dst:   netip.AddrPortFrom(netip.AddrFrom4([4]byte(k[4:8])), binary.BigEndian.Uint16(k[10:12])),
		Proto: Proto(k[12]),
	}
}

// Flow returns the flow that the key stands for.
func (k Key6) Flow() Flow {
	return Flow{
		Src:   netip.AddrPortFrom(netip.AddrFrom16([16]byte(k[0:16])), binary.BigEndian.Uint16(k[32:34])),
		Dst:   netip.AddrPortFrom(netip.AddrFrom16([16]byte(k[16:32])), binary.BigEndian.Uint16(k[34:36])),
		Proto: Proto(k[36]),
	}
}

// Hash5Tuple returns the XXH64 of the flow's Key4 if both addresses are IPv4
// (or IPv4-mapped), of its Key6 otherwise. The bytes are frozen: Guideway
// instances of any version, and the XDP program, agree on them
// (testdata/five_tuple.json). It does not allocate.
func Hash5Tuple(seed uint64, f Flow) uint64 {
	if k, ok := f.Key4(); ok {
		return xxh64(seed, k[:])
	}
	k := f.Key6()
	return xxh64(seed, k[:])
}

func xxh64(seed uint64, b []byte) uint64 {
	if seed == 0 {
		return xxhash.Sum64(b) // spares the state of a Digest
	}
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	d.Write(b) // documented to return no error
	return d.Sum64()
}
