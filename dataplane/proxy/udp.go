package proxy

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// bindMu guards the making of stats that exist only once something uses them.
var bindMu sync.Mutex

// udpListener is one UDP listening socket of one worker: Envoy's udp_proxy. It belongs to the worker's
// loop. Its sessions are its own: the kernel sends a client's datagrams to the same socket for as long
// as the set of sockets stays the same.
type udpListener struct {
	io       *udpIO
	loop     *loop
	store    *stats.Store
	fd       int
	token    token
	addr     netip.AddrPort
	v6       bool // the socket's family
	wildcard bool // the local address must be asked for with each datagram

	conf   *dataplane.Listener
	proxy  *dataplane.UDPProxy
	lstats *dataplane.ListenerStats
	stats  *dataplane.UDPStats

	snapshot *dataplane.Snapshot
	clusters map[string]*udpCluster // those in use
	hosts    udpHosts
	// sessions of all hosts, unless hosts are picked for each datagram; then each host has its own.
	sessions *conntrack.Sessions[*udpSession]
	live     int
	idle     timer
	nextID   uint64

	start time.Time
	total udpTotals
	// deaf is set once another process reads the socket.
	deaf bool
	// serial tells the listener from all others of the process.
	serial uint64
}

// udpTotals is what the proxy's own access log tells.
type udpTotals struct {
	received                         uint64 // bytes, of dropped datagrams too
	rx, rxBytes, tx, txBytes, txErrs uint64
	rxErrs, noRoute, sessions, idle  uint64
}

func (t *udpTotals) add(n *udpCounts) {
	t.rx += n.rx
	t.rxBytes += n.rxBytes
	t.tx += n.tx
	t.txBytes += n.txBytes
	t.txErrs += n.txErrs
}

// newUDPListener serves one UDP socket of a listener on one worker.
func newUDPListener(w *worker, fd int, conf *dataplane.Listener, status *listenerStatus) (udpEndpoint, error) {
	if err := checkUDP(conf); err != nil {
		return nil, err
	}
	if w.udpIO == nil {
		w.udpIO = newUDPIO(w.loop, w.log)
	}
	l := &udpListener{
		io: w.udpIO, loop: w.loop, store: w.store, fd: fd, addr: localAddr(fd),
		conf: conf, proxy: conf.UDP, lstats: status.stats,
		snapshot: w.snap, clusters: map[string]*udpCluster{},
		start: w.loop.now, serial: flowOwners.Add(1),
	}
	l.hosts = udpHosts{l: l, byState: map[*dataplane.HostState]*udpHost{}}
	l.idle.fire = l.expire
	var err error
	if l.sessions, err = l.newSessions(); err != nil {
		return nil, err
	}
	if err := l.prepareSocket(); err != nil {
		return nil, err
	}
	if l.token, err = l.loop.add(l.fd, unix.EPOLLIN, l); err != nil {
		return nil, fmt.Errorf("listener %q: %w", l.conf.Name, err)
	}
	l.stats = dataplane.NewUDPStats(l.store, l.proxy.StatPrefix)
	return l, nil
}

// checkUDP reports what the process may not do but the listener asks for.
func checkUDP(l *dataplane.Listener) error {
	if !l.UDP.UseOriginalSrcIP {
		return nil
	}
	fd, e := sysUDPSocket(unix.AF_INET)
	if e == 0 {
		e = setTransparent(fd, unix.AF_INET)
		sysClose(fd)
	}
	if e != 0 {
		return fmt.Errorf("listener %q: use_original_src_ip needs CAP_NET_ADMIN to send with clients' addresses (IP_TRANSPARENT): %w; grant it or remove the field", l.Name, e)
	}
	return nil
}

// udpReceiveBuffer is how much may wait in a listening socket while its worker serves others, in bytes
// as the kernel counts them (some 770 for a short datagram). The system's default holds 270 datagrams.
const udpReceiveBuffer = 4 << 20

func (l *udpListener) prepareSocket() error {
	family, err := unix.GetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("listener %q: %w", l.conf.Name, err)
	}
	l.v6 = family == unix.AF_INET6
	l.wildcard = l.addr.Addr().IsUnspecified()
	if l.wildcard {
		// Answers must leave from the address the client has sent to.
		level, name := unix.SOL_IP, unix.IP_PKTINFO
		if l.v6 {
			level, name = unix.SOL_IPV6, unix.IPV6_RECVPKTINFO
		}
		if e := sysSetInt(l.fd, level, name, 1); e != 0 {
			return fmt.Errorf("listener %q: cannot ask for the destination of datagrams: %w", l.conf.Name, e)
		}
	}
	// Both are for speed: an old kernel or a small limit does without.
	sysSetInt(l.fd, unix.SOL_UDP, unix.UDP_GRO, 1)
	for _, o := range l.conf.SocketOptions {
		if o.Level == unix.SOL_SOCKET && o.Name == unix.SO_RCVBUF {
			return nil
		}
	}
	if have, err := unix.GetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil && have < udpReceiveBuffer {
		sysSetInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, udpReceiveBuffer/2) // the kernel doubles it
	}
	return nil
}

