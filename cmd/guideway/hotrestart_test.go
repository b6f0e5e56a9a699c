package main_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// restartBed is a namespace with an echoing host and the configuration of the tests of hot restart.
type restartBed struct {
	t       *testing.T
	ns      *testbed.Namespace
	subject testbed.Subject
	config  testbed.Message
}

func newRestartBed(t *testing.T) *restartBed {
	ns := testbed.Isolated(t)
	host := netip.AddrPortFrom(testbed.Loopback, testbed.PortEcho)
	testbed.StartBackend(t, ns, backend.Config{Network: backend.TCP, Behaviour: backend.Echo}, host)
	testbed.StartBackend(t, ns, backend.Config{Network: backend.UDP}, host)
	cluster := testbed.Cluster("c", testbed.PortEcho, testbed.PortHalfClose)
	cluster["lb_policy"] = "ROUND_ROBIN"
	return &restartBed{t: t, ns: ns, subject: testbed.Guideway(t), config: testbed.Bootstrap([]any{
		testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "echo")),
		testbed.UDPListener("u", testbed.ListenPort, testbed.UDPProxy("u", "echo")),
	}, []any{testbed.Cluster("echo", testbed.PortEcho), cluster})}
}

// start starts an epoch with so many workers.
func (b *restartBed) start(epoch, workers int, args ...string) *testbed.Proxy {
	b.t.Helper()
	all := append([]string{"--disable-hot-restart=false", "--restart-epoch", strconv.Itoa(epoch), "--concurrency", strconv.Itoa(workers)}, args...)
	return b.subject.Start(b.t, b.ns, b.config, all...)
}

// live waits until the process serves by itself: with two on one admin port /ready says nothing of which.
func (b *restartBed) live(p *testbed.Proxy) *testbed.Proxy {
	b.t.Helper()
	testbed.Eventually(b.t, "the process takes over", func() bool {
		if p.Ended() {
			b.t.Fatalf("it ended:\n%s", p.Stderr())
		}
		return strings.Contains(p.Stderr(), "starting main dispatch loop")
	})
	return p
}

// TestHotRestart: three processes follow one another, with other numbers of workers, under a steady load of
// new connections, none of which fails; an old connection goes on, and so do counters.
func TestHotRestart(t *testing.T) {
	t.Parallel()
	b := newRestartBed(t)
	to := testbed.ListenAddress(testbed.ListenPort)
	first := b.start(0, 2).Ready()
	old := testbed.ConnectTo(t, b.ns, netip.Addr{}, to).Say("a").Hear("a")
	datagrams := testbed.DatagramsTo(t, b.ns, netip.Addr{}, to)
	if _, ok := datagrams.Ask("x", testbed.Patience); !ok {
		t.Fatal("no answer to a datagram")
	}
	if r := first.Post(fmt.Sprintf("/guideway/drain?host=127.0.0.1:%d&cluster=c", testbed.PortHalfClose)); r.Status != 200 {
		t.Fatalf("drain: %d %s", r.Status, r.Body)
	}

	ctx, stop := context.WithCancel(context.Background())
	var load sync.WaitGroup
	var connects, failures atomic.Int64
	var failure atomic.Pointer[error]
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				if err := oneConnection(b.ns, to); err != nil {
					failures.Add(1)
					failure.Store(&err)
				}
				connects.Add(1)
			}
		})
	}
	soon := func(n int64) {
		t.Helper()
		want := connects.Load() + n
		testbed.Eventually(t, "the load goes on", func() bool { return connects.Load() >= want })
	}
	soon(50)

	second := b.live(b.start(1, 1)) // fewer workers: its one accepts from two queues
	soon(200)
	old.Say("b").Hear("b")
	if first.Ended() {
		t.Error("the first process ended although it has a connection")
	}
	if got := second.Get("/hot_restart_version").Body; got != "guideway.1" {
		t.Errorf("hot restart version %q", got)
	}
	if !strings.Contains(second.Get("/clusters").Body, fmt.Sprintf("c::127.0.0.1:%d::health_flags::/guideway_draining", testbed.PortHalfClose)) {
		t.Error("the drained host is not drained in the second process")
	}
	testbed.Eventually(t, "the first process's connection counts in the second", func() bool {
		s := second.Stats()
		return s["server.parent_connections"] >= 1 && s["cluster.echo.upstream_cx_total"] >= 50
	})
	if _, ok := datagrams.Ask("y", testbed.Patience); !ok {
		t.Error("no answer to a datagram after the restart")
	}
	for range 16 { // sessions in every queue that the first process had
		if _, ok := testbed.DatagramsTo(t, b.ns, netip.Addr{}, to).Ask("w", testbed.Patience); !ok {
			t.Error("no answer to a new client's datagram after the restart")
		}
	}
	old.Close()

	third := b.live(b.start(2, 3)) // more workers: they bind more sockets
	soon(200)
	if code := first.Wait(); code != 0 {
		t.Errorf("the first process ended with %d", code)
	}
	stop()
	load.Wait()
	if n := failures.Load(); n > 0 {
		t.Errorf("%d of %d connections failed: %v", n, connects.Load(), *failure.Load())
	}
	if _, ok := datagrams.Ask("z", testbed.Patience); !ok {
		t.Error("no answer to a datagram after the second restart")
	}
	testbed.Eventually(t, "all connections are counted in the third process", func() bool {
		return third.Stats()["tcp.t.downstream_cx_total"] == connects.Load()+1
	})
	second.Signal(syscall.SIGTERM) // its UDP session would keep it
	if code := second.Wait(); code != 0 {
		t.Errorf("the second process ended with %d", code)
	}
}

