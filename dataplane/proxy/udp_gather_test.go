package proxy

import (
	"testing"
	"time"
)

// TestGathering plays steady streams of datagrams against a worker that takes some time for each.
func TestGathering(t *testing.T) {
	const work = 4 * time.Microsecond
	for _, c := range []struct {
		every time.Duration
		// Datagrams a turn, and sleep, at least and at most.
		least, most int
	}{
		{time.Millisecond, 1, 1},
		{100 * time.Microsecond, 1, 1},
		{60 * time.Microsecond, 1, 1},
		{20 * time.Microsecond, 2, 3},
		{10 * time.Microsecond, 5, 6},
		{5 * time.Microsecond, 10, 11},
	} {
		var g gathering
		now := time.Unix(1000, 0)
		next := now // datagram
		for range 200 {
			if now.Before(next) {
				now = next // woken
			}
			start, n := now, 0
			for ; !next.After(start); next = next.Add(c.every) {
				n++
			}
			now = now.Add(time.Duration(n) * work)
			pause := g.turn(start, now, n)
			if pause > gatherTime {
				t.Fatalf("every %v: sleeps %v", c.every, pause)
			}
			now = now.Add(pause)
			if start.Sub(time.Unix(1000, 0)) > 50*c.every+2*time.Millisecond && (n < c.least || n > c.most) {
				t.Fatalf("every %v: a turn with %d datagrams, want %d to %d", c.every, n, c.least, c.most)
			}
		}
	}
	// A busy worker does not sleep, and a pause in the stream is a new beginning.
	var g gathering
	now := time.Unix(1000, 0)
	for range 100 {
		end := now.Add(2 * gatherTime)
		if pause := g.turn(now, end, 64); pause != 0 {
			t.Fatalf("sleeps %v though it is late", pause)
		}
		now = end
	}
	now = now.Add(time.Second)
	if pause := g.turn(now, now.Add(work), 1); pause != 0 {
		t.Fatalf("sleeps %v after the first datagram", pause)
	}
}
