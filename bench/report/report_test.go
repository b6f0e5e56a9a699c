package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample has every kind of cell and chart, and texts that need escaping.
func sample() *Report {
	columns := []Column{
		{"name", "name", Text}, {"n", "count", Count}, {"part", "moved", Percent}, {"ratio", "busiest", Factor},
		{"size", "state", Bytes}, {"time", "build", Duration}, {"cv", "CV", Number},
	}
	return &Report{
		Title: "A <sample> & more", Command: CommandLine("guideway", []string{"bench", "it's", "a=b", ""}),
		Facts: []Fact{{"seed", "1"}, {"machine", `"quoted" | piped`}},
		Sections: []Section{
			{
				Title: "First", Text: "One paragraph.\n\nAnother, with 5 < 6.",
				Tables: []Table{
					{Name: "things", Caption: "What there is", Columns: columns, Rows: [][]any{
						{"alpha", 1234567, 0.12345, 1.0811, 131074, 1234 * time.Microsecond, 0.0123},
						{"b<c>, \"d\"", int64(-42), math.NaN(), nil, 999, 17 * time.Nanosecond, 1e-9},
						{"", 0, 1.0, 3.25, 5_000_000_000, 90 * time.Second, 12.0},
					}},
					{Name: "steps", Caption: "Every step", Detail: true, Columns: columns[:2], Rows: [][]any{{"one", 1}}},
				},
				Charts: []Chart{
					Bars{
						Title: "Moved & least", Label: "part of all", Format: Percent, Names: []string{"alpha", "a rather long name of a thing", "gamma"},
						Series: []Series{{"without", []float64{0.9, 0.1, math.NaN()}}, {"with", []float64{0, 0.05, 0.2}}}, Marks: []float64{0.1, 0.1, math.NaN()}, MarkName: "least",
					},
					Lines{
						Title: "Over time", XLabel: "seconds", YLabel: "flows", XFormat: Number, YFormat: Count, Steps: true,
						Lines: []Line{{"broken", []float64{0, 1, 2, 3}, []float64{0, 0, 250, 250}}, {"moved", []float64{0, 1, 2, 3}, []float64{0, 10, 10, 400}}},
					},
				},
			},
			{
				Title: "Second", Tables: []Table{{Name: "things", Columns: columns, Rows: [][]any{{"z", 1, 0.5, 1.0, 1, time.Second, 0.0}}}},
				Charts: []Chart{Lines{
					Title: "Latency", XLabel: "percentile", YLabel: "ms", YFormat: Number, LogX: true, LogY: true,
					XTicks: []Tick{{1, "0 %"}, {10, "90 %"}, {100, "99 %"}, {1000, "99.9 %"}},
					Lines:  []Line{{"TCP", []float64{1, 10, 100, 1000}, []float64{0.1, 0.2, 5, 40}}},
				}},
			},
		},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from what is written (look at it, then go test -update):\n%s", name, got)
	}
}

func TestFormats(t *testing.T) {
	for format, name := range map[string]string{"text": "sample.txt", "json": "sample.json", "csv": "sample.csv", "markdown": "sample.md"} {
		var b bytes.Buffer
		if err := sample().Write(&b, format); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.Bytes())
	}
	if err := sample().Write(io.Discard, "yaml"); err == nil || !strings.Contains(err.Error(), "text, json, csv, markdown") {
		t.Errorf("error %v", err)
	}
}

