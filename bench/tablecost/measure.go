package tablecost

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/guideway/guideway/maglev"
)

// Plan is what to measure.
type Plan struct {
	Sizes  []uint32 // of tables, in slots
	Hosts  []int
	Rounds int // each time is the shortest of as many
	Clock  func() time.Duration
	Target func() (Target, error)
	// Progress, if set, is told how much is done.
	Progress func(done, total int)
}

// Row is one size of table with one number of hosts.
type Row struct {
	Size  uint32
	Hosts int
	// Build is the time to build the table.
	Build time.Duration
	// Push is the time to put the first table in force, Change that to put one in
	// force that has one host more, which moves Moved slots.
	Push, Change time.Duration
	Moved        uint32
	// Memory is what the table keeps, Garbage what building it allocated beside,
	// Target what the target keeps after both pushes. In bytes of Go's heap.
	Memory, Garbage, Target int64
}

// Results are those of a plan.
type Results struct {
	Plan   Plan
	Target string
	Rows   []Row // by size, then by hosts
}

// Run does what the plan says. Memory is that of the whole process before and
// after, so nothing else should run in it.
func Run(ctx context.Context, p Plan) (*Results, error) {
	if len(p.Sizes) == 0 || len(p.Hosts) == 0 || p.Rounds < 1 {
		return nil, fmt.Errorf("nothing to measure: %d sizes, %d numbers of hosts, %d rounds", len(p.Sizes), len(p.Hosts), p.Rounds)
	}
	for _, size := range p.Sizes {
		if err := maglev.CheckTableSize(uint64(size)); err != nil {
			return nil, err
		}
	}
	for _, n := range p.Hosts {
		if n < 1 || n > MaxHosts {
			return nil, fmt.Errorf("%d hosts: use 1 to %d", n, MaxHosts)
		}
	}
	r := &Results{Plan: p}
	total := len(p.Sizes) * len(p.Hosts)
	for _, size := range p.Sizes {
		for _, n := range p.Hosts {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			row, err := r.measure(size, n)
			if err != nil {
				return nil, fmt.Errorf("%d slots, %d hosts: %w", size, n, err)
			}
			r.Rows = append(r.Rows, row)
			if p.Progress != nil {
				p.Progress(len(r.Rows), total)
			}
		}
	}
	return r, nil
}

// MaxHosts is how many hosts can be asked for: one less than a service can have,
// since one is added.
const MaxHosts = 65532

func (r *Results) measure(size uint32, n int) (Row, error) {
	row := Row{Size: size, Hosts: n}
	addrs, hosts := fleet(n + 1)

	var table *maglev.Table
	kept, allocated, err := heap(func() (err error) {
		table, err = maglev.Build(size, hosts[:n], nil)
		return err
	})
	if err != nil {
		return row, err
	}
	row.Memory, row.Garbage = kept, max(0, allocated-kept)
	larger, err := maglev.Build(size, hosts, nil)
	if err != nil {
		return row, err
	}
	moved, err := maglev.Disrupt(table, larger)
	if err != nil {
		return row, err
	}
	row.Moved = moved.Moved

	for round := range r.Plan.Rounds {
		build, err := r.timed(func() error {
			_, err := maglev.Build(size, hosts[:n], nil)
			return err
		})
		if err != nil {
			return row, err
		}
		var push, change time.Duration
		target, err := r.Plan.Target()
		if err != nil {
			return row, err
		}
		r.Target = target.Name()
		both := func() (err error) {
			if push, err = r.timed(func() error { return target.Push(addrs[:n], table) }); err != nil {
				return err
			}
			change, err = r.timed(func() error { return target.Push(addrs, larger) })
			return err
		}
		if round == 0 {
			row.Target, _, err = heap(both)
			row.Build, row.Push, row.Change = build, push, change
		} else {
			err = both()
		}
		runtime.KeepAlive(target)
		if closed := target.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return row, err
		}
		row.Build, row.Push, row.Change = min(row.Build, build), min(row.Push, push), min(row.Change, change)
	}
	runtime.KeepAlive(table)
	return row, nil
}

func (r *Results) timed(do func() error) (time.Duration, error) {
	start := r.Plan.Clock()
	err := do()
	return r.Plan.Clock() - start, err
}

// heap returns how many bytes are in use after do that were not before, and how
// many it allocated. What it makes must be reachable when it returns.
func heap(do func() error) (kept, allocated int64, err error) {
	var before, during, after runtime.MemStats
	// Twice: what has finalisers or stands in pools goes with the second.
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	err = do()
	runtime.ReadMemStats(&during)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return max(0, int64(after.HeapAlloc)-int64(before.HeapAlloc)), int64(during.TotalAlloc - before.TotalAlloc), err
}
