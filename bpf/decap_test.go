package bpf

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
)

// tagged is an Ethernet header with so many tags, and what follows.
func tagged(tags int, etherType uint16, body []byte) []byte {
	f := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	for range tags {
		f = append(f, 0x81, 0, 0, 7)
	}
	return append(binary.BigEndian.AppendUint16(f, etherType), body...)
}

func countTags(f []byte) int {
	n := 0
	for binary.BigEndian.Uint16(f[12+4*n:]) == 0x8100 {
		n++
	}
	return n
}

// outer4 and outer6 are outer headers as a balancer writes them; only what a decapsulator looks at matters.
func outer4(dst string, proto byte, options int, inner []byte) []byte {
	h := make([]byte, 20+options)
	h[0] = 0x45 + byte(options/4)
	h[8], h[9] = 64, proto
	a := netip.MustParseAddr(dst).As4()
	copy(h[16:], a[:])
	return append(h, inner...)
}

func outer6(dst string, proto byte, inner []byte) []byte {
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, proto, 64
	a := netip.MustParseAddr(dst).As16()
	copy(h[24:], a[:])
	return append(h, inner...)
}

func gueOf(port uint16, flags byte, extra int, proto byte, inner []byte) []byte {
	h := make([]byte, 12+4*extra)
	binary.BigEndian.PutUint16(h[2:], port)
	h[8], h[9] = flags|byte(extra), proto
	return append(h, inner...)
}

func TestDecap(t *testing.T) {
	d, err := LoadDecap(0)
	if errors.Is(err, os.ErrPermission) {
		t.Skip("needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: run as root")
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer d.Close()
	for _, a := range []string{"10.0.0.7", "fd00::7"} {
		if err := d.Accept(netip.MustParseAddr(a)); err != nil {
			t.Fatal(err)
		}
	}
	in4 := outer4("192.0.2.1", 6, 0, []byte("an IPv4 packet of TCP"))
	in6 := outer6("2001:db8::1", 17, []byte("an IPv6 packet of UDP"))
	fragment := outer4("10.0.0.7", 4, 0, in4)
	fragment[6] = 0x20
	const passes = DecapEvents // nothing is counted
	for _, c := range []struct {
		name    string
		in, out []byte // out nil: dropped
		event   DecapEvent
	}{
		{"IPv4 in IPv4", tagged(0, 0x800, outer4("10.0.0.7", 4, 0, in4)), tagged(0, 0x800, in4), DecapIPIP},
		{"IPv6 in IPv4", tagged(0, 0x800, outer4("10.0.0.7", 41, 0, in6)), tagged(0, 0x86dd, in6), DecapIPIP},
		{"IPv4 in IPv6", tagged(0, 0x86dd, outer6("fd00::7", 4, in4)), tagged(0, 0x800, in4), DecapIPIP},
		{"IPv6 in IPv6", tagged(0, 0x86dd, outer6("fd00::7", 41, in6)), tagged(0, 0x86dd, in6), DecapIPIP},
		{"outer options", tagged(0, 0x800, outer4("10.0.0.7", 4, 8, in4)), tagged(0, 0x800, in4), DecapIPIP},
		{"a VLAN tag", tagged(1, 0x800, outer4("10.0.0.7", 41, 0, in6)), tagged(1, 0x86dd, in6), DecapIPIP},
		{"two VLAN tags", tagged(2, 0x86dd, outer6("fd00::7", 4, in4)), tagged(2, 0x800, in4), DecapIPIP},
		{"IPv4 in GUE", tagged(0, 0x800, outer4("10.0.0.7", 17, 0, gueOf(6080, 0, 0, 4, in4))), tagged(0, 0x800, in4), DecapGUE},
		{"IPv6 in GUE", tagged(0, 0x86dd, outer6("fd00::7", 17, gueOf(6080, 0, 0, 41, in6))), tagged(0, 0x86dd, in6), DecapGUE},
		{"GUE with extensions", tagged(0, 0x800, outer4("10.0.0.7", 17, 0, gueOf(6080, 0, 3, 4, in4))), tagged(0, 0x800, in4), DecapGUE},
		{"GUE control message", tagged(0, 0x800, outer4("10.0.0.7", 17, 0, gueOf(6080, 0x20, 0, 4, in4))), tagged(0, 0x800, outer4("10.0.0.7", 17, 0, gueOf(6080, 0x20, 0, 4, in4))), passes},
		{"UDP to another port", tagged(0, 0x800, outer4("10.0.0.7", 17, 0, gueOf(53, 0, 0, 4, in4))), tagged(0, 0x800, outer4("10.0.0.7", 17, 0, gueOf(53, 0, 0, 4, in4))), passes},
		{"to somebody else", tagged(0, 0x800, outer4("10.0.0.8", 4, 0, in4)), tagged(0, 0x800, outer4("10.0.0.8", 4, 0, in4)), DecapForeign},
		{"an outer fragment", tagged(0, 0x800, fragment), tagged(0, 0x800, fragment), DecapFragment},
		{"IPv6 that says it is IPv4", tagged(0, 0x800, outer4("10.0.0.7", 4, 0, in6)), nil, DecapMalformed},
		{"cut short", tagged(0, 0x800, outer4("10.0.0.7", 4, 0, []byte{0x45, 0})), nil, DecapMalformed},
		{"plain TCP", tagged(0, 0x800, in4), tagged(0, 0x800, in4), passes},
		{"ARP", tagged(0, 0x806, make([]byte, 28)), tagged(0, 0x806, make([]byte, 28)), passes},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before [DecapEvents]uint64
			for e := range before {
				if before[e], err = d.Count(DecapEvent(e)); err != nil {
					t.Fatal(err)
				}
			}
			o := ebpf.RunOptions{Data: c.in, DataOut: make([]byte, 512)}
			action, err := d.XDP.Run(&o)
			if err != nil {
				t.Fatal(err)
			}
			if c.out == nil && action != 1 {
				t.Errorf("action %d, want XDP_DROP", action)
			}
			if c.out != nil && (action != 2 || !slices.Equal(o.DataOut, c.out)) {
				t.Errorf("action %d, out\n% x\nwant XDP_PASS and\n% x", action, o.DataOut, c.out)
			}
			for e := range before {
				n, err := d.Count(DecapEvent(e))
				if err != nil {
					t.Fatal(err)
				}
				want := uint64(0)
				switch {
				case DecapEvent(e) == c.event:
					want = 1
				case DecapEvent(e) == c.event+1 && (c.event == DecapIPIP || c.event == DecapGUE):
					want = uint64(len(c.out) - 14 - 4*countTags(c.out))
				}
				if n-before[e] != want {
					t.Errorf("event %d counted %d, want %d", e, n-before[e], want)
				}
			}
		})
	}
}
