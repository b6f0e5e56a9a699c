package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// writer collects text; the first error stays.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) printf(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.w, format, args...)
	}
}

// pretty makes the table of a library that draws them.
func (t *Table) pretty() table.Writer {
	p := table.NewWriter()
	header, configs := table.Row{}, []table.ColumnConfig{}
	for i, c := range t.Columns {
		header = append(header, c.Title)
		align := text.AlignRight
		if c.Format.left() {
			align = text.AlignLeft
		}
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}
	p.AppendHeader(header)
	p.SetColumnConfigs(configs)
	for _, cells := range t.Rows {
		row := table.Row{}
		for i, c := range t.Columns {
			row = append(row, c.Cell(cells[i]))
		}
		p.AppendRow(row)
	}
	return p
}

func (r *Report) writeText(out io.Writer) error {
	w := &writer{w: out}
	w.printf("%s\n", r.Title)
	if r.Command != "" {
		w.printf("  %s\n", r.Command)
	}
	for _, f := range r.Facts {
		w.printf("  %s: %s\n", f.Name, f.Value)
	}
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = "  "
	for _, s := range r.Sections {
		w.printf("\n%s\n", s.Title)
		for _, p := range paragraphs(s.Text) {
			w.printf("%s\n", p)
		}
		for i := range s.Tables {
			t := &s.Tables[i]
			if t.Detail {
				continue
			}
			w.printf("\n")
			if t.Caption != "" {
				w.printf("%s\n", t.Caption)
			}
			p := t.pretty()
			p.SetStyle(style)
			for line := range strings.SplitSeq(p.Render(), "\n") {
				w.printf("%s\n", strings.TrimRight(line, " "))
			}
		}
	}
	return w.err
}

func (r *Report) writeMarkdown(out io.Writer) error {
	w := &writer{w: out}
	w.printf("# %s\n\n", r.Title)
	if r.Command != "" {
		w.printf("    %s\n\n", r.Command)
	}
	for _, f := range r.Facts {
		w.printf("- %s: %s\n", f.Name, f.Value)
	}
	for _, s := range r.Sections {
		w.printf("\n## %s\n", s.Title)
		for _, p := range paragraphs(s.Text) {
			w.printf("\n%s\n", p)
		}
		for i := range s.Tables {
			t := &s.Tables[i]
			if t.Detail {
				continue
			}
			w.printf("\n")
			if t.Caption != "" {
				w.printf("%s\n\n", t.Caption)
			}
			w.printf("%s\n", t.pretty().RenderMarkdown())
		}
	}
	return w.err
}
