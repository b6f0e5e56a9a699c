package lab

import (
	"fmt"
	"math"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/guideway/guideway/bench/live"
	"github.com/guideway/guideway/bench/report"
)

// Report words the comparison.
func (c *Comparison) Report() *report.Report {
	p := c.Outcomes[0].Results.Plan
	out := &report.Report{Title: "What changes of backends did to flows, balancer by balancer", Facts: []report.Fact{
		{Name: "flows", Value: fmt.Sprintf("%d TCP connections and %d UDP flows through each, each asks every %v; besides, %v new flows of each protocol a second",
			c.Plan.Live.TCP, c.Plan.Live.UDP, p.Interval, p.NewRate)},
		{Name: "backends", Value: fmt.Sprintf("%d at first", c.Plan.Backends)},
	}}
	for _, o := range c.Outcomes {
		out.Facts = append(out.Facts, report.Fact{Name: o.Subject.Name, Value: o.Version + ": " + o.Subject.About})
	}
	for _, m := range c.Missing {
		out.Facts = append(out.Facts, report.Fact{Name: m.Name, Value: "not measured: " + m.Why.Error()})
	}
	out.Sections = append([]report.Section{c.summary()}, c.sections()...)
	return out
}

// networks are those that a subject's run has.
func (o *Outcome) networks() []live.Network {
	var out []live.Network
	for _, n := range o.Subject.Networks {
		if o.Results.Total(n).Flows > 0 {
			out = append(out, n)
		}
	}
	return out
}

// summary has broken/moved/stalled for each change in one table.
func (c *Comparison) summary() report.Section {
	t := report.Table{Name: "summary", Columns: []report.Column{{Key: "balancer", Title: "balancer"}, {Key: "network", Title: ""}}}
	for _, s := range c.Outcomes[0].Results.Steps[2:] {
		t.Columns = append(t.Columns, report.Column{Key: strings.ReplaceAll(s.Name, " ", "_"), Title: s.Name})
	}
	t.Columns = append(t.Columns,
		report.Column{Key: "new_failed", Title: "new flows failed", Format: report.Count},
		report.Column{Key: "p50_seconds", Title: "round trip 50 %", Format: report.Duration},
		report.Column{Key: "p99_seconds", Title: "99 %", Format: report.Duration})
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for _, n := range o.networks() {
			row := []any{o.Subject.Name, n.String()}
			for _, s := range o.Results.Steps[2:] {
				k := &s.Of[n]
				row = append(row, fmt.Sprintf("%d / %d / %d", k.Broken.All, k.Moved.All, k.Stalled.All))
			}
			total := o.Results.Total(n)
			t.Rows = append(t.Rows, append(row, total.Failed, live.Quantile(total.RoundTrip, .5), live.Quantile(total.RoundTrip, .99)))
		}
	}
	return report.Section{
		Title: "Broken / moved / stalled",
		Text: "Flows broken, moved and stalled by each change, one after the other. Draining: no new flows, those there are stay. " +
			"A removed backend goes on running, so its flows need not end. That the flows of a failed backend end or move cannot be helped; that others do can.",
		Tables: []report.Table{t},
	}
}

// sections have a table and plots for each change.
func (c *Comparison) sections() []report.Section {
	var out []report.Section
	for i, step := range c.Outcomes[0].Results.Steps[2:] {
		t := report.Table{Name: "changes", Columns: []report.Column{
			{Key: "balancer", Title: "balancer"}, {Key: "network", Title: ""},
			{Key: "flows", Title: "flows", Format: report.Count}, {Key: "affected", Title: "on it", Format: report.Count},
			{Key: "broken", Title: "broken", Format: report.Count}, {Key: "broken_elsewhere", Title: "elsewhere", Format: report.Count},
			{Key: "moved", Title: "moved", Format: report.Count}, {Key: "moved_elsewhere", Title: "elsewhere", Format: report.Count},
			{Key: "stalled", Title: "stalled", Format: report.Count}, {Key: "stalled_elsewhere", Title: "elsewhere", Format: report.Count},
			{Key: "unanswered", Title: "unanswered", Format: report.Count},
			{Key: "opened", Title: "new opened", Format: report.Count}, {Key: "failed", Title: "failed", Format: report.Count},
			{Key: "p99_seconds", Title: "round trip 99 %", Format: report.Duration},
		}}
		bars := report.Bars{Title: "Flows disturbed: " + step.Name, Label: "flows", Format: report.Count}
		broken, moved, stalled := report.Series{Name: "broken"}, report.Series{Name: "moved"}, report.Series{Name: "stalled"}
		for j := range c.Outcomes {
			o := &c.Outcomes[j]
			for _, n := range o.networks() {
				k := &o.Results.Steps[2+i].Of[n]
				t.Rows = append(t.Rows, []any{o.Subject.Name, n.String(), k.Flows, k.Affected,
					k.Broken.All, k.Broken.Elsewhere, k.Moved.All, k.Moved.Elsewhere, k.Stalled.All, k.Stalled.Elsewhere,
					k.Sent - k.Answered, k.Opened, k.Failed, live.Quantile(k.RoundTrip, .99)})
				bars.Names = append(bars.Names, o.Subject.Name+", "+n.String())
				broken.Values = append(broken.Values, float64(k.Broken.All))
				moved.Values = append(moved.Values, float64(k.Moved.All))
				stalled.Values = append(stalled.Values, float64(k.Stalled.All))
			}
		}
		bars.Series = []report.Series{broken, moved, stalled}
		out = append(out, report.Section{
			Title: strings.ToUpper(step.Name[:1]) + step.Name[1:], Tables: []report.Table{t}, Charts: []report.Chart{bars},
			Text: "On it: flows on that backend when the change began; elsewhere: on the others.",
		})
	}
	return append(out, c.times())
}

// times compares how long answers took before any change.
func (c *Comparison) times() report.Section {
	t := report.Table{Name: "times", Columns: []report.Column{
		{Key: "balancer", Title: "balancer"}, {Key: "network", Title: ""}, {Key: "what", Title: "time"},
		{Key: "samples", Title: "samples", Format: report.Count},
		{Key: "p50_seconds", Title: "50 %", Format: report.Duration}, {Key: "p99_seconds", Title: "99 %", Format: report.Duration},
		{Key: "p999_seconds", Title: "99.9 %", Format: report.Duration}, {Key: "max_seconds", Title: "longest", Format: report.Duration},
	}}
	lag := 0.0
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		lag = math.Max(lag, o.Results.Lag.Seconds())
		for _, n := range o.networks() {
			total := o.Results.Total(n)
			for _, h := range []struct {
				what string
				of   *hdrhistogram.Histogram
			}{{"connect", total.Connect}, {"first answer", total.FirstAnswer}, {"round trip", total.RoundTrip}} {
				if h.of.TotalCount() > 0 {
					t.Rows = append(t.Rows, []any{o.Subject.Name, n.String(), h.what, h.of.TotalCount(),
						live.Quantile(h.of, .5), live.Quantile(h.of, .99), live.Quantile(h.of, .999), live.Quantile(h.of, 1)})
				}
			}
		}
	}
	return report.Section{
		Title: "Times", Tables: []report.Table{t},
		Text: fmt.Sprintf("Of whole runs, opening of the flows included. Flows, balancer and backends share this machine, so these times say little about any of them alone; "+
			"a message went out at most %.0f ms after its time.", 1000*lag),
	}
}
