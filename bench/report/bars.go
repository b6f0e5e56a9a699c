package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Bars compares named things: a group of horizontal bars for each, the first name
// on top, one bar for each series.
type Bars struct {
	Title, Label string
	Format       Format
	Names        []string
	Series       []Series
	// Marks, if set, is a value for each name that is shown as a tick, and
	// MarkName what it is.
	Marks    []float64
	MarkName string
	// From is where bars begin: 0, or 1 for what is compared with 1.
	From float64
}

// Series has a value for each name, NaN for none.
type Series struct {
	Name   string
	Values []float64
}

func (b Bars) name() string { return b.Title }

func (b Bars) draw() (*vgsvg.Canvas, error) {
	if len(b.Names) == 0 || len(b.Series) == 0 {
		return nil, fmt.Errorf("nothing to show")
	}
	p := newPlot(b.Title, b.Label, "")
	grid := plotter.NewGrid()
	grid.Horizontal.Width, grid.Vertical.Color = 0, paint("--grid")
	p.Add(grid)

	n := len(b.Names)
	const group = 0.76 // of the distance between names
	width := group / float64(len(b.Series))
	thick := vg.Length(max(11, 26*width))
	row := thick * vg.Length(len(b.Series)) / group
	legend := newLegend()
	largest := b.From
	for i, s := range b.Series {
		// Bars of a library start at 0 and cannot be left out; rectangles can.
		r := &rectangles{from: b.From, half: width / 2 * 0.92}
		r.style.Color = seriesPaint(i)
		labels := plotter.XYLabels{}
		for at, v := range s.Values {
			if math.IsNaN(v) {
				continue
			}
			y := float64(n-1-at) + group/2 - width*(float64(i)+0.5)
			r.points = append(r.points, plotter.XY{X: v, Y: y})
			labels.XYs = append(labels.XYs, plotter.XY{X: v, Y: y})
			labels.Labels = append(labels.Labels, Column{Format: b.Format}.Cell(v))
			largest = max(largest, v)
		}
		if b.Marks != nil {
			for at := range labels.XYs {
				name := n - 1 - int(math.Round(labels.XYs[at].Y))
				if m := b.Marks[name]; !math.IsNaN(m) {
					labels.XYs[at].X = max(labels.XYs[at].X, m)
				}
			}
		}
		p.Add(r)
		l, err := plotter.NewLabels(labels)
		if err != nil {
			return nil, err
		}
		for at := range l.TextStyle {
			st := &l.TextStyle[at]
			st.Font.Size, st.Font.Variant, st.Color = labelSize, "Sans", paint("--soft")
			st.YAlign = text.YCenter
		}
		l.Offset.X = 4
		p.Add(l)
		legend.Add(s.Name, r)
	}
	if b.Marks != nil {
		m := &marks{half: group / 2}
		m.style.Color, m.style.Width = paint("--ink"), 1.5
		for at, v := range b.Marks {
			if !math.IsNaN(v) {
				m.points = append(m.points, plotter.XY{X: v, Y: float64(n - 1 - at)})
				largest = max(largest, v)
			}
		}
		p.Add(m)
		legend.Add(b.MarkName, m)
	}
	names := slices.Clone(b.Names)
	slices.Reverse(names)
	p.NominalY(names...)
	p.Y.LineStyle.Width, p.Y.Tick.Length = 0, 0
	p.X.Min, p.X.Max = b.From, largest
	if largest == b.From {
		p.X.Max = b.From + 1
	}
	p.X.Tick.Marker = ticks{b.Format.short}
	p.Y.Min, p.Y.Max = -0.5, float64(n)-0.5
	height := row*vg.Length(n) + 64 + legend.Rectangle(draw.Canvas{}).Size().Y
	return render(p, &legend, height, false), nil
}

// rectangles are bars from a value to the points'.
type rectangles struct {
	points plotter.XYs
	from   float64
	half   float64 // of the thickness, in units of y
	style  draw.LineStyle
}

func (r *rectangles) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, at := range r.points {
		c.FillPolygon(r.style.Color, []vg.Point{
			{X: x(r.from), Y: y(at.Y - r.half)}, {X: x(at.X), Y: y(at.Y - r.half)}, {X: x(at.X), Y: y(at.Y + r.half)}, {X: x(r.from), Y: y(at.Y + r.half)},
		})
	}
}

func (r *rectangles) Thumbnail(c *draw.Canvas) { swatch(c, r.style) }

func swatch(c *draw.Canvas, style draw.LineStyle) {
	c.FillPolygon(style.Color, []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Min.X, Y: c.Max.Y}})
}

// marks are upright lines.
type marks struct {
	points plotter.XYs
	half   float64 // of the length, in units of y
	style  draw.LineStyle
}

func (m *marks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, at := range m.points {
		c.StrokeLine2(m.style, x(at.X), y(at.Y-m.half), x(at.X), y(at.Y+m.half))
	}
}

func (m *marks) Thumbnail(c *draw.Canvas) {
	middle := (c.Min.X + c.Max.X) / 2
	c.StrokeLine2(m.style, middle, c.Min.Y, middle, c.Max.Y)
}
