package peers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/guideway/guideway/bench/report"
)

// TestRun plays a whole comparison, short, with what is installed. It asserts no times: only that each peer
// that can take part has figures, and that no proxy is no cost.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("taskset"); err != nil {
		t.Skip("no taskset: install util-linux")
	}
	program := os.Getenv("GUIDEWAY_BINARY")
	if program == "" {
		program = filepath.Join(t.TempDir(), "guideway")
		if out, err := exec.Command("go", "build", "-o", program, "github.com/guideway/guideway/cmd/guideway").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	envoy := os.Getenv("GUIDEWAY_ENVOY")
	if envoy == "" {
		envoy = "../../.venv/bin/envoy"
	}
	r, err := Run(Options{Guideway: program, Envoy: envoy, Rounds: 1, Scale: 0.02})
	if err != nil && strings.Contains(err.Error(), "needs two CPUs") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("peers: %v, missing: %v", r.Versions, r.Missing)
	if len(r.Peers) == 0 || r.Peers[0].Name != "guideway" {
		t.Fatal("guideway takes no part")
	}
	for _, m := range Measurements {
		for _, p := range r.Peers {
			v, ok := r.Median(m.Name, p.Name)
			switch {
			case strings.HasPrefix(m.Name, "udp") && p.skipUDP != "":
				if ok {
					t.Errorf("%s of %s: %v, though %s", m.Name, p.Name, v, p.skipUDP)
				}
			case !ok && m.Name != "udp" && m.Name != "udp-overload": // without a rate there are none of these
				t.Errorf("%s of %s was not measured", m.Name, p.Name)
			case v < 0:
				t.Errorf("%s of %s is %v", m.Name, p.Name, v)
			}
		}
	}
	if v, _ := r.Median("short", direct); v != 0 {
		t.Errorf("no proxy costs %v", v)
	}
	var text strings.Builder
	if err := r.Report("guideway bench peers", nil).Write(&text, report.Formats[0]); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
}

func TestMedian(t *testing.T) {
	r := &Result{Figures: map[string]map[string][]float64{"x": {"a": {3, 1, 2}, "b": {4, 1}}}}
	if v, _ := r.Median("x", "a"); v != 2 {
		t.Error(v)
	}
	if v, _ := r.Median("x", "b"); v != 2.5 {
		t.Error(v)
	}
	if _, ok := r.Median("x", "c"); ok {
		t.Error("a median of nothing")
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0.1234: "0.123", 12.34: "12.3", 123.4: "123", 12345: "12345", 0: "0", 0.00512: "0.00512"} {
		if got := figure(v); got != want {
			t.Errorf("figure(%v) = %s, want %s", v, got, want)
		}
	}
}
