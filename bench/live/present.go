package live

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/guideway/guideway/bench/report"
)

// Report words the results.
func (r *Results) Report() *report.Report {
	title := "What flows lived through"
	if r.Interrupted {
		title += " (interrupted)"
	}
	p := &r.Plan
	out := &report.Report{Title: title, Facts: []report.Fact{
		{Name: "targets", Value: r.targets()},
		{Name: "flows", Value: fmt.Sprintf("%d TCP connections, %d UDP flows, each asks every %v with %d bytes", p.TCP, p.UDP, p.Interval, p.Size)},
		{Name: "begun", Value: r.Start.UTC().Format(time.RFC3339)},
		{Name: "latest message", Value: fmt.Sprintf("%.1f ms after its time", float64(r.Lag)/1e6)},
	}}
	out.Sections = []report.Section{r.flowSection(), r.newSection(), r.timeSection()}
	return out
}

func (r *Results) targets() string {
	var words []string
	for _, n := range Networks {
		targets, flows := r.Plan.TCPTargets, r.Plan.TCP
		if n == UDP {
			targets, flows = r.Plan.UDPTargets, r.Plan.UDP
		}
		if flows == 0 {
			continue
		}
		for _, t := range targets {
			words = append(words, fmt.Sprintf("%s %v", n, t))
		}
	}
	return strings.Join(words, ", ")
}

// each calls f for every step and protocol that has flows. The opening of the flows is a
// step of its own only where new flows are looked at.
func (r *Results) each(opening bool, f func(s *Step, n Network, c *Counts)) {
	for i, s := range r.Steps {
		if i == 0 && !opening {
			continue
		}
		for _, n := range Networks {
			if n == TCP && r.Plan.TCP > 0 || n == UDP && r.Plan.UDP > 0 {
				f(s, n, &s.Of[n])
			}
		}
	}
}

var (
	stepColumn    = report.Column{Key: "step", Title: "step"}
	networkColumn = report.Column{Key: "network", Title: ""}
)

func count(key, title string) report.Column {
	return report.Column{Key: key, Title: title, Format: report.Count}
}

func timeOf(key, title string) report.Column {
	return report.Column{Key: key, Title: title, Format: report.Duration}
}

func (r *Results) flowSection() report.Section {
	named := slices.ContainsFunc(r.Steps, func(s *Step) bool { return len(s.Changed) > 0 })
	t := report.Table{Name: "flows", Columns: []report.Column{
		stepColumn, networkColumn, timeOf("start_seconds", "from"), timeOf("duration_seconds", "for"), count("flows", "flows"),
	}}
	if named {
		t.Columns = append(t.Columns, count("affected", "on it"))
	}
	for _, what := range []string{"broken", "moved", "stalled"} {
		t.Columns = append(t.Columns, count(what, what))
		if named {
			t.Columns = append(t.Columns, count(what+"_elsewhere", "elsewhere"))
		}
	}
	t.Columns = append(t.Columns, count("reordered", "reordered"), timeOf("silence_seconds", "longest silence"),
		count("sent", "messages"), count("unanswered", "unanswered"), count("duplicated", "twice"), count("refused", "ICMP"))
	endings := report.Table{Name: "endings", Detail: true, Caption: "How broken flows ended", Columns: []report.Column{
		stepColumn, networkColumn, {Key: "ending", Title: "ending"}, count("flows", "flows"),
	}}
	r.each(false, func(s *Step, n Network, c *Counts) {
		row := []any{s.Name, n.String(), s.Start, s.End - s.Start, c.Flows}
		if named {
			row = append(row, orNone(s, c.Affected))
		}
		for _, tally := range []Tally{c.Broken, c.Moved, c.Stalled} {
			row = append(row, tally.All)
			if named {
				row = append(row, orNone(s, tally.Elsewhere))
			}
		}
		t.Rows = append(t.Rows, append(row, c.Reordered, c.Silence, c.Sent, c.Sent-c.Answered, c.Duplicated, c.Refused))
		for _, how := range slices.Sorted(maps.Keys(c.Endings)) {
			endings.Rows = append(endings.Rows, []any{s.Name, n.String(), how, c.Endings[how]})
		}
	})
	text := fmt.Sprintf("Flows that were open when a step began. Broken: the connection ended, or nothing came for %v. "+
		"Moved: another backend answers. Stalled: nothing came for %v; such flows go on later, or break and count there too.",
		r.Plan.BrokenAfter, r.Plan.StallAfter)
	if named {
		text += " On it: flows on the backends that the step changes; elsewhere: on the others."
	}
	return report.Section{Title: "Flows", Text: text, Tables: []report.Table{t, endings}, Charts: r.timelines()}
}

