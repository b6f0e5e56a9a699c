package testbed

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Observed is the directory of recorded behaviour, seen from the tests of cmd/guideway.
const Observed = "testdata/observed"

// Row is one recorded case: a "case" and what belongs to it.
type Row map[string]json.RawMessage

// Compare is [Differences] of values that are not decoded from JSON yet.
func Compare(t testing.TB, name string, want, got any) []string {
	t.Helper()
	return Differences(name, plain(t, want), plain(t, got))
}

// Rows reads a file of recorded behaviour. The case of an admin request is its method and path.
func Rows(t testing.TB, file string) []Row {
	t.Helper()
	var rows []Row
	ReadObserved(t, file, &rows)
	if len(rows) == 0 {
		t.Fatalf("%s holds no row", file)
	}
	for i, r := range rows {
		if r.Has("method") {
			var method, path string
			r.Decode(t, "method", &method)
			r.Decode(t, "path", &path)
			rows[i] = r.With(t, "case", method+" "+path)
		} else if !r.Has("case") {
			rows[i] = r.With(t, "case", "")
		}
	}
	return rows
}

// Case is the name of the row.
func (r Row) Case(t testing.TB) string {
	t.Helper()
	var name string
	r.Decode(t, "case", &name)
	return name
}

// Has tells whether the row has a field.
func (r Row) Has(field string) bool { _, ok := r[field]; return ok }

// Decode reads a field of the row.
func (r Row) Decode(t testing.TB, field string, into any) {
	t.Helper()
	raw, ok := r[field]
	if !ok {
		t.Fatalf("the row has no %q", field)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("field %q of the row: %v", field, err)
	}
}

// Message reads a field that holds configuration; none is an empty one.
func (r Row) Message(t testing.TB, field string) Message {
	t.Helper()
	m := Message{}
	if r.Has(field) {
		r.Decode(t, field, &m)
	}
	return m
}

// Expect compares what was seen with a field of the row, both as JSON, after the accepted deviations
// from it (which do not hold for Envoy). It fails the test if they differ.
func (e *Expectations) Expect(t testing.TB, r Row, field string, got any) {
	t.Helper()
	if diff := Differences(field, e.Want(t, r, field), plain(t, got)); len(diff) > 0 {
		t.Errorf("not as recorded:\n  %s", strings.Join(diff, "\n  "))
	}
}

// ExpectSoon is Expect for what a program shows a moment later, such as counters and logs: it looks until it
// is as recorded, for Patience at most.
func (e *Expectations) ExpectSoon(t testing.TB, r Row, field string, look func() any) {
	t.Helper()
	want := e.Want(t, r, field)
	var diff []string
	if !Within(Patience/3, func() bool {
		diff = Differences(field, want, plain(t, look()))
		return len(diff) == 0
	}) {
		t.Errorf("not as recorded:\n  %s", strings.Join(diff, "\n  "))
	}
}

// Expectations are the rows of one file as they hold for a subject.
type Expectations struct {
	Subject Subject
	file    string

	mu         sync.Mutex
	deviations []deviation
	used       []bool
}

// deviation is an accepted difference from a recorded row. Its list is in testdata/deviations.json.
type deviation struct {
	File   string          `json:"file"`    // "tcp.json"; "admin" for the bodies; "metrics/….tsv"
	Case   string          `json:"case"`    // all rows of that name
	What   string          `json:"what"`    // the field of the row
	Anchor string          `json:"anchor"`  // of the heading in docs/envoy-differences.md that gives the reason
	Expect json.RawMessage `json:"instead"` // laid over the recorded value; null in an object removes a key
}

// Expecting gives the expectations of one file for the chosen subject. When the test ends it fails if an accepted
// deviation was not asked for.
func Expecting(t testing.TB, file string) *Expectations {
	t.Helper()
	e := &Expectations{Subject: Chosen(t), file: file}
	if e.Subject.IsEnvoy() {
		return e
	}
	for _, d := range readDeviations(t) {
		if d.File == file {
			e.deviations = append(e.deviations, d)
		}
	}
	e.used = make([]bool, len(e.deviations))
	t.Cleanup(func() {
		for i, d := range e.deviations {
			if !e.used[i] && !t.Failed() {
				t.Errorf("deviations.json: no test has met %s, %q, %s", d.File, d.Case, d.What)
			}
		}
	})
	return e
}

func readDeviations(t testing.TB) []deviation {
	t.Helper()
	text, err := os.ReadFile("testdata/deviations.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []deviation
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatalf("deviations.json: %v", err)
	}
	return all
}

// Correct lays a value over a field of a row, for any subject: where the recording itself is known to be
// off. Say why where it is called.
func (r Row) Correct(t testing.TB, field string, by any) Row {
	t.Helper()
	var recorded any
	r.Decode(t, field, &recorded)
	laid := layOver(recorded, plain(t, by))
	if reflect.DeepEqual(laid, recorded) {
		t.Errorf("%s is recorded as corrected: remove the correction", field)
	}
	return r.With(t, field, laid)
}

