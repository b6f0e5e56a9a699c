package disruption

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/guideway/guideway/bench/scheme"
)

// Plan is what to measure.
type Plan struct {
	Keys    int
	Seed    uint64
	Members []Member
	Schemes []scheme.Scheme
	Cases   []Case
	// Top is how many backends a key has where the scheme names several; below 2,
	// replicas are not looked at.
	Top int
	// Clock, if set, is what build and lookup times are taken with: the time since
	// any moment. Without one they are not taken, and everything in the results
	// follows from the plan.
	Clock func() time.Duration
	// Progress, if set, is told how much is done. It is not called by two
	// goroutines at a time.
	Progress func(done, total int)
}

// Balance says how even the load is: over the backends that get flows, each one's
// keys over its fair share.
type Balance struct {
	Busiest float64 // the largest
	CV      float64 // root of the mean square of the distance from 1
}

// Count is what the step from one state to the next does.
type Count struct {
	Moved int // keys that have another backend
	// Least is how many had to move: no scheme that gives each backend as many keys
	// as this one does, before and after, moves fewer.
	Least int
	// TopMoved is the number of keys whose set of Plan.Top backends is another;
	// it is -1 for schemes without replicas.
	TopMoved int
	Balance  Balance // after it
	// Tracked counts flows that were there before the change, under connection
	// tracking: they keep their backend while it can serve, and if it cannot go
	// where a new flow goes. Balance is that of these flows.
	Tracked struct {
		Moved   int
		Balance Balance
	}
}

// Outcome is what a case does under one scheme.
type Outcome struct {
	Scheme scheme.Scheme
	Before Balance
	Steps  []Count // one for each step of the case
	// Hit and TrackedHit are the keys that moved at least once.
	Hit, TrackedHit int
}

// Total adds up the steps. Its balances are those after the last one.
func (o *Outcome) Total() Count {
	var t Count
	for _, s := range o.Steps {
		moved, least, top, tracked := t.Moved+s.Moved, t.Least+s.Least, t.TopMoved+s.TopMoved, t.Tracked.Moved+s.Tracked.Moved
		if s.TopMoved < 0 {
			top = -1
		}
		t = s
		t.Moved, t.Least, t.TopMoved, t.Tracked.Moved = moved, least, top, tracked
	}
	return t
}

// CaseResult is what a case does under all schemes.
type CaseResult struct {
	Case  Case
	Steps []string // what happens
	// Backends gives the number of them before and after.
	Backends [2]int
	// Fair is the part of all keys that a perfectly even scheme must move, over
	// all steps.
	Fair     float64
	Outcomes []Outcome // as in Plan.Schemes
}

// Cost is what a scheme takes for the backends at the start.
type Cost struct {
	Scheme scheme.Scheme
	Bytes  int // read by lookups, without the backends
	// Build is the time to make the placement; Lookup is that for one key, hash
	// included, each the shortest of several; Ratio is the median of a lookup's
	// over modulo's just before. 0 without a clock.
	Build  time.Duration
	Lookup float64 // ns
	Ratio  float64
	// Before is the balance at the start.
	Before Balance
}

// Results are those of a plan.
type Results struct {
	Plan  Plan
	Costs []Cost // as in Plan.Schemes
	Cases []CaseResult
}

// Run does what the plan says. It takes about 20 bytes a key for each CPU, and 8
// more a key and replica.
func Run(ctx context.Context, p Plan) (*Results, error) {
	if p.Keys < 1 || len(p.Schemes) == 0 || len(p.Cases) == 0 {
		return nil, fmt.Errorf("nothing to measure: %d keys, %d schemes, %d cases", p.Keys, len(p.Schemes), len(p.Cases))
	}
	r := &Results{Plan: p, Costs: make([]Cost, len(p.Schemes))}
	plans := make([][]stage, len(p.Cases))
	total := len(p.Schemes)
	for i, c := range p.Cases {
		var err error
		if plans[i], err = stages(p.Members, c, p.Seed); err != nil {
			return nil, err
		}
		total += (len(plans[i]) - 1) * len(p.Schemes)
		r.Cases = append(r.Cases, caseResult(c, plans[i], len(p.Schemes)))
	}
	keys := Keys(p.Keys, p.Seed)
	if p.Clock != nil {
		if err := measureCosts(ctx, r, keys, plans[0][0].backends); err != nil {
			return nil, err
		}
	}

	progress := counter{total: total, tell: p.Progress}
	work := make(chan int)
	errs := make([]error, len(p.Schemes))
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(p.Schemes)) {
		wg.Go(func() {
			for s := range work {
				c := count{plan: &p, scheme: p.Schemes[s], keys: keys, progress: &progress}
				errs[s] = c.run(ctx, plans, func(i int, o Outcome) { r.Cases[i].Outcomes[s] = o })
				r.Costs[s].Scheme, r.Costs[s].Before, r.Costs[s].Bytes = p.Schemes[s], c.before, c.bytes
			}
		})
	}
	for s := range p.Schemes {
		work <- s
	}
	close(work)
	wg.Wait()
	for s, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Schemes[s].Spec(), err)
		}
	}
	return r, nil
}

