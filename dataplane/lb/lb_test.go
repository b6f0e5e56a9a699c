package lb

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
	"github.com/guideway/guideway/maglev"
)

func hosts(n int, weight func(int) uint32, health func(int) dataplane.Health) []*dataplane.Host {
	var out []*dataplane.Host
	for i := range n {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
		out = append(out, &dataplane.Host{Address: addr, Key: maglev.HostKey(addr), Weight: weight(i), Health: health(i), State: &dataplane.HostState{}})
	}
	return out
}

func one(int) uint32            { return 1 }
func well(int) dataplane.Health { return 0 }

func input(sets ...[]*dataplane.Host) Input {
	in := Input{
		PanicThreshold:   50,
		Overprovisioning: 140,
		Live:             &dataplane.ClusterLive{},
		Stats:            dataplane.NewClusterStats(stats.NewStore(), "c"),
	}
	for _, s := range sets {
		in.Priorities = append(in.Priorities, HostSet{Hosts: s, Localities: []Locality{{Weight: 0, Hosts: s}}})
	}
	return in
}

func build(t *testing.T, c Config, in Input) dataplane.Balancer {
	t.Helper()
	b, err := New(c, in, NewCache())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// shares picks n times without a hash and returns each host's part.
func shares(t *testing.T, b dataplane.Balancer, n int) map[*dataplane.Host]float64 {
	t.Helper()
	got := map[*dataplane.Host]float64{}
	for range n {
		h := b.Pick(0, false)
		if h == nil {
			t.Fatal("nobody was picked")
		}
		got[h] += 1 / float64(n)
	}
	return got
}

// near is five standard deviations of a share p of n independent picks.
func near(p float64, n int) float64 { return 5 * math.Sqrt(p*(1-p)/float64(n)) }

func TestSharesFollowWeights(t *testing.T) {
	const n = 40000
	weight := func(i int) uint32 { return uint32(i + 1) }
	for _, c := range []struct {
		config Config
		want   func(i, hosts int) float64
	}{
		{Config{Policy: RoundRobin}, func(i, n int) float64 { return float64(i+1) / float64(n*(n+1)/2) }},
		{Config{Policy: LeastRequest, ActiveRequestBias: 1}, func(i, n int) float64 { return float64(i+1) / float64(n*(n+1)/2) }},
		{Config{Policy: Random}, func(_, n int) float64 { return 1 / float64(n) }},
		{Config{Policy: Maglev, TableSize: 65537}, func(i, n int) float64 { return float64(i+1) / float64(n*(n+1)/2) }},
		{Config{Policy: RingHash, MinRing: 65536, MaxRing: 1 << 20}, func(i, n int) float64 { return float64(i+1) / float64(n*(n+1)/2) }},
	} {
		t.Run(c.config.Policy.String(), func(t *testing.T) {
			hs := hosts(5, weight, well)
			got := shares(t, build(t, c.config, input(hs)), n)
			for i, h := range hs {
				want := c.want(i, len(hs))
				slack := near(want, n)
				if c.config.Policy == RingHash {
					slack += 0.03 // the ring itself is uneven
				}
				if math.Abs(got[h]-want) > slack {
					t.Errorf("host %d has %.4f of the picks, want %.4f ± %.4f", i, got[h], want, slack)
				}
			}
		})
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	hs := hosts(7, one, well)
	b := build(t, Config{Policy: RoundRobin}, input(hs))
	first := b.Pick(0, false)
	for round := range 5 {
		seen := map[*dataplane.Host]bool{first: true}
		for range len(hs) - 1 {
			seen[b.Pick(0, false)] = true
		}
		if len(seen) != len(hs) {
			t.Fatalf("round %d reached %d of %d hosts", round, len(seen), len(hs))
		}
		if h := b.Pick(0, false); h != first {
			t.Fatalf("round %d begins with another host", round+1)
		}
	}
}

func TestLeastRequestAvoidsTheBusy(t *testing.T) {
	for _, full := range []bool{false, true} {
		hs := hosts(4, one, well)
		hs[0].State.RqActive.Store(1000)
		b := build(t, Config{Policy: LeastRequest, ChoiceCount: 2, FullScan: full, ActiveRequestBias: 1}, input(hs))
		got := shares(t, b, 20000)[hs[0]]
		want := 1.0 / 16 // both of two choices fell on it
		if full {
			want = 0
		}
		if math.Abs(got-want) > near(1.0/16, 20000) {
			t.Errorf("full scan %v: the busy host has %.4f of the picks, want %.4f", full, got, want)
		}
	}
}

func TestLocalitiesByWeight(t *testing.T) {
	const n = 30000
	for _, policy := range []Policy{LeastRequest, RoundRobin, Random, Maglev} {
		a, b := hosts(6, one, well)[:2], hosts(6, one, well)[2:]
		in := input(append(append([]*dataplane.Host{}, a...), b...))
		in.Priorities[0].Localities = []Locality{{Weight: 3, Hosts: a}, {Weight: 1, Hosts: b}, {Weight: 5}}
		got := shares(t, build(t, Config{Policy: policy, LocalityWeighted: true, TableSize: 65537, ChoiceCount: 2}, in), n)
		sum := got[a[0]] + got[a[1]]
		if math.Abs(sum-0.75) > near(0.75, n) {
			t.Errorf("%v: the locality of weight 3 of 4 has %.4f of the picks", policy, sum)
		}
	}
}

func TestNobodyToPick(t *testing.T) {
	failed := func(int) dataplane.Health { return dataplane.FailedActiveHC }
	degraded := func(int) dataplane.Health { return dataplane.DegradedEDSHealth }
	for _, policy := range []Policy{RoundRobin, LeastRequest, Random, RingHash, Maglev} {
		c := Config{Policy: policy, TableSize: 1009, MinRing: 1024, MaxRing: 1024, ChoiceCount: 2}
		if h := build(t, c, input()).Pick(1, true); h != nil {
			t.Errorf("%v: picked %v of no priority", policy, h.Address)
		}
		if h := build(t, c, input(nil)).Pick(1, true); h != nil {
			t.Errorf("%v: picked %v of no hosts", policy, h.Address)
		}
		in := input(hosts(3, one, failed))
		in.PanicThreshold = 0
		if h := build(t, c, in).Pick(1, true); h != nil {
			t.Errorf("%v: picked %v, which failed, without panic", policy, h.Address)
		}
		in = input(hosts(3, one, failed))
		if h := build(t, c, in).Pick(1, true); h == nil {
			t.Errorf("%v: nobody picked in panic", policy)
		}
		if in.Stats.LBHealthyPanic.Value() != 1 {
			t.Errorf("%v: the pick in panic was counted %d times", policy, in.Stats.LBHealthyPanic.Value())
		}
		// All degraded, no panic: hash policies have no table for them, the others take them.
		h := build(t, c, input(hosts(3, one, degraded))).Pick(1, true)
		if (h == nil) != policy.Hashes() {
			t.Errorf("%v: with all hosts degraded picked %v", policy, h)
		}
	}
}

func TestCacheKeepsTables(t *testing.T) {
	cache := NewCache()
	c := Config{Policy: Maglev, TableSize: 1009}
	hs := hosts(8, one, well)
	in := input(hs[:4], hs[4:])
	first, err := New(c, in, cache)
	if err != nil {
		t.Fatal(err)
	}
	if !cache.Same(in) {
		t.Error("the same input is not recognised")
	}
	sick := *hs[7]
	sick.Health = dataplane.FailedActiveHC
	in.Priorities[1] = HostSet{Hosts: []*dataplane.Host{hs[4], hs[5], hs[6], &sick}, Localities: []Locality{{Hosts: []*dataplane.Host{hs[4], hs[5], hs[6], &sick}}}}
	if cache.Same(in) {
		t.Error("a changed host is not recognised")
	}
	second, err := New(c, in, cache)
	if err != nil {
		t.Fatal(err)
	}
	a, b := Tables(first), Tables(second)
	if a[0].Table != b[0].Table {
		t.Error("the table of the priority that did not change was built again")
	}
	if a[1].Table == b[1].Table || b[1].Len() != 3 {
		t.Error("the table of the changed priority was kept")
	}
}

func TestErrorsNameThePriority(t *testing.T) {
	heavy := func(int) uint32 { return math.MaxUint32 }
	_, err := New(Config{Policy: Maglev, TableSize: 1009}, input(hosts(1, one, well), hosts(2, heavy, well)), NewCache())
	if err == nil || err.Error()[:11] != "priority 1:" {
		t.Fatal(err)
	}
}

func BenchmarkPick(b *testing.B) {
	for _, c := range []Config{
		{Policy: Maglev, TableSize: 65537}, {Policy: Maglev, TableSize: 65537, BalanceFactor: 150}, {Policy: RingHash, MinRing: 1024, MaxRing: 8388608},
		{Policy: RoundRobin}, {Policy: LeastRequest, ChoiceCount: 2}, {Policy: Random},
	} {
		b.Run(fmt.Sprintf("%v/%d", c.Policy, c.BalanceFactor), func(b *testing.B) {
			bal, err := New(c, input(hosts(100, one, well)), NewCache())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := range b.N {
				bal.Pick(uint64(i)*0x9e3779b97f4a7c15, true)
			}
		})
	}
}
