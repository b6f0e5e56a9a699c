package proxy

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
)

// conn is one downstream TCP connection with the upstream connection that is made for it. It belongs to
// one worker and goes back to the worker's pool when both have ended. About 450 bytes; while nothing is
// in flight it holds neither buffers nor pipes. What few connections need is in extra.
type conn struct {
	t       *tcpState
	ln      *liveListener
	chain   *liveChain // nil until one is chosen
	cluster *dataplane.Cluster
	host    *dataplane.Host
	x       *extra

	down, up     side
	toUp, toDown flow

	prev, next *conn // all connections of the worker

	// phase times what is going on: listener filters, a refusal's delay, a connect, a backoff.
	phase timer
	idle  timer

	start       time.Duration // all times are since the loop's start
	last        time.Duration // when a byte moved
	connectAt   time.Duration
	connectedAt time.Duration
	startWall   int64 // Unix nanoseconds

	remote     netip.AddrPort // the socket's peer
	listenAddr *netip.AddrPort

	id, upID uint64
	attempts uint32
	log      accesslog.Flag
	state    connState

	counted   bool // in the listener's and the proxy's stats
	pending   bool // counts as pending in the cluster
	upOpen    bool // counts as connection of the cluster
	upActive  bool // counts as active request of the cluster
	upFailed  bool // the upstream took a write with an error: its end is a reset
	upShutEnd bool // the last direction that ended is the one to the upstream
	checkRBAC bool // the client's first byte decides
	draining  bool // to be closed as soon as nothing is held
	leaving   bool // its host drains or was removed, and its cluster closes such connections
	limits    uint8

	early  int32  // bytes read before the connect, as told to the gauge
	denied uint32 // bytes read that RBAC kept from the proxy
}

// extra is what only some connections need.
type extra struct {
	// What listener filters found.
	filter        int
	remote, local netip.AddrPort // from a PROXY header; invalid without one
	tlvs          []dataplane.TLV
	serverName    string
	transport     string
	protocols     []string

	attempted []netip.AddrPort // hosts, once there was more than one attempt
	failure   string           // of the last connect
	remoteUp  netip.AddrPort   // where the connect went if not to the host's first address
	race      *race

	maxDuration, periodic timer
	waiting               *waiter
	termination           string
}

type connState uint8

const (
	stateFree       connState = iota
	stateFiltering            // listener filters want bytes
	stateRefused              // a filter refused it; the close is delayed
	stateAwaitData            // connect waits for the client's first byte
	stateBackoff              // waits before the next connect attempt
	stateQueued               // the host has as many connections as it may have
	stateConnecting           //
	stateOpen                 //
	stateFlushing             // the client is gone, bytes for the upstream are left
	stateResetting            // the upstream was reset; the client gets what is left, then a reset
)

// side is one of a connection's two sockets. Both are registered edge-triggered, once: what is known of
// readiness is remembered here.
type side struct {
	c        *conn
	fd       int32
	token    token
	open     bool
	watched  bool // registered with the loop
	readable bool
	writable bool
	ended    bool // the peer's end or an error is behind what can be read
	failed   bool // the socket has an error
	urgent   bool // urgent data has come: a short read may stop at its mark
}

const edgeEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET

func (s *side) watch() error {
	t, err := s.c.t.w.add(int(s.fd), edgeEvents, s)
	if err == nil {
		s.token, s.watched = t, true
	}
	return err
}

func (s *side) close() {
	if !s.open {
		return
	}
	if s.watched {
		s.c.t.w.forget(s.token)
	}
	sysClose(int(s.fd))
	*s = side{c: s.c, fd: -1}
}

// reset closes the socket with a RST.
func (s *side) reset() {
	if s.open {
		sysResetOnClose(int(s.fd))
		s.close()
	}
}

// ready implements handler.
func (s *side) ready(ev uint32) {
	if ev&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.readable = true
		if ev&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			s.ended = true
			s.failed = s.failed || ev&unix.EPOLLERR != 0
		}
	}
	if ev&unix.EPOLLPRI != 0 {
		s.urgent, s.readable = true, true
	}
	if ev&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.writable = true
	}
	c := s.c
	switch c.state {
	case stateOpen:
		c.relay()
	case stateConnecting:
		if s == &c.up {
			c.connectReady(ev)
		}
	case stateFiltering:
		c.runFilters()
	case stateAwaitData:
		c.earlyData()
	case stateFlushing:
		c.flush()
	}
}

