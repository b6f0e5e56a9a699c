package churn

import (
	"bytes"
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/conntrack"
)

// small is a plan of some thousand flows.
func small(change func(*Plan)) Plan {
	p := Plan{
		Changes: []float64{0}, Tracks: []conntrack.Track{conntrack.TrackChanged}, Proto: conntrack.TCP,
		Backends: 10, TableSize: 251, Flows: 800, Slots: 251, Life: time.Minute, Rate: 10,
		Idle: 5 * time.Minute, Sweep: 10 * time.Second, WarmUp: 10 * time.Minute, Measured: 15 * time.Minute, Seed: 3,
	}
	change(&p)
	return p
}

func run(t *testing.T, p Plan) []Point {
	t.Helper()
	r, err := Run(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r.Points
}

// With no changes nothing is looked up and nothing remembered under track changed; under track all everything is, at
// whatever rate; under track off nothing is.
func TestExtremes(t *testing.T) {
	points := run(t, small(func(p *Plan) {
		p.Changes = []float64{0, 60}
		p.Tracks = []conntrack.Track{conntrack.TrackChanged, conntrack.TrackAll, conntrack.TrackOff}
	}))
	for _, p := range points {
		var want float64
		switch {
		case p.Track == conntrack.TrackAll:
			want = 1
		case p.Track == conntrack.TrackChanged && p.Changes > 0:
			if p.Lookups <= 0 || p.Lookups >= 1 || p.Remembered <= 0 || p.Remembered >= 1 {
				t.Errorf("%+v: shares of lookups and remembered flows are to lie between 0 and 1", p)
			}
			continue
		}
		if math.Abs(p.Lookups-want) > 1e-9 || math.Abs(p.Remembered-want) > 1e-9 {
			t.Errorf("%+v: want %v of both", p, want)
		}
	}
}

// Under track all each flow has an entry while it lives, and for the idle timeout after its last packet, which comes
// a mean gap before its end: by Little's law 1 + (idle - gap) / life entries for each live flow, and half a sweep's
// interval more, since sweeps are what ends entries.
func TestEntriesByLittlesLaw(t *testing.T) {
	p := small(func(p *Plan) { p.Tracks = []conntrack.Track{conntrack.TrackAll} })
	got := run(t, p)[0].Entries
	gap := time.Duration(float64(time.Second) / p.Rate)
	want := 1 + float64(p.Idle-gap+p.Sweep/2)/float64(p.Life)
	// Entries are about Poisson, and 3 sets of them that have nothing in common are averaged.
	if tolerance := 4 * math.Sqrt(want/float64(p.Flows)/3); math.Abs(got-want) > tolerance {
		t.Errorf("%v entries for each live flow, want %v within %v", got, want, tolerance)
	}
}

// With each change a backend of two leaves or comes, so that (about) half of the slots move away and back. A change
// comes each 30 minutes, longer than a slot takes to settle: a slot that moved is open for the idle timeout of 5
// minutes, then excepted until the last flow that is remembered on its former backend is over for as long.
func TestOpenShare(t *testing.T) {
	p := small(func(p *Plan) {
		p.Backends, p.Changes, p.WarmUp, p.Measured = 2, []float64{2}, time.Hour, time.Hour
	})
	got := run(t, p)[0]
	moved := got.ChangedSlots / float64(p.TableSize)
	if moved < 0.4 || moved > 0.6 {
		t.Errorf("a change moves %v of the slots, want about half", moved)
	}
	// Open for the timeout, and until the next sweep; all slots are simulated, but the slots of each change differ a
	// little.
	if want := moved * float64(p.Idle) / float64(30*time.Minute); math.Abs(got.Open-want) > 0.1*want {
		t.Errorf("%v of the slots are open, want %v", got.Open, want)
	}
	if math.Abs(got.Lookups-got.Open-got.Excepted) > 5*got.Error {
		t.Errorf("%v ± %v of the packets are looked up, while %v of the slots are open and %v excepted", got.Lookups, got.Error, got.Open, got.Excepted)
	}
	if got.Excepted <= 0 {
		t.Error("no slot is ever excepted")
	}
}

// The invariant of conntrack: no flow moves whose backend can serve and that is never silent for long. With slots
// that are open for less time than there is between packets, some do, so that the count can see it.
func TestMoved(t *testing.T) {
	for _, proto := range []conntrack.Proto{conntrack.TCP, conntrack.UDP} {
		if got := run(t, small(func(p *Plan) { p.Changes, p.Proto = []float64{120}, proto }))[0]; got.Moved != 0 {
			t.Errorf("protocol %d: %d flows of %d moved", proto, got.Moved, got.Begun)
		}
	}
	if got := run(t, small(func(p *Plan) {
		p.Changes, p.Window, p.Rate, p.Sweep = []float64{120}, time.Second, 0.05, time.Second
	}))[0]; got.Moved == 0 {
		t.Error("no flow moved, though slots close before flows are heard of")
	}
}

// A sample of slots tells what all of them do, within its error.
func TestSample(t *testing.T) {
	all := small(func(p *Plan) { p.Changes, p.TableSize, p.Slots, p.Flows = []float64{12}, 1009, 1009, 2000 })
	some := all
	some.Slots = 300
	a, s := run(t, all)[0], run(t, some)[0]
	if s.Error <= 0 || math.Abs(a.Lookups-s.Lookups) > 4*math.Hypot(a.Error, s.Error) {
		t.Errorf("%v ± %v of all, %v ± %v of the sample", a.Lookups, a.Error, s.Lookups, s.Error)
	}
}

func TestSeedDecidesAll(t *testing.T) {
	p := small(func(p *Plan) { p.Changes = []float64{20} })
	once, again := run(t, p), run(t, p)
	if !reflect.DeepEqual(once, again) {
		t.Errorf("%+v, then %+v", once, again)
	}
	p.Seed++
	if other := run(t, p); reflect.DeepEqual(once, other) {
		t.Errorf("another seed, the same figures: %+v", other)
	}
}

func TestReport(t *testing.T) {
	r, err := Run(context.Background(), small(func(p *Plan) {
		p.Changes, p.Tracks = []float64{0, 12}, []conntrack.Track{conntrack.TrackChanged, conntrack.TrackAll}
	}))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.Report().Write(&text, "csv"); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), "\n"); n != 5 {
		t.Errorf("%d lines:\n%s", n, text.String())
	}
	charts := r.Report().Sections[0].Charts
	if len(charts) != 3 {
		t.Errorf("%d charts", len(charts))
	}
	for _, c := range charts {
		if _, err := report.SVG(c); err != nil {
			t.Error(err)
		}
	}
}

func TestRefuses(t *testing.T) {
	for name, change := range map[string]func(*Plan){
		"no rates":             func(p *Plan) { p.Changes = nil },
		"a negative rate":      func(p *Plan) { p.Changes = []float64{-1} },
		"a rate that is none":  func(p *Plan) { p.Changes = []float64{math.NaN()} },
		"no prime":             func(p *Plan) { p.TableSize = 250 },
		"one backend":          func(p *Plan) { p.Backends = 1 },
		"more slots than all":  func(p *Plan) { p.Slots = 252 },
		"no flow in the slots": func(p *Plan) { p.Flows, p.Slots = 100, 1 },
		"no packets":           func(p *Plan) { p.Rate = 0 },
		"no life":              func(p *Plan) { p.Life = 0 },
		"no measured time":     func(p *Plan) { p.Measured = 0 },
		"too many backends":    func(p *Plan) { p.Changes, p.Measured = []float64{3600}, 100*time.Hour },
	} {
		if _, err := Run(context.Background(), small(change)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, small(func(*Plan) {})); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
