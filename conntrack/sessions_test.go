package conntrack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fleet is backends as sessions see them; those it does not list are serving.
type fleet struct {
	picks     int // for new sessions; nobody if negative
	standings map[Backend]Standing
	gen       uint32 // of all of them
}

func (f *fleet) Standing(b Backend, gen uint32) Standing {
	if gen != f.gen {
		return Gone
	}
	return f.standings[b]
}

func (f *fleet) Pick(Flow) (Backend, uint32, bool) { return Backend(f.picks), f.gen, f.picks >= 0 }

func flow(i int) Flow { return packetOf(i, UDP).Flow }

func newSessions(t testing.TB, cfg SessionsConfig[int]) *Sessions[int] {
	t.Helper()
	s, err := NewSessions(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The rules of udp_proxy for a datagram of a session on backend 1, one a line.
func TestSessionRules(t *testing.T) {
	for _, c := range []struct {
		name    string
		hosts   fleet
		outcome Outcome
		backend Backend
		ended   []EndReason
	}{
		{"nothing happened", fleet{picks: 1}, Kept, 1, nil},
		{"the table has changed", fleet{picks: 2}, Kept, 1, nil},
		{"the table is empty", fleet{picks: -1}, Kept, 1, nil},
		{"unfit", fleet{picks: 2, standings: map[Backend]Standing{1: Unfit}}, Moved, 2, nil},
		{"unfit, and nobody else", fleet{picks: -1, standings: map[Backend]Standing{1: Unfit}}, Kept, 1, nil},
		{"unfit, and still in the table", fleet{picks: 1, standings: map[Backend]Standing{1: Unfit}}, Kept, 1, nil},
		{"unfit like the other", fleet{picks: 2, standings: map[Backend]Standing{1: Unfit, 2: Unfit}}, Kept, 1, nil},
		{"gone", fleet{picks: 2, standings: map[Backend]Standing{1: Gone}}, Began, 2, []EndReason{EndGone}},
		{"gone, and nobody else", fleet{picks: -1, standings: map[Backend]Standing{1: Gone}}, NoHost, 0, []EndReason{EndGone}},
		{"another backend has its index", fleet{picks: 1, gen: 1}, Began, 1, []EndReason{EndGone}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ended []EndReason
			s := newSessions(t, SessionsConfig[int]{Max: 4, Idle: time.Minute,
				OnEnd: func(_ *Session[int], why EndReason) { ended = append(ended, why) }})
			first, outcome := s.Datagram(flow(0), 0, &fleet{picks: 1})
			if outcome != Began || first.Backend() != 1 || first.Flow() != flow(0) {
				t.Fatalf("first datagram: %d, %+v", outcome, first)
			}
			first.Value = 7
			got, outcome := s.Datagram(flow(0), time.Second, &c.hosts)
			if outcome != c.outcome || !slices.Equal(ended, c.ended) {
				t.Errorf("outcome %d, ended %v, want %d, %v", outcome, ended, c.outcome, c.ended)
			}
			switch outcome {
			case NoHost:
				if got != nil || s.Len() != 0 {
					t.Errorf("there is a session: %+v", got)
				}
			case Began:
				if got == first || got.Value != 0 || got.Backend() != c.backend {
					t.Errorf("session %+v", got)
				}
			default:
				if got != first || got.Value != 7 || got.Backend() != c.backend || got.Last() != time.Second {
					t.Errorf("session %+v", got)
				}
			}
		})
	}
}

// A session that has moved is with its new backend for good.
func TestSessionMovesOnce(t *testing.T) {
	s := newSessions(t, SessionsConfig[int]{Max: 4, Idle: time.Minute})
	s.Datagram(flow(0), 0, &fleet{picks: 1})
	s.Datagram(flow(0), 0, &fleet{picks: 2, standings: map[Backend]Standing{1: Unfit}})
	if got, outcome := s.Datagram(flow(0), 0, &fleet{picks: 1}); outcome != Kept || got.Backend() != 2 {
		t.Errorf("outcome %d, backend %d", outcome, got.Backend())
	}
}

func TestSessionsFull(t *testing.T) {
	for _, evict := range []bool{false, true} {
		var ended []string
		s := newSessions(t, SessionsConfig[int]{Max: 2, Idle: time.Minute, EvictOldest: evict,
			OnEnd: func(s *Session[int], why EndReason) {
				ended = append(ended, fmt.Sprint(s.Flow() == flow(2), why))
			}})
		h := &fleet{picks: 0}
		one, _ := s.Datagram(flow(1), 0, h)
		s.Datagram(flow(2), time.Second, h)
		s.Touch(one, 2*time.Second) // now 2 is the oldest
		got, outcome := s.Datagram(flow(3), 3*time.Second, h)
		if s.Overflow() != 1 || s.Len() != 2 {
			t.Errorf("evict %v: overflow %d, %d sessions", evict, s.Overflow(), s.Len())
		}
		if evict && (outcome != Began || !slices.Equal(ended, []string{fmt.Sprint(true, EndEvicted)})) {
			t.Errorf("outcome %d, ended %v", outcome, ended)
		}
		if !evict && (outcome != Refused || got != nil || ended != nil) {
			t.Errorf("outcome %d, ended %v", outcome, ended)
		}
		// Idle ones are room.
		if _, outcome := s.Datagram(flow(4), 2*time.Minute, h); outcome != Began || s.Overflow() != 1 {
			t.Errorf("outcome %d, overflow %d", outcome, s.Overflow())
		}
	}
}

func TestSessionEnds(t *testing.T) {
	var ended []EndReason
	s := newSessions(t, SessionsConfig[int]{Max: 9, Idle: time.Minute,
		OnEnd: func(_ *Session[int], why EndReason) { ended = append(ended, why) }})
	if _, ok := s.NextExpiry(); ok {
		t.Error("an expiry without sessions")
	}
	one, _ := s.Datagram(flow(1), 0, &fleet{picks: 1})
	s.Datagram(flow(2), time.Second, &fleet{picks: 2})
	if at, ok := s.NextExpiry(); !ok || at != time.Minute+1 {
		t.Errorf("next expiry %v", at)
	}
	s.Expire(time.Minute)
	if s.Len() != 2 {
		t.Error("ended at the idle timeout, want after it")
	}
	s.Touch(one, time.Minute)
	s.Reconcile(&fleet{standings: map[Backend]Standing{2: Gone}})
	s.End(one)
	s.End(one)
	s.Touch(one, time.Hour)
	if s.Len() != 0 || !slices.Equal(ended, []EndReason{EndGone, EndClosed}) {
		t.Errorf("%d left, ended %v", s.Len(), ended)
	}
	s.Datagram(flow(3), 0, &fleet{picks: 1})
	if err := s.SetIdle(time.Second); err != nil {
		t.Fatal(err)
	}
	s.Datagram(flow(3), 2*time.Second, &fleet{picks: 1}) // idle, and nobody expired it
	s.Datagram(flow(4), 2*time.Second, &fleet{picks: 1})
	n := 0
	for x := range s.All {
		s.End(x)
		n++
	}
	if n != 2 || !slices.Equal(ended[2:], []EndReason{EndIdle, EndClosed, EndClosed}) {
		t.Errorf("%d sessions, ended %v", n, ended[2:])
	}
	s.Datagram(flow(5), 0, &fleet{picks: 1})
	s.EndAll()
	if s.Len() != 0 || len(ended) != 6 {
		t.Errorf("%d left, ended %v", s.Len(), ended)
	}
	if err := s.SetIdle(NoIdle); err != nil {
		t.Fatal(err)
	}
	s.Datagram(flow(6), time.Hour, &fleet{picks: 1})
	if at, ok := s.NextExpiry(); !ok || at != NoIdle {
		t.Errorf("next expiry %v without an idle timeout", at)
	}
}

func TestSessionsBounds(t *testing.T) {
	for _, cfg := range []SessionsConfig[int]{{Max: 0, Idle: 1}, {Max: 1}, {Max: 1, Idle: -1}} {
		if _, err := NewSessions(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
	if newSessions(t, SessionsConfig[int]{Max: 1, Idle: 1}).SetIdle(0) == nil {
		t.Error("no error for an idle timeout of 0")
	}
}

func TestDatagramsDoNotAllocate(t *testing.T) {
	s := newSessions(t, SessionsConfig[int]{Max: 9, Idle: time.Minute})
	h := &fleet{picks: 1}
	sess, _ := s.Datagram(flow(1), 0, h)
	f := flow(1)
	if n := testing.AllocsPerRun(100, func() { s.Datagram(f, 0, h); s.Touch(sess, 0); s.Expire(0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Sessions against a slow and obvious twin, over random datagrams, failures,
// removals and silence.
func TestSessionsEqualTwin(t *testing.T) {
	type twin struct {
		b    Backend
		gen  uint32
		last time.Duration
		seq  int // of the last datagram
	}
	rapid.Check(t, func(t *rapid.T) {
		roll := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "roll") }
		cfg := SessionsConfig[int]{Max: 1 + roll(6), Idle: time.Minute, EvictOldest: roll(2) == 0}
		s, err := NewSessions(cfg)
		if err != nil {
			t.Fatal(err)
		}
		want := map[int]*twin{}
		h := &fleet{standings: map[Backend]Standing{}}
		now, overflow := time.Duration(0), uint64(0)
		over := func(w *twin) bool { return now-w.last > time.Minute }
		for seq := range 120 {
			now += time.Duration(roll(15)) * time.Second
			switch roll(10) {
			case 0:
				h.standings[Backend(roll(3))] = Standing(roll(3))
			case 1:
				h.picks = roll(4) - 1
			case 2:
				if roll(5) == 0 {
					h.gen++
				}
			case 3:
				s.Expire(now)
				for id, w := range want {
					if over(w) {
						delete(want, id)
					}
				}
				if s.Len() != len(want) {
					t.Fatalf("%d sessions, want %d", s.Len(), len(want))
				}
			default:
				id := roll(8)
				w, outcome := want[id], Kept
				switch {
				case w != nil && over(w), w != nil && h.Standing(w.b, w.gen) == Gone:
					delete(want, id)
					w = nil
				}
				pick, gen, ok := h.Pick(Flow{})
				var oldest int
				for id, o := range want {
					if want[oldest] == nil || o.seq < want[oldest].seq {
						oldest = id
					}
				}
				full := len(want) == cfg.Max
				switch {
				case w != nil && h.Standing(w.b, w.gen) == Unfit && ok && pick != w.b && h.Standing(pick, gen) == Serving:
					w.b, w.gen, outcome = pick, gen, Moved
				case w != nil:
				case !ok:
					outcome = NoHost
				case full && !over(want[oldest]) && !cfg.EvictOldest:
					outcome = Refused
					overflow++
				default:
					if full {
						if !over(want[oldest]) {
							overflow++
						}
						delete(want, oldest)
					}
					w, outcome = &twin{b: pick, gen: gen}, Began
					want[id] = w
				}
				if w != nil {
					w.last, w.seq = now, seq
				}
				got, gotOutcome := s.Datagram(flow(id), now, h)
				if gotOutcome != outcome || (got == nil) != (w == nil) || got != nil && got.Backend() != w.b || s.Overflow() != overflow {
					t.Fatalf("datagram of %d at %v: outcome %d, session %+v, overflow %d; want %d, %+v, %d",
						id, now, gotOutcome, got, s.Overflow(), outcome, w, overflow)
				}
			}
		}
	})
}

func BenchmarkSessions(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) {
			s := newSessions(b, SessionsConfig[int]{Max: n, Idle: time.Minute})
			h := &fleet{picks: 1}
			flows := make([]Flow, n)
			for i := range flows {
				flows[i] = flow(i)
				s.Datagram(flows[i], 0, h)
			}
			r := rand.New(rand.NewPCG(1, 1))
			r.Shuffle(n, func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				s.Datagram(flows[i], 0, h)
				if i++; i == n {
					i = 0
				}
			}
		})
	}
}
