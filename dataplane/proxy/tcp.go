package proxy

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
)

// tcpState is what a worker keeps for TCP.
type tcpState struct {
	w      *worker
	shared *process
	began  time.Time

	conns *conn // list
	count int
	pool  []*conn
	pipes pipePool
	holds holdPool
	// buf is where all bytes are read to that need not wait: one for all connections of the loop.
	buf []byte
	// The rest is scratch space that spares allocations.
	peer      unix.RawSockaddrAny
	header    []byte
	info      accesslog.Info
	attempted [1]netip.AddrPort

	descriptors descriptorGuard
}

const readSize = 64 << 10

func (t *tcpState) init(w *worker, p *process) {
	t.w, t.shared, t.began = w, p, w.now
	t.buf = make([]byte, readSize)
	t.descriptors.init(t)
}

// since is the loop's time as a duration since its start.
func (t *tcpState) since() time.Duration { return t.w.now.Sub(t.began) }

// applied follows a new snapshot: hosts that failed a check lose their connections if their cluster
// says so.
func (t *tcpState) applied(old, new *dataplane.Snapshot) {
	failed := newlyFailed(old, new)
	if len(failed) == 0 {
		return
	}
	t.killAll(reasonNone, func(c *conn) bool { return c.host != nil && failed[c.host.State] })
}

// newlyFailed are hosts that have failed an active check or been ejected since old, in clusters that
// close connections then. What discovery says of a host closes nothing.
func newlyFailed(old, new *dataplane.Snapshot) map[*dataplane.HostState]bool {
	const mask = dataplane.FailedActiveHC | dataplane.FailedOutlierCheck
	var failed map[*dataplane.HostState]bool
	for name, cluster := range new.Clusters {
		former := old.Clusters[name]
		if !cluster.CloseOnHealthFailure || cluster == former {
			continue
		}
		for _, h := range cluster.Hosts {
			if h.Health&mask != 0 {
				if failed == nil {
					failed = map[*dataplane.HostState]bool{}
				}
				failed[h.State] = true
			}
		}
		if former == nil {
			continue
		}
		for _, h := range former.Hosts {
			if h.Health&mask != 0 {
				delete(failed, h.State)
			}
		}
	}
	return failed
}

// killAll closes all connections that match.
func (t *tcpState) killAll(r reason, match func(*conn) bool) {
	for c := t.conns; c != nil; {
		next := c.next
		if match(c) {
			c.kill(r)
		}
		c = next
	}
}

// drainConns lets connections of chains that are not in force any more go on for d, then cuts them.
func (t *tcpState) drainConns(match func(*conn) bool, r reason, d time.Duration, done func()) {
	cut := func() {
		t.killAll(r, match)
		done()
	}
	if d <= 0 {
		cut()
		return
	}
	t.w.timers.arm(&timer{fire: cut}, t.w.now, d)
}

// end closes all connections: their peers see an orderly end.
func (t *tcpState) end() {
	t.killAll(reasonShutdown, func(*conn) bool { return true })
	t.pipes.close()
	t.descriptors.close()
}
