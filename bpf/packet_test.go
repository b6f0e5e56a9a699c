package bpf

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/conntrack"
)

// row is a packet, the state it meets, and what has to become of it.
type row struct {
	name    string
	state   func(*bed, *Backend, *Service) // changes what is usual; after it, services are put
	after   func(*bed)                     // changes what is there then
	first   [][]byte                       // packets before it
	packet  []byte
	verdict string
	// out is the packet that leaves, as describe has it; of one that passes, "" says that it is untouched.
	out    string
	events map[string]uint64
}

func one(names ...string) map[string]uint64 {
	m := map[string]uint64{}
	for _, n := range names {
		m[n]++
	}
	return m
}

func rows() []row {
	t4 := func(flags byte, payload string) []byte {
		return ip{src: client4.Addr(), dst: vip4.Addr(), proto: kindTCP}.bytes(tcp(client4, vip4, flags, payload))
	}
	u6 := func(payload string) []byte {
		return ip{src: client6.Addr(), dst: vip6.Addr(), proto: kindUDP}.bytes(udp(client6, vip6, payload))
	}
	to4 := func(dst netip.AddrPort) []byte {
		return ip{src: client4.Addr(), dst: dst.Addr(), proto: kindTCP}.bytes(tcp(client4, dst, tcpACK, "x"))
	}
	echo4 := func(dst netip.Addr, options []byte) []byte {
		return ip{src: client4.Addr(), dst: dst, proto: kindICMP, options: options, ttl: 3}.bytes(icmp(client4.Addr(), dst, 8, 0, 0x12340001, []byte("ping data")))
	}
	echo6 := func(dst netip.Addr) []byte {
		return ip{src: client6.Addr(), dst: dst, proto: kindICMPv6}.bytes(icmp(client6.Addr(), dst, 128, 0, 0x12340001, []byte("ping data")))
	}
	withTTL := func(p []byte, ttl byte) []byte {
		q := bytes.Clone(p)
		if q[0]>>4 == 6 {
			q[7] = ttl + 1
		} else {
			q[8] = ttl + 1
		}
		return hop(q) // which makes the checksum
	}
	other4, other6 := netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("2001:db8:2::77")
	frag4 := func(offset uint16, port uint16) []byte {
		long := udp(client4, netip.AddrPortFrom(vip4.Addr(), port), strings.Repeat("long ", 40))
		h := ip{src: client4.Addr(), dst: vip4.Addr(), proto: kindUDP, id: 9, frag: offset}
		if offset == 0 {
			h.frag = 0x2000
			return h.bytes(long[:64])
		}
		return h.bytes(long[64:])
	}
	frag6 := func(offset byte) []byte {
		long := udp(client6, vip6, strings.Repeat("long ", 40))
		h := ip{src: client6.Addr(), dst: vip6.Addr(), proto: kindUDP, extType: 44, ext: []byte{kindUDP, 0, 0, offset, 0, 0, 0, 5}}
		if offset == 1 {
			return h.bytes(long[:64])
		}
		return h.bytes(long[64:])
	}
	ext6 := func(dst netip.AddrPort, proto byte, types ...byte) []byte {
		h := ip{src: client6.Addr(), dst: dst.Addr(), proto: proto, extType: types[0]}
		for i := range types {
			next := proto
			if i+1 < len(types) {
				next = types[i+1]
			}
			h.ext = append(h.ext, next, 0, 1, 4, 0, 0, 0, 0)
		}
		return h.bytes(tcp(client6, dst, tcpACK, "x"))
	}
	short := t4(tcpACK, "")
	unmatched := ip{src: vip4.Addr(), dst: client4.Addr(), proto: kindUDP, frag: 7}.bytes([]byte("not a header"))
	noService := ip{src: vip4.Addr(), dst: client4.Addr(), proto: kindUDP}.bytes(udp(netip.AddrPortFrom(vip4.Addr(), 9), client4, ""))
	spoofed := ip{src: other4, dst: client4.Addr(), proto: kindTCP}.bytes(tcp(vip4, client4, tcpACK, ""))
	about := func(quoted []byte) []byte {
		return frame(ip{src: router4, dst: vip4.Addr(), proto: kindICMP}.bytes(icmp(router4, vip4.Addr(), 3, 4, 1400, quoted)))
	}
	nat := func(v6 bool) func(b *bed, be *Backend, s *Service) {
		return func(b *bed, be *Backend, s *Service) {
			*be = way{forwarding: ForwardNAT, v6: v6}.backend()
			s.Flags |= ServiceNAT
		}
	}

	return []row{
		// What is none of ours passes untouched.
		{name: "another address", packet: frame(to4(netip.AddrPortFrom(other4, 80))), verdict: "pass"},
		{name: "another port of a VIP", packet: frame(to4(netip.AddrPortFrom(vip4.Addr(), 81))), verdict: "pass"},
		{name: "another protocol of a VIP", packet: frame(ip{src: client4.Addr(), dst: vip4.Addr(), proto: 132}.bytes(make([]byte, 40))), verdict: "pass"},
		{name: "ARP", packet: append(frame(t4(tcpACK, ""))[:12], append([]byte{8, 6}, make([]byte, 46)...)...), verdict: "pass"},
		{name: "three tags", packet: frame(t4(tcpACK, ""), 1, 2, 3), verdict: "pass"},
		{name: "IPv6 to another address", packet: frame(ext6(netip.AddrPortFrom(other6, 80), kindTCP, 0)), verdict: "pass"},
		{name: "an unknown header to another address", packet: frame(ext6(netip.AddrPortFrom(other6, 80), kindTCP, 60, 200)), verdict: "pass"},
		{name: "a neighbour solicitation", packet: frame(ip{src: client6.Addr(), dst: vip6.Addr(), proto: kindICMPv6}.bytes(icmp(client6.Addr(), vip6.Addr(), 135, 0, 0, vip6.Addr().AsSlice()))), verdict: "pass"},
		{name: "a fragment to another address", packet: frame(ip{src: client4.Addr(), dst: other4, proto: kindUDP, frag: 9}.bytes(make([]byte, 64))), verdict: "pass"},

		// Echo.
		{
			name: "echo to a VIP", packet: frame(echo4(vip4.Addr(), nil)), verdict: "tx", events: one("echo_answered"),
			out: "02:00:00:00:00:01 > 02:00:00:00:00:0c | 192.0.2.1 > 198.51.100.7 ttl 64 | icmp 0/0 rest 0x12340001 len 9",
		},
		{
			name: "echo with options, tagged", packet: frame(echo4(vip4.Addr(), []byte{1, 1, 1, 0}), 5), verdict: "tx", events: one("echo_answered"),
			out: "02:00:00:00:00:01 > 02:00:00:00:00:0c | vlan 5 | 192.0.2.1 > 198.51.100.7 ttl 64 | icmp 0/0 rest 0x12340001 len 9",
		},
		{
			name: "echo to an IPv6 VIP", packet: frame(echo6(vip6.Addr())), verdict: "tx", events: one("echo_answered"),
			out: "02:00:00:00:00:01 > 02:00:00:00:00:0c | 2001:db8:2::1 > 2001:db8:1::7 ttl 64 | icmp 129/0 rest 0x12340001 len 9",
		},
		{name: "echo to another address", packet: frame(echo4(other4, nil)), verdict: "pass"},
		{name: "echo to another IPv6 address", packet: frame(echo6(other6)), verdict: "pass"},
		{name: "an echo reply", packet: frame(ip{src: client4.Addr(), dst: vip4.Addr(), proto: kindICMP}.bytes(icmp(client4.Addr(), vip4.Addr(), 0, 0, 1, nil))), verdict: "pass"},

		// ICMP errors.
		{name: "an error about a later fragment", packet: about(unmatched), verdict: "drop", events: one("icmp_unmatched")},
		{name: "an error that quotes too little", packet: about(t4(0, "")[:24]), verdict: "drop", events: one("icmp_unmatched")},
		{name: "an error about no service", packet: about(noService), verdict: "pass"},
		{name: "an error about another address", packet: about(spoofed), verdict: "pass"},

		// TTL.
		{
			name: "TTL 1", packet: frame(withTTL(t4(tcpACK, "payload"), 1)), verdict: "tx", events: one("ttl", "time_exceeded_sent"),
			out: "02:00:00:00:00:01 > 02:00:00:00:00:0c | 192.0.2.1 > 198.51.100.7 ttl 64 tos 0xc0 | icmp 11/0 rest 0x0 len 44 | quotes | 198.51.100.7 > 192.0.2.1 ttl 1 | tcp 40000 > 80 len 4",
		},
		{
			name: "hop limit 1, two tags", packet: frame(withTTL(u6("payload!"), 1), 3, 4), verdict: "tx", events: one("ttl", "time_exceeded_sent"),
			out: "02:00:00:00:00:01 > 02:00:00:00:00:0c | vlan 3 | vlan 4 | 2001:db8:2::1 > 2001:db8:1::7 ttl 64 | icmp 3/0 rest 0x0 len 56 | quotes | 2001:db8:1::7 > 2001:db8:2::1 ttl 1 | udp 40000 > 80 len 8",
		},
		{name: "TTL 1 to another address", packet: frame(withTTL(to4(netip.AddrPortFrom(other4, 80)), 1)), verdict: "pass"},

		// Too big.
		{
			name: "too big by one byte", packet: frame(t4(tcpACK, strings.Repeat("x", 1441))), verdict: "tx", events: one("too_big", "too_big_sent"),
			out: "02:00:00:00:00:01 > 02:00:00:00:00:0c | 192.0.2.1 > 198.51.100.7 ttl 64 tos 0xc0 | icmp 3/4 rest 0x5c8 len 548 | quotes | 198.51.100.7 > 192.0.2.1 ttl 64 | tcp 40000 > 80 len 508",
		},
		{
			name: "just not too big", packet: frame(t4(tcpACK, strings.Repeat("x", 1440))), verdict: "tx",
			out: "02:00:00:00:00:01 > 02:00:00:00:00:0b | 10.1.0.245 > 10.2.0.1 ttl 64 df | 198.51.100.7 > 192.0.2.1 ttl 63 | tcp 40000 > 80 len 1440",
		},
		{
			name: "too big for GUE over IPv6, tagged", packet: frame(u6(strings.Repeat("x", 1401)), 8), verdict: "tx", events: one("too_big", "too_big_sent"),
			state: func(_ *bed, be *Backend, _ *Service) { *be = way{forwarding: ForwardGUE, v6: true}.backend() },
			out:   "02:00:00:00:00:01 > 02:00:00:00:00:0c | vlan 8 | 2001:db8:2::1 > 2001:db8:1::7 ttl 64 | icmp 2/0 rest 0x5a8 len 1232 | quotes | 2001:db8:1::7 > 2001:db8:2::1 ttl 64 | udp 40000 > 80 len 1401",
		},

		// Fragments.
		{name: "a fragment before the first", packet: frame(frag4(8, 80)), verdict: "drop", events: one("fragment_before_first")},
		{name: "an IPv6 fragment before the first", packet: frame(frag6(64)), verdict: "drop", events: one("fragment_before_first")},
		{name: "a first fragment to no service", packet: frame(frag4(0, 99)), verdict: "pass"},
		{name: "a later fragment to no service", first: [][]byte{frame(frag4(0, 99))}, packet: frame(frag4(8, 99)), verdict: "pass"},
		{
			name: "a later fragment 31 s after the first", first: [][]byte{frame(frag4(0, 80))}, packet: frame(frag4(8, 80)),
			after: func(b *bed) { b.setClock(time.Hour + 31*time.Second) }, verdict: "drop", events: one("fragment_before_first"),
		},

		// What is no packet, quite.
		{name: "cut short in TCP", packet: frame(short)[:14+20+16], verdict: "drop", events: one("malformed")},
		{name: "a length beyond the frame", packet: frame(append(short[:2:2], append([]byte{0, 200}, short[4:]...)...)), verdict: "drop", events: one("malformed")},
		{name: "a length short of TCP", packet: frame(append(short[:2:2], append([]byte{0, 21}, short[4:]...)...)), verdict: "drop", events: one("malformed")},
		{
			name: "padded", packet: append(frame(short), 0, 0, 0, 0, 0, 0), verdict: "tx",
			out: "02:00:00:00:00:01 > 02:00:00:00:00:0b | 10.1.0.245 > 10.2.0.1 ttl 64 df | 198.51.100.7 > 192.0.2.1 ttl 63 | tcp 40000 > 80 len 0",
		},
		{name: "an unknown extension header", packet: frame(ext6(vip6, kindTCP, 60, 200)), verdict: "drop", events: one("extension_header")},
		{name: "SCTP behind an extension header", packet: frame(ext6(vip6, 132, 60)), verdict: "pass"},
		{name: "nine extension headers", packet: frame(ext6(vip6, kindTCP, 60, 60, 60, 60, 60, 60, 60, 60, 60)), verdict: "drop", events: one("extension_header")},

		// No way.
		{name: "no backend", state: func(_ *bed, _ *Backend, s *Service) { s.Id = 5 }, after: func(b *bed) { b.emptyTables() }, packet: frame(t4(tcpACK, "")), verdict: "drop", events: one("no_backend")},
		{name: "no table", after: func(b *bed) { b.moveTables(vip4, 200) }, packet: frame(t4(tcpACK, "")), verdict: "drop", events: one("no_table")},
		{
			name: "next hop unresolved", state: func(_ *bed, be *Backend, _ *Service) { be.Flags &^= BackendResolved },
			packet: frame(t4(tcpACK, ""), 6, 7), verdict: "pass", events: one("next_hop_unresolved"),
			out: "02:00:00:00:00:0c > 02:00:00:00:00:01 | vlan 6 | vlan 7 | 10.1.0.245 > 10.2.0.1 ttl 64 df | 198.51.100.7 > 192.0.2.1 ttl 63 | tcp 40000 > 80 len 0",
		},
		{
			name: "next hop unresolved, l2", packet: frame(t4(tcpACK, "")), verdict: "drop", events: one("unreachable"),
			state: func(_ *bed, be *Backend, _ *Service) { be.Forwarding, be.Flags = ForwardL2, 0 },
		},
		{
			name: "an interface that is not in devices", packet: frame(t4(tcpACK, "")), verdict: "drop", events: one("no_interface"),
			state: func(_ *bed, be *Backend, _ *Service) { be.Ifindex = 12345 },
		},
		{
			name: "NAT to another family", packet: frame(t4(tcpACK, "")), verdict: "drop", events: one("nat_family"),
			state: func(b *bed, be *Backend, s *Service) { nat(true)(b, be, s) },
		},
	}
}

