package live

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

func newFlow() *flow { return &flow{network: UDP, stamp: stamp{run: 7, flow: 1}, backend: "a"} }

func TestFlowBooks(t *testing.T) {
	f := newFlow()
	for i := range 4 {
		if s := f.send(time.Duration(i)*ms, i); s.seq != uint64(i) || s.flow != 1 || s.run != 7 {
			t.Fatalf("message %d is stamped %+v", i, s)
		}
	}
	if got := f.silent(10 * ms); got != 10*ms {
		t.Errorf("silent for %v", got)
	}
	for _, row := range []struct {
		what    string
		seq     uint64
		backend string
		at      time.Duration
		want    arrival
		silent  time.Duration // after it, at 20 ms
	}{
		{"never sent", 4, "a", 10 * ms, arrival{unknown: true}, 20 * ms},
		{"second first", 1, "a", 10 * ms, arrival{roundTrip: 9 * ms, step: 1, silence: 10 * ms}, 18 * ms},
		{"first late", 0, "a", 11 * ms, arrival{roundTrip: 11 * ms, reordered: true, silence: 9 * ms}, 18 * ms},
		{"first again", 0, "a", 12 * ms, arrival{duplicate: true, silence: 10 * ms}, 18 * ms},
		{"moved", 2, "b", 13 * ms, arrival{roundTrip: 11 * ms, step: 2, movedFrom: "a", silence: 11 * ms}, 17 * ms},
		{"last", 3, "b", 14 * ms, arrival{roundTrip: 11 * ms, step: 3, silence: 11 * ms}, 0},
	} {
		if got := f.arrive(row.seq, []byte(row.backend), row.at); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.what, got, row.want)
		}
		if got := f.silent(20 * ms); got != row.silent {
			t.Errorf("%s: silent for %v, want %v", row.what, got, row.silent)
		}
	}
}

// plainFlow is a flow that remembers everything, in the most obvious way.
type plainFlow struct {
	at, step map[uint64]int
	answered map[uint64]bool
	next     uint64
	backend  string
}

// TestFlowAgainstAPlainOne plays random histories on both. Within the window they agree in
// everything, and beyond it in all that needs no memory of the message.
func TestFlowAgainstAPlainOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFlow()
		p := plainFlow{at: map[uint64]int{}, step: map[uint64]int{}, answered: map[uint64]bool{}, backend: "a"}
		now := 0
		for range rapid.IntRange(1, 400).Draw(t, "events") {
			now += rapid.IntRange(0, 5).Draw(t, "pass")
			if rapid.IntRange(0, 2).Draw(t, "what") > 0 {
				step := now / 50
				p.at[p.next], p.step[p.next] = now, step
				if s := f.send(time.Duration(now), step); s.seq != p.next {
					t.Fatalf("sent %d, want %d", s.seq, p.next)
				}
				p.next++
				continue
			}
			seq := uint64(rapid.IntRange(max(0, int(p.next)-80), int(p.next)+1).Draw(t, "seq"))
			backend := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "backend")
			got := f.arrive(seq, []byte(backend), time.Duration(now))
			if seq >= p.next {
				if got != (arrival{unknown: true}) {
					t.Fatalf("answer to %d, which was not sent, is %+v", seq, got)
				}
				continue
			}
			top := uint64(0)
			for s := range p.answered {
				top = max(top, s+1)
			}
			forgotten := p.next-seq > window
			if got.forgotten != forgotten {
				t.Fatalf("%d of %d: forgotten is %v", seq, p.next, got.forgotten)
			}
			if !forgotten {
				if got.duplicate != p.answered[seq] {
					t.Fatalf("%d: duplicate is %v", seq, got.duplicate)
				}
				if !got.duplicate && (got.roundTrip != time.Duration(now-p.at[seq]) || got.step != p.step[seq]) {
					t.Fatalf("%d: %+v, sent at %d in step %d", seq, got, p.at[seq], p.step[seq])
				}
			}
			if !forgotten && got.reordered != (seq < top && !p.answered[seq]) {
				t.Fatalf("%d after %d: reordered is %v", seq, top, got.reordered)
			}
			if (got.movedFrom != "") != (backend != p.backend) {
				t.Fatalf("from %s to %s: moved from %q", p.backend, backend, got.movedFrom)
			}
			p.answered[seq], p.backend = true, backend
			if top = max(top, seq+1); f.answered != top {
				t.Fatalf("answered up to %d, want %d", f.answered, top)
			}
			want := time.Duration(0)
			if top < p.next {
				want = time.Duration(now - p.at[top])
			}
			if p.next-top <= window && f.silent(time.Duration(now)) != want {
				t.Fatalf("silent for %v, want %v", f.silent(time.Duration(now)), want)
			}
		}
	})
}