// oneConnection has a byte echoed.
func oneConnection(ns *testbed.Namespace, to string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testbed.Patience)
	defer cancel()
	c, err := ns.DialContext(ctx, "tcp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testbed.Patience))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	var got [1]byte
	if _, err := c.Read(got[:]); err != nil {
		return err
	}
	c.(*net.TCPConn).SetLinger(0) // no port is kept
	return nil
}

// TestHotRestartEndsTheParent: after --parent-shutdown-time-s old connections see an orderly end.
func TestHotRestartEndsTheParent(t *testing.T) {
	t.Parallel()
	b := newRestartBed(t)
	first := b.start(0, 1).Ready()
	old := testbed.ConnectTo(t, b.ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort)).Say("a").Hear("a")
	b.live(b.start(1, 1, "--parent-shutdown-time-s", "1"))
	if _, then, _ := old.HearOut(); then != testbed.EndOfStream {
		t.Errorf("the old connection: %s", then)
	}
	if code := first.Wait(); code != 0 {
		t.Errorf("the parent ended with %d", code)
	}
}

// TestHotRestartFails: a process that cannot take over changes nothing for the one that serves.
func TestHotRestartFails(t *testing.T) {
	t.Parallel()
	b := newRestartBed(t)
	lonely := b.start(1, 1)
	if code := lonely.Wait(); code != 1 || !strings.Contains(lonely.Stderr(), "no process of the epoch before answers") {
		t.Errorf("epoch 1 without a parent ended with %d:\n%s", code, lonely.Stderr())
	}
	first := b.start(0, 1).Ready()
	rival := b.start(0, 1)
	if code := rival.Wait(); code != 1 || !strings.Contains(rival.Stderr(), "unable to bind domain socket with base_id=0, id=0, errno=98 (see --base-id option)") {
		t.Errorf("a second process of one base id ended with %d:\n%s", code, rival.Stderr())
	}
	good := b.config
	b.config = testbed.Merge(good, testbed.Message{"static_resources": testbed.Message{"listeners": []any{
		testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "echo")),
		testbed.Listener("taken", testbed.PortEcho, testbed.TCPProxy("t", "echo")), // the host's port
	}}})
	failed := b.start(1, 1)
	if code := failed.Wait(); code != 1 {
		t.Errorf("a process that cannot bind ended with %d", code)
	}
	b.config = good
	testbed.ConnectTo(t, b.ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort)).Say("a").Hear("a").Close()
	testbed.Eventually(t, "the admin API is back", func() bool {
		return strings.Contains(first.Stderr(), "this one serves on") && first.Ready() != nil
	})
	b.live(b.start(1, 1))
	if code := first.Wait(); code != 0 {
		t.Errorf("the first process ended with %d", code)
	}
}
