package proxy

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane/stats"
)

// descriptorGuard keeps a worker alive when the process or the system runs out of descriptors: it says
// so, stops accepting (clients wait in the kernel's queue) and goes on when a connection has ended or
// some time has passed. It holds some descriptors in reserve and gives them up meanwhile: for the upstream
// of a connection that has been accepted, so that a client waits rather than being let in and thrown out,
// and for the rest of the process, so that the admin server answers and health checks and logs go on.
type descriptorGuard struct {
	t       *tcpState
	reserve []int // empty while they are given up
	retry   timer
	said    time.Time
	paused  *stats.Counter
	off     bool // nothing is accepted
}

const (
	// reserved is the number of descriptors a worker holds back.
	reserved = 16
	// acceptPause is how long a worker accepts nothing before it tries again.
	acceptPause = 100 * time.Millisecond
	// sayAgain is the least time between two log lines about it.
	sayAgain = 10 * time.Second
)

func (g *descriptorGuard) init(t *tcpState) {
	g.t = t
	g.paused = t.w.store.Counter("guideway.accept_paused")
	g.retry.fire = g.resume
	g.refill()
}

// refill takes the reserve, if all of it can be had.
func (g *descriptorGuard) refill() bool {
	for len(g.reserve) < reserved {
		fd, e := sysSocket(unix.AF_INET)
		if e != 0 {
			g.release()
			return false
		}
		g.reserve = append(g.reserve, fd)
	}
	return true
}

// release gives the reserve up.
func (g *descriptorGuard) release() {
	for _, fd := range g.reserve {
		sysClose(fd)
	}
	g.reserve = g.reserve[:0]
}

func (g *descriptorGuard) close() { g.release() }

// exhausted is told of an accept or socket call that failed for want of descriptors or memory.
func (g *descriptorGuard) exhausted(what string, e unix.Errno) {
	w := g.t.w
	if w.now.Sub(g.said) >= sayAgain {
		g.said = w.now
		w.log.Error("out of descriptors: new connections wait; raise the limit (ulimit -n, LimitNOFILE)",
			"for", what, "error", strerror(e), "connections", g.t.count)
	}
	g.t.pipes.trim()
	g.release()
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