func caseResult(c Case, stages []stage, schemes int) CaseResult {
	r := CaseResult{Case: c, Outcomes: make([]Outcome, schemes)}
	for i, s := range stages[1:] {
		r.Steps = append(r.Steps, s.name)
		for id, share := range stages[i].fair {
			r.Fair += max(0, share-s.fair[id])
		}
	}
	r.Backends = [2]int{len(stages[0].ids), len(stages[len(stages)-1].ids)}
	return r
}

// counter counts what is done, for several goroutines.
type counter struct {
	mu          sync.Mutex
	done, total int
	tell        func(done, total int)
}

func (c *counter) one() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	if c.tell != nil {
		c.tell(c.done, c.total)
	}
}

// count counts for one scheme.
type count struct {
	plan     *Plan
	scheme   scheme.Scheme
	keys     []scheme.Key
	progress *counter

	before Balance
	bytes  int
}

// run plays all cases, which have the first stage in common.
func (c *count) run(ctx context.Context, plans [][]stage, store func(int, Outcome)) error {
	start := plans[0][0]
	placement, err := c.scheme.Place(start.backends, nil)
	if err != nil {
		return err
	}
	c.bytes = placement.Bytes()
	first := make([]int32, len(c.keys))
	c.pick(placement, start, first)
	firstTop := c.tops(nil, placement, start)
	c.before = balance(loads(first, len(start.serves)), start, len(c.keys))
	c.progress.one()

	older, newer, tracked := make([]int32, len(c.keys)), make([]int32, len(c.keys)), make([]int32, len(c.keys))
	hit, trackedHit := make([]bool, len(c.keys)), make([]bool, len(c.keys))
	var olderTop, newerTop []int32
	for i, stages := range plans {
		o := Outcome{Scheme: c.scheme, Before: c.before}
		copy(older, first)
		copy(tracked, first)
		olderTop = append(olderTop[:0], firstTop...)
		clear(hit)
		clear(trackedHit)
		p := placement
		for n, s := range stages[1:] {
			if err := ctx.Err(); err != nil {
				return err
			}
			if p, err = c.scheme.Place(s.backends, p); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			c.pick(p, s, newer)
			step := Count{TopMoved: -1}
			for k, owner := range newer {
				if owner != older[k] {
					step.Moved++
					hit[k] = true
				}
				if !s.serves[tracked[k]] {
					tracked[k] = owner
					step.Tracked.Moved++
					trackedHit[k] = true
				}
			}
			was, is := loads(older, len(stages[n].serves)), loads(newer, len(s.serves))
			for id := range was {
				step.Least += max(0, was[id]-is[id])
			}
			step.Balance = balance(is, s, len(c.keys))
			step.Tracked.Balance = balance(loads(tracked, len(s.serves)), s, len(c.keys))
			if newerTop = c.tops(newerTop[:0], p, s); newerTop != nil && len(newerTop) == len(olderTop) {
				step.TopMoved = 0
				for at := 0; at < len(newerTop); at += c.plan.Top {
					if !slices.Equal(olderTop[at:at+c.plan.Top], newerTop[at:at+c.plan.Top]) {
						step.TopMoved++
					}
				}
			}
			o.Steps = append(o.Steps, step)
			older, newer = newer, older
			olderTop, newerTop = newerTop, olderTop
			c.progress.one()
		}
		for k := range hit {
			if hit[k] {
				o.Hit++
			}
			if trackedHit[k] {
				o.TrackedHit++
			}
		}
		store(i, o)
	}
	return nil
}

// pick sets owners to the ids of the keys' backends.
func (c *count) pick(p scheme.Placement, s stage, owners []int32) {
	p.Pick(c.keys, owners)
	for k, index := range owners {
		owners[k] = s.ids[index]
	}
}

// tops appends, for each key, the ids of its Plan.Top backends in ascending order,
// -1 where there are fewer; nil if the scheme has none.
func (c *count) tops(dst []int32, p scheme.Placement, s stage) []int32 {
	r, ok := p.(scheme.Replicated)
	if !ok || c.plan.Top < 2 {
		return nil
	}
	dst = slices.Grow(dst, len(c.keys)*c.plan.Top)
	for k := range c.keys {
		from := len(dst)
		dst = r.Top(dst, &c.keys[k], c.plan.Top)
		for len(dst)-from < c.plan.Top {
			dst = append(dst, -1)
		}
		for i, index := range dst[from:] {
			if index >= 0 {
				dst[from+i] = s.ids[index]
			}
		}
		slices.Sort(dst[from:])
	}
	return dst
}

// loads counts the keys of each id.
func loads(owners []int32, ids int) []int {
	out := make([]int, ids)
	for _, id := range owners {
		out[id]++
	}
	return out
}

func balance(loads []int, s stage, keys int) Balance {
	var b Balance
	for _, id := range s.ids {
		ratio := float64(loads[id]) / (s.fair[id] * float64(keys))
		b.Busiest = max(b.Busiest, ratio)
		b.CV += (ratio - 1) * (ratio - 1)
	}
	b.CV = math.Sqrt(b.CV / float64(len(s.ids)))
	return b
}
