package tablecost

import (
	"fmt"
	"time"

	"github.com/guideway/guideway/bench/report"
)

// Report words the results. Title, command and facts are the caller's to add to.
func (r *Results) Report() *report.Report {
	t := report.Table{Name: "tables", Columns: []report.Column{
		{Key: "size", Title: "slots", Format: report.Count},
		{Key: "hosts", Title: "hosts", Format: report.Count},
		{Key: "build_seconds", Title: "build", Format: report.Duration},
		{Key: "push_seconds", Title: "push", Format: report.Duration},
		{Key: "change_seconds", Title: "change", Format: report.Duration},
		{Key: "moved", Title: "slots moved", Format: report.Count},
		{Key: "table_bytes", Title: "table", Format: report.Bytes},
		{Key: "garbage_bytes", Title: "garbage", Format: report.Bytes},
		{Key: "target_bytes", Title: "in force", Format: report.Bytes},
	}}
	for _, row := range r.Rows {
		t.Rows = append(t.Rows, []any{int(row.Size), row.Hosts, row.Build, row.Push, row.Change, int(row.Moved), row.Memory, row.Garbage, row.Target})
	}
	section := report.Section{
		Title: "Tables",
		Text: fmt.Sprintf("Each time is the shortest of %d. Build makes the table. Push puts it in force (%s), change then puts one in force that has one host more. "+
			"Memory is Go's heap: what the table keeps, what building it threw away, what is kept in force after the change, while the slots it moved are open.", r.Plan.Rounds, r.Target),
		Tables: []report.Table{t},
	}
	for _, c := range []struct {
		title string
		of    func(Row) time.Duration
	}{{"Time to build", func(r Row) time.Duration { return r.Build }}, {"Time to put a change in force", func(r Row) time.Duration { return r.Change }}} {
		if chart, ok := r.chart(c.title, c.of); ok {
			section.Charts = append(section.Charts, chart)
		}
	}
	return &report.Report{Title: "Cost of tables", Sections: []report.Section{section}}
}

// chart has a line for each size, over the numbers of hosts. There is none where a
// time was too short for the clock, or there is one number of hosts only.
func (r *Results) chart(title string, of func(Row) time.Duration) (report.Chart, bool) {
	chart := report.Lines{Title: title, XLabel: "hosts", YLabel: "milliseconds", XFormat: report.Count, YFormat: report.Number, LogX: true, LogY: true}
	for _, size := range r.Plan.Sizes {
		line := report.Line{Name: report.Column{Format: report.Count}.Cell(int(size)) + " slots"}
		for _, row := range r.Rows {
			if row.Size != size {
				continue
			}
			if of(row) <= 0 {
				return nil, false
			}
			line.X = append(line.X, float64(row.Hosts))
			line.Y = append(line.Y, float64(of(row))/float64(time.Millisecond))
		}
		chart.Lines = append(chart.Lines, line)
	}
	return chart, len(r.Plan.Hosts) > 1
}
