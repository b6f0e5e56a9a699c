package proxy

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// handTurned is a worker with one UDP listener whose loop is turned, and whose clock is set, by the test.
type handTurned struct {
	testing.TB
	w      *worker
	l      *udpListener
	client *net.UDPConn
	host   *net.UDPConn
}

func newHandTurned(t testing.TB, change func(*dataplane.UDPProxy)) *handTurned {
	t.Helper()
	loop, err := newLoop()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loop.close)
	host, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	store := stats.NewStore()
	cluster := &dataplane.Cluster{
		Name: "c", Stats: dataplane.NewClusterStats(store, "c"), Live: &dataplane.ClusterLive{},
		Balancer: &testBalancer{hosts: []*dataplane.Host{hostOf(host.LocalAddr().(*net.UDPAddr).AddrPort())}},
	}
	cluster.Breakers.Default.MaxConnections = 1024
	conf := &dataplane.Listener{
		Name: "l", Protocol: dataplane.UDP,
		Addresses: []dataplane.ListenAddress{{Addr: netip.MustParseAddrPort("0.0.0.0:0")}},
		UDP: &dataplane.UDPProxy{
			StatPrefix: "u", Route: routeTo("c"), IdleTimeout: time.Minute, MaxRxDownstream: 1500, MaxRxUpstream: 1500,
			UpstreamGRO: true, Hash: dataplane.HashPolicy{Kind: dataplane.HashSourceIP},
		},
	}
	if change != nil {
		change(conf.UDP)
	}
	set, err := bindSockets(conf, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.close)
	w := &worker{
		loop: loop, store: store, log: slog.New(slog.DiscardHandler),
		snap: &dataplane.Snapshot{Clusters: map[string]*dataplane.Cluster{"c": cluster}},
	}
	e, err := newUDPListener(w, set.fds[0], conf, &listenerStatus{set.addr, dataplane.NewListenerStats(store, "l", dataplane.UDP, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.stop)
	client, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(set.addr.Addr.Port())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return &handTurned{t, w, e.(*udpListener), client, host}
}

// turn is one turn of the loop at a moment; it waits for an event if asked to.
func (h *handTurned) turn(now time.Time, wait bool) {
	events := make([]unix.EpollEvent, 16)
	h.w.now = now
	h.events(events, wait)
	h.w.timers.advance(now)
	h.w.runPosted()
	h.w.endTurn()
}

func (h *handTurned) events(events []unix.EpollEvent, wait bool) {
	timeout := 0
	if wait {
		timeout = int(patience / time.Millisecond)
	}
	n, err := unix.EpollWait(h.w.epfd, events, timeout)
	if err != nil || wait && n == 0 {
		h.Fatalf("%d events: %v", n, err)
	}
	for _, ev := range events[:n] {
		h.w.slots[ev.Fd].h.ready(ev.Events)
	}
}

// request is a datagram from client to host.
func (h *handTurned) request(now time.Time) netip.AddrPort {
	h.Helper()
	h.client.Write([]byte("x"))
	h.turn(now, true)
	p := make([]byte, 10)
	_, from, err := h.host.ReadFromUDPAddrPort(p)
	if err != nil {
		h.Fatal(err)
	}
	return from
}

// TestUDPIdle sets the clock: datagrams of both directions put off the end of a session.
func TestUDPIdle(t *testing.T) {
	for _, perPacket := range []bool{false, true} {
		h := newHandTurned(t, func(p *dataplane.UDPProxy) { p.PerPacket = perPacket })
		at := h.l.start
		step := func(d time.Duration) time.Time { at = at.Add(d); return at }
		alive := func() bool { return h.l.stats.SessActive.Value() == 1 }
		from := h.request(at)
		h.turn(step(59*time.Second), false)
		if !alive() {
			t.Fatal("ended before its time")
		}
		h.request(at) // from the client, at 59 s
		h.turn(step(59*time.Second), false)
		if !alive() {
			t.Fatal("a datagram of the client did not count")
		}
		h.host.WriteToUDPAddrPort([]byte("y"), from)
		h.turn(at, true) // from the host, at 118 s
		h.turn(step(60*time.Second), false)
		if !alive() {
			t.Fatal("a datagram of the host did not count")
		}
		h.turn(step(2*time.Millisecond), false)
		if alive() {
			t.Fatal("still there after the idle time")
		}
		if n := h.l.stats.IdleTimeout.Value(); n != 1 {
			t.Errorf("idle_timeout %d", n)
		}
		if h.l.idle.armed() {
			t.Error("the clock runs on without a session")
		}
		h.request(step(time.Hour)) // a new one
		if n := h.l.stats.SessTotal.Value(); n != 2 {
			t.Errorf("%d sessions in all", n)
		}
	}
}

// TestUDPErrorAtSend: an ICMP error that a send comes upon is counted, and the datagram is sent all the
// same, whether it is sent alone or with others.
func TestUDPErrorAtSend(t *testing.T) {
	h := newHandTurned(t, nil)
	h.request(h.l.start)
	addr := h.host.LocalAddr().(*net.UDPAddr)
	h.host.Close()
	st := h.w.snap.Clusters["c"].Stats
	for i, together := range []int{1, 3} {
		h.client.Write([]byte("nobody hears this"))
		h.l.ready(0) // the session's own event, which tells of the error too, comes after this
		host, err := net.ListenUDP("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		for range together {
			h.client.Write([]byte("x"))
		}
		h.l.ready(0)
		p := make([]byte, 100)
		host.SetReadDeadline(deadline())
		for range together {
			if n, err := host.Read(p); err != nil || string(p[:n]) != "x" {
				t.Fatalf("got %q, %v", p[:n], err)
			}
		}
		host.Close()
		h.turn(h.l.start, false)
		if n := st.UDPSessRxErrors.Value(); n != uint64(i+1) {
			t.Errorf("%d errors counted, want %d", n, i+1)
		}
		if n := st.UDPSessTxErrors.Value(); n != 0 {
			t.Errorf("%d datagrams lost", n)
		}
	}
}

// TestUDPHostNumbers: hosts that have gone leave room for new ones.
func TestUDPHostNumbers(t *testing.T) {
	h := newHandTurned(t, nil)
	old := h.w.snap
	for range 50 {
		h.request(h.l.start)
		c := *old.Clusters["c"]
		c.Hosts = []*dataplane.Host{hostOf(h.host.LocalAddr().(*net.UDPAddr).AddrPort())}
		c.Balancer = &testBalancer{hosts: c.Hosts}
		next := &dataplane.Snapshot{Clusters: map[string]*dataplane.Cluster{"c": &c}}
		h.l.applied(old, next)
		old = next
		if n := h.l.stats.SessActive.Value(); n != 0 {
			t.Fatalf("%d sessions of a host that has gone", n)
		}
	}
	if n := len(h.l.hosts.slots); n != 1 {
		t.Errorf("%d numbers in use for one host", n)
	}
}

// TestUDPPortsExhausted: without local ports new sessions are refused for a moment without asking the
// kernel, and live ones go on.
func TestUDPPortsExhausted(t *testing.T) {
	// In a network of the test's own, with a few ports. The thread is never unlocked: it ends with the test.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace (CAP_SYS_ADMIN): %v", err)
	}
	up(t, "lo")
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40007"), 0); err != nil {
		t.Skipf("cannot set the range of ports: %v", err)
	}
	h := newHandTurned(t, nil)
	// 8 ports: host, listener and the first client have one each.
	var clients []*net.UDPConn
	for i := range 6 {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 20000 + i}, h.client.RemoteAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	st := h.w.snap.Clusters["c"].Stats
	at := h.l.start
	ask := func(c *net.UDPConn) { c.Write([]byte("x")); h.turn(at, true); h.turn(at, false) }
	for _, c := range clients {
		ask(c)
	}
	if active, lost := h.l.stats.SessActive.Value(), st.UDPSessTxErrors.Value(); active != 5 || lost != 1 {
		t.Fatalf("%d sessions, %d datagrams lost; want 5 and 1", active, lost)
	}
	sent := st.UDPSessTxDatagrams.Value()
	ask(clients[0])
	if n := st.UDPSessTxDatagrams.Value(); n != sent+1 {
		t.Error("a live session was harmed")
	}
	// A port gets free, but nobody looks yet.
	for s := range h.l.sessions.All {
		h.l.sessions.End(s)
		break
	}
	ask(clients[5])
	if n := h.l.stats.SessActive.Value(); n != 4 {
		t.Errorf("%d sessions, want no new one yet", n)
	}
	at = at.Add(crowdedFor)
	ask(clients[5])
	if n := h.l.stats.SessActive.Value(); n != 5 {
		t.Errorf("%d sessions, want a new one", n)
	}
}