// newSessions returns a table of sessions. The cluster's circuit breaker bounds it, over all workers.
func (l *udpListener) newSessions() (*conntrack.Sessions[*udpSession], error) {
	s, err := conntrack.NewSessions(conntrack.SessionsConfig[*udpSession]{
		Max:  1 << 30,
		Idle: l.idleTimeout(),
		OnEnd: func(t *conntrack.Session[*udpSession], why conntrack.EndReason) {
			if t.Value != nil {
				l.live--
				t.Value.close(why)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("listener %q: %w", l.conf.Name, err)
	}
	return s, nil
}

func (l *udpListener) idleTimeout() time.Duration {
	if l.proxy.IdleTimeout <= 0 {
		return conntrack.NoIdle
	}
	return l.proxy.IdleTimeout
}

// cluster returns what l knows of a cluster, nil if there is no such cluster.
func (l *udpListener) cluster(name string) *udpCluster {
	if c := l.clusters[name]; c != nil {
		return c
	}
	if c := l.snapshot.Clusters[name]; c != nil {
		u := newUDPCluster(l, name, c)
		l.clusters[name] = u
		return u
	}
	return nil
}

// now is the time by which sessions are judged.
func (l *udpListener) now() time.Duration { return l.loop.now.Sub(l.start) }

// tables yields the tables of sessions.
func (l *udpListener) tables(yield func(*conntrack.Sessions[*udpSession]) bool) {
	if !yield(l.sessions) {
		return
	}
	for _, u := range l.hosts.slots {
		if u.sessions != nil && !yield(u.sessions) {
			return
		}
	}
}

// expire ends idle sessions and sets the clock for the next ones.
func (l *udpListener) expire() {
	for t := range l.tables {
		t.Expire(l.now())
	}
	l.armIdle()
}

func (l *udpListener) armIdle() {
	first := conntrack.NoIdle
	for t := range l.tables {
		if at, ok := t.NextExpiry(); ok {
			first = min(first, at)
		}
	}
	if first == conntrack.NoIdle {
		l.loop.timers.disarm(&l.idle)
		return
	}
	l.loop.timers.arm(&l.idle, l.loop.now, first-l.now())
}

// touch notes a datagram from a session's host.
func (l *udpListener) touch(s *udpSession) {
	if s.host.sessions != nil {
		s.host.sessions.Touch(s.track, l.now())
		return
	}
	l.sessions.Touch(s.track, l.now())
}

// update makes l act by a new configuration of the same socket. Sessions stay if the configuration
// still sends them to their cluster. If it fails, nothing has changed.
func (l *udpListener) update(conf *dataplane.Listener, status *listenerStatus) error {
	if err := checkUDP(conf); err != nil {
		return err
	}
	l.io.settle() // what is counted or on its way belongs to the old one
	old := l.proxy
	l.conf, l.proxy, l.lstats = conf, conf.UDP, status.stats
	if l.proxy.StatPrefix != old.StatPrefix {
		next := dataplane.NewUDPStats(l.store, l.proxy.StatPrefix)
		l.stats.SessActive.Add(-int64(l.live))
		next.SessActive.Add(int64(l.live))
		l.stats.Scope.Release()
		l.stats = next
	}
	for t := range l.tables {
		if err := t.SetIdle(l.idleTimeout()); err != nil {
			panic(err) // idleTimeout is positive
		}
		for s := range t.All {
			f := s.Flow()
			if l.proxy.PerPacket != old.PerPacket || l.proxy.UseOriginalSrcIP != old.UseOriginalSrcIP ||
				l.proxy.Route(f.Src, f.Dst) != s.Value.cluster.name {
				t.End(s)
			}
		}
	}
	if !l.proxy.PerPacket {
		for _, u := range l.hosts.slots {
			u.sessions = nil
		}
	}
	l.armIdle()
	return nil
}

// applied makes l act by a new snapshot. Sessions of hosts that have left end at once; those of hosts
// that cannot serve are moved by their next datagram.
func (l *udpListener) applied(_, s *dataplane.Snapshot) {
	l.io.settle()
	l.snapshot = s
	if !l.hosts.update(s) {
		return
	}
	for t := range l.tables {
		t.Reconcile(&l.hosts)
	}
	l.hosts.recycle()
	l.armIdle()
}

// stop ends all sessions and leaves the socket, which is the caller's to close.
func (l *udpListener) stop() {
	l.io.settle()
	if !l.deaf {
		l.loop.remove(l.fd, l.token)
	}
	for t := range l.tables {
		t.EndAll()
	}
	l.loop.timers.disarm(&l.idle)
	l.io.settle()
	l.io.forget(l)
	l.logProxyEnd()
	l.stats.Scope.Release()
}
