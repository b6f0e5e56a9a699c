package proxy

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane/accesslog"
)

// acceptor is a listening TCP address on one worker: its own socket, or one that all workers share. A
// process with more workers may have left it several.
type acceptor struct {
	w        *worker
	queues   []*acceptQueue
	addr     netip.AddrPort // as configured, with the real port
	shared   bool           // all workers accept from this socket
	watched  bool
	listener *liveListener
}

// acceptQueue is one listening socket.
type acceptQueue struct {
	a     *acceptor
	fd    int
	token token
}

// acceptBatch bounds the connections taken from one socket in one turn of the loop.
const acceptBatch = 64

func newAcceptor(w *worker, l *liveListener, fds []int, s *socketSet) (*acceptor, error) {
	a := &acceptor{w: w, addr: s.addr.Addr, shared: len(s.fds) == 1, listener: l}
	for _, fd := range fds {
		a.queues = append(a.queues, &acceptQueue{a: a, fd: fd})
	}
	if w.tcp.descriptors.off {
		return a, nil // it is watched when the worker accepts again
	}
	return a, a.watch()
}

func (a *acceptor) watch() error {
	events := uint32(unix.EPOLLIN)
	if a.shared {
		events |= unix.EPOLLEXCLUSIVE // one worker is enough
	}
	for i, q := range a.queues {
		t, err := a.w.add(q.fd, events, q)
		if err != nil {
			for _, q := range a.queues[:i] {
				a.w.remove(q.fd, q.token)
			}
			return err
		}
		q.token = t
	}
	a.watched = true
	return nil
}

func (a *acceptor) unwatch() {
	if !a.watched {
		return
	}
	for _, q := range a.queues {
		a.w.remove(q.fd, q.token)
	}
	a.watched = false
}

// stop ends the acceptor. What is in the kernel's queue already is accepted: closing the socket would
// reset it.
func (a *acceptor) stop() {
	for _, q := range a.queues {
		for range lastBatches {
			if q.take(acceptBatch) < acceptBatch {
				break
			}
		}
	}
	a.unwatch()
}

// lastBatches bounds what is accepted from a socket that is about to be closed.
const lastBatches = 64

// ready implements handler. The socket is level-triggered: what is left comes with the next turn.
func (q *acceptQueue) ready(uint32) {
	a := q.a
	most := 1 // one at a time is usual: no second call to find the queue empty
	if a.w.busy {
		most = acceptBatch
	}
	if n := q.take(most); n > 0 {
		a.listener.stats.AcceptedPerEvent.Record(float64(n))
	}
}

// take accepts up to most connections, and returns how many it got.
func (q *acceptQueue) take(most int) (n int) {
	a := q.a
	t := &a.w.tcp
	for n < most && !t.descriptors.off {
		fd, e := sysAccept(q.fd, &t.peer)
		switch e {
		case 0:
			n++
			t.accepted(a, fd, addrPortOf(&t.peer))
		case unix.EAGAIN:
			return n
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			t.descriptors.exhausted(a.listener.cfg.Name, e)
			return n
		default: // a connection that ended in the queue, or an error of the network (accept(2))
			n++
		}
	}
	return n
}

// accepted takes a new connection through the limits.
func (t *tcpState) accepted(a *acceptor, fd int, peer netip.AddrPort) {
	l := a.listener
	if max := t.w.snap.MaxConnections; t.shared.connections.Add(1) > int64(max) && max > 0 && !l.cfg.IgnoreGlobalConnLimit {
		t.shared.connections.Add(-1)
		l.stats.GlobalCxOverflow.Inc()
		sysClose(fd)
		return
	}
	if limit := l.cfg.ConnectionLimit; l.open.Add(1) > 0 && limit != nil && uint64(l.open.Load()) > *limit {
		l.open.Add(-1)
		t.shared.connections.Add(-1)
		l.stats.CxOverflow.Inc()
		sysClose(fd)
		return
	}
	c := t.newConn(l, fd, peer, &a.addr)
	if len(l.filters) > 0 {
		c.beginFilters()
		return
	}
	c.chooseChain()
}

// chooseChain finds the filter chain and starts it.
func (c *conn) chooseChain() {
	c.ln = c.ln.newest()
	l := c.ln
	chain := l.only
	if chain == nil {
		transport, protocols := "raw_buffer", []string(nil)
		if c.x != nil && c.x.transport != "" {
			transport, protocols = c.x.transport, c.x.protocols
		}
		if m := l.cfg.Matcher; m != nil {
			if fc := m.Find(c.addrs(), transport, protocols); fc != nil {
				chain = l.chains[fc]
			}
		}
	}
	if chain == nil {
		l.stats.NoChainMatch.Inc()
		c.logNoChain()
		c.endUncounted()
		return
	}
	c.begin(chain)
}

// begin runs the filters of a chain.
func (c *conn) begin(chain *liveChain) {
	l, t := c.ln, c.t
	c.chain = chain
	c.counted = true
	c.id = t.shared.connectionIDs.Add(1)
	l.stats.CxTotal.Inc()
	l.stats.CxActive.Inc()
	w := l.stats.Workers[t.w.index]
	w.CxTotal.Inc()
	w.CxActive.Inc()
	p := chain.cfg.Proxy
	if p == nil {
		// Envoy closes a connection that no filter takes.
		l.stats.NetExtMissing.Inc()
		c.kill(reasonNone)
		return
	}
	chain.tcp.CxTotal.Inc()
	if p.MaxDuration > 0 {
		x := c.more()
		x.maxDuration.fire = c.durationOver
		t.w.timers.arm(&x.maxDuration, t.w.now, p.MaxDuration+jitter(p.MaxDuration, p.DurationJitter))
	}
	if p.LogInterval > 0 && len(p.AccessLog) > 0 {
		x := c.more()
		x.periodic.fire = c.periodicLog
		t.w.timers.arm(&x.periodic, t.w.now, p.LogInterval)
	}
	for i, f := range chain.limits {
		if !f.enter() {
			c.limits = uint8(i)
			c.state = stateRefused
			if f.cfg.Delay <= 0 {
				c.kill(reasonOverLimit)
				return
			}
			t.w.timers.arm(&c.phase, t.w.now, f.cfg.Delay)
			return
		}
	}
	c.limits = uint8(len(chain.limits))
	c.checkRBAC = len(chain.rbac) > 0
	if p.LogOnStart {
		c.logLine(accesslog.TCPConnectionStart, endReason{})
	}
	if p.IdleTimeout > 0 {
		t.w.timers.arm(&c.idle, t.w.now, p.IdleTimeout)
	}
	if p.OnDownstreamData {
		c.state = stateAwaitData
		if !c.down.watched {
			if err := c.down.watch(); err != nil {
				c.kill(reasonNone)
				return
			}
		} else if c.down.readable {
			c.earlyData()
		}
		return
	}
	c.connect()
}
