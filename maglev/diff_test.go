package maglev

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDiffComparesHostsNotIndexes(t *testing.T) {
	older := build(t, 101, []Host{{Key: "a", Weight: 1}, {Key: "b", Weight: 1}, {Key: "c", Weight: 1}}, nil)
	newer := build(t, 101, []Host{{Key: "c", Weight: 1}, {Key: "d", Weight: 1}, {Key: "a", Weight: 1}}, nil)
	moves, err := Diff(older, newer)
	if err != nil {
		t.Fatal(err)
	}
	var got []Move
	for m := range moves {
		got = append(got, m)
	}
	var want []Move
	for slot := range uint32(101) {
		from, to := older.Owner(slot), newer.Owner(slot)
		if older.Host(from).Key != newer.Host(to).Key {
			want = append(want, Move{slot, from, to})
		}
	}
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("moves %v\nwant  %v", got, want)
	}
	// The loop may stop early.
	for m := range moves {
		if m != want[0] {
			t.Errorf("first move %v, want %v", m, want[0])
		}
		break
	}
}

func TestDiffFromAndToNothing(t *testing.T) {
	full := build(t, 7, []Host{{Key: "a", Weight: 1}, {Key: "b", Weight: 1}}, nil)
	empty := build(t, 7, nil, nil)
	for _, c := range []struct {
		name         string
		older, newer *Table
		want         Disruption
	}{
		{"to nothing", full, empty, Disruption{Moved: 7, Orphaned: 7, Minimum: 7}},
		{"from nothing", empty, full, Disruption{Moved: 7, Minimum: 7}},
		{"nothing", empty, empty, Disruption{}},
		{"to itself", full, full, Disruption{}},
	} {
		got, err := Disrupt(c.older, c.newer)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v (%v), want %+v", c.name, got, err, c.want)
		}
	}
	moves, err := Diff(empty, full)
	if err != nil {
		t.Fatal(err)
	}
	for m := range moves {
		if m.From != -1 || m.To != full.Owner(m.Slot) {
			t.Errorf("move %+v", m)
		}
	}
}

func TestDiffRefusesTablesOfDifferentSizes(t *testing.T) {
	_, err := Disrupt(build(t, 7, nil, nil), build(t, 11, nil, nil))
	if err == nil || !strings.Contains(err.Error(), "7 slots") || !strings.Contains(err.Error(), "11") {
		t.Errorf("error %v", err)
	}
}

// TestDiffTellsHostsOfOneKeyApart: a hash key that stays while its address
// changes is another host, since packets go elsewhere.
func TestDiffTellsHostsOfOneKeyApart(t *testing.T) {
	older := build(t, 7, []Host{{Key: "k", Addr: "10.0.0.1:80", Weight: 1}}, nil)
	newer := build(t, 7, []Host{{Key: "k", Addr: "10.0.0.2:80", Weight: 1}}, nil)
	got, err := Disrupt(older, newer)
	if want := (Disruption{Moved: 7, Orphaned: 7, Minimum: 7}); err != nil || got != want {
		t.Errorf("%+v (%v), want %+v", got, err, want)
	}
}

// TestDiffOfHostsThatShareEverything: two of them are two, and one that leaves
// leaves.
func TestDiffOfHostsThatShareEverything(t *testing.T) {
	twice := []Host{{Key: "k", Weight: 1}, {Key: "k", Weight: 1}}
	got, err := Disrupt(build(t, 7, twice, nil), build(t, 7, twice[:1], nil))
	if want := (Disruption{Moved: 3, Orphaned: 3, Minimum: 3}); err != nil || got != want {
		t.Errorf("%+v (%v), want %+v", got, err, want)
	}
}

func TestDisruptionLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := drawSize(t, 1009)
		hosts := drawHosts(t, 20, 0)
		kept := hosts
		if len(hosts) > 0 {
			kept = hosts[:rapid.IntRange(0, len(hosts)).Draw(t, "kept")]
		}
		older, newer := build(t, size, hosts, nil), build(t, size, kept, nil)
		if rapid.Bool().Draw(t, "backwards") {
			older, newer = newer, older
		}
		d, err := Disrupt(older, newer)
		if err != nil {
			t.Fatal(err)
		}
		if d.Orphaned > d.Minimum || d.Minimum > d.Moved || d.Moved > size || d.Collateral() != d.Moved-d.Minimum {
			t.Fatalf("%+v", d)
		}
	})
}
