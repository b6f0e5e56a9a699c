package packet

import "github.com/guideway/guideway/bench/report"

var verdicts = map[uint32]string{0: "aborted", 1: "drop", 2: "pass", 3: "tx", 4: "redirect"}

// Report arranges figures.
func Report(plan Plan, figures []Figure) *report.Report {
	t := report.Table{
		Name:    "packets",
		Caption: "Nanoseconds a packet without the no-op, and the program with the no-op as a multiple of the no-op, in the same run.",
		Columns: []report.Column{
			{Key: "case", Title: "packet", Format: report.Text}, {Key: "flows", Title: "flows", Format: report.Count},
			{Key: "ns", Title: "ns", Format: report.Number}, {Key: "floor_ns", Title: "no-op ns", Format: report.Number},
			{Key: "ratio", Title: "of no-op", Format: report.Factor}, {Key: "verdict", Title: "verdict", Format: report.Text},
		},
	}
	for _, f := range figures {
		var ratio any
		if f.Floor > 0 {
			ratio = (f.Program + f.Floor) / f.Floor
		}
		t.Rows = append(t.Rows, []any{f.Case, int64(f.Flows), f.Program, f.Floor, ratio, verdicts[f.Verdict]})
	}
	return &report.Report{
		Title: "The XDP packet path",
		Facts: []report.Fact{{Name: "table", Value: report.Column{Format: report.Count}.Cell(int(plan.TableSize)) + " slots"}, {Name: "backends", Value: report.Column{Format: report.Count}.Cell(plan.Backends)}},
		Sections: []report.Section{{
			Title:  "Packets",
			Text:   "Flows take turns, each packet of another flow, so that caches miss as they do with so many live flows. In a settled table no flow is looked up; in an open one, and with track all, every flow is.",
			Tables: []report.Table{t},
		}},
	}
}
