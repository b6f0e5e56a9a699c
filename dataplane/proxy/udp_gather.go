package proxy

import "time"

// gatherTime is how long datagrams may wait for others when many come. It is what network cards let
// packets wait before they interrupt.
const gatherTime = 50 * time.Microsecond

// gathering decides when a worker that is awake anyway sleeps a moment, so that its next turn finds
// several datagrams. Each wake-up and each call costs about as much as one datagram; without this, CPU
// time per datagram is highest when a worker is only half busy. Nothing waits while fewer than one
// datagram comes in gatherTime, nor when turns are longer than that by themselves.
type gathering struct {
	perNs float64 // datagrams a ns, a moving average over some ten turns
	last  time.Time
}

// turn is told of a turn with n datagrams that began at start, and returns for how long to sleep if it
// ends at end.
func (g *gathering) turn(start, end time.Time, n int) time.Duration {
	since := start.Sub(g.last)
	g.last = start
	if since > 20*gatherTime {
		g.perNs = 0 // a new beginning
		return 0
	}
	g.perNs += (float64(n)/float64(since+1) - g.perNs) / 8
	if g.perNs*float64(gatherTime) < 1 {
		return 0
	}
	return max(0, gatherTime-end.Sub(start))
}
