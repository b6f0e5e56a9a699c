package report

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Lines shows how something goes with time, or with another quantity: flows
// broken over seconds, latency over percentiles, balance over virtual nodes.
type Lines struct {
	Title, XLabel, YLabel string
	XFormat, YFormat      Format
	Lines                 []Line
	// Steps draws the value at X until the next X, as counts over time want it.
	Steps bool
	// LogX and LogY are for positive values only.
	LogX, LogY bool
	// XTicks, if set, are where the x axis is labelled, with these texts.
	XTicks []Tick
}

// Line is one line of Lines. X and Y are as long as each other.
type Line struct {
	Name string
	X, Y []float64
}

// Tick is a label at a value of an axis.
type Tick struct {
	At    float64
	Label string
}

func (l Lines) name() string { return l.Title }

func (l Lines) draw() (*vgsvg.Canvas, error) {
	p := newPlot(l.Title, l.XLabel, l.YLabel)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = paint("--grid"), paint("--grid")
	p.Add(grid)
	legend := newLegend()
	for i, line := range l.Lines {
		if len(line.X) != len(line.Y) || len(line.X) == 0 {
			return nil, fmt.Errorf("line %q has %d x and %d y", line.Name, len(line.X), len(line.Y))
		}
		points := make(plotter.XYs, len(line.X))
		for at := range points {
			points[at] = plotter.XY{X: line.X[at], Y: line.Y[at]}
			if l.LogX && points[at].X <= 0 || l.LogY && points[at].Y <= 0 {
				return nil, fmt.Errorf("line %q has (%v, %v), which no logarithmic axis shows", line.Name, line.X[at], line.Y[at])
			}
		}
		drawn, err := plotter.NewLine(points)
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line.Name, err)
		}
		drawn.Color, drawn.Width = seriesPaint(i), 1.8
		// Colours come round, so lines that share one differ in their dashes; and so
		// do neighbours, for prints.
		drawn.Dashes = [][]vg.Length{nil, {6, 2}, {2, 2}, {8, 2, 2, 2}}[(i+i/seriesColors)%4]
		if l.Steps {
			drawn.StepStyle = plotter.PostStep
		}
		p.Add(drawn)
		legend.Add(line.Name, drawn)
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{l.XFormat.short}, ticks{l.YFormat.short}
	if l.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{l.XFormat.short}
	}
	if l.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{l.YFormat.short}
	} else if p.Y.Min > 0 && p.Y.Min < p.Y.Max/2 {
		p.Y.Min = 0
	}
	if p.Y.Min == p.Y.Max {
		p.Y.Max++
	}
	if !l.LogY {
		p.Y.Max += (p.Y.Max - p.Y.Min) / 50 // lines at the top are as thick as others
	}
	if l.XTicks != nil {
		constant := make(plot.ConstantTicks, len(l.XTicks))
		for i, t := range l.XTicks {
			constant[i] = plot.Tick{Value: t.At, Label: t.Label}
		}
		p.X.Tick.Marker = constant
	}
	return render(p, &legend, max(260, 40+18*vg.Length(len(l.Lines))), true), nil
}

// decades labels 1, 2 and 5 of each power of ten.
type decades struct{ label func(float64) string }

func (d decades) Ticks(min, max float64) []plot.Tick {
	var out []plot.Tick
	for e := math.Floor(math.Log10(min)); e <= math.Ceil(math.Log10(max)); e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v >= min*(1-1e-9) && v <= max*(1+1e-9) {
				out = append(out, plot.Tick{Value: v, Label: d.label(v)})
			}
		}
	}
	return out
}
