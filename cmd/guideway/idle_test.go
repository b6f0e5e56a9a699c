package main_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// manyConnections is what a descriptor limit of 20,000 leaves room for: two descriptors each.
const manyConnections = 9500

// rss is the resident memory of a process, in bytes.
func rss(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// limitConfig has a breaker wide enough for all connections.
func limitConfig() testbed.Message {
	c := testbed.Cluster("c", testbed.PortEcho)
	c["circuit_breakers"] = testbed.Message{"thresholds": []any{testbed.Message{"max_connections": 100000, "max_pending_requests": 100000}}}
	return testbed.Bootstrap([]any{testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c"))}, []any{c})
}

func TestManyIdleConnections(t *testing.T) {
	n := manyConnections
	if testing.Short() {
		n = 1000
	}
	if room := roomForDescriptors(t, 2*n+500); room < 2*n+500 {
		n = (room - 500) / 2
		t.Logf("the descriptor limit leaves room for %d connections", n)
	}
	ns := testbed.Isolated(t)
	testbed.StartBackend(t, ns, backend.Config{Network: backend.TCP, Behaviour: backend.Echo}, netip.AddrPortFrom(testbed.Loopback, testbed.PortEcho))
	p := testbed.Guideway(t).Start(t, ns, limitConfig()).Ready()
	const descriptors = 20000
	if err := unix.Prlimit(p.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: descriptors, Max: descriptors}, nil); err != nil {
		t.Logf("the proxy keeps the descriptor limit it has: %v", err)
	}
	before := rss(t, p.PID())
	conns := make([]net.Conn, 0, n)
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	for len(conns) < n {
		c, err := ns.DialContext(context.Background(), "tcp", testbed.ListenAddress(testbed.ListenPort))
		if err != nil {
			t.Fatalf("connection %d: %v", len(conns), err)
		}
		conns = append(conns, c)
	}
	testbed.Eventually(t, "all connections reach the backend", func() bool {
		return p.Stats()["cluster.c.upstream_cx_active"] == int64(n) && p.Stats()["cluster.c.upstream_rq_pending_active"] == 0
	})
	t.Logf("%d idle connections in one process: %d bytes of resident memory each", n, (rss(t, p.PID())-before)/n)
	// Idle is not dead: each still carries a byte both ways.
	for i, c := range conns {
		if err := echo(c); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if s := p.Stats(); s["cluster.c.upstream_cx_active"] != int64(n) || s["listener.127.0.0.1_10000.downstream_cx_active"] != int64(n) {
		t.Errorf("%d upstream and %d downstream connections are counted, want %d", s["cluster.c.upstream_cx_active"], s["listener.127.0.0.1_10000.downstream_cx_active"], n)
	}
}

// roomForDescriptors raises this process's own descriptor limit for the test, if it may, so that there is room
// for want more beside those that are open, and tells how much room there is.
func roomForDescriptors(t *testing.T, want int) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var saved unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &saved); err != nil {
		t.Fatal(err)
	}
	need := uint64(len(open) + want)
	if raised := (unix.Rlimit{Cur: need, Max: max(need, saved.Max)}); saved.Cur < need && unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
		t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &saved) })
		return want
	}
	return int(saved.Cur) - len(open)
}

// echo sends a byte and waits for it.
func echo(c net.Conn) error {
	c.SetDeadline(time.Now().Add(testbed.Patience))
	b := []byte{'x'}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := c.Read(b)
	return err
}

func TestAboveTheDescriptorLimit(t *testing.T) {
	ns := testbed.Isolated(t)
	testbed.StartBackend(t, ns, backend.Config{Network: backend.TCP, Behaviour: backend.Echo}, netip.AddrPortFrom(testbed.Loopback, testbed.PortEcho))
	p := testbed.Guideway(t).Start(t, ns, limitConfig()).Ready()
	const descriptors = 200
	if err := unix.Prlimit(p.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: descriptors, Max: descriptors}, nil); err != nil {
		t.Fatal(err)
	}
	var served, waiting []net.Conn
	t.Cleanup(func() {
		for _, c := range append(served, waiting...) {
			c.Close()
		}
	})
	// As many as fit are served; the kernel accepts the rest on the listener's behalf.
	for range descriptors {
		c, err := ns.DialContext(context.Background(), "tcp", testbed.ListenAddress(testbed.ListenPort))
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		b := []byte{'x'}
		if _, err = c.Write(b); err == nil {
			_, err = c.Read(b)
		}
		if err == nil {
			served = append(served, c)
		} else {
			waiting = append(waiting, c)
		}
		if len(waiting) == 5 {
			break
		}
	}
	if len(served) < descriptors/4 || len(waiting) < 5 {
		t.Fatalf("%d connections are served and %d wait under a limit of %d descriptors", len(served), len(waiting), descriptors)
	}
	for i, c := range served {
		if err := echo(c); err != nil {
			t.Fatalf("connection %d of those served stalls: %v", i, err)
		}
	}
	testbed.Eventually(t, "the limit is logged", func() bool { return strings.Contains(p.Stderr(), "out of descriptors") })
	if lines := strings.Count(p.Stderr(), "out of descriptors"); lines > 20 {
		t.Errorf("the log has %d lines about it", lines)
	}
	testbed.Eventually(t, "the limit is counted", func() bool { return p.Stats()["guideway.accept_paused"] > 0 })
	// With room again, new connections are served.
	for _, c := range served[:len(served)/2] {
		c.Close()
	}
	testbed.Eventually(t, "a new connection is served", func() bool {
		c, err := ns.DialContext(context.Background(), "tcp", testbed.ListenAddress(testbed.ListenPort))
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Second))
		b := []byte{'x'}
		if _, err := c.Write(b); err != nil {
			return false
		}
		_, err = c.Read(b)
		return err == nil
	})
}
