package proxy

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestTimerWheel holds the wheel against the obvious rule: a timer fires on the first tick at or after
// its time, whatever the size of the steps in which the clock moves.
func TestTimerWheel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var w timerWheel
	start := time.Unix(1000, 0)
	now := start
	w.init(now)
	type probe struct {
		timer
		due   time.Time
		fired int
	}
	probes := make([]*probe, 2000)
	lastTurn := now
	for i := range probes {
		p := &probe{}
		p.fire = func() {
			p.fired++
			if now.Before(p.due) {
				t.Errorf("timer fired %v early", p.due.Sub(now))
			}
			if p.due.Before(lastTurn.Add(-tick)) {
				t.Errorf("timer fired late: due %v, not fired at %v", p.due.Sub(start), lastTurn.Sub(start))
			}
		}
		probes[i] = p
	}
	for range 20000 {
		p := probes[r.IntN(len(probes))]
		switch r.IntN(4) {
		case 0:
			w.disarm(&p.timer)
		default:
			d := time.Duration(r.Int64N(int64(time.Second) << r.IntN(14)))
			p.due = now.Add(d)
			w.arm(&p.timer, now, d)
		}
		if ms := w.next(now); ms >= 0 {
			// a loop may sleep that long: nothing may become due meanwhile, but for rounding to ticks
			for _, q := range probes {
				if q.armed() && ms > 2 && q.due.Before(now.Add(time.Duration(ms-2)*tick)) && q.due.After(now) {
					t.Fatalf("may sleep %d ms, but a timer is due in %v", ms, q.due.Sub(now))
				}
			}
		}
		lastTurn = now
		now = now.Add(time.Duration(r.Int64N(int64(40 * time.Millisecond))))
		if r.IntN(500) == 0 {
			now = now.Add(time.Duration(r.Int64N(int64(time.Hour))))
		}
		w.advance(now)
	}
	armed := 0
	for _, p := range probes {
		if p.armed() {
			armed++
		}
	}
	if armed != w.count {
		t.Fatalf("%d timers are armed, the wheel counts %d", armed, w.count)
	}
	lastTurn, now = now, now.Add(5*time.Hour)
	w.advance(now)
	for _, p := range probes {
		if p.armed() && p.due.Before(now.Add(-tick)) {
			t.Fatalf("a timer %v overdue has not fired", now.Sub(p.due))
		}
	}
}
