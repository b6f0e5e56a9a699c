package disruption

import (
	"context"
	"slices"
	"time"

	"github.com/guideway/guideway/bench/scheme"
)

const (
	costRounds = 9      // of which the fastest counts, and of ratios the median
	costKeys   = 200000 // looked up in a round
)

// measureCosts takes the times of building and looking up, one scheme after the
// other. Each round looks up by modulo as well, so that both see the same machine.
func measureCosts(ctx context.Context, r *Results, keys []scheme.Key, backends []scheme.Backend) error {
	keys = keys[:min(len(keys), costKeys)]
	owners := make([]int32, len(keys))
	modulo, err := scheme.Parse("modulo")
	if err != nil {
		return err
	}
	base, err := modulo.Place(backends, nil)
	if err != nil {
		return err
	}
	clock := r.Plan.Clock
	timed := func(do func()) time.Duration {
		start := clock()
		do()
		return clock() - start
	}
	for i, s := range r.Plan.Schemes {
		if err := ctx.Err(); err != nil {
			return err
		}
		var build, lookup time.Duration
		var ratios []float64
		for round := range costRounds {
			var p scheme.Placement
			b := timed(func() { p, err = s.Place(backends, nil) })
			if err != nil {
				return err
			}
			m := timed(func() { base.Pick(keys, owners) })
			l := timed(func() { p.Pick(keys, owners) })
			if round == 0 {
				build, lookup = b, l
			}
			build, lookup = min(build, b), min(lookup, l)
			if m > 0 { // a clock may be too coarse for a few keys
				ratios = append(ratios, float64(l)/float64(m))
			}
		}
		c := &r.Costs[i]
		c.Build, c.Lookup = build, float64(lookup.Nanoseconds())/float64(len(keys))
		if len(ratios) > 0 {
			slices.Sort(ratios)
			c.Ratio = ratios[len(ratios)/2]
		}
	}
	return nil
}
