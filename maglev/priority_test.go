package maglev

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// hostsByHealth is a priority with these numbers of hosts of weight 1.
func hostsByHealth(healthy, degraded, unhealthy, excluded int) PriorityHosts {
	var p PriorityHosts
	for health, n := range []int{Healthy: healthy, Degraded: degraded, Unhealthy: unhealthy, Excluded: excluded} {
		for range n {
			p.Add(Health(health), 1)
		}
	}
	return p
}

func TestSplitLoad(t *testing.T) {
	usual := PriorityPolicy{Overprovisioning: DefaultOverprovisioning, PanicThreshold: DefaultPanicThreshold}
	noPanic := PriorityPolicy{Overprovisioning: DefaultOverprovisioning}
	alone := func(load PriorityLoad) []PriorityLoad { return []PriorityLoad{load} }
	type priorities = []PriorityHosts
	for _, c := range []struct {
		name   string
		hosts  priorities
		policy PriorityPolicy
		want   []PriorityLoad
	}{
		{"none", nil, usual, nil},
		{"no host", priorities{{}}, usual, alone(PriorityLoad{Healthy: 100, Panic: true})},
		{"10 of 10", priorities{hostsByHealth(10, 0, 0, 0)}, usual, alone(PriorityLoad{Healthy: 100})},
		{"8 of 10", priorities{hostsByHealth(8, 0, 2, 0)}, usual, alone(PriorityLoad{Healthy: 100})},
		{"7 of 10", priorities{hostsByHealth(7, 0, 3, 0)}, usual, alone(PriorityLoad{Healthy: 100})},
		{"5 of 10", priorities{hostsByHealth(5, 0, 5, 0)}, usual, alone(PriorityLoad{Healthy: 100})},
		{"4 of 10", priorities{hostsByHealth(4, 0, 6, 0)}, usual, alone(PriorityLoad{Healthy: 100, Panic: true})},
		{"0 of 10", priorities{hostsByHealth(0, 0, 10, 0)}, usual, alone(PriorityLoad{Healthy: 100, Panic: true})},
		{"0 of 10, panic off", priorities{hostsByHealth(0, 0, 10, 0)}, noPanic, alone(PriorityLoad{Healthy: 100})},
		{"1 of 10, panic off", priorities{hostsByHealth(1, 0, 9, 0)}, noPanic, alone(PriorityLoad{Healthy: 100})},
		{"a threshold above 100 is 100", priorities{hostsByHealth(6, 0, 4, 0)},
			PriorityPolicy{Overprovisioning: 100, PanicThreshold: 1000}, alone(PriorityLoad{Healthy: 100, Panic: true})},
		{"no panic at T = 100 whatever the threshold", priorities{hostsByHealth(8, 0, 2, 0)},
			PriorityPolicy{Overprovisioning: 140, PanicThreshold: 100}, alone(PriorityLoad{Healthy: 100})},
		{"8 of 10 drain", priorities{hostsByHealth(2, 0, 0, 8)}, usual, alone(PriorityLoad{Healthy: 100})},
		{"all drain", priorities{hostsByHealth(0, 0, 0, 10)}, usual, alone(PriorityLoad{Healthy: 100, Panic: true})},
		{"all degraded", priorities{hostsByHealth(0, 10, 0, 0)}, usual, alone(PriorityLoad{Degraded: 100})},
		{"degraded count against panic", priorities{hostsByHealth(1, 4, 5, 0)}, usual,
			// 14 and 56 of 70; half of the hosts serve
			alone(PriorityLoad{Healthy: 20, Degraded: 80})},
		{"failover", priorities{hostsByHealth(5, 0, 5, 0), hostsByHealth(4, 0, 0, 0)}, usual,
			[]PriorityLoad{{Healthy: 70}, {Healthy: 30}}},
		{"failover by degrees", priorities{hostsByHealth(1, 0, 9, 0), hostsByHealth(1, 0, 9, 0), hostsByHealth(10, 0, 0, 0)}, usual,
			[]PriorityLoad{{Healthy: 14}, {Healthy: 14}, {Healthy: 72}}},
		{"too few everywhere: scaled up", priorities{hostsByHealth(3, 0, 7, 0), hostsByHealth(3, 0, 7, 0)}, noPanic,
			[]PriorityLoad{{Healthy: 50}, {Healthy: 50}}},
		{"one of two in panic", priorities{hostsByHealth(1, 0, 9, 0), hostsByHealth(5, 0, 5, 0)}, usual,
			// 14 and 70 of 84: 16 and 83, and 1 from rounding
			[]PriorityLoad{{Healthy: 17, Panic: true}, {Healthy: 83}}},
		{"both in panic: by hosts", priorities{hostsByHealth(1, 0, 4, 1), hostsByHealth(0, 0, 3, 0)}, usual,
			// 6 and 3 of 9: 66 and 33, and 1 from rounding
			[]PriorityLoad{{Healthy: 67, Panic: true}, {Healthy: 33, Panic: true}}},
		{"both in panic, the first empty", priorities{{}, hostsByHealth(0, 0, 3, 0), hostsByHealth(0, 0, 4, 0)}, usual,
			[]PriorityLoad{{Panic: true}, {Healthy: 43, Panic: true}, {Healthy: 57, Panic: true}}},
		{"a gap", priorities{{}, {}, hostsByHealth(4, 0, 0, 0)}, usual, []PriorityLoad{{}, {}, {Healthy: 100}}},
		{"healthy before degraded, over all priorities", priorities{hostsByHealth(2, 3, 5, 0), hostsByHealth(5, 0, 5, 0)}, usual,
			[]PriorityLoad{{Healthy: 28, Degraded: 2}, {Healthy: 70}}},
		{"factor 100", priorities{hostsByHealth(5, 0, 5, 0), hostsByHealth(5, 0, 0, 0)},
			PriorityPolicy{Overprovisioning: 100, PanicThreshold: 50}, []PriorityLoad{{Healthy: 50}, {Healthy: 50}}},
		// The example in Envoy's source: health 10, 20, 10 and degraded 20, 10, 0.
		{"Envoy's example", priorities{hostsByHealth(1, 2, 7, 0), hostsByHealth(2, 1, 7, 0), hostsByHealth(1, 0, 9, 0)},
			PriorityPolicy{Overprovisioning: 100},
			[]PriorityLoad{{Healthy: 16, Degraded: 28}, {Healthy: 28, Degraded: 14}, {Healthy: 14}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := SplitLoad(c.hosts, c.policy); !slices.Equal(got, c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestSplitLoadByWeight(t *testing.T) {
	var first PriorityHosts
	first.Add(Healthy, 1)
	first.Add(Unhealthy, 3)
	first.Add(Excluded, 100)
	hosts := []PriorityHosts{first, hostsByHealth(2, 0, 0, 0)}
	policy := PriorityPolicy{Overprovisioning: 140, PanicThreshold: 50}
	if got, want := SplitLoad(hosts, policy), []PriorityLoad{{Healthy: 70}, {Healthy: 30}}; !slices.Equal(got, want) {
		t.Errorf("by number: %+v, want %+v", got, want)
	}
	policy.ByWeight = true
	if got, want := SplitLoad(hosts, policy), []PriorityLoad{{Healthy: 35}, {Healthy: 65}}; !slices.Equal(got, want) {
		t.Errorf("by weight: %+v, want %+v", got, want)
	}
	// Panic is by number also then: one of two is not too few.
	policy.ByWeight = true
	if got, want := SplitLoad(hosts[:1], policy), []PriorityLoad{{Healthy: 100}}; !slices.Equal(got, want) {
		t.Errorf("alone: %+v, want %+v", got, want)
	}
	// A weight too light for a percent, and hosts too many for panic.
	var light PriorityHosts
	light.Add(Healthy, 1)
	light.Add(Unhealthy, 1000)
	if got, want := SplitLoad([]PriorityHosts{{}, light}, PriorityPolicy{Overprovisioning: 140, PanicThreshold: 40, ByWeight: true}),
		[]PriorityLoad{{Panic: true}, {Healthy: 100}}; !slices.Equal(got, want) {
		t.Errorf("light: %+v, want %+v", got, want)
	}
}

func TestPickPriority(t *testing.T) {
	loads := []PriorityLoad{{Healthy: 16, Degraded: 28}, {Healthy: 28, Degraded: 14}, {Healthy: 14}}
	type pick struct {
		priority int
		degraded bool
	}
	got := map[pick]int{}
	for hash := range uint64(100) {
		p, degraded := PickPriority(loads, 7300+hash)
		got[pick{p, degraded}]++
	}
	for p, load := range loads {
		if got[pick{p, false}] != int(load.Healthy) || got[pick{p, true}] != int(load.Degraded) {
			t.Errorf("priority %d has %d and %d of 100 picks, want %+v", p, got[pick{p, false}], got[pick{p, true}], load)
		}
	}
	for hash, want := range map[uint64]pick{0: {0, false}, 15: {0, false}, 16: {1, false}, 57: {2, false}, 58: {0, true}, 99: {1, true}} {
		if p, degraded := PickPriority(loads, hash); (pick{p, degraded}) != want {
			t.Errorf("hash %d: priority %d, degraded %v, want %+v", hash, p, degraded, want)
		}
	}
	if p, _ := PickPriority(nil, 5); p != -1 {
		t.Errorf("without priorities: %d, want -1", p)
	}
}

func TestSplitLoadAddsUpTo100(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := make([]PriorityHosts, rapid.IntRange(1, 5).Draw(t, "priorities"))
		for i := range hosts {
			for health := Healthy; health <= Excluded; health++ {
				for range rapid.IntRange(0, 12).Draw(t, "hosts") {
					hosts[i].Add(health, rapid.Uint32Range(1, 1000).Draw(t, "weight"))
				}
			}
		}
		policy := PriorityPolicy{
			Overprovisioning: rapid.Uint32Range(1, 1000).Draw(t, "factor"),
			PanicThreshold:   rapid.Uint32Range(0, 101).Draw(t, "threshold"),
			ByWeight:         rapid.Bool().Draw(t, "by weight"),
		}
		loads := SplitLoad(hosts, policy)
		var sum uint32
		for _, load := range loads {
			sum += load.Healthy + load.Degraded
		}
		if sum != 100 {
			t.Fatalf("%+v add up to %d", loads, sum)
		}
		for hash := range uint64(100) {
			if p, _ := PickPriority(loads, hash); p < 0 {
				t.Fatalf("hash %d has no priority", hash)
			}
		}
	})
}
