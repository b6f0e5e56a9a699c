package disruption

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/bench/scheme"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The whole report of a small plan, with a clock that always says the same.
func TestReport(t *testing.T) {
	var schemes []scheme.Scheme
	for _, k := range scheme.Kinds() {
		schemes = append(schemes, parseScheme(t, k.Name))
	}
	now := time.Duration(0)
	r, err := Run(context.Background(), Plan{
		Keys: 5000, Seed: 1, Members: Fleet(6, []uint32{1, 2}, 2), Schemes: schemes, Top: 3,
		Cases: []Case{parseCaseText(t, "add=1"), parseCaseText(t, "flap=1,times=1"), parseCaseText(t, "drain=1; remove=1")},
		Clock: func() time.Duration { now += time.Millisecond; return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	for format, name := range map[string]string{"text": "report.txt", "csv": "report.csv"} {
		var b bytes.Buffer
		if err := r.Report().Write(&b, format); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s differs from what is written (look at it, then go test -update):\n%s", name, b.String())
		}
	}
	for _, s := range r.Report().Sections {
		if len(s.Charts) < 2 {
			t.Errorf("section %q has %d charts", s.Title, len(s.Charts))
		}
		for _, c := range s.Charts {
			if _, err := report.SVG(c); err != nil {
				t.Error(err)
			}
		}
	}
}
