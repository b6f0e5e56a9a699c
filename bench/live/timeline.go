package live

import (
	"fmt"
	"math"
	"strings"

	"github.com/guideway/guideway/bench/report"
)

func pow10(x float64) float64 { return math.Pow(10, x) }

// timelines show, for each protocol, what had happened by when.
func (r *Results) timelines() []report.Chart {
	var out []report.Chart
	if len(r.Timeline) == 0 {
		return nil
	}
	var steps []string
	for _, s := range r.Steps[min(2, len(r.Steps)):] {
		steps = append(steps, fmt.Sprintf("%s at %.1f", s.Name, s.Start.Seconds()))
	}
	label := "seconds"
	if len(steps) > 0 {
		label += ": " + strings.Join(steps, ", ")
	}
	const most = 110 // characters fit below a plot
	if len(label) > most {
		label = "seconds"
	}
	for _, n := range Networks {
		if n == TCP && r.Plan.TCP == 0 || n == UDP && r.Plan.UDP == 0 {
			continue
		}
		lines := report.Lines{
			Title: "Flows so far, " + strings.ToUpper(n.String()), XLabel: label, YLabel: "flows",
			XFormat: report.Count, YFormat: report.Count, Steps: true,
		}
		for _, what := range []struct {
			name string
			of   func(Happened) int
		}{
			{"broken", func(h Happened) int { return h.Broken }},
			{"moved", func(h Happened) int { return h.Moved }},
			{"stalled", func(h Happened) int { return h.Stalled }},
			{"reordered", func(h Happened) int { return h.Reordered }},
			{"new, failed", func(h Happened) int { return h.Failed }},
		} {
			line := report.Line{Name: what.name, X: []float64{0}, Y: []float64{0}}
			sum := 0
			for _, s := range r.Timeline {
				sum += what.of(s.Of[n])
				line.X = append(line.X, (s.Start + r.Plan.Bucket).Seconds())
				line.Y = append(line.Y, float64(sum))
			}
			lines.Lines = append(lines.Lines, line)
		}
		out = append(out, lines)
	}
	return out
}
