package churn

import (
	"context"
	"fmt"
	"time"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/maglev"
)

// Plan is what to simulate. All of its times are simulated ones.
type Plan struct {
	// Changes are the rates to simulate, in changes an hour, evenly spaced.
	Changes []float64
	// Tracks are the ways to track that are compared.
	Tracks []conntrack.Track

	Proto     conntrack.Proto
	Backends  int // at the start; from then on one leaves and a new one comes, in turns
	TableSize uint32
	// Flows live at any time, over all slots. Only those of Slots slots, picked at
	// random, are simulated.
	Flows int
	Slots int

	Life time.Duration // mean of a flow's life, which is exponential
	Rate float64       // mean packets a second of a live flow, after the first; gaps are exponential

	Idle   time.Duration // timeout of flows
	Window time.Duration // conntrack.Desired.LearningWindow; 0: slots stay open for Idle
	Sweep  time.Duration // between sweeps

	// WarmUp is left out of the figures, Measured is the time after it.
	WarmUp, Measured time.Duration
	Seed             uint64

	// Progress, if set, is told how much is done.
	Progress func(done, total int)
}

// check says what of a plan cannot be simulated.
func (p *Plan) check() error {
	if len(p.Changes) == 0 || len(p.Tracks) == 0 {
		return fmt.Errorf("nothing to simulate: %d rates of change, %d ways to track", len(p.Changes), len(p.Tracks))
	}
	for _, c := range p.Changes {
		if !(c >= 0 && c <= 3600) {
			return fmt.Errorf("%v changes an hour: use 0 to 3600", c)
		}
	}
	if err := maglev.CheckTableSize(uint64(p.TableSize)); err != nil {
		return err
	}
	if p.Backends < 2 || p.Backends > maxBackends {
		return fmt.Errorf("%d backends: use 2 to %d, since one may be gone", p.Backends, maxBackends)
	}
	if p.Slots < 1 || p.Slots > int(p.TableSize) {
		return fmt.Errorf("%d slots: use 1 to %d, the size of the table", p.Slots, p.TableSize)
	}
	if p.sampled() < 1 || p.Flows > maxFlows {
		return fmt.Errorf("%d flows: use as many that one at least falls to %d of %d slots, and at most %d", p.Flows, p.Slots, p.TableSize, maxFlows)
	}
	if !(p.Rate > 0) {
		return fmt.Errorf("%v packets a second: use a number above 0", p.Rate)
	}
	for _, d := range []struct {
		what string
		d    time.Duration
	}{{"life", p.Life}, {"idle timeout", p.Idle}, {"time between sweeps", p.Sweep}, {"measured time", p.Measured}} {
		if d.d <= 0 {
			return fmt.Errorf("%s %v: use a time above 0", d.what, d.d)
		}
	}
	if p.WarmUp < 0 || p.Window < 0 {
		return fmt.Errorf("warm-up %v, window %v: neither can be negative", p.WarmUp, p.Window)
	}
	if p.Backends+int(float64(p.WarmUp+p.Measured)/float64(time.Hour)*p.mostChanges()) > int(conntrack.NoBackend)-2 {
		return fmt.Errorf("%v changes an hour for %v use up the numbers of backends: use less of one", p.mostChanges(), p.WarmUp+p.Measured)
	}
	return nil
}

const (
	maxBackends = 10_000
	maxFlows    = 1 << 30
)

// sampled is how many flows are simulated: the share that falls to as many slots.
func (p *Plan) sampled() int {
	return int(float64(p.Flows)*float64(p.Slots)/float64(p.TableSize) + 0.5)
}

func (p *Plan) mostChanges() float64 {
	most := 0.0
	for _, c := range p.Changes {
		most = max(most, c)
	}
	return most
}

// Point is what one rate of change comes to under one way to track. Shares are parts of one, over
// Plan.Measured.
type Point struct {
	Changes float64 // an hour
	Track   conntrack.Track

	// Lookups is the share of packets that looked their flow up, Error its standard error, from how slots differ.
	Lookups, Error float64
	// Remembered is the share of live flows that are remembered. Entries is all that is remembered, flows that
	// are over and not idle for long enough included, for each live flow.
	Remembered, Entries float64
	// Open is the share of open slots, of all. Excepted is one of the sampled slots: the others, without flows, settle
	// as soon as they are excepted.
	Open, Excepted float64
	// Moved flows changed their backend, though it could serve. Only a flow that is silent for longer than the
	// learning window, or the idle timeout, may. Of Begun flows, in the whole time.
	Moved, Begun int
	// ChangedSlots is how many slots of the table the mean change moved, in the whole time.
	ChangedSlots float64
}

// Results are those of a plan.
type Results struct {
	Plan   Plan
	Points []Point // by way to track, then by rate
}

// Run simulates what the plan says. For a plan the results are always the same.
func Run(ctx context.Context, p Plan) (*Results, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	r := &Results{Plan: p}
	for _, track := range p.Tracks {
		for _, changes := range p.Changes {
			point, err := simulate(ctx, &p, track, changes)
			if err != nil {
				return nil, fmt.Errorf("%v changes an hour: %w", changes, err)
			}
			r.Points = append(r.Points, point)
			if p.Progress != nil {
				p.Progress(len(r.Points), len(p.Tracks)*len(p.Changes))
			}
		}
	}
	return r, nil
}