// newConn takes a connection from the pool and enters it into the worker's list.
func (t *tcpState) newConn(ln *liveListener, fd int, peer netip.AddrPort, addr *netip.AddrPort) *conn {
	var c *conn
	if n := len(t.pool); n > 0 {
		c, t.pool = t.pool[n-1], t.pool[:n-1]
	} else {
		c = &conn{t: t}
		c.down.c, c.up.c = c, c
		c.phase.fire, c.idle.fire = c.phaseOver, c.idleOver
	}
	c.down.fd, c.down.open, c.up.fd = int32(fd), true, -1
	c.ln, c.remote, c.listenAddr = ln, peer, addr
	c.start = t.since()
	c.startWall = t.w.now.UnixNano()
	c.last = c.start
	c.next = t.conns
	if c.next != nil {
		c.next.prev = c
	}
	t.conns = c
	t.count++
	return c
}

// free ends the connection's life; all counts are given back before.
func (c *conn) free() {
	t := c.t
	c.down.close()
	c.up.close()
	t.descriptors.connectionEnded()
	if c.state == stateFlushing {
		c.chain.tcp.UpstreamFlushing.Dec()
	}
	t.w.timers.disarm(&c.phase)
	t.w.timers.disarm(&c.idle)
	if c.x != nil {
		t.w.timers.disarm(&c.x.maxDuration)
		t.w.timers.disarm(&c.x.periodic)
	}
	c.toUp.discard(t)
	c.toDown.discard(t)
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		t.conns = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	t.count--
	phase, idle := c.phase.fire, c.idle.fire
	*c = conn{t: t}
	c.down.c, c.up.c = c, c
	c.phase.fire, c.idle.fire = phase, idle
	if len(t.pool) < maxPooled {
		t.pool = append(t.pool, c)
	}
}

const maxPooled = 4096

// more returns the connection's extra part, made if it is not there.
func (c *conn) more() *extra {
	if c.x == nil {
		c.x = &extra{}
	}
	return c.x
}

// localAddr is where the client's connection ended: the socket's address, or a PROXY header's.
func (c *conn) localAddr() netip.AddrPort {
	if c.x != nil && c.x.local.IsValid() {
		return c.x.local
	}
	return c.directLocal()
}

func (c *conn) directLocal() netip.AddrPort {
	if a := *c.listenAddr; !a.Addr().IsUnspecified() {
		return a
	}
	if !c.down.open {
		return netip.AddrPort{}
	}
	return localAddr(int(c.down.fd))
}

// remoteAddr is the client: the socket's peer, or a PROXY header's source.
func (c *conn) remoteAddr() netip.AddrPort {
	if c.x != nil && c.x.remote.IsValid() {
		return c.x.remote
	}
	return c.remote
}

func (c *conn) addrs() dataplane.ConnAddrs {
	a := dataplane.ConnAddrs{Remote: c.remoteAddr(), Local: c.localAddr(), Direct: c.remote}
	if c.x != nil {
		a.ServerName = c.x.serverName
	}
	return a
}

// phaseOver is the phase timer's end.
func (c *conn) phaseOver() {
	switch c.state {
	case stateFiltering:
		c.filtersTimedOut()
	case stateRefused:
		c.kill(reasonOverLimit)
	case stateBackoff:
		c.connect()
	case stateConnecting:
		c.connectTimedOut()
	case stateResetting:
		c.finishReset()
	}
}

// idleOver is the idle timer's end. Activity does not move the timer, it only leaves its time; so the
// timer looks when it fires, and waits for the rest.
func (c *conn) idleOver() {
	if left := c.last + c.chain.cfg.Proxy.IdleTimeout - c.t.since(); left > 0 {
		c.t.w.timers.arm(&c.idle, c.t.w.now, left)
		return
	}
	c.chain.tcp.IdleTimeout.Inc()
	c.kill(reasonIdle)
}
