package report

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// WriteHTML writes the report as one page that loads nothing, with the charts in
// it. It follows the viewer's light or dark theme.
func (r *Report) WriteHTML(w io.Writer) error {
	type tableOf struct {
		*Table
		Left  []bool
		Cells [][]string
	}
	type section struct {
		*Section
		Paragraphs []string
		Tables     []tableOf
		Charts     []template.HTML
	}
	data := struct {
		*Report
		Theme    template.CSS
		Sections []section
	}{r, template.CSS(themeCSS(":root")), nil}
	for i := range r.Sections {
		s := section{Section: &r.Sections[i], Paragraphs: paragraphs(r.Sections[i].Text)}
		for j := range s.Section.Tables {
			t := tableOf{Table: &s.Section.Tables[j]}
			for _, c := range t.Columns {
				t.Left = append(t.Left, c.Format.left())
			}
			for _, cells := range t.Rows {
				row := make([]string, len(t.Columns))
				for k, c := range t.Columns {
					row[k] = c.Cell(cells[k])
				}
				t.Cells = append(t.Cells, row)
			}
			s.Tables = append(s.Tables, t)
		}
		for _, c := range s.Section.Charts {
			svg, err := inlineSVG(c)
			if err != nil {
				return err
			}
			s.Charts = append(s.Charts, template.HTML(svg))
		}
		data.Sections = append(data.Sections, s)
	}
	return page.Execute(w, data)
}
