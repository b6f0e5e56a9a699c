package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Report is what was measured, and how.
type Report struct {
	Title   string
	Command string // the command line that made it
	// Facts say what else counts: versions, seed, machine.
	Facts    []Fact
	Sections []Section
}

// Fact is a name and a value.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Section is a part of a report under a heading.
type Section struct {
	Title  string
	Text   string // paragraphs, separated by empty lines
	Tables []Table
	Charts []Chart // only in HTML
}

// Table has a row for each thing measured.
type Table struct {
	// Name says what the rows are, in JSON and CSV: "schemes", "steps".
	Name    string
	Caption string
	Columns []Column
	// Rows hold a cell for each column: a string, int, int64, float64 or
	// time.Duration, or nil where the column does not apply.
	Rows [][]any
	// Detail tables are left out of text and Markdown, and folded in HTML.
	Detail bool
}

// Column is a column of a table.
type Column struct {
	Key    string // in JSON and CSV
	Title  string
	Format Format
}

// Format says how cells look to a person.
type Format int

const (
	Text     Format = iota
	Count           // 1,000,000
	Percent         // a part of one: 12.34 %
	Factor          // 1.234x
	Bytes           // 131.1 kB; from an int
	Duration        // 1.23 ms; from a time.Duration
	Number          // 1.234
)

// unit names what raw values are counted in.
func (f Format) unit() string {
	return [...]string{"", "", "part of one", "ratio", "bytes", "seconds", ""}[f]
}

// left says whether cells stand at the left of their column.
func (f Format) left() bool { return f == Text }

// Cell is a cell as a person reads it.
func (c Column) Cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "–"
	case string:
		return v
	case time.Duration:
		return duration(v)
	case int:
		return c.number(float64(v))
	case int64:
		return c.number(float64(v))
	case float64:
		if math.IsNaN(v) {
			return "–"
		}
		return c.number(v)
	default:
		return fmt.Sprint(v)
	}
}

func (c Column) number(v float64) string {
	switch c.Format {
	case Percent:
		return fmt.Sprintf("%.2f %%", 100*v)
	case Factor:
		return fmt.Sprintf("%.3fx", v)
	case Bytes:
		return byteText(v)
	case Number:
		return fmt.Sprintf("%.3f", v)
	default:
		return thousands(v)
	}
}

// raw is a cell as a program reads it.
func raw(v any) any {
	switch v := v.(type) {
	case time.Duration:
		return v.Seconds()
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	}
	return v
}

func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// byteText uses decimal units.
func byteText(v float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if v < 1000 || unit == "GB" {
			if unit == "B" {
				return fmt.Sprintf("%.0f B", v)
			}
			return fmt.Sprintf("%.1f %s", v, unit)
		}
		v /= 1000
	}
	panic("unreachable")
}

func duration(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
	case d < time.Second:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
}

// Formats are the names that Write takes; the first is for a terminal.
var Formats = []string{"text", "json", "csv", "markdown"}

// Write writes the report in one of Formats.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case "text":
		return r.writeText(w)
	case "markdown":
		return r.writeMarkdown(w)
	case "csv":
		return r.writeCSV(w)
	case "json":
		return r.writeJSON(w)
	default:
		return fmt.Errorf("unknown format %q: use %s", format, strings.Join(Formats, ", "))
	}
}

// paragraphs splits a section's text.
func paragraphs(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n\n"), func(p string) bool { return strings.TrimSpace(p) == "" })
}
