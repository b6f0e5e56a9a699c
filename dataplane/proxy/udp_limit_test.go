package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUDPBreaker: the limit counts all connections of the cluster, and shows when it is reached.
func TestUDPBreaker(t *testing.T) {
	b := newUDPBed(t, 2)
	b.setHosts(b.host("A"))
	b.cluster.Breakers.Default.MaxConnections = 3
	b.cluster.Live.Connections.Set(1) // a TCP connection
	b.listener.UDP.IdleTimeout = 30 * time.Second
	b.apply()
	b.client().ask("x")
	if open := b.value("cluster.c.circuit_breakers.default.cx_open"); open != 0 {
		t.Error("open with a connection left")
	}
	b.client().ask("x")
	b.untilStat("cluster.c.circuit_breakers.default.cx_open", 1)
	refused := b.client()
	refused.unanswered(b, "x", "cluster.c.upstream_cx_overflow")
	b.untilStat("udp.u.downstream_sess_total", 3)
	b.cluster.Breakers.Default.MaxConnections = 4
	b.apply()
	if got := refused.ask("x"); got != "A:x" {
		t.Errorf("got %q", got)
	}
	b.listener.UDP.IdleTimeout = time.Millisecond
	b.apply()
	b.untilStat("udp.u.downstream_sess_active", 0)
	b.untilStat("cluster.c.circuit_breakers.default.cx_open", 0)
	if n := b.cluster.Live.Connections.Value(); n != 1 {
		t.Errorf("%d connections left, want the TCP one", n)
	}
}

// TestUDPRefused: ICMP errors are counted once each, no datagram is lost for them, and the session stays.
func TestUDPRefused(t *testing.T) {
	b := newUDPBed(t, 1)
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	addr := c.LocalAddr().(*net.UDPAddr).AddrPort()
	c.Close()
	b.setHosts(hostOf(addr))
	b.apply()
	client := b.client()
	for i := range int64(3) {
		client.send("x")
		b.untilStat("cluster.c.udp.sess_tx_datagrams", i+1)
		b.untilStat("cluster.c.udp.sess_rx_errors", i+1)
	}
	if n := b.value("cluster.c.udp.sess_tx_errors"); n != 0 {
		t.Errorf("%d datagrams lost", n)
	}
	b.hostAt("A", addr.String())
	if got := client.ask("x"); got != "A:x" {
		t.Errorf("got %q", got)
	}
	b.untilStat("udp.u.downstream_sess_total", 1)
}

// TestUDPWorkers: with several workers a client stays with its session, also over updates.
func TestUDPWorkers(t *testing.T) {
	b := newUDPBed(t, 4)
	b.setHosts(b.host("A"), b.host("B"), b.host("C"))
	b.cluster.Breakers.Default.MaxConnections = 4000
	b.apply()
	clients := make([]*udpClient, 300)
	was := make([]string, len(clients))
	for i := range clients {
		clients[i] = b.client()
		was[i] = clients[i].ask("x")
	}
	for round := range 3 {
		b.listener.UDP.IdleTimeout += time.Second
		b.apply()
		for i, c := range clients {
			if got := c.ask("x"); got != was[i] {
				t.Fatalf("round %d: client %d moved from %s to %s", round, i, was[i], got)
			}
		}
	}
	b.untilStat("udp.u.downstream_sess_total", int64(len(clients)))
}

// TestUDPManySessions: thousands of sessions with one host, all talking at once; each answer reaches the
// client that asked.
func TestUDPManySessions(t *testing.T) {
	flows := 4000
	if testing.Short() {
		flows = 400
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	flows = min(flows, int(limit.Cur)/2-100)
	b := newUDPBed(t, 2)
	b.setHosts(b.host("A"))
	b.cluster.Breakers.Default.MaxConnections = 1 << 20
	b.apply()
	clients := make([]*udpClient, flows)
	for i := range clients {
		clients[i] = b.client()
	}
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for round := range 3 {
				// A few at once, so that no buffer overflows.
				for lo := part; lo < flows; lo += 8 * 16 {
					for i := lo; i < min(flows, lo+8*16); i += 8 {
						clients[i].Write(fmt.Appendf(nil, "%d/%d", i, round))
					}
					for i := lo; i < min(flows, lo+8*16); i += 8 {
						got, ok := clients[i].receiveWithin(patience)
						if want := fmt.Sprintf("A:%d/%d", i, round); !ok || got != want {
							t.Errorf("client %d got %q (%t), want %q", i, got, ok, want)
							return
						}
					}
				}
			}
		})
	}
	wg.Wait()
	b.untilStat("udp.u.downstream_sess_total", int64(flows))
	b.untilStat("udp.u.downstream_sess_tx_datagrams", int64(3*flows))
}

