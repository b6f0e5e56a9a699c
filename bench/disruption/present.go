package disruption

import (
	"fmt"
	"strings"

	"github.com/guideway/guideway/bench/report"
)

// Report words the results. Its title, command and facts are the caller's to add
// to.
func (r *Results) Report() *report.Report {
	out := &report.Report{
		Title: "Disruption on paper",
		Facts: []report.Fact{
			{Name: "keys", Value: report.Column{Format: report.Count}.Cell(r.Plan.Keys) + " random flows of one service"},
			{Name: "seed", Value: fmt.Sprint(r.Plan.Seed)},
			{Name: "backends", Value: describe(r.Plan.Members)},
		},
	}
	for i := range r.Cases {
		out.Sections = append(out.Sections, r.caseSection(&r.Cases[i]))
	}
	out.Sections = append(out.Sections, r.schemesSection())
	return out
}

// describe says how many backends there are, of which weights and zones.
func describe(members []Member) string {
	text := fmt.Sprint(len(members))
	weights, zones := map[uint32]int{}, map[string]int{}
	for _, m := range members {
		weights[m.Weight]++
		if m.Zone != "" {
			zones[m.Zone]++
		}
	}
	if len(weights) > 1 {
		least, most := members[0].Weight, members[0].Weight
		for w := range weights {
			least, most = min(least, w), max(most, w)
		}
		text += fmt.Sprintf(", weights %d to %d", least, most)
	} else {
		text += " of equal weight"
	}
	if len(zones) > 0 {
		text += fmt.Sprintf(", in %d zones", len(zones))
	}
	return text
}

func (r *Results) part(keys int) float64 { return float64(keys) / float64(r.Plan.Keys) }

// top is the part of keys whose top backends changed, or nil.
func (r *Results) top(c Count) any {
	if c.TopMoved < 0 {
		return nil
	}
	return r.part(c.TopMoved)
}

func (r *Results) caseSection(c *CaseResult) report.Section {
	several := len(c.Steps) > 1
	text := fmt.Sprintf("%d backends, then %d. ", c.Backends[0], c.Backends[1])
	if several {
		text += fmt.Sprintf("%d steps, from %q to %q; moves are added up. ", len(c.Steps), c.Steps[0], c.Steps[len(c.Steps)-1])
	} else {
		text += strings.ToUpper(c.Steps[0][:1]) + c.Steps[0][1:] + ". "
	}
	text += fmt.Sprintf("An even scheme has to move %.2f %% of all keys.", 100*c.Fair)

	columns := []report.Column{
		{Key: "scheme", Title: "scheme"},
		{Key: "moved", Title: "moved", Format: report.Percent},
		{Key: "least", Title: "least", Format: report.Percent},
		{Key: "excess", Title: "excess", Format: report.Percent},
	}
	if several {
		columns = append(columns, report.Column{Key: "hit", Title: "keys hit", Format: report.Percent})
	}
	columns = append(columns,
		report.Column{Key: "busiest", Title: "busiest", Format: report.Factor},
		report.Column{Key: "cv", Title: "CV", Format: report.Number})
	if r.Plan.Top > 1 {
		columns = append(columns, report.Column{Key: "top_moved", Title: fmt.Sprintf("top %d", r.Plan.Top), Format: report.Percent})
	}
	columns = append(columns, report.Column{Key: "tracked_moved", Title: "tracked: moved", Format: report.Percent})
	if several {
		columns = append(columns, report.Column{Key: "tracked_hit", Title: "tracked: hit", Format: report.Percent})
	}
	columns = append(columns, report.Column{Key: "tracked_busiest", Title: "tracked: busiest", Format: report.Factor})

	name := "changes"
	if several {
		name = "sequences"
	}
	table := report.Table{Name: name, Columns: columns}
	steps := report.Table{
		Name: "steps", Detail: true, Caption: "Every step",
		Columns: []report.Column{
			{Key: "step", Title: "step"}, {Key: "what", Title: "what"}, {Key: "scheme", Title: "scheme"},
			{Key: "moved", Title: "moved", Format: report.Count}, {Key: "least", Title: "least", Format: report.Count},
			{Key: "busiest", Title: "busiest", Format: report.Factor}, {Key: "cv", Title: "CV", Format: report.Number},
			{Key: "top_moved", Title: "top moved", Format: report.Count},
			{Key: "tracked_moved", Title: "tracked: moved", Format: report.Count}, {Key: "tracked_busiest", Title: "tracked: busiest", Format: report.Factor},
		},
	}
	moved := report.Bars{Title: "Keys moved: " + c.Case.Name, Label: "part of all keys", Format: report.Percent, MarkName: "least possible"}
	without, with := report.Series{Name: "without tracking"}, report.Series{Name: "with connection tracking"}
	even := report.Bars{Title: "Busiest backend afterwards: " + c.Case.Name, Label: "its keys over its fair share", Format: report.Factor, From: 1}
	busiest := report.Series{Name: "new flows"}
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		t := o.Total()
		spec := o.Scheme.Spec()
		row := []any{spec, r.part(t.Moved), r.part(t.Least), r.part(t.Moved - t.Least)}
		if several {
			row = append(row, r.part(o.Hit))
		}
		row = append(row, t.Balance.Busiest, t.Balance.CV)
		if r.Plan.Top > 1 {
			row = append(row, r.top(t))
		}
		row = append(row, r.part(t.Tracked.Moved))
		if several {
			row = append(row, r.part(o.TrackedHit))
		}
		table.Rows = append(table.Rows, append(row, t.Tracked.Balance.Busiest))

		moved.Names, even.Names = append(moved.Names, spec), append(even.Names, spec)
		without.Values, with.Values = append(without.Values, r.part(t.Moved)), append(with.Values, r.part(t.Tracked.Moved))
		moved.Marks = append(moved.Marks, r.part(t.Least))
		busiest.Values = append(busiest.Values, t.Balance.Busiest)
		for n, s := range o.Steps {
			var top any
			if s.TopMoved >= 0 {
				top = s.TopMoved
			}
			steps.Rows = append(steps.Rows, []any{fmt.Sprint(n + 1), c.Steps[n], spec, s.Moved, s.Least, s.Balance.Busiest, s.Balance.CV, top, s.Tracked.Moved, s.Tracked.Balance.Busiest})
		}
	}
	moved.Series, even.Series = []report.Series{without, with}, []report.Series{busiest}
	section := report.Section{Title: c.Case.Name, Text: text, Tables: []report.Table{table, steps}, Charts: []report.Chart{moved, even}}
	if several {
		section.Charts = append(section.Charts, r.timeline(c))
	}
	return section
}

