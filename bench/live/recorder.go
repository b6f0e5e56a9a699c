package live

import (
	"slices"
	"sync"
	"time"
)

// recorder counts what happens, by step and on the timeline.
type recorder struct {
	mu       sync.Mutex
	bucket   time.Duration
	steps    []*Step
	timeline []Sample
	// seen tells what a flow has been counted for in the present step: each counts once.
	seen map[seenKey]struct{}
}

type seenKey struct {
	flow uint64
	what byte
}

func newRecorder(bucket time.Duration) *recorder { return &recorder{bucket: bucket} }

// census is how many flows are open, by their backends.
type census [2]map[string]int

// begin starts a step.
func (r *recorder) begin(name string, changed []string, now time.Duration, open census) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(now)
	s := &Step{Name: name, Changed: slices.Clone(changed), Start: now, End: now}
	for _, n := range Networks {
		s.Of[n] = newCounts()
		for backend, flows := range open[n] {
			s.Of[n].Flows += flows
			if s.affects(backend) {
				s.Of[n].Affected += flows
			}
		}
	}
	r.steps = append(r.steps, s)
	r.seen = map[seenKey]struct{}{}
}

// end notes when the present step ends.
func (r *recorder) end(now time.Duration) {
	if len(r.steps) > 0 {
		r.steps[len(r.steps)-1].End = now
	}
}

// step is the number of the present step.
func (r *recorder) step() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.steps) - 1
}

// once tells whether a flow has not been counted for something in this step yet.
func (r *recorder) once(flow uint64, what byte) bool {
	key := seenKey{flow, what}
	_, was := r.seen[key]
	r.seen[key] = struct{}{}
	return !was
}

// at returns where things that happen now are counted: step, protocol's counts, stretch.
func (r *recorder) at(n Network, now time.Duration) (*Step, *Counts, *Happened) {
	i := int(now / r.bucket)
	for len(r.timeline) <= i {
		r.timeline = append(r.timeline, Sample{Start: time.Duration(len(r.timeline)) * r.bucket})
	}
	s := r.steps[len(r.steps)-1]
	return s, &s.Of[n], &r.timeline[i].Of[n]
}

func (r *recorder) sent(n Network, step int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps[step].Of[n].Sent++
}

func (r *recorder) arrived(f *flow, a arrival, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, c, h := r.at(f.network, now)
	c.Silence = max(c.Silence, a.silence)
	switch {
	case a.duplicate:
		c.Duplicated++
	case !a.forgotten:
		of := &r.steps[a.step].Of[f.network]
		of.Answered++
		record(of.RoundTrip, a.roundTrip)
	}
	if a.reordered && r.once(f.flow, 'r') {
		c.Reordered++
		h.Reordered++
	}
	if a.movedFrom != "" && r.once(f.flow, 'm') {
		c.Moved.add(!s.affects(a.movedFrom))
		h.Moved++
	}
}

func (r *recorder) stalled(f *flow, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, c, h := r.at(f.network, now)
	if r.once(f.flow, 's') {
		c.Stalled.add(!s.affects(f.backend))
		h.Stalled++
	}
}

func (r *recorder) broken(f *flow, how string, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, c, h := r.at(f.network, now)
	c.Broken.add(!s.affects(f.backend))
	c.Endings[how]++
	h.Broken++
}

func (r *recorder) refused(n Network, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, c, _ := r.at(n, now)
	c.Refused++
}

// opened notes a flow that was opened in a step, and how long that took.
func (r *recorder) opened(n Network, step int, backend string, connect, first time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.steps[step].Of[n]
	c.Opened++
	c.Backends[backend]++
	if n == TCP {
		record(c.Connect, connect)
	}
	record(c.FirstAnswer, first)
}

func (r *recorder) failed(n Network, step int, why string, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _, h := r.at(n, now)
	c := &r.steps[step].Of[n]
	c.Failed++
	c.Failures[why]++
	h.Failed++
}

// soFar adds up the timeline.
func (r *recorder) soFar() [2]Happened {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sum [2]Happened
	for _, s := range r.timeline {
		for _, n := range Networks {
			t, h := &sum[n], s.Of[n]
			t.Broken += h.Broken
			t.Moved += h.Moved
			t.Stalled += h.Stalled
			t.Reordered += h.Reordered
			t.Failed += h.Failed
		}
	}
	return sum
}
