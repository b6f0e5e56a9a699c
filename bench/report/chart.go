package report

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a plot.
type Chart interface {
	// name is what the plot shows, for those who do not see it.
	name() string
	// draw draws it, and returns the size it took.
	draw() (*vgsvg.Canvas, error)
}

// palette are colours of a theme: series, then what texts, lines and grids are
// drawn in. In plots they stand as variables that the theme sets; the values in
// here are those of the light one, for programs that know no variables. The series
// are those of Okabe and Ito, which colour-blind people can tell apart, with the
// palest ones darkened, or lightened in the dark theme.
var palette = []struct {
	variable    string
	light, dark string
}{
	{"--s0", "#0072b2", "#56a9dd"},
	{"--s1", "#d55e00", "#f08a45"},
	{"--s2", "#009e73", "#2cc39b"},
	{"--s3", "#cc79a7", "#dd9dc0"},
	{"--s4", "#a88400", "#e8c33b"},
	{"--s5", "#7b52ab", "#b592dd"},
	{"--s6", "#3f8ea8", "#8fd3e8"},
	{"--s7", "#6b6b6b", "#a6a6a6"},
	{"--ink", "#1b1f24", "#e6e8eb"},
	{"--soft", "#5a626b", "#a3abb5"},
	{"--grid", "#d5dbe1", "#3a414a"},
	{"--page", "#ffffff", "#15181c"},
}

// seriesColors is how many of the palette are for series.
const seriesColors = 8

func paint(variable string) color.Color {
	for _, p := range palette {
		if p.variable == variable {
			var r, g, b uint8
			fmt.Sscanf(p.light, "#%02x%02x%02x", &r, &g, &b)
			return color.RGBA{r, g, b, 255}
		}
	}
	panic("no colour " + variable)
}

func seriesPaint(i int) color.Color { return paint(fmt.Sprintf("--s%d", i%seriesColors)) }

// themeCSS sets the palette for light and dark.
func themeCSS(selector string) string {
	var light, dark strings.Builder
	for _, p := range palette {
		fmt.Fprintf(&light, "%s:%s;", p.variable, p.light)
		fmt.Fprintf(&dark, "%s:%s;", p.variable, p.dark)
	}
	return fmt.Sprintf("%s{%s}@media(prefers-color-scheme:dark){%s{%s}}", selector, light.String(), selector, dark.String())
}

// SVG returns the plot as a file of its own, which follows the viewer's light or
// dark theme. It has a background, since the page around it may follow another.
func SVG(c Chart) ([]byte, error) {
	text, err := inlineSVG(c)
	if err != nil {
		return nil, err
	}
	at := strings.Index(text, ">") + 1
	return []byte(text[:at] + "<style>" + themeCSS("svg") + `</style><rect width="100%" height="100%" style="fill:var(--page,#ffffff)"/>` + text[at:]), nil
}

