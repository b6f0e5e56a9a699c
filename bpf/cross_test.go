package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/guideway/guideway/conntrack"
)

var (
	client4 = netip.MustParseAddrPort("198.51.100.7:40000")
	vip4    = netip.MustParseAddrPort("192.0.2.1:80")
	client6 = netip.MustParseAddrPort("[2001:db8:1::7]:40000")
	vip6    = netip.MustParseAddrPort("[2001:db8:2::1]:80")
	router4 = netip.MustParseAddr("203.0.113.9")
	router6 = netip.MustParseAddr("2001:db8:3::9")

	backend4, source4 = netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("10.1.0.0")
	backend6, source6 = netip.MustParseAddr("fd00:2::1"), netip.MustParseAddr("fd00:1::")
)

// way is a forwarding mode to a backend of a family.
type way struct {
	name       string
	forwarding uint8
	v6         bool
}

var ways = []way{
	{"ipip to IPv4", ForwardIPIP, false}, {"ipip to IPv6", ForwardIPIP, true},
	{"gue to IPv4", ForwardGUE, false}, {"gue to IPv6", ForwardGUE, true},
	{"l2", ForwardL2, false}, {"nat", ForwardNAT, false}, {"nat", ForwardNAT, true},
}

func (w way) backend() Backend {
	b := Backend{
		Generation: 2, Ifindex: thisInterface, DstMac: nextHopMAC, SrcMac: ourMAC, Mtu: 1500,
		Forwarding: w.forwarding, Flags: BackendResolved, SourceBits: 8,
	}
	addr, source := backend4, source4
	if w.v6 {
		addr, source = backend6, source6
		b.Flags |= BackendIPv6
	}
	copy(b.Addr[:], addr.AsSlice())
	copy(b.Source[:], source.AsSlice())
	switch w.forwarding {
	case ForwardGUE:
		b.Port = BigEndian(gue)
	case ForwardNAT:
		b.Port = BigEndian(8080)
	}
	return b
}

// kind is a kind of packet, as an IP packet from a client to a VIP, or about that.
type kind struct {
	name    string
	first   []byte // goes before it
	packet  []byte
	vlans   []uint16
	later   bool // a fragment that is not the first
	icmp    bool // an ICMP error
	proto   uint8
	partial bool // its checksum is unfinished: NAT finishes it
	event   string
}