// most is how many schemes a timeline shows: as many as can be told apart.
const most = 7

// timeline shows the moves as they add up, for the first scheme of each kind.
func (r *Results) timeline(c *CaseResult) report.Chart {
	out := report.Lines{
		Title: "Moves so far: " + c.Case.Name, XLabel: "step", YLabel: "moves for each key",
		XFormat: report.Count, YFormat: report.Number, Steps: true,
	}
	kinds := map[string]bool{}
	add := func(name string, o *Outcome, moves func(Count) int) {
		line := report.Line{Name: name, X: []float64{0}, Y: []float64{0}}
		sum := 0
		for i, s := range o.Steps {
			sum += moves(s)
			line.X, line.Y = append(line.X, float64(i+1)), append(line.Y, r.part(sum))
		}
		out.Lines = append(out.Lines, line)
	}
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		kind := o.Scheme.Kind()
		if !kinds[kind] && (len(c.Outcomes) <= most || timelineKinds[kind]) && len(out.Lines) < most {
			add(o.Scheme.Spec(), o, func(s Count) int { return s.Moved })
		}
		kinds[kind] = true
	}
	last := &c.Outcomes[len(c.Outcomes)-1]
	add(last.Scheme.Spec()+", tracked", last, func(s Count) int { return s.Tracked.Moved })
	return out
}

// timelineKinds are shown where not all can be: those that differ most.
var timelineKinds = map[string]bool{"modulo": true, "jump": true, "ketama": true, "rendezvous": true, "bounded-ring": true, "redis-slots": true, "maglev": true}

// schemesSection is about the backends as they are at the start.
func (r *Results) schemesSection() report.Section {
	table := report.Table{Name: "schemes", Columns: []report.Column{
		{Key: "scheme", Title: "scheme"},
		{Key: "weights", Title: "weights"},
		{Key: "busiest", Title: "busiest", Format: report.Factor},
		{Key: "cv", Title: "CV", Format: report.Number},
		{Key: "bytes", Title: "state", Format: report.Bytes},
	}}
	timed := r.Plan.Clock != nil
	if timed {
		table.Columns = append(table.Columns,
			report.Column{Key: "build_seconds", Title: "build", Format: report.Duration},
			report.Column{Key: "lookup_ns", Title: "lookup, ns", Format: report.Count},
			report.Column{Key: "lookup_ratio", Title: "to modulo", Format: report.Factor})
	}
	even := report.Bars{Title: "Busiest backend at the start", Label: "its keys over its fair share", Format: report.Factor, From: 1}
	cost := report.Bars{Title: "Lookup, hash included", Label: "time over that of modulo", Format: report.Factor}
	busiest, ratio := report.Series{Name: "busiest backend"}, report.Series{Name: "lookup time"}
	for _, c := range r.Costs {
		weights := "count"
		if !c.Scheme.Weighted() {
			weights = "do not count"
		}
		row := []any{c.Scheme.Spec(), weights, c.Before.Busiest, c.Before.CV, c.Bytes}
		if timed {
			row = append(row, c.Build, c.Lookup, c.Ratio)
		}
		table.Rows = append(table.Rows, row)
		even.Names, cost.Names = append(even.Names, c.Scheme.Spec()), append(cost.Names, c.Scheme.Spec())
		busiest.Values, ratio.Values = append(busiest.Values, c.Before.Busiest), append(ratio.Values, c.Ratio)
	}
	even.Series, cost.Series = []report.Series{busiest}, []report.Series{ratio}
	text := fmt.Sprintf("For the %d backends at the start. The state is what a lookup reads, without the backends.", len(r.Plan.Members))
	charts := []report.Chart{even}
	if timed {
		text += " Build is the time to make the state; lookups take the hash of the key along, and are compared with modulo's in the same run."
		charts = append(charts, cost)
	}
	return report.Section{Title: "The schemes", Text: text, Tables: []report.Table{table}, Charts: charts}
}
