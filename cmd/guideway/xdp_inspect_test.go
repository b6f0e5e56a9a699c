package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/guideway/guideway/cmd/guideway/testbed"
	"github.com/guideway/guideway/dataplane"
)

// ask runs a command of the program in the balancer's namespace.
func (b *xdpBed) ask(t testing.TB, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(testbed.Guideway(t).Exe, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := b.balancer.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("guideway %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// The commands that look at a running instance, and a capture.
func TestXDPInspection(t *testing.T) {
	b := newXDPBed(t, "ipip", false)
	dir := t.TempDir()
	p := b.start(t, dir, b.config("auto", xdpHealth{}))
	if _, err := b.get(1000); err != nil {
		t.Fatal(err)
	}
	held := b.hold(t, "tcp", 100)

	var services []dataplane.ServiceStatus
	read := func() *dataplane.XDPService {
		t.Helper()
		if err := json.Unmarshal([]byte(b.ask(t, "services", "-o", "json")), &services); err != nil {
			t.Fatal(err)
		}
		return services[0].XDP
	}
	await(t, "the packets are counted", func() bool { x := read(); return x != nil && x.Flows == 100 && x.Packets >= 300 })
	if services[0].Dataplane != "xdp" || !services[0].XDP.InSync {
		t.Errorf("%+v", services[0])
	}
	sum := 0
	for _, x := range services[0].XDP.Backends {
		sum += x.Slots
	}
	if sum != 65537 {
		t.Errorf("the backends have %d slots, want 65537", sum)
	}
	s := p.Stats()
	if s["cluster.tcp.upstream_cx_total"] != 100 || s["tcp.t.downstream_cx_total"] != 100 || s["cluster.tcp.upstream_cx_rx_bytes_total"] != 0 {
		t.Errorf("cluster.tcp.upstream_cx_total %d, tcp.t.downstream_cx_total %d, want 100; upstream_cx_rx_bytes_total %d, want 0", s["cluster.tcp.upstream_cx_total"], s["tcp.t.downstream_cx_total"], s["cluster.tcp.upstream_cx_rx_bytes_total"])
	}

	if got := b.ask(t, "flows"); strings.Count(got, "\n") != 1 {
		t.Errorf("flows are remembered though no slot has changed:\n%s", got)
	}
	b.rewrite(t, dir, b.config("auto", xdpHealth{"DRAINING"}))
	await(t, "slots are open", func() bool { return read().Open > 0 })
	b.check(t, "drained", held, func(string) bool { return true })
	remembered := strings.Count(b.ask(t, "flows", "--listener", "tcp"), "alive")
	on := 0
	for _, f := range held {
		if f.backend == "b1" {
			on++
		}
	}
	if remembered != on {
		t.Errorf("%d flows are remembered, want the %d of the drained backend", remembered, on)
	}
	if got := b.ask(t, "backends"); !strings.Contains(got, "10.2.0.11:8080") || !strings.Contains(got, "REACHABLE") && !strings.Contains(got, "PROBE") {
		t.Errorf("backends:\n%s", got)
	}

	captured := make(chan string, 1)
	go func() { captured <- b.ask(t, "capture", "--listener", "tcp", "--packets", "20", "--seconds", "10") }()
	await(t, "the capture has begun", func() bool {
		for _, f := range held {
			if _, err := f.ask(); err != nil {
				t.Fatal(err)
			}
		}
		return len(captured) > 0
	})
	file, err := pcapgo.NewNgReader(strings.NewReader(<-captured), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	before, after := 0, 0
	for {
		data, info, err := file.ReadPacketData()
		if err != nil {
			break
		}
		outer := 0
		for _, l := range gopacket.NewPacket(data, layers.LinkTypeEthernet, gopacket.Default).Layers() {
			if l.LayerType() == layers.LayerTypeIPv4 {
				outer++
			}
		}
		if info.InterfaceIndex == 0 && outer == 1 {
			before++
		}
		if info.InterfaceIndex == 1 && outer == 2 {
			after++
		}
	}
	if before+after != 20 || before == 0 || after == 0 {
		t.Errorf("captured %d plain packets before and %d encapsulated ones after, want 20 together", before, after)
	}
}

// A listener that XDP cannot serve runs in the proxy beside those that it can, and says why.
func TestXDPBesideProxy(t *testing.T) {
	b := newXDPBed(t, "ipip", false)
	inNS(t, b.balancer, func() error { return addAddress("lo", "10.9.0.7/32") })
	config := b.config("auto", xdpHealth{}, func(c testbed.Message) {
		static := c["static_resources"].(testbed.Message)
		l := testbed.Listener("proxied", xdpPort, testbed.TCPProxy("m", "tcp"))
		l["address"] = testbed.SocketAddress("10.9.0.7", xdpPort)
		l["metadata"] = testbed.Message{"filter_metadata": testbed.Message{"guideway": testbed.Message{"dataplane": "proxy"}}}
		wild := testbed.Listener("everywhere", 9999, testbed.TCPProxy("e", "tcp"))
		wild["address"] = testbed.SocketAddress("0.0.0.0", 9999)
		static["listeners"] = append(static["listeners"].([]any), l, wild)
	})
	p := b.start(t, t.TempDir(), config)
	if _, err := b.get(100); err != nil {
		t.Fatal(err)
	}
	var services []dataplane.ServiceStatus
	if err := json.Unmarshal([]byte(b.ask(t, "services", "-o", "json")), &services); err != nil {
		t.Fatal(err)
	}
	in := map[string]string{}
	for _, s := range services {
		in[s.Listener] = s.Dataplane
	}
	for name, want := range map[string]string{"tcp": "xdp", "udp": "xdp", "proxied": "proxy", "everywhere": "proxy"} {
		if in[name] != want {
			t.Errorf("listener %s runs in %q, want %q", name, in[name], want)
		}
	}
	if s := p.Stats(); s["guideway.dataplane.listeners.proxy"] != 2 || s["guideway.dataplane.listeners.xdp_native"] != 3 {
		t.Errorf("%d listeners in the proxy and %d in XDP, want 2 and 3", s["guideway.dataplane.listeners.proxy"], s["guideway.dataplane.listeners.xdp_native"])
	}
}

// Open slots close after the idle timeout, and settle when no flow is left that differs from the table.
func TestXDPSlotsSettle(t *testing.T) {
	b := newXDPBed(t, "ipip", false)
	dir := t.TempDir()
	short := func(c testbed.Message) {
		for _, l := range c["static_resources"].(testbed.Message)["listeners"].([]any) {
			if l := l.(testbed.Message); l["name"] == "udp" {
				l["listener_filters"] = []any{testbed.UDPProxy("u", "udp", testbed.Message{"idle_timeout": "2s"})}
			}
		}
	}
	p := b.start(t, dir, b.config("xdp", xdpHealth{}, short))
	udp := b.hold(t, "udp", 50)
	b.rewrite(t, dir, b.config("xdp", xdpHealth{"DRAINING"}, short))
	stat := func(name string) int64 { return p.Stats()["guideway.service.udp."+name] }
	await(t, "slots are open", func() bool { return stat("open_slots") > 20000 })
	// Flows that go on keep their slots from settling, and stay where they are.
	await(t, "the slots are excepted", func() bool {
		b.check(t, "learned", udp, func(string) bool { return true })
		return stat("open_slots") == 0 && stat("excepted_slots") > 0
	})
	drained := 0
	for _, f := range udp {
		if f.backend == "b1" {
			drained++
		}
	}
	if n := stat("excepted_slots"); n > int64(drained) {
		await(t, "all but the slots of live flows settle", func() bool {
			b.check(t, "excepted", udp, func(string) bool { return true })
			return stat("excepted_slots") <= int64(drained)
		})
	}
	await(t, "the rest settles when the flows are idle", func() bool { return stat("excepted_slots") == 0 })
	b.check(t, "begun anew", udp, func(backend string) bool { return backend != "b1" })
	for _, f := range udp {
		if f.backend == "b1" {
			t.Errorf("%s went to the drained backend after its slot had settled", f.LocalAddr())
		}
	}
}
