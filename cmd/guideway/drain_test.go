package main_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// drainBed is a proxy of TCP and UDP with two hosts that echo.
func drainBed(t *testing.T, idle string, args ...string) (*testbed.Namespace, *testbed.Proxy) {
	ns := testbed.Isolated(t)
	for _, port := range []uint16{testbed.PortEcho, testbed.PortHalfClose} {
		host := netip.AddrPortFrom(testbed.Loopback, port)
		testbed.StartBackend(t, ns, backend.Config{Network: backend.TCP, Behaviour: backend.Echo}, host)
		testbed.StartBackend(t, ns, backend.Config{Network: backend.UDP}, host)
	}
	config := testbed.Bootstrap([]any{
		testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c")),
		testbed.UDPListener("u", testbed.ListenPort, testbed.UDPProxy("u", "c", testbed.Message{"idle_timeout": idle})),
	}, []any{testbed.Cluster("c", testbed.PortEcho, testbed.PortHalfClose)})
	return ns, testbed.Guideway(t).Start(t, ns, config, args...).Ready()
}

const drainedHost = "127.0.0.1:20001" // testbed.PortEcho

// TestDrainWaits: it shows what is left, ends with the last flow, TCP or UDP, and says how it ended.
func TestDrainWaits(t *testing.T) {
	t.Parallel()
	ns, p := drainBed(t, "60s")
	to := testbed.ListenAddress(testbed.ListenPort)
	other := func(path string) {
		t.Helper()
		if r := p.Post(path + "?host=127.0.0.1:20002"); r.Status != 200 {
			t.Fatalf("%s: %d %s", path, r.Status, r.Body)
		}
	}
	other("/guideway/drain") // so that both connections are with the first
	first := testbed.ConnectTo(t, ns, netip.Addr{}, to).Say("x").Hear("x")
	second := testbed.ConnectTo(t, ns, netip.Addr{}, to).Say("x").Hear("x")
	other("/guideway/undrain")
	drain := func(args ...string) *testbed.Proxy {
		all := append([]string{"drain", drainedHost, "--admin", p.Admin().String(), "--wait", "--interval", "20ms"}, args...)
		return testbed.Guideway(t).Exec(t, ns, t.TempDir(), all...)
	}
	late := drain("--timeout", "100ms")
	if code := late.Wait(); code != 2 || !strings.Contains(late.Stderr(), "the time is over with 2 TCP connections and 0 UDP sessions left") {
		t.Errorf("with a time limit it ended with %d: %s", code, late.Stderr())
	}
	waiting := drain()
	testbed.Eventually(t, "it shows two connections", func() bool {
		return strings.Contains(waiting.Stderr(), "2 TCP connections and 0 UDP sessions left\n")
	})
	first.Close()
	testbed.Eventually(t, "it shows one connection", func() bool {
		return strings.Contains(waiting.Stderr(), "1 TCP connection and 0 UDP sessions left\n")
	})
	if waiting.Ended() {
		t.Error("it ended with a connection left")
	}
	if !strings.Contains(p.Get("/clusters").Body, drainedHost+"::health_flags::/guideway_draining") {
		t.Error("/clusters does not show that the host is drained")
	}
	second.Say("y").Hear("y").Close()
	if code := waiting.Wait(); code != 0 || !strings.HasPrefix(waiting.Stdout(), "drained after ") {
		t.Errorf("it ended with %d: %s%s", code, waiting.Stdout(), waiting.Stderr())
	}
	for range 5 { // new flows go elsewhere
		testbed.ConnectTo(t, ns, netip.Addr{}, to).Say("x").Hear("x")
	}
	if n := hostFlows(t, p); n != 0 {
		t.Errorf("%d new flows on the drained host", n)
	}
	if out := testbed.Guideway(t).Exec(t, ns, t.TempDir(), "drain", "127.0.0.1:1", "--admin", p.Admin().String()); out.Wait() != 1 || !strings.Contains(out.Stderr(), "no such host") {
		t.Errorf("draining a host that is not there: %s", out.Stderr())
	}
}

// TestDrainWaitsForSessions: a UDP session counts until it is idle; taking the host back in ends the wait.
func TestDrainWaitsForSessions(t *testing.T) {
	t.Parallel()
	ns, p := drainBed(t, "0.7s")
	guideway := func(args ...string) *testbed.Proxy {
		return testbed.Guideway(t).Exec(t, ns, t.TempDir(), append(args, "--admin", p.Admin().String())...)
	}
	if out := guideway("drain", "127.0.0.1:20002"); out.Wait() != 0 { // so that all sessions are on the other host
		t.Fatal(out.Stderr())
	}
	c := testbed.DatagramsTo(t, ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort))
	if _, ok := c.Ask("x", testbed.Patience); !ok {
		t.Fatal("no answer")
	}
	back := guideway("drain", drainedHost, "--wait", "--interval", "10ms", "-o", "json")
	testbed.Eventually(t, "it waits for a session", func() bool { return strings.Contains(back.Stderr(), "1 UDP session left") || back.Ended() })
	if out := guideway("undrain", drainedHost); out.Wait() != 0 {
		t.Fatal(out.Stderr())
	}
	var result struct {
		Drained bool   `json:"drained"`
		Reason  string `json:"reason"`
	}
	if code := back.Wait(); code == 2 {
		if err := json.Unmarshal([]byte(back.Stdout()), &result); err != nil || result.Drained || !strings.Contains(result.Reason, "taken back in") {
			t.Errorf("it says %s (%v)", back.Stdout(), err)
		}
	} else if code != 0 { // 0: the session idled out before
		t.Errorf("it ended with %d: %s", code, back.Stderr())
	}
	c.Ask("y", testbed.Patience)
	idle := guideway("drain", drainedHost, "--wait", "--interval", "10ms")
	if code := idle.Wait(); code != 0 {
		t.Errorf("it ended with %d when the session was idle: %s", code, idle.Stderr())
	}
}

// hostFlows is how many flows the host that is to be drained has.
func hostFlows(t *testing.T, p *testbed.Proxy) int64 {
	t.Helper()
	var found []struct {
		Hosts []struct{ Connections, Sessions int64 }
	}
	r := p.Get("/guideway/hosts?host=" + drainedHost)
	if err := json.Unmarshal([]byte(r.Body), &found); err != nil || len(found) != 1 || len(found[0].Hosts) != 1 {
		t.Fatalf("/guideway/hosts: %s (%v)", r.Body, err)
	}
	return found[0].Hosts[0].Connections + found[0].Hosts[0].Sessions
}

// TestDrainOnTerm: SIGTERM drains, and ends the process long before the drain time once nothing is left.
func TestDrainOnTerm(t *testing.T) {
	t.Parallel()
	ns, p := drainBed(t, "60s", "--drain-on-term", "--drain-time-s", "10")
	to := testbed.ListenAddress(testbed.ListenPort)
	held := testbed.ConnectTo(t, ns, netip.Addr{}, to).Say("x").Hear("x")
	p.Signal(syscall.SIGTERM)
	testbed.Eventually(t, "/ready fails", func() bool { return p.Get("/ready").Status == 503 })
	held.Say("y").Hear("y")
	if p.Ended() {
		t.Fatal("it ended with a connection")
	}
	held.Close()
	if code := p.Wait(); code != 0 || !strings.Contains(p.Stderr(), "no flow is left") {
		t.Errorf("it ended with %d:\n%s", code, p.Stderr())
	}
}