// emptyTables leaves every slot without an owner.
func (b *bed) emptyTables() {
	b.t.Helper()
	s, _ := oneTable(b.t, conntrack.TrackChanged, 1, conntrack.NoBackend)
	for _, m := range b.tables {
		img := image(b.t, s)
		only, _ := img.Only()
		a, _ := img.Array(only)
		if m.MaxEntries() == Chunks(a.Len()) {
			slots := make([]byte, 64)
			for i := range slots {
				slots[i] = 0xff
			}
			memory, err := m.Memory()
			b.must(err)
			_, err = memory.WriteAt(slots, 64)
			b.must(err)
		}
	}
}

// moveTables makes the service's table one that is not there.
func (b *bed) moveTables(vip netip.AddrPort, to uint32) {
	b.t.Helper()
	var s Service
	b.must(b.Services4.Lookup(Key4(vip, kindTCP), &s))
	s.Only = to
	b.putService(vip, kindTCP, s)
}

func TestPackets(t *testing.T) {
	b := newBed(t, nil)
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			b.t = t
			b.reset()
			b.setClock(time.Hour)
			be, service := ways[0].backend(), Service{Id: 3}
			if r.state != nil {
				r.state(b, &be, &service)
			}
			s, _ := oneTable(t, conntrack.TrackChanged, 1, 0, 0, 0, 0, 0, 0, 0)
			for _, proto := range []uint8{kindTCP, kindUDP} {
				for _, vip := range []netip.AddrPort{vip4, vip6} {
					b.put(vip, proto, service, image(t, s), []Backend{be})
				}
			}
			for _, p := range r.first {
				b.run(p)
			}
			if r.after != nil {
				r.after(b)
			}
			b.newEvents()
			dropped := b.serviceCounters(service.Id).Dropped
			verdict, out := b.run(r.packet)
			if verdict != r.verdict {
				t.Errorf("verdict %s, want %s", verdict, r.verdict)
			}
			events := b.newEvents()
			if !maps.Equal(events, r.events) {
				t.Errorf("events %v, want %v", events, r.events)
			}
			if n := b.serviceCounters(service.Id).Dropped - dropped; n > 1 || verdict == "drop" && n == 0 && events["fragment_before_first"]+events["extension_header"]+events["icmp_unmatched"]+events["no_interface"] == 0 {
				t.Errorf("%d packets counted as dropped for the service", n)
			}
			switch {
			case r.verdict == "drop":
			case r.out == "":
				if !bytes.Equal(out, r.packet) {
					t.Errorf("became % x, was % x", out, r.packet)
				}
			default:
				got, err := describe(out)
				if err != nil {
					t.Error(err)
				}
				if got != r.out {
					t.Errorf("sent\n%s, want\n%s", got, r.out)
				}
			}
		})
	}
}

