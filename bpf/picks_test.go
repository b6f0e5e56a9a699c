package bpf

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/maglev"
)

// TestSamePicksAsGo sends 1,000,000 packets of random flows, for either family
// and hash policy a quarter, and looks where they went: where conntrack.Hash5Tuple
// and maglev.SourceIPHash say, in a table in which every slot counts.
func TestSamePicksAsGo(t *testing.T) {
	n := 250_000
	if testing.Short() {
		n = 5_000
	}
	b := newBed(t, nil)
	const size, members = 65537, 251
	slots := make([]conntrack.Backend, size)
	for i := range slots {
		slots[i] = conntrack.Backend(i * 7919 % members)
	}
	s, _ := oneTable(t, conntrack.TrackChanged, members, slots...)
	backends := make([]Backend, members)
	for i := range backends {
		backends[i] = ways[0].backend()
		copy(backends[i].Addr[:], []byte{10, 9, 0, byte(i)})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, policy := range []uint8{HashFiveTuple, HashSourceIP} {
		for _, v6 := range []bool{false, true} {
			vip, from := vip4, client4
			if v6 {
				vip, from = vip6, client6
			}
			seed := r.Uint64()
			b.put(vip, kindUDP, Service{Id: 1, Hash: policy, Seed: seed}, image(t, s), backends)
			packet := frame(ip{src: from.Addr(), dst: vip.Addr(), proto: kindUDP}.bytes(udp(from, vip, "x")))
			for range n {
				src := netip.AddrPortFrom(randomAddr(r, v6), uint16(r.Uint32()))
				at, ports := 26, 34
				if v6 {
					at, ports = 22, 54
				}
				copy(packet[at:], src.Addr().AsSlice())
				binary.BigEndian.PutUint16(packet[ports:], src.Port())
				hash := conntrack.Hash5Tuple(seed, conntrack.Flow{Src: src, Dst: vip, Proto: conntrack.UDP})
				if policy == HashSourceIP {
					hash = maglev.SourceIPHash(src.Addr())
				}
				verdict, out := b.run(packet)
				if want := slots[hash%size]; verdict != "tx" || conntrack.Backend(out[33]) != want {
					t.Fatalf("policy %d, %s (%s): %s to %d, want %d", policy, src, maglev.AddrString(src.Addr()), verdict, out[33], want)
				}
			}
		}
	}
}

// randomAddr returns an address; of IPv6, most have runs of zeros, short groups,
// or the beginnings that make their text end in dotted decimal. None is
// IPv4-mapped with the five-tuple in mind: no packet has such a source.
func randomAddr(r *rand.Rand, v6 bool) netip.Addr {
	if !v6 {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], r.Uint32())
		for i := range a {
			if r.IntN(4) == 0 {
				a[i] = byte(r.IntN(12))
			}
		}
		return netip.AddrFrom4(a)
	}
	var a [16]byte
	for i := 0; i < 16; i += 2 {
		g := uint16(r.Uint32()) >> r.IntN(16)
		if r.IntN(3) == 0 {
			g = 0
		}
		binary.BigEndian.PutUint16(a[i:], g)
	}
	switch r.IntN(12) {
	case 0:
		clear(a[:12]) // ::a.b.c.d
	case 1:
		clear(a[:12])
		clear(a[12+r.IntN(5):])
	case 2:
		clear(a[:r.IntN(17)])
	}
	if addr := netip.AddrFrom16(a); !addr.Is4In6() {
		return addr
	}
	a[0] = 0x20
	return netip.AddrFrom16(a)
}

// TestMappedSourceText covers the one form that randomAddr leaves out.
func TestMappedSourceText(t *testing.T) {
	b := newBed(t, nil)
	const members = 5
	s, _ := oneTable(t, conntrack.TrackChanged, members, 0, 1, 2, 3, 4)
	backends := make([]Backend, members)
	for i := range backends {
		backends[i] = ways[0].backend()
		copy(backends[i].Addr[:], []byte{10, 9, 0, byte(i)})
	}
	b.put(vip6, kindUDP, Service{Hash: HashSourceIP}, image(t, s), backends)
	for i := range 50 {
		src := netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: byte(i), 15: byte(3 * i)})
		packet := frame(ip{src: src, dst: vip6.Addr(), proto: kindUDP}.bytes(udp(netip.AddrPortFrom(src, 9), vip6, "x")))
		if _, out := b.run(packet); uint64(out[33]) != maglev.SourceIPHash(src)%members {
			t.Errorf("%s went to %d", maglev.AddrString(src), out[33])
		}
	}
}