// up sets a network interface up, in the namespace of the calling thread.
func up(t *testing.T, name string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err == nil {
		r.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
	}
	if err != nil {
		t.Fatalf("%s up: %v", name, err)
	}
}

// TestUDPNoAllocations: passing datagrams on takes no memory, whatever the number of sessions.
func TestUDPNoAllocations(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*dataplane.UDPProxy)
	}{
		{"sessions", nil},
		{"per packet", func(p *dataplane.UDPProxy) { p.PerPacket = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHandTurned(t, c.change)
			hostFD, clientFD := fdOf(t, h.host), fdOf(t, h.client)
			from := h.request(h.l.start)
			var host, client sockaddr
			host.set(from)
			client.set(h.client.RemoteAddr().(*net.UDPAddr).AddrPort())
			events := make([]unix.EpollEvent, 16)
			burst := [3][]byte{[]byte("one"), []byte("two"), []byte("three")}
			p := make([]byte, 100)
			round := func() {
				for _, m := range burst {
					sysSend(clientFD, m)
				}
				h.events(events, true)
				h.w.endTurn()
				for range burst {
					unix.Read(hostFD, p)
					sendTo(hostFD, p[:5], &host)
				}
				h.events(events, true)
				h.w.endTurn()
				for range burst {
					if n, err := unix.Read(clientFD, p); n != 5 || err != nil {
						t.Fatalf("read %d: %v", n, err)
					}
				}
			}
			round()
			if n := testing.AllocsPerRun(200, round); n != 0 {
				t.Errorf("%v allocations for 6 datagrams", n)
			}
			if n := h.l.stats.SessTxDatagrams.Value(); n != 3*202 {
				t.Errorf("%d datagrams to the client", n)
			}
		})
	}
}

func fdOf(t *testing.T, c *net.UDPConn) (fd int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(f uintptr) { fd = int(f) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func sendTo(fd int, p []byte, to *sockaddr) {
	h := unix.Msghdr{}
	iov := unix.Iovec{Base: &p[0]}
	iov.SetLen(len(p))
	h.Iov = &iov
	h.SetIovlen(1)
	h.Name, h.Namelen = (*byte)(unsafe.Pointer(&to.raw)), to.len
	sysSendmsg(fd, &h)
}