// TestUDPDescriptorsExhausted: without descriptors new sessions are refused, counted and logged, and
// the others go on.
func TestUDPDescriptorsExhausted(t *testing.T) {
	b := newUDPBed(t, 1)
	b.setHosts(b.host("A"))
	b.apply()
	first := b.client()
	first.ask("x")
	late := []*udpClient{b.client(), b.client()}
	var saved unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &saved); err != nil {
		t.Fatal(err)
	}
	low := saved
	low.Cur = 3 // lower than what is open: no new ones
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &saved); err != nil {
			t.Fatal(err)
		}
	}
	defer restore()
	for range 3 {
		for _, c := range late {
			c.unanswered(b, "x", "cluster.c.udp.sess_tx_errors")
		}
		if got := first.ask("y"); got != "A:y" {
			t.Errorf("got %q", got)
		}
	}
	restore()
	for _, c := range late {
		if got := c.ask("x"); got != "A:x" {
			t.Errorf("got %q", got)
		}
	}
	b.untilStat("udp.u.downstream_sess_active", 3)
	if log := b.log.String(); strings.Count(log, "no UDP session") != 1 || !strings.Contains(log, "LimitNOFILE") {
		t.Errorf("log: %s", log)
	}
	if n := b.cluster.Live.Connections.Value(); n != 3 {
		t.Errorf("%d connections counted", n)
	}
}

// TestUDPLines: log lines of sessions that could not be, periodic ones, and the listener's own.
func TestUDPLines(t *testing.T) {
	const format = "%ACCESS_LOG_TYPE% %RESPONSE_FLAGS% rx=%BYTES_RECEIVED% tx=%BYTES_SENT% host=%UPSTREAM_HOST% to=%UPSTREAM_REMOTE_ADDRESS% session=%DYNAMIC_METADATA(udp.proxy.session)% proxy=%DYNAMIC_METADATA(udp.proxy.proxy)%\n"
	b := newUDPBed(t, 1)
	h := b.host("A")
	b.setHosts(h)
	b.cluster.Breakers.Default.MaxConnections = 1
	lines := b.logTo(&b.listener.UDP.AccessLog, format)
	proxyLines := b.logTo(&b.listener.UDP.ProxyAccessLog, format)
	b.listener.UDP.LogInterval = 5 * time.Millisecond
	b.apply()
	b.client().ask("x")
	b.until("a periodic line", func() bool { return strings.Contains(lines(), "UdpPeriodic - rx=1 tx=3 host="+h.Address.String()) })
	b.client().unanswered(b, "x", "cluster.c.upstream_cx_overflow")
	const nothing = `session={"bytes_received":0,"bytes_sent":0,"cluster_name":"c","datagrams_received":0,"datagrams_sent":0,"errors_sent":0} proxy=-` + "\n"
	b.until("a line", func() bool {
		return strings.Contains(lines(), "UdpSessionEnd UO rx=0 tx=0 host=- to=- "+nothing)
	})
	b.cluster.Breakers.Default.MaxConnections = 2
	b.cluster.BindAddress = netip.MustParseAddrPort("203.0.113.7:0")
	b.apply()
	b.client().unanswered(b, "x", "cluster.c.udp.sess_tx_errors")
	b.until("a line", func() bool {
		return strings.Contains(lines(), fmt.Sprintf("UdpSessionEnd UF rx=0 tx=0 host=%s to=%[1]s %s", h.Address, nothing))
	})
	b.listener.UDP.Route = routeTo("")
	b.apply()
	b.client().unanswered(b, "nowhere", "udp.u.downstream_sess_no_route")
	b.srv.DrainListeners(nil, 0)
	const want = `NotSet - rx=10 tx=3 host=- to=- session=- proxy={"bytes_received":1,"bytes_sent":3,"datagrams_received":1,"datagrams_sent":1,"errors_received":0,"errors_sent":0,"idle_timeout":0,"no_route":1,"session_total":3}` + "\n"
	b.until("the listener's line", func() bool { return proxyLines() != "" })
	if got := proxyLines(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
