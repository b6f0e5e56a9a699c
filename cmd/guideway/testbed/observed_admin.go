package testbed

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ReadObserved decodes a recorded JSON file.
func ReadObserved(t testing.TB, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Observed, file))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// ObservedLines reads a recorded text file.
func ObservedLines(t testing.TB, file string) []string {
	t.Helper()
	lines := Lines(filepath.Join(Observed, file))
	if len(lines) == 0 {
		t.Fatalf("%s is empty or missing", file)
	}
	return lines
}

// TextRow makes a row of what is recorded in a file of its own.
func TextRow(t testing.TB, name, field string, value any) Row {
	t.Helper()
	return Row{}.With(t, "case", name).With(t, field, value)
}

// AdminShapes gives a row for each recorded JSON body of the admin address: its file name and its "shape".
func AdminShapes(t testing.TB) []Row {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Observed, "admin", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded admin bodies: %v", err)
	}
	var rows []Row
	for _, f := range files {
		name := filepath.Base(f)
		if name == "methods.json" {
			continue
		}
		var body any
		ReadObserved(t, "admin/"+name, &body)
		rows = append(rows, TextRow(t, name, "shape", AdminShape(body)))
	}
	return rows
}

// AdminShape is the [Shape] of an admin body, without the values of a host's statistics, which are left out
// where they are zero, and without the names of a program's extensions.
func AdminShape(body any) map[string]string {
	body = Without(body, func(key string, in map[string]any) bool {
		if key == "value" {
			name, _ := in["name"].(string)
			return strings.HasPrefix(name, "cx_") || strings.HasPrefix(name, "rq_")
		}
		return false
	})
	return Shape(unnamed(body))
}

// unnamed makes the names in lists of extensions alike.
func unnamed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if list, ok := inner.([]any); ok && k == "extensions" {
				for _, e := range list {
					if m, ok := e.(map[string]any); ok {
						m["name"] = ""
					}
				}
			}
			unnamed(inner)
		}
	case []any:
		for _, inner := range v {
			unnamed(inner)
		}
	}
	return v
}

// Metrics gives a row for each metric in a recorded file of testdata/observed/metrics: raw name, "type", and
// "prometheus" name with labels.
func Metrics(t testing.TB, file string) []Row {
	t.Helper()
	var rows []Row
	for _, line := range ObservedLines(t, file) {
		f := strings.Split(line, "\t")
		if len(f) != 3 {
			t.Fatalf("%s: %q has not three columns", file, line)
		}
		rows = append(rows, TextRow(t, f[0], "type", f[1]).With(t, "prometheus", f[2]))
	}
	return rows
}
