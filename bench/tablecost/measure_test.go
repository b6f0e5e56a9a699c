package tablecost

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/maglev"
)

// recorder is a target that notes what it gets.
type recorder struct {
	pushes [][]netip.AddrPort
	tables []*maglev.Table
	closed bool
	fail   error
}

func (r *recorder) Name() string { return "a recorder" }

func (r *recorder) Close() error { r.closed = true; return nil }

func (r *recorder) Push(hosts []netip.AddrPort, t *maglev.Table) error {
	r.pushes, r.tables = append(r.pushes, hosts), append(r.tables, t)
	return r.fail
}

// ticking is a clock that goes on by a millisecond each time it is asked.
func ticking() func() time.Duration {
	now := time.Duration(0)
	return func() time.Duration { now += time.Millisecond; return now }
}

func TestRun(t *testing.T) {
	var targets []*recorder
	var told []int
	r, err := Run(context.Background(), Plan{
		Sizes: []uint32{251, 65537}, Hosts: []int{5, 20}, Rounds: 2, Clock: ticking(),
		Target: func() (Target, error) {
			targets = append(targets, &recorder{})
			return targets[len(targets)-1], nil
		},
		Progress: func(done, total int) { told = append(told, done, total) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 4 || len(targets) != 8 || len(told) != 8 || told[6] != 4 || told[7] != 4 {
		t.Fatalf("%d rows, %d targets, progress %v", len(r.Rows), len(targets), told)
	}
	for i, row := range r.Rows {
		if row.Build != time.Millisecond || row.Push != time.Millisecond || row.Change != time.Millisecond {
			t.Errorf("row %d: times %v %v %v", i, row.Build, row.Push, row.Change)
		}
		first := targets[2*i]
		if len(first.pushes) != 2 || len(first.pushes[0]) != row.Hosts || len(first.pushes[1]) != row.Hosts+1 || !first.closed {
			t.Errorf("row %d: %d pushes, closed %v", i, len(first.pushes), first.closed)
		}
		d, err := maglev.Disrupt(first.tables[0], first.tables[1])
		if err != nil || d.Moved != row.Moved || d.Moved == 0 || first.tables[0].Size() != row.Size {
			t.Errorf("row %d: moved %d, want %d; %v", i, row.Moved, d.Moved, err)
		}
	}
	// A table takes 2 bytes a slot, and a little for each host.
	if m := r.Rows[2].Memory; m < 2*65537 || m > 3*65537 {
		t.Errorf("a table of 65537 slots takes %d bytes", m)
	}
	var text bytes.Buffer
	if err := r.Report().Write(&text, "text"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "a recorder") || strings.Count(text.String(), "65,537") != 2 {
		t.Errorf("report:\n%s", text.String())
	}
	for _, s := range r.Report().Sections {
		for _, c := range s.Charts {
			if _, err := report.SVG(c); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestUserspace(t *testing.T) {
	r, err := Run(context.Background(), Plan{Sizes: []uint32{1009}, Hosts: []int{3}, Rounds: 1, Clock: ticking(), Target: Userspace})
	if err != nil {
		t.Fatal(err)
	}
	// 4 bytes a slot, and as many while slots are open.
	if m := r.Rows[0].Target; m < 8*1009 {
		t.Errorf("%d bytes in force", m)
	}
}

func TestRunRefuses(t *testing.T) {
	failing := errors.New("no room")
	plan := func(change func(*Plan)) Plan {
		p := Plan{Sizes: []uint32{251}, Hosts: []int{3}, Rounds: 1, Clock: ticking(), Target: Userspace}
		change(&p)
		return p
	}
	for name, p := range map[string]Plan{
		"sizes":  plan(func(p *Plan) { p.Sizes = nil }),
		"prime":  plan(func(p *Plan) { p.Sizes = []uint32{250} }),
		"hosts":  plan(func(p *Plan) { p.Hosts = []int{MaxHosts + 1} }),
		"rounds": plan(func(p *Plan) { p.Rounds = 0 }),
	} {
		if _, err := Run(context.Background(), p); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	r := &recorder{fail: failing}
	_, err := Run(context.Background(), plan(func(p *Plan) { p.Target = func() (Target, error) { return r, nil } }))
	if !errors.Is(err, failing) || !r.closed {
		t.Errorf("error %v, closed %v", err, r.closed)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, plan(func(*Plan) {})); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
