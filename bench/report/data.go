package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// writeJSON writes raw values: parts of one, bytes, seconds.
func (r *Report) writeJSON(w io.Writer) error {
	type column struct {
		Key   string `json:"key"`
		Title string `json:"title"`
		Unit  string `json:"unit,omitempty"`
	}
	type tableOf struct {
		Name    string           `json:"name"`
		Columns []column         `json:"columns"`
		Rows    []map[string]any `json:"rows"`
	}
	type section struct {
		Title  string    `json:"title"`
		Text   string    `json:"text,omitempty"`
		Tables []tableOf `json:"tables"`
	}
	out := struct {
		Title    string    `json:"title"`
		Command  string    `json:"command,omitempty"`
		Facts    []Fact    `json:"facts"`
		Sections []section `json:"sections"`
	}{r.Title, r.Command, append([]Fact{}, r.Facts...), []section{}}
	for _, s := range r.Sections {
		section := section{s.Title, s.Text, []tableOf{}}
		for _, t := range s.Tables {
			table := tableOf{t.Name, []column{}, []map[string]any{}}
			for _, c := range t.Columns {
				table.Columns = append(table.Columns, column{c.Key, c.Title, c.Format.unit()})
			}
			for _, cells := range t.Rows {
				row := make(map[string]any, len(cells))
				for i, c := range t.Columns {
					row[c.Key] = raw(cells[i])
				}
				table.Rows = append(table.Rows, row)
			}
			section.Tables = append(section.Tables, table)
		}
		out.Sections = append(out.Sections, section)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

// writeCSV writes one list of records for each name of a table, with the section
// in the first column, and an empty line between lists.
func (r *Report) writeCSV(out io.Writer) error {
	var names []string
	rows := map[string][][]string{}
	for _, s := range r.Sections {
		for _, t := range s.Tables {
			if rows[t.Name] == nil {
				header := []string{"section"}
				for _, c := range t.Columns {
					header = append(header, c.Key)
				}
				names = append(names, t.Name)
				rows[t.Name] = append(rows[t.Name], header)
			}
			for _, cells := range t.Rows {
				record := []string{s.Title}
				for _, cell := range cells {
					record = append(record, csvCell(raw(cell)))
				}
				rows[t.Name] = append(rows[t.Name], record)
			}
		}
	}
	w := csv.NewWriter(out)
	for i, name := range names {
		if i > 0 {
			w.Flush()
			if _, err := io.WriteString(out, "\n"); err != nil {
				return err
			}
		}
		for _, record := range rows[name] {
			if len(record) != len(rows[name][0]) {
				return fmt.Errorf("tables named %q have different columns", name)
			}
			if err := w.Write(record); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}

func csvCell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}
