package maglev

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func buildTestRing(t rapid.TB, options RingOptions, hosts []Host, localities []Locality) *Ring {
	t.Helper()
	ring, err := BuildRing(options, hosts, localities)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func TestRingOptionsCheck(t *testing.T) {
	for _, c := range []struct {
		options RingOptions
		want    string
	}{
		{RingOptions{MinSize: DefaultMinRingSize, MaxSize: DefaultMaxRingSize}, ""},
		{RingOptions{MinSize: 10, MaxSize: 10, Hash: MurmurHash}, ""},
		{RingOptions{MinSize: 20, MaxSize: 10}, "ring hash: minimum_ring_size (20) > maximum_ring_size (10)"},
		{RingOptions{MinSize: 1, MaxSize: 8388609}, "ring hash: maximum_ring_size 8388609 is too large (the largest is 8388608)"},
		{RingOptions{MinSize: 8388609, MaxSize: 8388609}, "ring hash: minimum_ring_size 8388609 is too large (the largest is 8388608)"},
		{RingOptions{MinSize: 1, MaxSize: 2, Hash: 7}, "ring hash: unknown hash function 7"},
	} {
		got := ""
		if _, err := BuildRing(c.options, nil, nil); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.options, got, c.want)
		}
	}
}

func TestEmptyRing(t *testing.T) {
	options := RingOptions{MinSize: 16, MaxSize: 16}
	for _, ring := range []*Ring{
		buildTestRing(t, options, nil, nil),
		buildTestRing(t, options, []Host{{Key: "a", Weight: 1}}, []Locality{{}}),
	} {
		size, least, most := ring.Entries()
		if ring.Lookup(1) != -1 || ring.Len() != 0 || size != 0 || least != 0 || most != 0 {
			t.Errorf("an empty ring has host %d, %d entries, size %d, %d to %d", ring.Lookup(1), ring.Len(), size, least, most)
		}
	}
}

// TestRingIsWhatItsRulesSay compares with entries placed one by one, and picks
// with a search of all entries.
func TestRingIsWhatItsRulesSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		localities := drawLocalities(t)
		hosts := drawHosts(t, 30, len(localities))
		for i := range hosts {
			hosts[i].Key = fmt.Sprint(hosts[i].Key, i) // equal hashes have no defined order
			hosts[i].Weight = hosts[i].Weight%1000 + 1
		}
		largest := rapid.Uint64Range(1, 5000).Draw(t, "max")
		options := RingOptions{
			MinSize: rapid.Uint64Range(1, largest).Draw(t, "min"),
			MaxSize: largest,
			Hash:    rapid.SampledFrom([]RingHash{XXHash, MurmurHash}).Draw(t, "hash"),
		}
		ring := buildTestRing(t, options, hosts, localities)

		type entry struct {
			hash uint64
			host int
		}
		shares, err := normalise(hosts, localities)
		if err != nil {
			t.Fatal(err)
		}
		lightest := math.Inf(1)
		for _, s := range shares {
			lightest = min(lightest, s.weight)
		}
		scale := math.Ceil(lightest*float64(options.MinSize)) / lightest
		if scale > float64(options.MaxSize) {
			scale = float64(options.MaxSize)
		}
		var want []entry
		target, current := 0.0, 0.0
		for _, s := range shares {
			part := scale * s.weight
			target += part
			for i := 0; current < target; i++ {
				want = append(want, entry{ringHash(options.Hash, fmt.Appendf(nil, "%s_%d", hosts[s.host].Key, i)), int(s.host)})
				current++
			}
		}
		if ring.Len() != len(want) {
			t.Fatalf("%d entries, want %d", ring.Len(), len(want))
		}
		if len(want) == 0 {
			return
		}
		slices.SortStableFunc(want, func(a, b entry) int {
			if a.hash < b.hash {
				return -1
			}
			return 1
		})
		hash := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, math.MaxUint64, want[0].hash, want[len(want)/2].hash + 1})).Draw(t, "pick")
		at := 0
		for at < len(want) && want[at].hash < hash {
			at++
		}
		for attempt := range 4 {
			if got, host := ring.LookupAttempt(hash, uint32(attempt)), want[(at%len(want)+attempt)%len(want)].host; got != host {
				t.Fatalf("hash %x, attempt %d: host %d, want %d", hash, attempt, got, host)
			}
		}
	})
}

// TestRingTakesHostsInTheirOrder: unlike a table's, a ring's entries depend on
// it, since the rounding carries over from host to host.
func TestRingTakesHostsInTheirOrder(t *testing.T) {
	options := RingOptions{MinSize: 7, MaxSize: 7}
	hosts := []Host{{Key: "a", Weight: 1}, {Key: "b", Weight: 1}, {Key: "c", Weight: 1}, {Key: "d", Weight: 1}}
	ring := buildTestRing(t, options, hosts, nil)
	for i, want := range []uint32{2, 2, 2, 1} {
		if ring.Count(i) != want {
			t.Errorf("host %d has %d entries, want %d", i, ring.Count(i), want)
		}
	}
	// With localities it is locality by locality.
	for i := range hosts {
		hosts[i].Locality = 1 - i/2
	}
	ring = buildTestRing(t, options, hosts, []Locality{{Weight: 1}, {Weight: 1}})
	for i, want := range []uint32{2, 1, 2, 2} {
		if ring.Count(i) != want {
			t.Errorf("host %d of two localities has %d entries, want %d", i, ring.Count(i), want)
		}
	}
	size, least, most := ring.Entries()
	if size != 7 || least != 1 || most != 2 {
		t.Errorf("size %d, %d to %d, want 7, 1 to 2", size, least, most)
	}
}

// TestRingLeavesHostsOut: a ring can be too small for all hosts.
func TestRingLeavesHostsOut(t *testing.T) {
	ring := buildTestRing(t, RingOptions{MinSize: 1, MaxSize: 2}, benchHosts(10, func(int) uint32 { return 1 }), nil)
	if _, least, most := ring.Entries(); least != 0 || most != 1 {
		t.Errorf("%d to %d entries, want 0 to 1", least, most)
	}
}