// TestICMPAnswersAreLimited uses up the tokens, and waits for the next one by the clock of the test.
func TestICMPAnswersAreLimited(t *testing.T) {
	b := newBed(t, func(s *Switches) { s.IcmpBurst, s.IcmpInterval = 5, 1e6 })
	b.reset()
	s, _ := oneTable(t, conntrack.TrackChanged, 1, 0)
	b.put(vip4, kindTCP, Service{}, image(t, s), []Backend{ways[0].backend()})
	packet := frame(ip{src: client4.Addr(), dst: vip4.Addr(), proto: kindTCP, ttl: 1}.bytes(tcp(client4, vip4, tcpACK, "")))
	send := func(n int) (answered int) {
		for range n {
			if verdict, _ := b.run(packet); verdict == "tx" {
				answered++
			}
		}
		return answered
	}
	if n := send(20); n < 5 || n > 10 { // a bucket a CPU, of which this thread may see two
		t.Errorf("%d answers at once, want 5", n)
	}
	if n := b.newEvents(); n["ttl"] != 20 || n["icmp_rate"] != 20-n["time_exceeded_sent"] {
		t.Errorf("events %v", n)
	}
	b.setClock(time.Hour + 2*time.Millisecond)
	if n := send(20); n < 2 || n > 4 {
		t.Errorf("%d answers 2 ms later, want 2", n)
	}
}

