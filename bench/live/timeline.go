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
	for _, n := range r.networks() {
		out = append(out, r.soFar("Flows so far, "+strings.ToUpper(n.String()), []soFarLine{
			{"broken", n, func(h Happened) int { return h.Broken }},
			{"moved", n, func(h Happened) int { return h.Moved }},
			{"stalled", n, func(h Happened) int { return h.Stalled }},
			{"reordered", n, func(h Happened) int { return h.Reordered }},
		})...)
	}
	return out
}

// failures show how many new flows had failed by when.
func (r *Results) failures() []report.Chart {
	var lines []soFarLine
	for _, n := range r.networks() {
		lines = append(lines, soFarLine{n.String(), n, func(h Happened) int { return h.Failed }})
	}
	return r.soFar("Attempts to open a flow that failed so far", lines)
}

// networks are the protocols that flows are held of.
func (r *Results) networks() (out []Network) {
	if r.Plan.TCP > 0 {
		out = append(out, TCP)
	}
	if r.Plan.UDP > 0 {
		out = append(out, UDP)
	}
	return out
}

// soFarLine is what a line of a timeline adds up.
type soFarLine struct {
	name    string
	network Network
	of      func(Happened) int
}

// soFar draws sums over time; nothing if the run had no time.
func (r *Results) soFar(title string, what []soFarLine) []report.Chart {
	if len(r.Timeline) == 0 {
		return nil
	}
	lines := report.Lines{
		Title: title, XLabel: r.timeLabel(), YLabel: "flows", XFormat: report.Count, YFormat: report.Count, Steps: true,
	}
	for _, w := range what {
		line := report.Line{Name: w.name, X: []float64{0}, Y: []float64{0}}
		sum := 0
		for _, s := range r.Timeline {
			sum += w.of(s.Of[w.network])
			line.X = append(line.X, (s.Start + r.Plan.Bucket).Seconds())
			line.Y = append(line.Y, float64(sum))
		}
		lines.Lines = append(lines.Lines, line)
	}
	return []report.Chart{lines}
}

// timeLabel says when steps began, as far as that fits below a plot.
func (r *Results) timeLabel() string {
	const fits = 100
	var steps []string
	for _, s := range r.Steps[min(2, len(r.Steps)):] {
		steps = append(steps, fmt.Sprintf("%s at %.1f", s.Name, s.Start.Seconds()))
	}
	if label := "seconds: " + strings.Join(steps, ", "); len(steps) > 0 && len(label) <= fits {
		return label
	}
	return "seconds"
}