// What the plot library writes: all up to the svg element, texts with their
// position, style and content, colours, comments.
var (
	preamble = regexp.MustCompile(`(?s)^.*?<svg[^>]*viewBox="([^"]*)"[^>]*>`)
	texts    = regexp.MustCompile(`(?s)<text ([^>]*?)\s*style="[^"]*font-size:([0-9.]+)px;([^"]*)">([^<]*)</text>`)
	paints   = regexp.MustCompile(`(?i)#[0-9a-f]{6}\b`)
	comments = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// fixText gives a text the width that the layout reckons with, so that it fits in
// whatever font the viewer has.
func fixText(element string) string {
	part := texts.FindStringSubmatch(element)
	content := html.UnescapeString(part[4])
	if strings.TrimSpace(content) == "" {
		return ""
	}
	size, err := strconv.ParseFloat(part[2], 64)
	if err != nil {
		return element
	}
	face := font.DefaultCache.Lookup(font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans"}, vg.Length(size))
	width := face.Width(content)
	return fmt.Sprintf(`<text %s textLength="%.1f" lengthAdjust="spacingAndGlyphs" style="font:%spx 'Liberation Sans',Arial,Helvetica,sans-serif;%s">%s</text>`,
		part[1], width.Points(), part[2], part[3], part[4])
}

// inlineSVG returns the plot as an element to be put where the palette is set.
func inlineSVG(c Chart) (string, error) {
	canvas, err := c.draw()
	if err != nil {
		return "", fmt.Errorf("chart %q: %w", c.name(), err)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	text := b.String()
	box := preamble.FindStringSubmatch(text)
	if box == nil {
		return "", fmt.Errorf("chart %q: the plot library wrote no viewBox", c.name())
	}
	title := html.EscapeString(c.name())
	var width, height float64
	fmt.Sscanf(box[1], "0 0 %g %g", &width, &height)
	text = fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="%s" width="%.0f" height="%.0f" role="img" aria-label="%s"><title>%s</title>`,
		box[1], width*pixels, height*pixels, title, title) + text[len(box[0]):]
	text = comments.ReplaceAllString(text, "")
	text = texts.ReplaceAllStringFunc(text, fixText)
	return paints.ReplaceAllStringFunc(text, func(hex string) string {
		for _, p := range palette {
			if strings.EqualFold(hex, p.light) {
				return "var(" + p.variable + "," + p.light + ")"
			}
		}
		return hex
	}), nil
}

const (
	pixels     = 4.0 / 3 // of CSS, in a point
	chartWidth = vg.Length(450)
	textSize   = vg.Length(10)
	labelSize  = vg.Length(9)
)

// newPlot returns an empty plot in the house's style.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil // the page's
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size, p.Title.Padding = 12, 6
	p.Title.TextStyle.Font.Variant, p.Title.TextStyle.Color = "Sans", paint("--ink")
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = paint("--soft"), paint("--soft")
		a.Label.TextStyle.Font.Size, a.Label.TextStyle.Font.Variant, a.Label.TextStyle.Color = textSize, "Sans", paint("--soft")
		a.Tick.Label.Font.Size, a.Tick.Label.Font.Variant, a.Tick.Label.Color = textSize, "Sans", paint("--ink")
	}
	return p
}

func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.Left, l.Top = true, true
	l.TextStyle.Font.Size, l.TextStyle.Font.Variant, l.TextStyle.Color = textSize, "Sans", paint("--ink")
	l.ThumbnailWidth, l.Padding = 18, 5
	return l
}

// render draws a plot with its legend above or beside it.
func render(p *plot.Plot, l *plot.Legend, height vg.Length, beside bool) *vgsvg.Canvas {
	svg := vgsvg.New(chartWidth, height)
	c := draw.New(svg)
	c = draw.Crop(c, 4, -8, 4, -4)
	size := l.Rectangle(c).Size()
	if beside {
		l.Draw(draw.Crop(c, c.Max.X-c.Min.X-size.X-4, 0, 0, -24))
		c = draw.Crop(c, 0, -size.X-12, 0, 0)
	} else {
		top := draw.Crop(c, 0, 0, c.Max.Y-c.Min.Y-size.Y-4, 0)
		l.Draw(top)
		c = draw.Crop(c, 0, 0, 0, -size.Y-8)
	}
	p.Draw(c)
	return svg
}

// ticks are the multiples of 1, 2 or 5 times a power of ten that make at most
// seven, labelled by a format.
type ticks struct {
	label func(float64) string
}

func (t ticks) Ticks(min, max float64) []plot.Tick {
	const most = 7
	power := math.Pow(10, math.Floor(math.Log10((max-min)/most)))
	step := power
	for _, m := range []float64{1, 2, 5, 10} {
		if step = m * power; (max-min)/step <= most {
			break
		}
	}
	var out []plot.Tick
	for i := math.Ceil(min/step - 1e-9); i*step <= max+step*1e-9; i++ {
		value := i*step + 0 // not -0
		out = append(out, plot.Tick{Value: value, Label: t.label(value)})
	}
	return out
}

// short is an axis label: as few digits as tell it.
func (f Format) short(v float64) string {
	switch f {
	case Percent:
		return trim(100*v) + " %"
	case Factor:
		return trim(v) + "x"
	case Bytes:
		return byteText(v)
	default:
		return trim(v)
	}
}

func trim(v float64) string {
	if v != 0 && math.Abs(v) < 1 {
		return fmt.Sprintf("%.3g", v)
	}
	s := fmt.Sprintf("%.2f", v)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}