// TestNATBothWays follows a flow to the backend and back, and errors about it.
func TestNATBothWays(t *testing.T) {
	b := newBed(t, nil)
	for _, v6 := range []bool{false, true} {
		for _, proto := range []uint8{kindTCP, kindUDP} {
			b.reset()
			w := way{forwarding: ForwardNAT, v6: v6}
			client, vip, us, to, router := client4, vip4, source4, backend4, router4
			if v6 {
				client, vip, us, to, router = client6, vip6, source6, backend6, router6
			}
			s, _ := oneTable(t, conntrack.TrackChanged, 1, 0, 0, 0)
			b.put(vip, proto, Service{Flags: ServiceNAT}, image(t, s), []Backend{w.backend()})
			l4 := func(src, dst netip.AddrPort, flags byte, payload string) []byte {
				if proto == kindTCP {
					return tcp(src, dst, flags, payload)
				}
				return udp(src, dst, payload)
			}
			send := func(src, dst netip.AddrPort, flags byte, payload string) (string, []byte) {
				return b.run(frame(ip{src: src.Addr(), dst: dst.Addr(), proto: proto}.bytes(l4(src, dst, flags, payload))))
			}
			check := func(what string, verdict string, out []byte, mac [6]uint8, src, dst netip.AddrPort, payload string) {
				t.Helper()
				want := frame(ip{src: src.Addr(), dst: dst.Addr(), proto: proto, ttl: 63}.bytes(l4(src, dst, tcpACK, payload)))
				copy(want, mac[:])
				copy(want[6:], ourMAC[:])
				if verdict != "tx" || !bytes.Equal(out, want) {
					t.Errorf("%s: %s\n% x, want\n% x", what, verdict, out, want)
				}
				if _, err := describe(out); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			send(client, vip, tcpSYN, "")
			var f NATFlow
			b.must(b.NATFlows.Lookup(natKey(client, vip, conntrack.Proto(proto)), &f))
			port := netip.AddrPortFrom(us, BigEndian(f.Port))
			backend := netip.AddrPortFrom(to, 8080)
			verdict, out := send(client, vip, tcpACK, "request")
			check("request", verdict, out, nextHopMAC, port, backend, "request")
			verdict, out = send(backend, port, tcpACK, "answer")
			check("answer", verdict, out, clientMAC, vip, client, "answer")
			if verdict, _ := send(netip.AddrPortFrom(to, 8081), port, tcpACK, ""); verdict != "pass" {
				t.Errorf("from another port of the backend: %s", verdict)
			}

			// The backend's network complains about a request: its client hears of it, from the VIP.
			kindOf := byte(kindICMP)
			if v6 {
				kindOf = kindICMPv6
			}
			for _, all := range []bool{false, true} {
				request := ip{src: port.Addr(), dst: to, proto: proto}.bytes(l4(port, backend, tcpACK, "request"))
				want := ip{src: client.Addr(), dst: vip.Addr(), proto: proto}.bytes(l4(client, vip, tcpACK, "request"))
				if !all {
					n := len(request) - len(l4(port, backend, tcpACK, "request")) + 8
					request, want = request[:n], want[:n]
				}
				e := frame(ip{src: router, dst: us, proto: kindOf}.bytes(icmp(router, us, 1, 0, 0, request)))
				if !v6 {
					e = frame(ip{src: router, dst: us, proto: kindOf}.bytes(icmp(router, us, 3, 1, 0, request)))
				}
				b.newEvents()
				verdict, out := b.run(e)
				typ := byte(1)
				code := byte(0)
				if !v6 {
					typ, code = 3, 1
				}
				wantFrame := frame(ip{src: vip.Addr(), dst: client.Addr(), proto: kindOf, ttl: 63}.bytes(icmp(vip.Addr(), client.Addr(), typ, code, 0, want)))
				copy(wantFrame, clientMAC[:])
				copy(wantFrame[6:], ourMAC[:])
				if verdict != "tx" || !bytes.Equal(out, wantFrame) {
					t.Errorf("error about a request, IPv6 %v, all %v: %s\n% x, want\n% x", v6, all, verdict, out, wantFrame)
				}
				if n := b.newEvents(); n["nat_icmp_error_answer"] != 1 {
					t.Errorf("events %v", n)
				}
			}
			if n := b.backendCounters(0); n.Packets != 2 || n.Back != 1 || n.Flows != 1 {
				t.Errorf("backend counters %+v", n)
			}
		}
	}
}

// TestNATPortsAreDistinct fills a small range: every flow has a port of its
// own, what is left over is dropped and counted, and idle ports are used again.
func TestNATPortsAreDistinct(t *testing.T) {
	b := newBed(t, func(s *Switches) { s.NatPortMin, s.NatPortMax = 5000, 5015 })
	b.reset()
	s, _ := oneTable(t, conntrack.TrackChanged, 1, 0)
	b.put(vip4, kindUDP, Service{Flags: ServiceNAT}, image(t, s), []Backend{way{forwarding: ForwardNAT}.backend()})
	send := func(i int) (string, uint16) {
		src := netip.AddrPortFrom(client4.Addr(), uint16(1000+i))
		verdict, out := b.run(frame(ip{src: src.Addr(), dst: vip4.Addr(), proto: kindUDP}.bytes(udp(src, vip4, "x"))))
		if verdict != "tx" {
			return verdict, 0
		}
		return verdict, binary.BigEndian.Uint16(out[34:])
	}
	ports := map[uint16]int{}
	for i := range 100 {
		if verdict, port := send(i); verdict == "tx" {
			if before, taken := ports[port]; taken || port < 5000 || port > 5015 {
				t.Fatalf("flow %d has port %d, flow %d has it", i, port, before)
			}
			ports[port] = i
		}
	}
	if n := b.newEvents()["nat_no_port"]; len(ports) < 12 || n != uint64(100-len(ports)) {
		t.Errorf("%d of 16 ports used, %d packets dropped of 100", len(ports), n)
	}
	for port, i := range ports {
		if verdict, again := send(i); again != port {
			t.Errorf("flow %d had port %d, now %s %d", i, port, verdict, again)
		}
	}
	b.setClock(time.Hour + 2*time.Minute)
	if verdict, _ := send(1000); verdict != "tx" {
		t.Errorf("a flow after all others are idle: %s", verdict)
	}
}

// TestRedirect sends by another interface than the packet came from.
func TestRedirect(t *testing.T) {
	b := newBed(t, nil)
	b.reset()
	interfaces, err := net.Interfaces()
	b.must(err)
	var other int
	for _, i := range interfaces {
		if i.Index != thisInterface {
			other = i.Index
		}
	}
	if other == 0 {
		t.Skip("there is no interface but lo")
	}
	b.must(b.Devices.Put(uint32(other), Device{Ifindex: uint32(other)}))
	be := ways[0].backend()
	be.Ifindex = uint32(other)
	s, _ := oneTable(t, conntrack.TrackChanged, 1, 0)
	b.put(vip4, kindTCP, Service{}, image(t, s), []Backend{be})
	if verdict, _ := b.run(frame(ip{src: client4.Addr(), dst: vip4.Addr(), proto: kindTCP}.bytes(tcp(client4, vip4, tcpACK, "")))); verdict != "redirect" {
		t.Errorf("verdict %s", verdict)
	}
	b.must(b.Devices.Delete(uint32(other)))
}
