package conntrack

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What does not fit is counted if it was alive, and follows the table.
func TestOverflow(t *testing.T) {
	const room = 100
	tr, err := NewTracker(UDP, room, 1)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, tr, service(1, 0), 0)
	apply(t, tr, service(1, 1), 0)
	for i := range 3 * room {
		if b := tr.Packet(packetOf(2*i, UDP), 0); b != 0 {
			t.Fatalf("flow %d goes to %d: a full table refuses nothing", i, b)
		}
	}
	if s := tr.Stats(); s.Remembered != room || s.Overflow != 2*room {
		t.Errorf("%+v", s)
	}
	tr.Packet(packetOf(1, UDP), 0) // IPv6 has room of its own
	if s := tr.Stats(); s.Remembered != room+1 || s.Overflow != 2*room {
		t.Errorf("%+v", s)
	}
	// Two hours later they are all idle: pushing them out costs nobody anything.
	apply(t, tr, service(1, 2), 2*time.Hour)
	for i := range room {
		tr.Packet(packetOf(2*(i+10*room), UDP), 2*time.Hour)
	}
	if s := tr.Stats(); s.Remembered != room+1 || s.Overflow != 2*room {
		t.Errorf("%+v", s)
	}
}

func TestRoomMustBePositive(t *testing.T) {
	for _, c := range [][2]int{{0, 1}, {1, 0}, {-1, 1}} {
		if _, err := NewTracker(TCP, c[0], c[1]); err == nil {
			t.Errorf("room %v: no error", c)
		}
	}
}

// The room that is asked for is of use, in spite of the shards: flows at
// random, filling 97 % of it, push out next to nobody.
func TestShardsFillEvenly(t *testing.T) {
	const room = 1 << 18
	flows, err := newFlowTable(room, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := clock{v: &view{members: make([]member, 1), idle: time.Hour}}
	r := rand.New(rand.NewPCG(1, 2))
	for range room * 97 / 100 {
		flows.remember(randomFlow(r, TCP), Remembered{}, false, c)
	}
	if n := flows.v4.overflow.Load(); n > room/1000 {
		t.Errorf("%d of %d flows pushed out", n, room*97/100)
	}
}

// Flows stay where they are while one goroutine changes the tables, another one
// sweeps, and others send; run it with -race.
func TestConcurrentChanges(t *testing.T) {
	tr := newTracker(t, UDP, service(101, 0, 1, 2, 3))
	var moved atomic.Int64
	var rounds [2]atomic.Int64 // how often each sender has sent for all of its flows
	var done atomic.Bool
	var wg sync.WaitGroup
	var clock atomic.Int64 // seconds; flows are never idle for long
	for w := range rounds {
		wg.Go(func() {
			home := map[int]Backend{}
			for !done.Load() {
				for id := w; id < 100; id += 2 {
					b := tr.Packet(packetOf(id, UDP), time.Duration(clock.Load())*time.Second)
					if was, ok := home[id]; ok && was != b {
						moved.Add(1)
					}
					home[id] = b
				}
				rounds[w].Add(1)
			}
		})
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 80 {
		var owners []Backend
		for range 1 + r.IntN(4) {
			owners = append(owners, Backend(r.IntN(4)))
		}
		d := service(101, owners...)
		if i%10 == 9 {
			d = service(89, owners...)
		}
		d.Idle = 1000 * time.Second
		apply(t, tr, d, time.Duration(clock.Load())*time.Second)
		tr.Sweep(time.Duration(clock.Load()) * time.Second)
		tr.Stats()
		// Time goes on when every flow has been heard of since. The round under
		// way may have begun before.
		for w := range rounds {
			for target := rounds[w].Load() + 2; rounds[w].Load() < target; {
				runtime.Gosched()
			}
		}
		clock.Add(400)
	}
	done.Store(true)
	wg.Wait()
	if n := moved.Load(); n != 0 {
		t.Errorf("%d moves in %d rounds", n, rounds[0].Load()+rounds[1].Load())
	}
}

// The sizes that doc.go states.
func TestSizes(t *testing.T) {
	const n = 200_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	per := func(what string, limit uint64, fill func() any) {
		before := heap()
		kept := fill()
		used := (heap() - before) / n
		runtime.KeepAlive(kept)
		t.Logf("%s: %d bytes", what, used)
		if used > limit {
			t.Errorf("%s: %d bytes, stated are %d", what, used, limit)
		}
	}
	fill := func(odd int) any {
		flows, err := newFlowTable(2*n, 1)
		if err != nil {
			t.Fatal(err)
		}
		c := clock{v: &view{}}
		for i := range n {
			flows.remember(packetOf(2*i+odd, TCP).Flow, Remembered{}, false, c)
		}
		return flows
	}
	per("remembered flow, IPv4", flowBytes4, func() any { return fill(0) })
	per("remembered flow, IPv6", flowBytes6, func() any { return fill(1) })
	per("session", sessionBytes, func() any {
		s, err := NewSessions(SessionsConfig[struct{}]{Max: n, Idle: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			s.Datagram(packetOf(i, UDP).Flow, 0, &fleet{picks: 0})
		}
		return s
	})
}

// As in doc.go.
const (
	flowBytes4   = 176
	flowBytes6   = 230
	sessionBytes = 430
)

// Only TCP has half-open flows.
func TestUDPIsNeverHalfOpen(t *testing.T) {
	d := service(1, 0)
	d.Track = TrackAll
	tr := newTracker(t, UDP, d)
	p := packetOf(0, UDP)
	p.New = true
	tr.Packet(p, 0)
	if s := tr.Stats(); s.Remembered != 1 || s.HalfOpen != 0 {
		t.Errorf("%+v", s)
	}
}

// Remembering anew what is there already, in a full table, pushes nobody out,
// and a flow is never in both LRUs.
func TestRememberAgain(t *testing.T) {
	flows, err := newFlowTable(2, 2)
	if err != nil {
		t.Fatal(err)
	}
	c := clock{v: &view{members: make([]member, 1), idle: time.Hour}}
	one, two := packetOf(0, TCP).Flow, packetOf(2, TCP).Flow
	for _, f := range []Flow{one, two, two, two} {
		flows.remember(f, Remembered{}, false, c)
	}
	if n, half := flows.v4.len(); n != 2 || half != 0 || flows.v4.overflow.Load() != 0 {
		t.Errorf("%d flows, %d half-open, overflow %d", n, half, flows.v4.overflow.Load())
	}
	flows.remember(one, Remembered{}, true, c)
	if n, half := flows.v4.len(); n != 1 || half != 1 {
		t.Errorf("%d flows, %d half-open", n, half)
	}
	flows.touch(one, true, c) // the SYN again
	if n, half := flows.v4.len(); n != 1 || half != 1 {
		t.Errorf("%d flows, %d half-open", n, half)
	}
	flows.touch(one, false, c)
	if n, half := flows.v4.len(); n != 2 || half != 0 {
		t.Errorf("%d flows, %d half-open", n, half)
	}
}
