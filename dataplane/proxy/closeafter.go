package proxy

import (
	"math/rand/v2"
	"time"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
)

// departure closes the flows of one host that drains or was removed, one after the other over a window,
// so that their clients come back as a trickle. It belongs to one worker.
type departure struct {
	w     *worker
	began time.Time
	over  time.Duration
	total int
	conns []departingConn
	udp   []departingSession
	timer timer
}

type departingConn struct {
	c  *conn
	id uint64 // connections are used again
}

type departingSession struct {
	table *conntrack.Sessions[*udpSession]
	s     *udpSession
}

// departures follow a new snapshot: hosts of clusters with CloseAfter that began to drain or left lose
// their flows over that time; those that are back keep what they still have.
func (w *worker) departures(old, new *dataplane.Snapshot) {
	var leave map[*dataplane.HostState]time.Duration
	mark := func(s *dataplane.HostState, over time.Duration) {
		if leave == nil {
			leave = map[*dataplane.HostState]time.Duration{}
		}
		leave[s] = over
	}
	for name, former := range old.Clusters {
		next := new.Clusters[name]
		if former == next {
			continue
		}
		over := former.CloseAfter
		if next != nil {
			over = next.CloseAfter
		}
		if over <= 0 && len(w.leaving) == 0 {
			continue
		}
		before := map[*dataplane.HostState]bool{} // draining
		for _, h := range former.Hosts {
			before[h.State] = h.Health.Draining()
		}
		if next != nil {
			for _, h := range next.Hosts {
				was, known := before[h.State]
				switch drains := h.Health.Draining(); {
				case known && drains && !was && over > 0:
					mark(h.State, over)
				case !drains && w.leaving[h.State] != nil:
					w.stay(h.State)
				}
				delete(before, h.State)
			}
		}
		if over <= 0 {
			continue
		}
		for s := range before {
			if w.leaving[s] == nil {
				mark(s, over)
			}
		}
	}
	if len(leave) > 0 {
		w.depart(leave)
	}
}

// depart begins to close the flows of hosts.
func (w *worker) depart(leave map[*dataplane.HostState]time.Duration) {
	begun := map[*dataplane.HostState]*departure{}
	of := func(s *dataplane.HostState) *departure {
		over, ok := leave[s]
		if !ok {
			return nil
		}
		d := begun[s]
		if d == nil {
			d = &departure{w: w, began: w.now, over: over}
			begun[s] = d
		}
		return d
	}
	for c := w.tcp.conns; c != nil; c = c.next {
		if c.host == nil || c.leaving {
			continue
		}
		if d := of(c.host.State); d != nil {
			c.leaving = true
			d.conns = append(d.conns, departingConn{c, c.id})
		}
	}
	for _, e := range w.udp {
		l, ok := e.(*udpListener)
		if !ok {
			continue
		}
		for t := range l.tables {
			for track := range t.All {
				s := track.Value
				if s == nil || s.leaving || s.host.host == nil {
					continue
				}
				if d := of(s.host.host.State); d != nil {
					s.leaving = true
					d.udp = append(d.udp, departingSession{t, s})
				}
			}
		}
	}
	for s, d := range begun {
		rand.Shuffle(len(d.conns), func(i, j int) { d.conns[i], d.conns[j] = d.conns[j], d.conns[i] })
		rand.Shuffle(len(d.udp), func(i, j int) { d.udp[i], d.udp[j] = d.udp[j], d.udp[i] })
		d.total = len(d.conns) + len(d.udp)
		d.timer.fire = func() { d.step(s) }
		if w.leaving == nil {
			w.leaving = map[*dataplane.HostState]*departure{}
		}
		w.leaving[s] = d
		d.arm()
	}
}

// arm waits for the next flow's turn, at least for departureTick: many flows go in small groups.
func (d *departure) arm() {
	d.w.timers.arm(&d.timer, d.w.now, max(d.over/time.Duration(d.total), departureTick))
}

const departureTick = 20 * time.Millisecond

// departed is how many of so many flows are to be closed when part of the window has passed: as many as
// there is of the window, and all at its end.
func departed(total int, passed, window time.Duration) int {
	if passed >= window {
		return total
	}
	return int(float64(total) * float64(passed) / float64(window))
}

// step closes the flows whose turn it is.
func (d *departure) step(s *dataplane.HostState) {
	due := departed(d.total, d.w.now.Sub(d.began), d.over)
	for gone := d.total - len(d.conns) - len(d.udp); gone < due; gone++ {
		if n := len(d.conns); n > 0 && (len(d.udp) == 0 || rand.IntN(n+len(d.udp)) < n) {
			e := d.conns[n-1]
			d.conns = d.conns[:n-1]
			if e.is(s) {
				e.c.kill(reasonCloseAfter)
			}
			continue
		}
		n := len(d.udp)
		e := d.udp[n-1]
		d.udp = d.udp[:n-1]
		if e.s.track != nil {
			e.table.End(e.s.track)
		}
	}
	if len(d.conns)+len(d.udp) == 0 {
		delete(d.w.leaving, s)
		return
	}
	d.arm()
}

// is reports whether the connection is still the one that was meant.
func (e departingConn) is(s *dataplane.HostState) bool {
	return e.c.id == e.id && e.c.leaving && e.c.host != nil && e.c.host.State == s
}

// stay ends a departure: the host is back.
func (w *worker) stay(s *dataplane.HostState) {
	d := w.leaving[s]
	w.timers.disarm(&d.timer)
	for _, e := range d.conns {
		if e.is(s) {
			e.c.leaving = false
		}
	}
	for _, e := range d.udp {
		e.s.leaving = false
	}
	delete(w.leaving, s)
}
