package packet

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/guideway/guideway/bench/report"
)

// TestRun measures everything, briefly. It asserts no times: only what becomes of each kind of packet.
func TestRun(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	plan := Plan{Flows: []uint32{1, 500}, Backends: 10, TableSize: 1009, Rounds: 1}
	figures, err := Run(context.Background(), plan)
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if want := len(kinds)*len(plan.Flows) + 2; len(figures) != want {
		t.Errorf("%d figures, want %d", len(figures), want)
	}
	for _, f := range figures {
		want := "tx"
		if strings.Contains(f.Case, "passed") {
			want = "pass"
		}
		if got := verdicts[f.Verdict]; got != want {
			t.Errorf("%s, %d flows: verdict %s, want %s", f.Case, f.Flows, got, want)
		}
		if f.Floor <= 0 {
			t.Errorf("%s: the no-op takes %v ns", f.Case, f.Floor)
		}
	}
	var text strings.Builder
	if err := Report(plan, figures).Write(&text, report.Formats[0]); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
}

func TestRunEndsWithItsContext(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Plan{Flows: []uint32{1}, Backends: 2, TableSize: 101, Rounds: 1}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