func TestRecorderCountsFlowsOncePerStep(t *testing.T) {
	r := newRecorder(100 * ms)
	r.begin("opening", nil, 0, census{})
	r.begin("drain a", []string{"a"}, 10*ms, census{UDP: {"a": 3, "b": 4}})
	f, g := newFlow(), newFlow()
	g.flow, g.backend = 2, "b"
	for range 2 { // twice, counted once
		r.arrived(f, arrival{movedFrom: "a", reordered: true, silence: 5 * ms}, 20*ms)
		r.arrived(g, arrival{movedFrom: "b"}, 20*ms)
		r.stalled(f, 20*ms)
	}
	r.broken(g, "reset", 120*ms)
	r.begin("later", nil, 200*ms, census{UDP: {"b": 6}})
	r.arrived(f, arrival{movedFrom: "b"}, 210*ms)
	r.arrived(f, arrival{step: 1, roundTrip: 3 * ms}, 210*ms)
	r.failed(UDP, 1, "refused", 210*ms)

	c := &r.steps[1].Of[UDP]
	if c.Flows != 7 || c.Affected != 3 {
		t.Errorf("%d flows, %d affected", c.Flows, c.Affected)
	}
	if c.Moved != (Tally{2, 1}) || c.Stalled != (Tally{1, 0}) || c.Broken != (Tally{1, 1}) || c.Reordered != 1 || c.Silence != 5*ms {
		t.Errorf("counts are %+v", c)
	}
	if c.Answered != 1 || c.RoundTrip.Max()/100 != 30 { // the others were sent in step 0; times are exact to 0.1 %
		t.Errorf("%d answered, at most %d us", c.Answered, c.RoundTrip.Max())
	}
	if c.Failed != 1 || c.Endings["reset"] != 1 || r.steps[1].End != 200*ms {
		t.Errorf("counts are %+v, the step ends at %v", c, r.steps[1].End)
	}
	if r.steps[2].Of[UDP].Moved.All != 1 {
		t.Error("a flow does not count again in the next step")
	}
	var timeline []Happened
	for _, s := range r.timeline {
		timeline = append(timeline, s.Of[UDP])
	}
	want := []Happened{{Moved: 2, Stalled: 1, Reordered: 1}, {Broken: 1}, {Moved: 1, Failed: 1}}
	if !slices.Equal(timeline, want) {
		t.Errorf("timeline is %+v", timeline)
	}
	if got := r.soFar()[UDP]; got != (Happened{Broken: 1, Moved: 3, Stalled: 1, Reordered: 1, Failed: 1}) {
		t.Errorf("so far %+v", got)
	}
}

func TestMessages(t *testing.T) {
	s := stamp{run: 0xdeadbeef, flow: 12, seq: 1 << 60}
	for _, size := range []int{1, 64, MaxSize} {
		m := appendMessage(nil, s, size)
		if got, ok := parseMessage(m); !ok || got != s {
			t.Errorf("%q is %+v, %v", m, got, ok)
		}
		if size > 60 && len(m) != size || m[len(m)-1] != '\n' || strings.Count(string(m), "\n") != 1 {
			t.Errorf("%d bytes, wanted %d: %q", len(m), size, m)
		}
	}
	for _, bad := range []string{"", "gw", "gw 1 2 3", "gw x 2 3 ", "gw 100000000 2 3 .", "b1", "gw 1 -2 3 ."} {
		if got, ok := parseMessage([]byte(bad)); ok {
			t.Errorf("%q is %+v", bad, got)
		}
	}
	for datagram, want := range map[string]string{"b1:gw 1 2 3 ..": "b1", "[::1]:80:gw 1 2 3 ..": "[::1]:80", ":gw 1 2 3 ..": "", "gw 1 2 3 ..": "", "b1:x": ""} {
		id, _, ok := splitAnswer([]byte(datagram))
		if string(id) != want || ok != (want != "") {
			t.Errorf("%q comes from %q, %v", datagram, id, ok)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add(appendMessage(nil, stamp{1, 2, 3}, 64))
	f.Add([]byte("gw 0 0 0 "))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, ok := parseMessage(line)
		if !ok {
			return
		}
		if got, ok := parseMessage(appendMessage(nil, s, 64)); !ok || got != s {
			t.Errorf("%q is %+v, which becomes %+v, %v", line, s, got, ok)
		}
	})
}