// What programs read is what they expect: JSON, CSV with as many fields in each record of a list.
func TestDataIsWellFormed(t *testing.T) {
	var b bytes.Buffer
	if err := sample().Write(&b, "json"); err != nil {
		t.Fatal(err)
	}
	var r struct {
		Sections []struct {
			Tables []struct{ Rows []map[string]any }
		}
	}
	if err := json.Unmarshal(b.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	row := r.Sections[0].Tables[0].Rows[0]
	if row["time"] != 0.001234 || row["part"] != 0.12345 || row["size"] != 131074.0 {
		t.Errorf("raw values %v", row)
	}
	if row := r.Sections[0].Tables[0].Rows[1]; row["part"] != nil || row["ratio"] != nil {
		t.Errorf("values that are not there: %v", row)
	}
	b.Reset()
	if err := sample().Write(&b, "csv"); err != nil {
		t.Fatal(err)
	}
	for i, list := range strings.Split(b.String(), "\n\n") {
		records, err := csv.NewReader(strings.NewReader(list)).ReadAll()
		if err != nil || len(records) < 2 {
			t.Errorf("list %d: %d records, %v", i, len(records), err)
		}
	}
	odd := sample()
	odd.Sections[1].Tables[0].Columns = odd.Sections[1].Tables[0].Columns[:1]
	odd.Sections[1].Tables[0].Rows = [][]any{{"z"}}
	if err := odd.Write(io.Discard, "csv"); err == nil {
		t.Error("tables of one name with different columns are no error")
	}
}

func TestErrorsOfTheWriter(t *testing.T) {
	for _, format := range Formats {
		if err := sample().Write(full{}, format); err == nil {
			t.Errorf("%s: no error", format)
		}
	}
	if err := sample().WriteHTML(full{}); err == nil {
		t.Error("html: no error")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// The page loads nothing, has everything escaped, and is the same each time.
func TestPage(t *testing.T) {
	var a, b bytes.Buffer
	if err := sample().WriteHTML(&a); err != nil {
		t.Fatal(err)
	}
	if err := sample().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two pages of one report differ")
	}
	golden(t, "sample.html", a.Bytes())
	text := a.String()
	for _, outside := range []string{"src=", "@import", "url(", "<script", "<link", "xlink:href"} {
		if strings.Contains(text, outside) {
			t.Errorf("the page has %q", outside)
		}
	}
	for _, m := range regexp.MustCompile(`https?://[^"]*`).FindAllString(text, -1) {
		if m != "http://www.w3.org/2000/svg" { // a name, not an address
			t.Errorf("the page names %s", m)
		}
	}
	if strings.Contains(text, "<sample>") || strings.Contains(text, "b<c>") || !strings.Contains(text, "&lt;sample&gt;") {
		t.Error("texts are not escaped")
	}
}

// Plots are well-formed, have a title for those who do not see them, only colours of the palette, and every
// text lies within the picture.
func TestPlots(t *testing.T) {
	for _, s := range sample().Sections {
		for _, c := range s.Charts {
			svg, err := SVG(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkPlot(svg); err != "" {
				t.Errorf("%s: %s", c.name(), err)
			}
		}
	}
}

var (
	textAt  = regexp.MustCompile(`(rotate\(90\)">\s*)?<text x="([-0-9.e]+)" y="([-0-9.e]+)" transform="scale\(1, -1\)" textLength="([0-9.]+)"`)
	viewBox = regexp.MustCompile(`viewBox="0 0 ([0-9.]+) ([0-9.]+)"`)
)

func checkPlot(svg []byte) string {
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			return err.Error()
		}
	}
	text := string(svg)
	if !strings.Contains(text, "<title>") || !strings.Contains(text, "prefers-color-scheme:dark") {
		return "no title, or no dark theme"
	}
	body := text[strings.Index(text, "</style>"):]
	for _, hex := range regexp.MustCompile(`(.{6})#[0-9a-f]{3,8}`).FindAllStringSubmatch(body, -1) {
		if !strings.HasPrefix(hex[1], "-") && !strings.Contains(hex[1], ",") {
			return "a colour outside of the palette: " + hex[0]
		}
	}
	box := viewBox.FindStringSubmatch(text)
	width, height := number(box[1]), number(box[2])
	found := textAt.FindAllStringSubmatch(text, -1)
	if len(found) < 5 {
		return "hardly any text"
	}
	for _, m := range found {
		x, y, long, across, along := number(m[2]), -number(m[3]), number(m[4]), height, width
		if m[1] != "" { // a label of the y axis, which reads upwards
			y, across, along = -y, width, height
		}
		if x < 0 || x+long > along+0.1 || y < 0 || y > across {
			return "cut off: " + m[0]
		}
	}
	return ""
}

func number(text string) float64 {
	var f float64
	json.Unmarshal([]byte(text), &f)
	return f
}

func TestChartsRefuse(t *testing.T) {
	for _, c := range []Chart{
		Bars{Title: "empty"},
		Lines{Title: "uneven", Lines: []Line{{"a", []float64{1, 2}, []float64{1}}}},
		Lines{Title: "zero", LogY: true, Lines: []Line{{"a", []float64{1, 2}, []float64{0, 1}}}},
	} {
		if _, err := SVG(c); err == nil || !strings.Contains(err.Error(), c.name()) {
			t.Errorf("%s: error %v", c.name(), err)
		}
	}
}

func TestWritePlots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plots")
	if err := sample().WritePlots(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"moved-least.svg", "over-time.svg", "latency.svg"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct{ min, max float64 }{{0, 1}, {0, 0.93}, {1, 3.2}, {0, 20}, {-5, 5}, {0, 123456}, {0, 1e-6}} {
		got := ticks{func(float64) string { return "" }}.Ticks(c.min, c.max)
		if len(got) < 3 || len(got) > 8 || got[0].Value < c.min-1e-9 || got[len(got)-1].Value > c.max*(1+1e-9) {
			t.Errorf("%v to %v: %v", c.min, c.max, got)
		}
	}
}

func TestCommandLine(t *testing.T) {
	if got, want := CommandLine("guideway", []string{"-o", "a b", "it's", "x=1,2", ""}), `guideway -o 'a b' 'it'\''s' x=1,2 ''`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A file is no terminal: nothing is written.
func TestProgressNeedsATerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	show, end := Progress(f, "work")
	show(1, 2)
	end()
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%v bytes, %v", info.Size(), err)
	}
}
