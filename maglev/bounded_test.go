package maglev

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func newBound(t *testing.T, factor uint32, hosts []Host, localities []Locality) *BoundedLoad {
	t.Helper()
	b, err := NewBoundedLoad(factor, hosts, localities)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBoundedLoad(t *testing.T) {
	three := []Host{{Key: "a", Weight: 1}, {Key: "b", Weight: 1}, {Key: "c", Weight: 2}}
	const hash = 0x07bfc096ca604e28 // with three hosts: 2, 0, 1
	for _, c := range []struct {
		name   string
		factor uint32
		hosts  []Host
		picked int
		active []uint32
		want   int
	}{
		{"idle", 100, three, 0, []uint32{0, 0, 0}, 0},
		{"nobody", 100, nil, -1, nil, -1},
		// 4 active: floor((5*100+99)/100) = 5 slots, of which a may have
		// ceil(5/4) = 2 and c ceil(5/2) = 3.
		{"at the bound", 100, three, 0, []uint32{2, 0, 2}, 0},
		{"above it", 100, three, 0, []uint32{3, 0, 1}, 2},
		// 12 active: 13 slots; a 4, b 4, c 7.
		{"the first to try is above it too", 100, three, 1, []uint32{0, 5, 8}, 0},
		{"a larger factor", 150, three, 1, []uint32{0, 5, 7}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var total uint32
			for _, n := range c.active {
				total += n
			}
			got := newBound(t, c.factor, c.hosts, nil).Pick(c.picked, hash, total, func(i int) uint32 { return c.active[i] })
			if got != c.want {
				t.Errorf("host %d, want %d", got, c.want)
			}
		})
	}
}

// TestBoundedLoadLeastOverloaded: the counters need not add up; when everybody
// is above the bound, whoever is least above it gets the pick.
func TestBoundedLoadLeastOverloaded(t *testing.T) {
	hosts := []Host{{Key: "a", Weight: 1}, {Key: "b", Weight: 1}, {Key: "c", Weight: 1}}
	active := []uint32{9, 7, 8}
	for picked := range hosts {
		if got := newBound(t, 100, hosts, nil).Pick(picked, 1, 0, func(i int) uint32 { return active[i] }); got != 1 {
			t.Errorf("picked %d: host %d, want 1", picked, got)
		}
		if got := newBound(t, 100, hosts, nil).Pick(picked, 1, 0, func(int) uint32 { return 9 }); got != picked {
			t.Errorf("picked %d, all alike: host %d", picked, got)
		}
	}
}

// TestBoundedLoadByLocality: hosts are tried locality by locality, and those
// without a share not at all.
func TestBoundedLoadByLocality(t *testing.T) {
	hosts := []Host{
		{Key: "a", Weight: 1, Locality: 2},
		{Key: "b", Weight: 1, Locality: 1},
		{Key: "c", Weight: 1, Locality: 0},
		{Key: "d", Weight: 1, Locality: 2},
	}
	localities := []Locality{{Weight: 1}, {}, {Weight: 1}}
	var tried []int
	newBound(t, 100, hosts, localities).Pick(2, 0x07bfc096ca604e28, 0, func(i int) uint32 {
		tried = append(tried, i)
		return 100
	})
	// Positions 2, 0, 1 of c, a, d; c was picked.
	if want := []int{2, 3, 0}; !slices.Equal(tried, want) {
		t.Errorf("tried %v, want %v", tried, want)
	}
}

func TestBoundedLoadHoldsTheBound(t *testing.T) {
	hosts := benchHosts(20, func(i int) uint32 { return uint32(i%3 + 1) })
	table := build(t, 1009, hosts, nil)
	bound := newBound(t, 125, hosts, nil)
	random := rand.New(rand.NewPCG(3, 4))
	active := make([]uint32, len(hosts))
	moved := 0
	for total := range uint32(2000) {
		hash := uint64(random.IntN(5)) * 0x9e3779b97f4a7c15 // few sources
		picked := table.Lookup(hash)
		host := bound.Pick(picked, hash, total, func(i int) uint32 { return active[i] })
		if load := bound.overload(total, active[host], bound.weights[host]); load > 1 {
			t.Fatalf("pick %d: host %d has %v times its bound", total, host, load)
		}
		if host != picked {
			moved++
		}
		active[host]++
	}
	if moved < 1000 {
		t.Errorf("only %d picks of 2000 were moved away from 5 hosts", moved)
	}
}

func TestNewBoundedLoadRefuses(t *testing.T) {
	if _, err := NewBoundedLoad(99, nil, nil); err == nil || !strings.Contains(err.Error(), "99") {
		t.Errorf("error %v", err)
	}
	if _, err := NewBoundedLoad(100, []Host{{Key: "a"}}, nil); err == nil {
		t.Error("no error for a host without weight")
	}
}