// With gives the row with another value in a field: one whose variable parts are masked, for instance.
func (r Row) With(t testing.TB, field string, value any) Row {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	out := maps.Clone(r)
	out[field] = text
	return out
}

// Want gives a recorded field with the accepted deviations laid over it.
func (e *Expectations) Want(t testing.TB, r Row, field string) any {
	t.Helper()
	var want any
	r.Decode(t, field, &want)
	if len(e.deviations) == 0 {
		return want
	}
	name := r.Case(t)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, d := range e.deviations {
		if d.Case != name || d.What != field {
			continue
		}
		var instead any
		if err := json.Unmarshal(d.Expect, &instead); err != nil {
			t.Fatalf("deviations.json, %s, %s: instead: %v", d.File, d.Case, err)
		}
		laid := layOver(want, instead)
		if reflect.DeepEqual(laid, want) {
			t.Errorf("deviations.json: the deviation of %s in %q is as recorded: remove it", field, name)
		}
		want, e.used[i] = laid, true
	}
	return want
}

func layOver(want, instead any) any {
	w, ok1 := want.(map[string]any)
	i, ok2 := instead.(map[string]any)
	if !ok1 || !ok2 {
		return instead
	}
	out := maps.Clone(w)
	for k, v := range i {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = layOver(out[k], v)
		}
	}
	return out
}

// CheckDeviations fails the test if an accepted deviation lacks its reason in the document, or names a row
// that there is not.
func CheckDeviations(t testing.TB, document string) {
	t.Helper()
	all := readDeviations(t)
	if len(all) == 0 {
		return
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			anchors[anchor(title)] = true
		}
	}
	for _, d := range all {
		if !anchors[strings.TrimPrefix(d.Anchor, "#")] {
			t.Errorf("%s, %q: %s has no heading #%s", d.File, d.Case, document, d.Anchor)
		}
		var rows []Row
		switch {
		case d.File == "admin":
			rows = AdminShapes(t)
			for _, f := range []string{"clusters.txt", "listeners.txt"} {
				rows = append(rows, TextRow(t, f, "lines", ObservedLines(t, "admin/"+f)))
			}
		case strings.HasSuffix(d.File, ".tsv"):
			rows = Metrics(t, d.File)
		default:
			rows = Rows(t, d.File)
		}
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Case(t) == d.Case && r.Has(d.What) }) {
			t.Errorf("%s has no case %q with a %q", d.File, d.Case, d.What)
		}
	}
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor is the link target that GitHub makes of a heading.
func anchor(title string) string {
	title = strings.ToLower(strings.TrimSpace(title))
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(title, ""), " ", "-")
}

// plain gives a value as decoded from JSON.
func plain(t testing.TB, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// How far a "seconds" field may be off: less if something came early, more if it came late, since a
// loaded machine makes anything late.
const (
	secondsEarly = 0.3
	secondsLate  = 1.5
)

// Differences lists where two values decoded from JSON differ; "seconds" fields may differ a little.
// The name is that of the whole.
func Differences(name string, want, got any) []string {
	var diff []string
	differences(name, want, got, &diff)
	return diff
}

func differences(at string, want, got any, diff *[]string) {
	report := func(w, g string) { *diff = append(*diff, fmt.Sprintf("%s: want %s, got %s", at, w, g)) }
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			report(asJSON(want), asJSON(got))
			return
		}
		keys := maps.Clone(w)
		maps.Copy(keys, g)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			inner := at + "/" + k
			wv, inWant := w[k]
			gv, inGot := g[k]
			switch {
			case !inWant:
				*diff = append(*diff, fmt.Sprintf("%s: want nothing, got %s", inner, asJSON(gv)))
			case !inGot:
				*diff = append(*diff, fmt.Sprintf("%s: want %s, got nothing", inner, asJSON(wv)))
			default:
				differences(inner, wv, gv, diff)
			}
		}
		return
	case []any:
		if g, ok := got.([]any); ok && len(g) == len(w) {
			for i := range w {
				differences(fmt.Sprintf("%s[%d]", at, i), w[i], g[i], diff)
			}
			return
		}
	case float64:
		if g, ok := got.(float64); ok && (at == "seconds" || strings.HasSuffix(at, "/seconds")) {
			if g < w-secondsEarly || g > w+secondsLate {
				report(asJSON(want), asJSON(got))
			}
			return
		}
	}
	if !reflect.DeepEqual(want, got) {
		report(asJSON(want), asJSON(got))
	}
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// Seconds is a duration as the recordings have it.
func Seconds(d time.Duration) float64 { return d.Seconds() }

// NonZero picks the counters and gauges that are not zero and whose names match.
func NonZero(stats map[string]int64, names *regexp.Regexp) map[string]int64 {
	some := make(map[string]int64)
	for name, v := range stats {
		if v != 0 && names.MatchString(name) {
			some[name] = v
		}
	}
	return some
}

// Lines reads the lines of a log file that may not be there yet.
func Lines(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