func kinds() []kind {
	var all []kind
	for _, f := range []struct {
		v            string
		client, vip  netip.AddrPort
		router       netip.Addr
		icmp, unreac byte
	}{
		{"IPv4", client4, vip4, router4, kindICMP, 3}, {"IPv6", client6, vip6, router6, kindICMPv6, 1},
	} {
		c, v := f.client, f.vip
		add := func(k kind) {
			k.name = f.v + " " + k.name
			all = append(all, k)
		}
		to := func(proto byte) ip { return ip{src: c.Addr(), dst: v.Addr(), proto: proto, tos: 0xb8, id: 77} }
		t, u := tcp(c, v, tcpACK|tcpPSH, "hello, backend"), udp(c, v, "datagram")
		add(kind{name: "TCP SYN", packet: to(kindTCP).bytes(tcp(c, v, tcpSYN, "")), proto: kindTCP})
		add(kind{name: "TCP", packet: to(kindTCP).bytes(t), proto: kindTCP})
		add(kind{name: "UDP", packet: to(kindUDP).bytes(u), proto: kindUDP})
		add(kind{name: "UDP, one tag", packet: to(kindUDP).bytes(u), proto: kindUDP, vlans: []uint16{42}})
		add(kind{name: "TCP, two tags", packet: to(kindTCP).bytes(t), proto: kindTCP, vlans: []uint16{7, 42}})
		add(kind{name: "empty UDP", packet: to(kindUDP).bytes(udp(c, v, "")), proto: kindUDP})

		for _, n := range []int{1, 5, 63, 64, 65, 1000} {
			m := udp(c, v, strings.Repeat("x", n))
			binary.BigEndian.PutUint16(m[6:], uint16(sum16(pseudo(c.Addr(), v.Addr(), kindUDP, len(m)))))
			add(kind{name: fmt.Sprintf("UDP of %d bytes, unfinished checksum", n), packet: to(kindUDP).bytes(m), proto: kindUDP, partial: true})
		}
		m := bytes.Clone(t)
		binary.BigEndian.PutUint16(m[16:], uint16(sum16(pseudo(c.Addr(), v.Addr(), kindTCP, len(m)))))
		add(kind{name: "TCP, unfinished checksum", packet: to(kindTCP).bytes(m), proto: kindTCP, partial: true})

		// The answer that an error is about, with all of layer 4, and with 8 bytes of it.
		for _, proto := range []byte{kindTCP, kindUDP} {
			answer := tcp(v, c, tcpACK, "answer")
			if proto == kindUDP {
				answer = udp(v, c, "answer")
			}
			for _, n := range []int{len(answer), 8} {
				for _, odd := range []bool{false, true} {
					h := ip{src: v.Addr(), dst: c.Addr(), proto: proto, id: 3}
					if odd && v.Addr().Is4() {
						h.options = []byte{7, 7, 4, 0, 0, 0, 0, 0}
					} else if odd {
						h.extType, h.ext = 60, []byte{proto, 0, 1, 4, 0, 0, 0, 0}
					}
					quoted := h.bytes(answer)
					quoted = quoted[:len(quoted)-len(answer)+n]
					e := ip{src: f.router, dst: v.Addr(), proto: f.icmp}.bytes(icmp(f.router, v.Addr(), f.unreac, 4, 0, quoted))
					first := to(proto).bytes(t)
					if proto == kindUDP {
						first = to(proto).bytes(u)
					}
					add(kind{
						name: fmt.Sprintf("error about protocol %d, %d bytes quoted, options %v", proto, n, odd), first: first,
						packet: e, proto: proto, icmp: true, event: "icmp_error_forwarded",
					})
				}
			}
		}
		if v.Addr().Is4() {
			plain := udp(c, v, "no checksum")
			plain[6], plain[7] = 0, 0
			add(kind{name: "UDP without a checksum", packet: to(kindUDP).bytes(plain), proto: kindUDP})
			h := to(kindTCP)
			h.options = []byte{1, 1, 148, 4, 0, 0, 1, 0}
			add(kind{name: "TCP, options", packet: h.bytes(t), proto: kindTCP})
			h.options = bytes.Repeat([]byte{1}, 40)
			add(kind{name: "TCP, 40 bytes of options", packet: h.bytes(t), proto: kindTCP, vlans: []uint16{1, 2}})
			long := udp(c, v, strings.Repeat("long ", 100))
			h = to(kindUDP)
			h.frag = 0x2000
			first := h.bytes(long[:104])
			add(kind{name: "first fragment", packet: first, proto: kindUDP, event: "fragment_forwarded"})
			h.frag = 13
			add(kind{name: "last fragment", first: first, packet: h.bytes(long[104:]), proto: kindUDP, later: true, event: "fragment_forwarded"})
			h.frag = 0x2000 | 13
			add(kind{name: "middle fragment", first: first, packet: h.bytes(long[104:120]), proto: kindUDP, later: true, event: "fragment_forwarded"})
		} else {
			for n := 1; n <= 7; n++ {
				h := to(kindTCP)
				types := []byte{0, 60, 43, 51, 60, 135, 139}[:n]
				h.extType = types[0]
				for i, typ := range types {
					next := byte(kindTCP)
					if i+1 < len(types) {
						next = types[i+1]
					}
					x := []byte{next, 0, 1, 4, 0, 0, 0, 0}
					switch typ {
					case 43:
						x = []byte{next, 2, 4, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
					case 51:
						x = []byte{next, 4, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}
					}
					h.ext = append(h.ext, x...)
				}
				add(kind{name: fmt.Sprintf("TCP, %d extension headers", n), packet: h.bytes(t), proto: kindTCP})
			}
			long := udp(c, v, strings.Repeat("long ", 100))
			h := to(kindUDP)
			frag := func(offset uint16, more bool) []byte {
				x := []byte{kindUDP, 0, byte(offset >> 8), byte(offset), 0, 0, 1, 2}
				if more {
					x[3] |= 1
				}
				return x
			}
			h.extType, h.ext = 44, frag(0, false)
			add(kind{name: "atomic fragment", packet: h.bytes(u), proto: kindUDP})
			h.ext = frag(0, true)
			first := h.bytes(long[:104])
			add(kind{name: "first fragment", packet: first, proto: kindUDP, event: "fragment_forwarded"})
			h.ext = frag(104, false)
			add(kind{name: "last fragment", first: first, packet: h.bytes(long[104:]), proto: kindUDP, later: true, event: "fragment_forwarded"})
			h.extType, h.ext = 60, append([]byte{44, 0, 1, 4, 0, 0, 0, 0}, frag(104, true)...)
			add(kind{name: "middle fragment behind options", first: first, packet: h.bytes(long[104:120]), proto: kindUDP, later: true, event: "fragment_forwarded"})
		}
	}
	return all
}

// TestEveryPacketEveryWay sends every kind of packet by every forwarding mode.
// What comes out is compared byte for byte with what a slow model makes of the
// packet, and decoded.
func TestEveryPacketEveryWay(t *testing.T) {
	b := newBed(t, nil)
	for _, w := range ways {
		for _, k := range kinds() {
			v6 := k.packet[0]>>4 == 6
			if w.forwarding == ForwardNAT && v6 != w.v6 {
				continue
			}
			t.Run(w.name+"/"+k.name, func(t *testing.T) {
				b.t = t
				b.reset()
				s, _ := oneTable(t, conntrack.TrackChanged, 1, 0, 0, 0, 0, 0, 0, 0)
				service := Service{Id: 3}
				if w.forwarding == ForwardNAT {
					service.Flags = ServiceNAT
				}
				for _, proto := range []uint8{kindTCP, kindUDP} {
					for _, vip := range []netip.AddrPort{vip4, vip6} {
						b.put(vip, proto, service, image(t, s), []Backend{w.backend()})
					}
				}
				packets := uint64(1)
				if k.first != nil {
					if verdict, _ := b.run(frame(k.first, k.vlans...)); verdict != "tx" {
						t.Fatalf("the packet before it: %s", verdict)
					}
					packets++
					b.newEvents()
				}
				in := frame(k.packet, k.vlans...)
				verdict, out := b.run(in)
				if verdict != "tx" {
					t.Fatalf("verdict %s, events %v", verdict, b.newEvents())
				}
				events := map[string]uint64{}
				if k.event != "" {
					events[k.event] = 1
				}
				if got := b.newEvents(); !maps.Equal(got, events) {
					t.Errorf("events %v, want %v", got, events)
				}
				if n := b.backendCounters(0); n.Packets != packets || k.first == nil && n.Bytes != uint64(len(in)) {
					t.Errorf("backend counters %+v after %d packets, the last of %d bytes", n, packets, len(in))
				}
				text, err := describe(out)
				t.Log(text)
				if err != nil && !(k.partial && w.forwarding != ForwardNAT) {
					t.Error(err)
				}
				link := linkLen(in)
				if !bytes.Equal(out[:12], append(nextHopMAC[:], ourMAC[:]...)) || !bytes.Equal(out[12:link-2], in[12:link-2]) {
					t.Errorf("link header % x", out[:link])
				}
				inner, err := w.strip(out[link-2:], k)
				if err != nil {
					t.Fatalf("%v\n% x", err, out)
				}
				want := hop(k.packet)
				if w.forwarding == ForwardNAT {
					want = b.natted(k)
				}
				if !bytes.Equal(inner, want) {
					t.Errorf("inside is\n% x, want\n% x", inner, want)
				}
			})
		}
	}
}

// strip checks the outer headers, and returns what is in them.
func (w way) strip(b []byte, k kind) ([]byte, error) {
	typ := binary.BigEndian.Uint16(b)
	b = b[2:]
	if w.forwarding == ForwardL2 || w.forwarding == ForwardNAT {
		if want := map[bool]uint16{false: 0x0800, true: 0x86dd}[k.packet[0]>>4 == 6]; typ != want {
			return nil, fmt.Errorf("EtherType %#x, want %#x", typ, want)
		}
		return b, nil
	}
	proto, tos := byte(4), k.packet[1]
	if k.packet[0]>>4 == 6 {
		proto, tos = 41, k.packet[0]<<4|k.packet[1]>>4
	}
	over := len(b) - len(k.packet)
	h := ip{proto: proto, ttl: 64, tos: tos, frag: 0x4000}
	var want []byte
	if w.v6 {
		if typ != 0x86dd {
			return nil, fmt.Errorf("EtherType %#x", typ)
		}
		src := netip.AddrFrom16([16]byte(b[8:24]))
		if !netip.PrefixFrom(source6, 120).Contains(src) {
			return nil, fmt.Errorf("outer source %s", src)
		}
		h.src, h.dst = src, backend6
	} else {
		if typ != 0x0800 {
			return nil, fmt.Errorf("EtherType %#x", typ)
		}
		src := netip.AddrFrom4([4]byte(b[12:16]))
		if !netip.PrefixFrom(source4, 24).Contains(src) {
			return nil, fmt.Errorf("outer source %s", src)
		}
		h.src, h.dst = src, backend4
	}
	rest := b
	if w.forwarding == ForwardGUE {
		h.proto = kindUDP
		n := len(h.bytes(nil))
		g := b[n : n+12]
		if port := binary.BigEndian.Uint16(g); port < 0xc000 {
			return nil, fmt.Errorf("GUE source port %d", port)
		}
		l := len(b) - n
		if wantG := []byte{g[0], g[1], gue >> 8, gue & 0xff, byte(l >> 8), byte(l), 0, 0, 0, proto, 0, 0}; !bytes.Equal(g, wantG) {
			return nil, fmt.Errorf("UDP and GUE % x, want % x", g, wantG)
		}
		rest = b[n+12:]
	} else {
		rest = b[len(h.bytes(nil)):]
	}
	want = h.bytes(b[len(h.bytes(nil)):])
	if w.v6 { // the flow label is the flow's
		copy(want[1:4], []byte{want[1]&0xf0 | b[1]&0xf, b[2], b[3]})
	}
	if !bytes.Equal(b[:over], want[:over]) {
		return nil, fmt.Errorf("outer header % x, want % x", b[:over], want[:over])
	}
	return rest, nil
}

// natted is what NAT ought to make of the packet, built from scratch with the port that the program took.
func (b *bed) natted(k kind) []byte {
	b.t.Helper()
	v6 := k.packet[0]>>4 == 6
	us, to, router := source4, backend4, netip.AddrPortFrom(router4, 0)
	client, vip := client4, vip4
	if v6 {
		us, to, router = source6, backend6, netip.AddrPortFrom(router6, 0)
		client, vip = client6, vip6
	}
	_ = router
	var f NATFlow
	b.must(b.NATFlows.Lookup(natKey(client, vip, conntrack.Proto(k.proto)), &f))
	port := BigEndian(f.Port)
	src, dst := netip.AddrPortFrom(us, port), netip.AddrPortFrom(to, 8080)
	if !k.icmp {
		return rewriteSlowly(hop(k.packet), src, dst, k.later, false, k.partial)
	}
	out := rewriteSlowly(hop(k.packet), netip.AddrPortFrom(us, 0), netip.AddrPortFrom(to, 0), true, false, false)
	n := 20
	if v6 {
		n = 40
	}
	quoted := rewriteSlowly(out[n+8:], dst, src, false, true, false)
	copy(out[n+8:], quoted)
	proto := byte(kindICMP)
	if v6 {
		proto = kindICMPv6
	}
	l4sum(us, to, proto, out[n:])
	return out
}

func natKey(client, vip netip.AddrPort, proto conntrack.Proto) conntrack.Key6 {
	return conntrack.Flow{Src: client, Dst: vip, Proto: proto}.Key6()
}

// rewriteSlowly replaces addresses and ports of an IP packet. Checksums that
// are whole are computed anew; in a quoted packet or a fragment, whose bytes are
// not all there, the sum is moved by the difference of the pseudo-header and ports.
func rewriteSlowly(packet []byte, src, dst netip.AddrPort, addrsOnly, quoted, partial bool) []byte {
	p := bytes.Clone(packet)
	v6 := p[0]>>4 == 6
	at, n, proto := 12, int(p[0]&15)*4, p[9]
	l := 4
	first := true
	if v6 {
		at, l, n, proto = 8, 16, 40, p[6]
		for {
			h := p[n:]
			if proto == 51 {
				proto, n = h[0], n+8+int(h[1])*4
			} else if proto == 44 {
				first = h[2] == 0 && h[3] == 0
				proto, n = h[0], n+8
			} else if proto == 0 || proto == 43 || proto == 60 || proto == 135 || proto == 139 {
				proto, n = h[0], n+8+int(h[1])*8
			} else {
				break
			}
		}
	} else {
		first = binary.BigEndian.Uint16(p[6:])&0x3fff == 0
	}
	before := append(bytes.Clone(p[at:at+2*l]), p[n:min(n+4, len(p))]...)
	copy(p[at:], src.Addr().AsSlice())
	copy(p[at+l:], dst.Addr().AsSlice())
	if !v6 {
		p[10], p[11] = 0, 0
		binary.BigEndian.PutUint16(p[10:], checksum(p[:n]))
	}
	if addrsOnly {
		return p
	}
	m := p[n:]
	binary.BigEndian.PutUint16(m, src.Port())
	binary.BigEndian.PutUint16(m[2:], dst.Port())
	sumAt := 16
	if proto == kindUDP {
		sumAt = 6
	}
	if len(m) < sumAt+2 || proto == kindUDP && m[6] == 0 && m[7] == 0 {
		return p
	}
	if !quoted && first || partial {
		l4sum(src.Addr(), dst.Addr(), proto, m)
		return p
	}
	after := append(bytes.Clone(p[at:at+2*l]), m[:4]...)
	old := binary.BigEndian.Uint16(m[sumAt:])
	s := uint32(^old) + 0xffff - sum16(before) + sum16(after)
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	c := ^uint16(s)
	if proto == kindUDP && c == 0 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(m[sumAt:], c)
	return p
}
