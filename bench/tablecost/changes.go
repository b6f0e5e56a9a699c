package tablecost

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/maglev"
)

// ChangesPlan is what RunChanges measures: how long it takes from a change of the hosts to the data path, for
// several targets in turns.
type ChangesPlan struct {
	Sizes   []uint32
	Hosts   []int
	Changes int // of each size and number of hosts, and for each target
	Clock   func() time.Duration
	Targets []func() (Target, error)
	// Progress, if set, is told how much is done.
	Progress func(done, total int)
}

// ChangesRow is one target with one size of table and one number of hosts. A host comes, then goes, and so on.
type ChangesRow struct {
	Target string
	Size   uint32
	Hosts  int
	Moved  uint32 // slots, at each change
	// Build, Push, and both, of each change, sorted.
	Build, Push, Whole []time.Duration
}

// Quantile returns the time that a part q of the sorted times do not exceed.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// RunChanges does what the plan says.
func RunChanges(ctx context.Context, p ChangesPlan) ([]ChangesRow, error) {
	if p.Changes < 1 || len(p.Targets) == 0 {
		return nil, fmt.Errorf("nothing to measure: %d changes, %d targets", p.Changes, len(p.Targets))
	}
	for _, n := range p.Hosts {
		if n < 1 || n > MaxHosts {
			return nil, fmt.Errorf("%d hosts: use 1 to %d", n, MaxHosts)
		}
	}
	var rows []ChangesRow
	for _, size := range p.Sizes {
		for _, n := range p.Hosts {
			some, err := p.measure(ctx, size, n)
			if err != nil {
				return nil, fmt.Errorf("%d slots, %d hosts: %w", size, n, err)
			}
			rows = append(rows, some...)
			if p.Progress != nil {
				p.Progress(len(rows), len(p.Sizes)*len(p.Hosts)*len(p.Targets))
			}
		}
	}
	return rows, nil
}

func (p *ChangesPlan) measure(ctx context.Context, size uint32, n int) (rows []ChangesRow, err error) {
	addrs, hosts := fleet(n + 1)
	var tables [2]*maglev.Table
	for i := range tables {
		if tables[i], err = maglev.Build(size, hosts[:n+i], nil); err != nil {
			return nil, err
		}
	}
	moved, err := maglev.Disrupt(tables[0], tables[1])
	if err != nil {
		return nil, err
	}
	targets := make([]Target, 0, len(p.Targets))
	defer func() {
		for _, t := range targets {
			if closed := t.Close(); err == nil {
				err = closed
			}
		}
	}()
	for _, make := range p.Targets {
		t, err := make()
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
		rows = append(rows, ChangesRow{Target: t.Name(), Size: size, Hosts: n, Moved: moved.Moved})
		if err := t.Push(addrs[:n], tables[0]); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name(), err)
		}
	}
	// In turns, so that whatever else the machine does meets all of them.
	for change := range p.Changes {
		with := n + 1 - change%2
		for i, t := range targets {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			start := p.Clock()
			table, err := maglev.Build(size, hosts[:with], nil)
			if err != nil {
				return nil, err
			}
			built := p.Clock()
			if err := t.Push(addrs[:with], table); err != nil {
				return nil, fmt.Errorf("%s: %w", t.Name(), err)
			}
			end := p.Clock()
			r := &rows[i]
			r.Build, r.Push, r.Whole = append(r.Build, built-start), append(r.Push, end-built), append(r.Whole, end-start)
		}
	}
	for _, r := range rows {
		slices.Sort(r.Build)
		slices.Sort(r.Push)
		slices.Sort(r.Whole)
	}
	return rows, nil
}

// fleet returns n hosts.
func fleet(n int) ([]netip.AddrPort, []maglev.Host) {
	addrs, hosts := make([]netip.AddrPort, n), make([]maglev.Host, n)
	for i := range hosts {
		addrs[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8080)
		key := maglev.HostKey(addrs[i])
		hosts[i] = maglev.Host{Key: key, Addr: key, Weight: 1}
	}
	return addrs, hosts
}

// ChangesSection words rows of RunChanges.
func ChangesSection(rows []ChangesRow) report.Section {
	t := report.Table{Name: "changes", Columns: []report.Column{
		{Key: "target", Title: "target", Format: report.Text},
		{Key: "size", Title: "slots", Format: report.Count},
		{Key: "hosts", Title: "hosts", Format: report.Count},
		{Key: "moved", Title: "slots moved", Format: report.Count},
		{Key: "build_p50_seconds", Title: "build p50", Format: report.Duration},
		{Key: "build_p99_seconds", Title: "p99", Format: report.Duration},
		{Key: "push_p50_seconds", Title: "push p50", Format: report.Duration},
		{Key: "push_p99_seconds", Title: "p99", Format: report.Duration},
		{Key: "whole_p50_seconds", Title: "whole p50", Format: report.Duration},
		{Key: "whole_p99_seconds", Title: "p99", Format: report.Duration},
	}}
	changes := 0
	for _, r := range rows {
		changes = len(r.Whole)
		row := []any{r.Target, int(r.Size), r.Hosts, int(r.Moved)}
		for _, times := range [][]time.Duration{r.Build, r.Push, r.Whole} {
			row = append(row, Quantile(times, 0.5), Quantile(times, 0.99))
		}
		t.Rows = append(t.Rows, row)
	}
	return report.Section{
		Title: "From a change to the data path",
		Text: fmt.Sprintf("A host comes, then goes, %d times; the targets take turns. Build makes the table, push puts it in force: "+
			"when it returns, every packet goes by it.", changes),
		Tables: []report.Table{t},
	}
}
