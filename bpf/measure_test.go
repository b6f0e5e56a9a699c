package bpf

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/guideway/guideway/conntrack"
)

// TestMeterRestoresPackets measures briefly and looks at what came of it: every
// packet of every round reached the backend.
func TestMeterRestoresPackets(t *testing.T) {
	b := newBed(t, nil)
	s, _ := oneTable(t, conntrack.TrackAll, 1, 0, 0, 0, 0, 0, 0, 0)
	b.put(vip4, kindUDP, Service{Id: 1}, image(t, s), []Backend{ways[0].backend()})
	m, err := NewMeter()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	packet := frame(ip{src: client4.Addr(), dst: vip4.Addr(), proto: kindUDP}.bytes(udp(client4, vip4, strings.Repeat("x", 60))))
	r, err := m.Measure(b.XDP, Trial{Packet: packet, Flows: 100, Runs: 1000, Rounds: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got := verdicts[r.Verdict]; got != "tx" {
		t.Errorf("verdict %s", got)
	}
	// The kernel starts a run again when a signal interrupts it.
	if n := b.backendCounters(0); n.Packets < 2*(1000+100) || n.Bytes != n.Packets*uint64(len(packet)) {
		t.Errorf("backend counters %+v after 2,200 packets of %d bytes", n, len(packet))
	}
	if n := b.serviceCounters(1); n.Remembered != 100 {
		t.Errorf("%d flows remembered, want 100", n.Remembered)
	}
}

// BenchmarkPackets is off unless GUIDEWAY_BENCH_XDP is set: it wants a machine for itself.
func BenchmarkPackets(b *testing.B) {
	if os.Getenv("GUIDEWAY_BENCH_XDP") == "" {
		b.Skip("set GUIDEWAY_BENCH_XDP=1 on a quiet machine")
	}
	switches := DefaultSwitches()
	if os.Getenv("GUIDEWAY_BENCH_XDP") == "min" {
		switches = Switches{Ipv4: 1, Ipv6: 1, Ipip: 1, Tracking: 1}
	}
	p, err := Load(Options{Switches: &switches, Capacity: Capacity{Flows: 1 << 21}})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	defer p.Close()
	bed := &bed{t: b, Program: p, tables: map[uint32]*ebpf.Map{}}
	m, err := NewMeter()
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	const size, members = 65537, 100
	slots := make([]conntrack.Backend, size)
	for i := range slots {
		slots[i] = conntrack.Backend(i * 7919 % members)
	}
	for _, c := range []struct {
		name  string
		vip   netip.AddrPort
		proto uint8
		track conntrack.Track
		open  bool
		way   way
	}{
		{"settled", vip4, kindTCP, conntrack.TrackChanged, false, ways[0]},
		{"settled", vip4, kindUDP, conntrack.TrackChanged, false, ways[0]},
		{"settled", vip6, kindTCP, conntrack.TrackChanged, false, ways[1]},
		{"settled", vip6, kindUDP, conntrack.TrackChanged, false, ways[1]},
		{"settled to IPv4", vip6, kindTCP, conntrack.TrackChanged, false, ways[0]},
		{"settled to IPv6", vip4, kindTCP, conntrack.TrackChanged, false, ways[1]},
		{"settled gue", vip4, kindTCP, conntrack.TrackChanged, false, ways[2]},
		{"settled gue", vip6, kindTCP, conntrack.TrackChanged, false, ways[3]},
		{"settled l2", vip6, kindTCP, conntrack.TrackChanged, false, ways[4]},
		{"settled l2", vip4, kindTCP, conntrack.TrackChanged, false, ways[4]},
		{"open", vip4, kindTCP, conntrack.TrackChanged, true, ways[0]},
		{"open", vip4, kindUDP, conntrack.TrackChanged, true, ways[0]},
		{"track all", vip4, kindTCP, conntrack.TrackAll, false, ways[0]},
		{"track all", vip6, kindTCP, conntrack.TrackAll, false, ways[1]},
	} {
		s, d := oneTable(b, c.track, members, slots...)
		if c.open {
			moved := make([]conntrack.Backend, size)
			for i := range moved {
				moved[i] = conntrack.Backend((i*7919 + 1) % members)
			}
			d.Tables[0].Slots = moved
			if _, err := s.Apply(d, 0); err != nil {
				b.Fatal(err)
			}
		}
		backends := make([]Backend, members)
		for i := range backends {
			backends[i] = c.way.backend()
		}
		bed.put(c.vip, c.proto, Service{Id: 1}, image(b, s), backends)
		client := client4
		if c.vip.Addr().Is6() {
			client = client6
		}
		l4 := udp(client, c.vip, strings.Repeat("x", 60))
		if c.proto == kindTCP {
			l4 = tcp(client, c.vip, tcpACK, strings.Repeat("x", 60))
		}
		packet := frame(ip{src: client.Addr(), dst: c.vip.Addr(), proto: c.proto}.bytes(l4))
		for _, flows := range []uint32{1, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s %s protocol %d flows %d", c.name, family(c.vip), c.proto, flows), func(b *testing.B) {
				measure(b, m, bed, Trial{Packet: packet, Flows: flows})
			})
		}
	}
	other := netip.MustParseAddrPort("203.0.113.1:80")
	b.Run("no VIP", func(b *testing.B) {
		measure(b, m, bed, Trial{Packet: frame(ip{src: client4.Addr(), dst: other.Addr(), proto: kindTCP}.bytes(tcp(client4, other, tcpACK, strings.Repeat("x", 60))))})
	})
	b.Run("ARP", func(b *testing.B) {
		arp := frame(ip{src: client4.Addr(), dst: other.Addr(), proto: kindTCP}.bytes(tcp(client4, other, tcpACK, strings.Repeat("x", 60))))
		arp[13] = 6
		measure(b, m, bed, Trial{Packet: arp})
	})
}

func family(a netip.AddrPort) string {
	if a.Addr().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

func measure(b *testing.B, m *Meter, bed *bed, t Trial) {
	var r Result
	for range b.N {
		var err error
		r, err = m.Measure(bed.XDP, t)
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(r.Program, "ns/packet")
	b.ReportMetric(r.Floor, "ns/floor")
	b.ReportMetric(r.Program/r.Floor, "x/floor")
	b.ReportMetric(float64(r.Verdict), "verdict")
	b.ReportMetric(0, "ns/op")
}