// orNone is the number for a step that says which backends it changes.
func orNone(s *Step, n int) any {
	if len(s.Changed) == 0 {
		return nil
	}
	return n
}

func (r *Results) newSection() report.Section {
	t := report.Table{Name: "new", Columns: []report.Column{
		stepColumn, networkColumn, count("opened", "opened"), count("failed", "failed"), {Key: "why", Title: "mostly"}, count("backends", "backends"),
	}}
	failures := report.Table{Name: "failures", Detail: true, Caption: "Why new flows failed", Columns: []report.Column{
		stepColumn, networkColumn, {Key: "why", Title: "why"}, count("attempts", "attempts"),
	}}
	shares := report.Table{Name: "backends", Detail: true, Caption: "Where new flows went", Columns: []report.Column{
		stepColumn, networkColumn, {Key: "backend", Title: "backend"}, count("flows", "flows"),
	}}
	r.each(true, func(s *Step, n Network, c *Counts) {
		var why any
		if c.Failed > 0 {
			why = most(c.Failures)
		}
		t.Rows = append(t.Rows, []any{s.Name, n.String(), c.Opened, c.Failed, why, len(c.Backends)})
		for _, w := range slices.Sorted(maps.Keys(c.Failures)) {
			failures.Rows = append(failures.Rows, []any{s.Name, n.String(), w, c.Failures[w]})
		}
		for _, b := range slices.Sorted(maps.Keys(c.Backends)) {
			shares.Rows = append(shares.Rows, []any{s.Name, n.String(), b, c.Backends[b]})
		}
	})
	text := "Flows that were opened: all at first, then "
	if r.Plan.NewRate > 0 {
		text += fmt.Sprintf("%v a second of each protocol, which are closed at once, and ", r.Plan.NewRate)
	}
	text += "one for each that broke. A flow that is not answered within " + r.Plan.OpenTimeout.String() + " has failed."
	return report.Section{Title: "New flows", Text: text, Tables: []report.Table{t, failures, shares}}
}

func (r *Results) timeSection() report.Section {
	t := report.Table{Name: "times", Columns: []report.Column{
		stepColumn, networkColumn, {Key: "what", Title: "time"}, count("samples", "samples"),
		timeOf("p50_seconds", "50 %"), timeOf("p90_seconds", "90 %"), timeOf("p99_seconds", "99 %"), timeOf("p999_seconds", "99.9 %"), timeOf("max_seconds", "longest"),
	}}
	add := func(step string, n Network, what string, h *hdrhistogram.Histogram) {
		if h.TotalCount() == 0 {
			return
		}
		t.Rows = append(t.Rows, []any{step, n.String(), what, h.TotalCount(),
			Quantile(h, .5), Quantile(h, .9), Quantile(h, .99), Quantile(h, .999), time.Duration(h.Max()) * time.Microsecond})
	}
	r.each(true, func(s *Step, n Network, c *Counts) {
		if n == TCP {
			add(s.Name, n, "connect", c.Connect)
		}
		add(s.Name, n, "first answer", c.FirstAnswer)
		add(s.Name, n, "round trip", c.RoundTrip)
	})
	lines := report.Lines{
		Title: "Times over percentiles", XLabel: "percentile", YLabel: "milliseconds", YFormat: report.Number, LogX: true, LogY: true,
	}
	for _, nines := range []float64{0, 1, 2, 3} {
		lines.XTicks = append(lines.XTicks, report.Tick{At: pow10(nines), Label: fmt.Sprintf("%.*f %%", max(0, int(nines)-2), 100-100/pow10(nines))})
	}
	for _, n := range Networks {
		total := r.Total(n)
		for _, h := range []struct {
			what string
			of   *hdrhistogram.Histogram
		}{{"connect", total.Connect}, {"first answer", total.FirstAnswer}, {"round trip", total.RoundTrip}} {
			if h.of.TotalCount() == 0 {
				continue
			}
			line := report.Line{Name: n.String() + " " + h.what}
			for x := 0.0; x <= 3.001; x += 0.05 {
				line.X = append(line.X, pow10(x))
				// Zero is what a histogram says of its 0 % quantile; no logarithm has it.
				line.Y = append(line.Y, max(Quantile(h.of, 1-1/pow10(x)), time.Microsecond).Seconds()*1000)
			}
			lines.Lines = append(lines.Lines, line)
		}
	}
	s := report.Section{
		Title: "Times", Tables: []report.Table{t},
		Text: "Connect is until the TCP connection is there, first answer until a new flow knows its backend, round trip from a message to its answer. Times from histograms are exact to 0.1 %.",
	}
	if len(lines.Lines) > 0 {
		s.Charts = []report.Chart{lines}
	}
	return s
}
