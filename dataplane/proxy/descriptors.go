package proxy

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane/stats"
)

// descriptorGuard keeps a worker alive when the process or the system runs out of descriptors: it says
// so, stops accepting (clients wait in the kernel's queue) and goes on when a connection has ended or
// some time has passed. Every accepted connection needs a second descriptor, for its upstream; one is
// held in reserve for that, so that a client waits rather than being let in and thrown out.
type descriptorGuard struct {
	t       *tcpState
	reserve int // -1 while it is lent
	retry   timer
	said    time.Time
	paused  *stats.Counter
	off     bool // nothing is accepted
}

const (
	// acceptPause is how long a worker accepts nothing before it tries again.
	acceptPause = 100 * time.Millisecond
	// sayAgain is the least time between two log lines about it.
	sayAgain = 10 * time.Second
)

func (g *descriptorGuard) init(t *tcpState) {
	g.t, g.reserve = t, -1
	g.paused = t.w.store.Counter("guideway.accept_paused")
	g.retry.fire = g.resume
	g.refill()
}

// refill takes the reserve, if it can be had.
func (g *descriptorGuard) refill() bool {
	if g.reserve < 0 {
		fd, e := sysSocket(unix.AF_INET)
		if e != 0 {
			return false
		}
		g.reserve = fd
	}
	return true
}

// lend gives the reserve up; false if it is lent already.
func (g *descriptorGuard) lend() bool {
	if g.reserve < 0 {
		return false
	}
	sysClose(g.reserve)
	g.reserve = -1
	return true
}

func (g *descriptorGuard) close() { g.lend() }

// exhausted is told of an accept or socket call that failed for want of descriptors or memory.
func (g *descriptorGuard) exhausted(what string, e unix.Errno) {
	w := g.t.w
	if w.now.Sub(g.said) >= sayAgain {
		g.said = w.now
		w.log.Error("out of descriptors: new connections wait; raise the limit (ulimit -n, LimitNOFILE)",
			"for", what, "error", strerror(e), "connections", g.t.count)
	}
	g.t.pipes.trim()
	if g.off {
		return
	}
	g.off = true
	g.paused.Inc()
	for _, a := range w.acceptors {
		a.unwatch()
	}
	w.timers.arm(&g.retry, w.now, acceptPause)
}

// connectionEnded lets the worker accept again, since descriptors have come free.
func (g *descriptorGuard) connectionEnded() {
	if g.off {
		g.t.w.timers.arm(&g.retry, g.t.w.now, 0)
	}
}

func (g *descriptorGuard) resume() {
	w := g.t.w
	if !g.refill() {
		w.timers.arm(&g.retry, w.now, acceptPause)
		return
	}
	g.off = false
	for _, a := range w.acceptors {
		if a.watched {
			continue
		}
		if err := a.watch(); err != nil {
			g.off = true
			w.timers.arm(&g.retry, w.now, acceptPause)
			return
		}
	}
}
