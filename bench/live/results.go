package live

import (
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Results are what a run saw. Times count from its start.
type Results struct {
	Plan  Plan
	Start time.Time
	// Steps are the parts of the run, each from a change to the next. The first is the opening of the flows,
	// the second the time before any change.
	Steps []*Step
	// Timeline has what happened in each stretch of Plan.Bucket.
	Timeline []Sample
	// Lag is by how much a message went out later than planned, at most. It says
	// whether this machine could keep up.
	Lag time.Duration
	// Interrupted says that the run was ended early.
	Interrupted bool
}

// Step is a part of a run. What happens is counted in the step in which it
// happens; messages in the one in which they were sent.
type Step struct {
	Name string
	// Changed are the identities of the backends that the step changes, if it says which.
	Changed    []string
	Start, End time.Duration
	Of         [2]Counts // by Network
}

// Tally counts flows by whether their backend is one that the step changes.
type Tally struct {
	All       int
	Elsewhere int // of these on other backends; meaningful if the step says what it changes
}

func (t *Tally) add(elsewhere bool) {
	t.All++
	if elsewhere {
		t.Elsewhere++
	}
}

// Counts is what one step did to the flows of one protocol.
type Counts struct {
	Flows    int // open when the step began
	Affected int // of these on backends that the step changes

	// Broken flows were ended by the other side or by an error, or were silent for Plan.BrokenAfter.
	Broken Tally
	// Moved flows were answered by another backend than before; each counts once a step.
	Moved Tally
	// Stalled flows were silent for Plan.StallAfter. They go on later, or break and count there too.
	Stalled Tally
	// Reordered flows got an answer after that to a later message; each counts once a step.
	Reordered int

	Sent, Answered, Duplicated int // messages
	Refused                    int // ICMP errors that UDP flows got

	// Opened and Failed are attempts to open a flow: those made at the rate of
	// Plan.NewRate, and those in place of flows that broke.
	Opened, Failed int
	// Silence is the longest time without an answer that an answer ended.
	Silence time.Duration

	Endings  map[string]int // how broken flows ended
	Failures map[string]int // why flows could not be opened
	Backends map[string]int // who answers the flows that were opened

	// Times in microseconds.
	Connect     *hdrhistogram.Histogram // TCP: until connected
	FirstAnswer *hdrhistogram.Histogram // until a new flow knows its backend
	RoundTrip   *hdrhistogram.Histogram // from message to answer
}

// longest is the longest time a histogram holds; what is longer counts as this.
const longest = 10 * time.Minute

func newCounts() Counts {
	histogram := func() *hdrhistogram.Histogram {
		return hdrhistogram.New(1, longest.Microseconds(), 3)
	}
	return Counts{
		Endings: map[string]int{}, Failures: map[string]int{}, Backends: map[string]int{},
		Connect: histogram(), FirstAnswer: histogram(), RoundTrip: histogram(),
	}
}

// record puts a time into a histogram.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	// It cannot fail: the time is within the bounds.
	_ = h.RecordValue(min(max(d.Microseconds(), 1), longest.Microseconds()))
}

// Quantile is the time that a part q of the recorded ones does not exceed; 0 if there are none.
func Quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(100*q)) * time.Microsecond
}

// Sample is one stretch of the timeline.
type Sample struct {
	Start time.Duration
	Of    [2]Happened // by Network
}

// Happened counts what happened in a stretch.
type Happened struct{ Broken, Moved, Stalled, Reordered, Failed int }

// Total adds up what all steps did to the flows of a protocol. Flows, Affected and the histograms'
// parts that a step has no use for are those of the whole.
func (r *Results) Total(n Network) Counts {
	t := newCounts()
	for i, s := range r.Steps {
		c := &s.Of[n]
		if i == 1 { // none is open when the first, in which they are opened, begins
			t.Flows = c.Flows
		}
		t.Broken.All += c.Broken.All
		t.Moved.All += c.Moved.All
		t.Stalled.All += c.Stalled.All
		if len(s.Changed) > 0 {
			t.Broken.Elsewhere += c.Broken.Elsewhere
			t.Moved.Elsewhere += c.Moved.Elsewhere
			t.Stalled.Elsewhere += c.Stalled.Elsewhere
		}
		t.Affected += c.Affected
		t.Reordered += c.Reordered
		t.Sent += c.Sent
		t.Answered += c.Answered
		t.Duplicated += c.Duplicated
		t.Refused += c.Refused
		t.Opened += c.Opened
		t.Failed += c.Failed
		t.Silence = max(t.Silence, c.Silence)
		for _, m := range []struct{ to, from map[string]int }{{t.Endings, c.Endings}, {t.Failures, c.Failures}, {t.Backends, c.Backends}} {
			for k, v := range m.from {
				m.to[k] += v
			}
		}
		t.Connect.Merge(c.Connect)
		t.FirstAnswer.Merge(c.FirstAnswer)
		t.RoundTrip.Merge(c.RoundTrip)
	}
	return t
}

// affects tells whether a step changes a backend.
func (s *Step) affects(backend string) bool { return slices.Contains(s.Changed, backend) }

// most returns the commonest key.
func most(counts map[string]int) string {
	best := ""
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		if best == "" || counts[k] > counts[best] {
			best = k
		}
	}
	return best
}
