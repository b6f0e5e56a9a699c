package maglev

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// inetNtop holds addresses as bytes and what inet_ntop(3) of glibc 2.36 prints.
var inetNtop = []struct{ bytes, text string }{
	{"0000dead000000010abc000000000abc", "0:dead:0:1:abc::abc"},
	{"0010000000000000dead001000000000", "10::dead:10:0:0"},
	{"00000000ffff0000ffff0abc00100010", "::ffff:0:ffff:abc:10:10"},
	{"00100abc000000010000000000000abc", "10:abc:0:1::abc"},
	{"0000ffff0010ffff0010dead00100001", "0:ffff:10:ffff:10:dead:10:1"},
	{"dead0010000000010000ffff00000001", "dead:10:0:1:0:ffff:0:1"},
	{"dead00000000ffffffff000000000abc", "dead::ffff:ffff:0:0:abc"},
	{"0abc000000010000001000000000ffff", "abc:0:1:0:10::ffff"},
	{"0010001000000000000000100001dead", "10:10::10:1:dead"},
	{"ffffdead00000000ffff000000000000", "ffff:dead:0:0:ffff::"},
	{"dead000000000010ffffffff00000000", "dead::10:ffff:ffff:0:0"},
	{"0001000100010000001000100abcdead", "1:1:1:0:10:10:abc:dead"},
	{"0010dead0000deadffff00100000ffff", "10:dead:0:dead:ffff:10:0:ffff"},
	{"0010ffffdeadffffdead000100000010", "10:ffff:dead:ffff:dead:1:0:10"},
	{"0001000000100000000000010abc0001", "1:0:10::1:abc:1"},
	{"0abcffff000100000001000000010001", "abc:ffff:1:0:1:0:1:1"},
	{"ffffffff0010000000000000ffffdead", "ffff:ffff:10::ffff:dead"},
	{"0000ffff000000010000001000000000", "0:ffff:0:1:0:10::"},
	{"0001000100000abc0000000000010000", "1:1:0:abc::1:0"},
	{"0abcffff000000000000dead00000001", "abc:ffff::dead:0:1"},
	{"0000ffff00010000000100000010ffff", "0:ffff:1:0:1:0:10:ffff"},
	{"deadffff0abc00010010ffff00100010", "dead:ffff:abc:1:10:ffff:10:10"},
	{"000000100000000000000abcdead0010", "0:10::abc:dead:10"},
	{"00000000ffff0000000000000000dead", "0:0:ffff::dead"},
	{"00000010000000000abc00000000dead", "0:10::abc:0:0:dead"},
	{"ffff00000000deaddead001000000000", "ffff::dead:dead:10:0:0"},
	{"00010000ffffdead0abc000000010000", "1:0:ffff:dead:abc:0:1:0"},
	{"00000000dead000000000000ffff0000", "0:0:dead::ffff:0"},
	{"00000000000000000000000000000000", "::"},
	{"00000000000000000000000000000001", "::1"},
	{"00000000000000000000000000010000", "::0.1.0.0"},
	{"0000000000000000000000000000ffff", "::ffff"},
	{"000000000000000000000000ffffffff", "::255.255.255.255"},
	{"00000000000000000000ffff00000000", "::ffff:0.0.0.0"},
	{"00000000000000000000ffff0a000001", "::ffff:10.0.0.1"},
	{"00000000000000000000fffe01020304", "::fffe:102:304"},
	{"0000000000000000ffff000001020304", "::ffff:0:102:304"},
	{"0064ff9b0000000000000000c0000221", "64:ff9b::c000:221"},
	{"ffffffffffffffffffffffffffffffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"fe800000000000000000000000000001", "fe80::1"},
	{"00000000000000000000000000000001", "::1"},
	{"00010000000000000000000000000000", "1::"},
}

func TestAddrStringIsInetNtop(t *testing.T) {
	for _, row := range inetNtop {
		raw, err := hex.DecodeString(row.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := AddrString(netip.AddrFrom16([16]byte(raw))); got != row.text {
			t.Errorf("%s: %s, want %s", row.bytes, got, row.text)
		}
	}
}

func TestAddrText(t *testing.T) {
	for _, c := range []struct {
		addr       netip.Addr
		text, host string
	}{
		{netip.MustParseAddr("10.1.2.3"), "10.1.2.3", "10.1.2.3:80"},
		{netip.MustParseAddr("255.255.255.255"), "255.255.255.255", "255.255.255.255:80"},
		{netip.MustParseAddr("::ffff:10.1.2.3"), "::ffff:10.1.2.3", "[::ffff:10.1.2.3]:80"},
		{netip.MustParseAddr("fe80::1%2"), "fe80::1%2", "[fe80::1%2]:80"},
		{netip.MustParseAddr("fe80::1%4294967295"), "fe80::1%4294967295", "[fe80::1%4294967295]:80"},
		{netip.MustParseAddr("fe80::1%0"), "fe80::1", "[fe80::1]:80"},
		{netip.Addr{}, "", ":80"},
	} {
		if got := AddrString(c.addr); got != c.text {
			t.Errorf("AddrString(%v) = %q, want %q", c.addr, got, c.text)
		}
		if got := HostKey(netip.AddrPortFrom(c.addr, 80)); got != c.host {
			t.Errorf("HostKey(%v, 80) = %q, want %q", c.addr, got, c.host)
		}
	}
}

func TestAddrTextAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 80)
	for _, text := range []string{"10.1.2.3", "2001:db8::1", "::ffff:10.1.2.3", "1111:2222:3333:4444:5555:6666:7777:8888%4294967295"} {
		addr := netip.AddrPortFrom(netip.MustParseAddr(text), 65535)
		if n := testing.AllocsPerRun(100, func() {
			AppendAddr(buf, addr.Addr())
			AppendHostKey(buf, addr)
			SourceIPHash(addr.Addr())
		}); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// plainInetNtop writes all groups, then replaces the first of the longest runs
// of zeros: the slow and obvious twin of appendIPv6.
func plainInetNtop(ip [16]byte) string {
	groups := make([]string, 8)
	for i := range groups {
		groups[i] = fmt.Sprintf("%x", binary.BigEndian.Uint16(ip[2*i:]))
	}
	tail := fmt.Sprintf("%d.%d.%d.%d", ip[12], ip[13], ip[14], ip[15])
	all := strings.Join(groups, ":")
	if rest, found := strings.CutPrefix(all, "0:0:0:0:0:ffff:"); found && rest != "" {
		return "::ffff:" + tail
	}
	if strings.HasPrefix(all, "0:0:0:0:0:0:") && groups[6] != "0" {
		return "::" + tail
	}
	for length := 8; length >= 2; length-- {
		zeros := strings.TrimSuffix(strings.Repeat("0:", length), ":")
		for start := 0; start+length <= 8; start++ {
			if strings.Join(groups[start:start+length], ":") == zeros {
				return strings.Join(groups[:start], ":") + "::" + strings.Join(groups[start+length:], ":")
			}
		}
	}
	return all
}

func FuzzAddrText(f *testing.F) {
	for _, row := range inetNtop {
		raw, err := hex.DecodeString(row.bytes)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, uint16(80))
	}
	f.Add([]byte{10, 0, 0, 1}, uint16(65535))
	f.Fuzz(func(t *testing.T, raw []byte, port uint16) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		text := AddrString(addr)
		if addr.Is6() {
			if want := plainInetNtop(addr.As16()); text != want {
				t.Fatalf("%x: %s, want %s", raw, text, want)
			}
		}
		if back, err := netip.ParseAddr(text); err != nil || back != addr {
			t.Fatalf("%x: %s reads as %v (%v)", raw, text, back, err)
		}
		host := netip.AddrPortFrom(addr, port)
		if back, err := netip.ParseAddrPort(HostKey(host)); err != nil || back != host {
			t.Fatalf("%x: %s reads as %v (%v)", raw, HostKey(host), back, err)
		}
	})
}

func BenchmarkSourceIPHash(b *testing.B) {
	for _, text := range []string{"203.0.113.77", "2001:db8:f4be:a213::854f"} {
		addr := netip.MustParseAddr(text)
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				SourceIPHash(addr)
			}
		})
	}
}
