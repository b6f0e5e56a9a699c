package churn

import (
	"fmt"
	"time"

	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/conntrack"
)

var trackNames = map[conntrack.Track]string{
	conntrack.TrackChanged: "changed", conntrack.TrackAll: "all", conntrack.TrackOff: "off",
}

// TrackName returns what configurations call a way to track.
func TrackName(t conntrack.Track) string { return trackNames[t] }

// ParseTrack returns the way to track of a name.
func ParseTrack(name string) (conntrack.Track, error) {
	for t, n := range trackNames {
		if n == name {
			return t, nil
		}
	}
	return 0, fmt.Errorf("unknown way to track %q: use changed, all or off", name)
}

// Report words the results. Title, command and facts are the caller's to add to.
func (r *Results) Report() *report.Report {
	t := report.Table{Name: "churn", Columns: []report.Column{
		{Key: "track", Title: "track", Format: report.Text},
		{Key: "changes_per_hour", Title: "changes/h", Format: report.Text},
		{Key: "lookups", Title: "packets looked up", Format: report.Percent},
		{Key: "lookups_error", Title: "±", Format: report.Percent},
		{Key: "remembered", Title: "flows remembered", Format: report.Percent},
		{Key: "entries", Title: "entries/flow", Format: report.Number},
		{Key: "open", Title: "open slots", Format: report.Percent},
		{Key: "excepted", Title: "excepted slots", Format: report.Percent},
		{Key: "moved", Title: "moved", Format: report.Count},
		{Key: "begun", Title: "of flows", Format: report.Count},
		{Key: "slots_moved", Title: "slots/change", Format: report.Count},
	}}
	lookups, remembered, entries := r.chart("Packets that look their flow up"), r.chart("Live flows that are remembered"), r.chart("Entries for each live flow")
	entries.YLabel, entries.YFormat = "", report.Number
	for _, track := range r.Plan.Tracks {
		line := report.Line{Name: "track " + TrackName(track)}
		var a, b, c []float64
		for _, p := range r.Points {
			if p.Track != track {
				continue
			}
			t.Rows = append(t.Rows, []any{
				TrackName(track), fmt.Sprint(p.Changes), p.Lookups, p.Error, p.Remembered, p.Entries, p.Open, p.Excepted, p.Moved, p.Begun, p.ChangedSlots,
			})
			line.X = append(line.X, p.Changes)
			a, b, c = append(a, p.Lookups), append(b, p.Remembered), append(c, p.Entries)
		}
		for _, add := range []struct {
			to *report.Lines
			y  []float64
		}{{&lookups, a}, {&remembered, b}, {&entries, c}} {
			line.Y = add.y
			add.to.Lines = append(add.to.Lines, line)
		}
	}
	section := report.Section{
		Title: "Lookups and remembered flows by rate of change",
		Text: fmt.Sprintf("Changes take turns: a random backend is drained, then a new one comes. ± is the standard error, from how slots differ. "+
			"Open slots are a share of all slots, excepted ones of those simulated. Entries are all that is remembered for each live flow; those of flows that are over stay until they are idle. "+
			"Moved are flows that changed their backend though it could serve. Averages over %v, after %v of warm-up.\n\n"+
			"Simulated are %d of %d slots, picked at random, with all of their flows (%d); of each flow the first packet, and the first and the last one between two events (changes, sweeps). "+
			"The packets in between meet the same state and are counted by their mean number.",
			r.Plan.Measured, r.Plan.WarmUp, r.Plan.Slots, r.Plan.TableSize, r.Plan.sampled()),
		Tables: []report.Table{t},
	}
	if len(r.Plan.Changes) > 1 {
		section.Charts = []report.Chart{lookups, remembered, entries}
	}
	count := report.Column{Format: report.Count}
	window := r.Plan.Window
	if window == 0 || window > r.Plan.Idle {
		window = r.Plan.Idle
	}
	return &report.Report{
		Title: "What tracking costs while backends change",
		Facts: []report.Fact{
			{Name: "seed", Value: fmt.Sprint(r.Plan.Seed)},
			{Name: "table", Value: fmt.Sprintf("%s slots, %s backends", count.Cell(int(r.Plan.TableSize)), count.Cell(r.Plan.Backends))},
			{Name: "flows", Value: fmt.Sprintf("%s %s live, mean life %v, %v packets a second each", count.Cell(r.Plan.Flows), protoNames[r.Plan.Proto], r.Plan.Life, r.Plan.Rate)},
			{Name: "timeouts", Value: fmt.Sprintf("idle %v, slots open for %v, a sweep each %v", r.Plan.Idle, window, r.Plan.Sweep.Round(time.Millisecond))},
		},
		Sections: []report.Section{section},
	}
}

var protoNames = map[conntrack.Proto]string{conntrack.TCP: "TCP", conntrack.UDP: "UDP"}

func (r *Results) chart(title string) report.Lines {
	return report.Lines{Title: title, XLabel: "changes an hour", YLabel: "share", XFormat: report.Number, YFormat: report.Percent}
}
