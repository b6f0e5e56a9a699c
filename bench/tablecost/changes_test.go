package tablecost

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/maglev"
)

func TestRunChanges(t *testing.T) {
	var made []*recorder
	recording := func() (Target, error) {
		made = append(made, &recorder{})
		return made[len(made)-1], nil
	}
	rows, err := RunChanges(context.Background(), ChangesPlan{
		Sizes: []uint32{251}, Hosts: []int{5}, Changes: 3, Clock: ticking(), Targets: []func() (Target, error){recording, recording},
	})
	if err != nil || len(rows) != 2 || len(made) != 2 {
		t.Fatalf("%d rows, %d targets, %v", len(rows), len(made), err)
	}
	for i, r := range rows {
		// The clock ticks once in each build and once in each push.
		for _, times := range [][]time.Duration{r.Build, r.Push} {
			if len(times) != 3 || times[0] != time.Millisecond || times[2] != time.Millisecond {
				t.Errorf("target %d: times %v", i, times)
			}
		}
		if len(r.Whole) != 3 || r.Whole[1] != 2*time.Millisecond {
			t.Errorf("target %d: whole %v", i, r.Whole)
		}
		var hosts []int
		for _, p := range made[i].pushes {
			hosts = append(hosts, len(p))
		}
		if len(hosts) != 4 || hosts[0] != 5 || hosts[1] != 6 || hosts[2] != 5 || hosts[3] != 6 || !made[i].closed {
			t.Errorf("target %d: pushes of %v hosts, closed %v", i, hosts, made[i].closed)
		}
		if d, err := maglev.Disrupt(made[i].tables[0], made[i].tables[1]); err != nil || d.Moved != r.Moved {
			t.Errorf("target %d: moved %d, want %d, %v", i, r.Moved, d.Moved, err)
		}
	}
	var text bytes.Buffer
	if err := (&report.Report{Sections: []report.Section{ChangesSection(rows)}}).Write(&text, "text"); err != nil || strings.Count(text.String(), "a recorder") != 2 {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestRunChangesRefuses(t *testing.T) {
	failing := &recorder{fail: errors.New("no room")}
	p := ChangesPlan{Sizes: []uint32{251}, Hosts: []int{3}, Changes: 1, Clock: ticking(), Targets: []func() (Target, error){func() (Target, error) { return failing, nil }}}
	if _, err := RunChanges(context.Background(), p); !errors.Is(err, failing.fail) || !failing.closed {
		t.Errorf("error %v, closed %v", err, failing.closed)
	}
	p.Changes = 0
	if _, err := RunChanges(context.Background(), p); err == nil {
		t.Error("no error for no changes")
	}
}

func TestQuantile(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(i+1))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 100, 0.99: 198, 1: 200} {
		if got := Quantile(times, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
}

// pushed are tables that differ, with the hosts of each.
func pushed(t *testing.T) (hosts [2][]netip.AddrPort, tables [2]*maglev.Table) {
	t.Helper()
	addrs, all := fleet(6)
	for i := range tables {
		var err error
		if tables[i], err = maglev.Build(251, all[:5+i], nil); err != nil {
			t.Fatal(err)
		}
		hosts[i] = addrs[:5+i]
	}
	return hosts, tables
}

// TestXDPHoldsTheTable reads back, through the map of tables, what a packet would find after a push.
func TestXDPHoldsTheTable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making BPF maps needs root")
	}
	target, err := XDP()
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	x := target.(*inXDP)
	hosts, tables := pushed(t)
	for i, table := range tables {
		if err := target.Push(hosts[i], table); err != nil {
			t.Fatal(err)
		}
		info, err := x.table.Info()
		if err != nil {
			t.Fatal(err)
		}
		var id uint32
		if err := x.tables.Lookup(uint32(tableIndex), &id); err != nil {
			t.Fatal(err)
		}
		if want, _ := info.ID(); id != uint32(want) {
			t.Errorf("push %d: map %d is in force, want %d", i, id, want)
		}
		var chunk bpf.TableChunk
		for slot := range table.Size() {
			if err := x.table.Lookup(1+slot/16, &chunk); err != nil {
				t.Fatal(err)
			}
			if owner := chunk.Slot[slot%16] & 0xffff; owner != uint32(table.Owner(slot)) {
				t.Fatalf("push %d, slot %d: owner %d, want %d", i, slot, owner, table.Owner(slot))
			}
		}
	}
}

func TestPerSlotHoldsTheTable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making BPF maps needs root")
	}
	hosts, tables := pushed(t)
	for _, changed := range []bool{false, true} {
		target, err := PerSlot(changed)
		if err != nil {
			t.Fatal(err)
		}
		for i, table := range tables {
			if err := target.Push(hosts[i], table); err != nil {
				t.Fatal(err)
			}
			for slot := range table.Size() {
				var owner uint32
				if err := target.(*perSlot).slots.Lookup(slot, &owner); err != nil || owner != uint32(table.Owner(slot)) {
					t.Fatalf("changed %v, push %d, slot %d: owner %d, want %d; %v", changed, i, slot, owner, table.Owner(slot), err)
				}
			}
		}
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	}
}
