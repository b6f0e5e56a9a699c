package disruption

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/guideway/guideway/bench/scheme"
)

func TestFleet(t *testing.T) {
	f := Fleet(600, []uint32{1, 2}, 3)
	for i, want := range map[int]string{0: "10.0.0.1:8080 1 a", 1: "10.0.0.2:8080 2 b", 253: "10.0.0.254:8080 2 b", 254: "10.0.1.1:8080 1 c"} {
		if got := f[i].Addr.String() + " " + itoa(int(f[i].Weight)) + " " + f[i].Zone; got != want {
			t.Errorf("backend %d is %s, want %s", i, got, want)
		}
	}
	seen := map[string]bool{}
	for i := range scheme.MaxBackends {
		seen[address(i).String()] = true
	}
	if len(seen) != scheme.MaxBackends {
		t.Errorf("%d addresses for %d backends", len(seen), scheme.MaxBackends)
	}
}

func TestKeysFollowFromTheSeed(t *testing.T) {
	a, b, c := Keys(1000, 5), Keys(1000, 5), Keys(1000, 6)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("equal seeds and no others give equal keys")
	}
	flow := a[0].Flow()
	if flow.Dst.String() != "192.0.2.1:443" || flow.Proto != 6 || flow.Src.Addr() == a[1].Flow().Src.Addr() {
		t.Errorf("flow %v", flow)
	}
}

// The counting, the slow way: maps of addresses instead of arrays of numbers.
func TestCountsAgainstTheSlowWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := Fleet(rapid.IntRange(3, 7).Draw(t, "backends"), []uint32{1, 2}, 2)
		text := rapid.SampledFrom([]string{"add=2,weight=3", "remove=2", "drain=1; remove=1", "replace=2", "reweight=2,weight=5", "rolling-restart=2", "zone-loss=b", "flap=2,times=2"}).Draw(t, "case")
		c, err := ParseCase(text)
		if err != nil {
			t.Fatal(err)
		}
		s := rapid.SampledFrom(scheme.Default()).Draw(t, "scheme")
		plan := Plan{Keys: 400, Seed: rapid.Uint64Range(0, 50).Draw(t, "seed"), Members: members, Schemes: []scheme.Scheme{s}, Cases: []Case{c}, Top: 2}
		r, err := Run(context.Background(), plan)
		if err != nil {
			t.Fatal(err)
		}
		states, err := stages(members, c, plan.Seed)
		if err != nil {
			t.Fatal(err)
		}
		keys := Keys(plan.Keys, plan.Seed)
		var p scheme.Placement
		var before, tracked []string
		hit := map[int]bool{}
		for i, state := range states {
			if p, err = s.Place(state.backends, p); err != nil {
				t.Fatal(err)
			}
			indexes := make([]int32, len(keys))
			p.Pick(keys, indexes)
			now, loads := make([]string, len(keys)), map[string]int{}
			for k, index := range indexes {
				now[k] = state.backends[index].Addr.String()
				loads[now[k]]++
			}
			if i == 0 {
				before, tracked = now, slices.Clone(now)
				continue
			}
			serving := map[string]bool{}
			for id, serves := range state.serves {
				serving[addressOf(states, id)] = serves
			}
			moved, trackedMoved, old := 0, 0, map[string]int{}
			for k := range keys {
				old[before[k]]++
				if now[k] != before[k] {
					moved++
					hit[k] = true
				}
				if !serving[tracked[k]] {
					tracked[k] = now[k]
					trackedMoved++
				}
			}
			least, busiest, weights := 0, 0.0, 0.0
			for addr, n := range old {
				least += max(0, n-loads[addr])
			}
			for _, b := range state.backends {
				weights += float64(b.Weight)
			}
			for _, b := range state.backends {
				busiest = max(busiest, float64(loads[b.Addr.String()])/float64(plan.Keys)/(float64(b.Weight)/weights))
			}
			got := r.Cases[0].Outcomes[0].Steps[i-1]
			if got.Moved != moved || got.Tracked.Moved != trackedMoved || got.Least != least || math.Abs(got.Balance.Busiest-busiest) > 1e-9 {
				t.Fatalf("%s, %s, step %q: got %+v, want moved %d, tracked %d, least %d, busiest %v", s.Spec(), text, state.name, got, moved, trackedMoved, least, busiest)
			}
			if got.Least > got.Moved {
				t.Fatalf("%d moved, though %d had to", got.Moved, got.Least)
			}
			if _, replicated := p.(scheme.Replicated); replicated != (got.TopMoved >= 0) || got.TopMoved > plan.Keys {
				t.Fatalf("top moved %d", got.TopMoved)
			}
			before = now
		}
		if r.Cases[0].Outcomes[0].Hit != len(hit) {
			t.Fatalf("%d keys hit, want %d", r.Cases[0].Outcomes[0].Hit, len(hit))
		}
	})
}

// addressOf finds the address of an id in the stages that show it.
func addressOf(states []stage, id int) string {
	for _, s := range states {
		if at := slices.Index(s.ids, int32(id)); at >= 0 {
			return s.backends[at].Addr.String()
		}
	}
	return "none"
}

// A change of sets whose first backends stay the same changes none of them.
func TestTopMoved(t *testing.T) {
	o := one(t, "rendezvous", "flap=1,times=1", 5, 20000, 1)
	if o.Steps[0].TopMoved != -1 {
		t.Errorf("top moved %d though none is asked for", o.Steps[0].TopMoved)
	}
	r, err := Run(context.Background(), Plan{
		Keys: 20000, Seed: 1, Members: Fleet(5, nil, 0), Top: 2,
		Schemes: []scheme.Scheme{parseScheme(t, "rendezvous")}, Cases: []Case{parseCaseText(t, "remove=1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	// The backend was one of the two for two keys of five.
	near(t, "top 2", r.Cases[0].Outcomes[0].Steps[0].TopMoved, 20000, 2.0/5)
}

func TestStagesAreNamedAndFair(t *testing.T) {
	members := Fleet(4, nil, 2)
	for text, want := range map[string][]string{
		"add=1,zone=x; drain=10.0.0.1:8080": {"add 10.0.0.5:8080", "drain 10.0.0.1:8080"},
		"rolling-restart=3":                 {"stop 10.0.0.1:8080, 10.0.0.2:8080, 10.0.0.3:8080", "start 10.0.0.1:8080, 10.0.0.2:8080, 10.0.0.3:8080", "stop 10.0.0.4:8080", "start 10.0.0.4:8080"},
		"zone-loss=b":                       {"lose 10.0.0.2:8080, 10.0.0.4:8080"},
		"zone-loss":                         {"lose 10.0.0.1:8080, 10.0.0.3:8080"},
		"replace=10.0.0.2:8080":             {"replace 10.0.0.2:8080 by 10.0.0.5:8080"},
		"reweight=10.0.0.2:8080,weight=5":   {"reweight 10.0.0.2:8080 to 5"},
		"flap=10.0.0.3:8080,times=1":        {"fail 10.0.0.3:8080", "return 10.0.0.3:8080"},
	} {
		states, err := stages(members, parseCaseText(t, text), 1)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, s := range states[1:] {
			got = append(got, s.name)
			sum := 0.0
			for _, share := range s.fair {
				sum += share
			}
			if math.Abs(sum-1) > 1e-9 {
				t.Errorf("%s: fair shares add up to %v", text, sum)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"remove=4":                 "no backend is left",
		"remove=5":                 "5 backends of 4",
		"remove=10.0.9.9:80":       "there is no backend 10.0.9.9:80",
		"add=10.0.0.1:8080":        "is there, or was",
		"zone-loss=q":              `no backend is in zone "q"`,
		"flap=1,times=10000":       "more than 10000 steps",
		"remove=1; zone-loss=none": "none",
	} {
		_, err := stages(members, parseCaseText(t, text), 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", text, err, want)
		}
	}
	if _, err := stages(Fleet(3, nil, 0), parseCaseText(t, "zone-loss"), 1); err == nil || !strings.Contains(err.Error(), "no backend has a zone") {
		t.Errorf("error %v", err)
	}
}

func TestReweightSetsTheWeight(t *testing.T) {
	states, err := stages(Fleet(4, nil, 0), parseCaseText(t, "reweight=10.0.0.2:8080,weight=5"), 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := states[1].fair; !slices.Equal(got, []float64{1. / 8, 5. / 8, 1. / 8, 1. / 8}) {
		t.Errorf("fair shares %v", got)
	}
}

// What gets new flows and what keeps those it has, by the kind of change.
func TestWhoServes(t *testing.T) {
	for text, want := range map[string]string{ // of three backends and a fourth: P is placed, S serves
		"drain=10.0.0.2:8080":   "PS -S PS",
		"remove=10.0.0.2:8080":  "PS -- PS",
		"replace=10.0.0.2:8080": "PS -- PS PS",
		"add=1":                 "PS PS PS PS",
		"drain=10.0.0.2:8080; remove=10.0.0.2:8080":            "PS -- PS",
		"flap=10.0.0.2:8080,times=1":                           "PS PS PS",
		"reweight=10.0.0.2:8080,weight=7; drain=10.0.0.1:8080": "-S PS PS",
	} {
		states, err := stages(Fleet(3, nil, 0), parseCaseText(t, text), 1)
		if err != nil {
			t.Fatal(err)
		}
		last := states[len(states)-1]
		var got []string
		for id, serves := range last.serves {
			placed := "-"
			if slices.Contains(last.ids, int32(id)) {
				placed = "P"
			}
			got = append(got, placed+map[bool]string{true: "S", false: "-"}[serves])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", text, strings.Join(got, " "), want)
		}
	}
}

func TestRunIsDeterministicAndTellsProgress(t *testing.T) {
	run := func() *Results {
		last := -1
		r, err := Run(context.Background(), Plan{
			Keys: 2000, Seed: 3, Members: Fleet(6, nil, 2), Schemes: scheme.Default(), Cases: DefaultCases(true), Top: 3,
			Progress: func(done, total int) {
				if done <= last || done > total {
					t.Errorf("progress %d of %d after %d", done, total, last)
				}
				last = done
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Plan.Progress = nil
		return r
	}
	if !reflect.DeepEqual(run(), run()) {
		t.Error("two runs of a plan differ")
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Run(ctx, Plan{Keys: 10, Members: Fleet(3, nil, 0), Schemes: scheme.Default(), Cases: DefaultCases(false)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if _, err := Run(context.Background(), Plan{Keys: 10}); err == nil {
		t.Error("a plan without schemes and cases is no error")
	}
}

// A clock that goes on by a second each time it is asked makes every time one second.
func TestCosts(t *testing.T) {
	now := time.Duration(0)
	r, err := Run(context.Background(), Plan{
		Keys: 1000, Members: Fleet(4, nil, 0), Schemes: []scheme.Scheme{parseScheme(t, "maglev:m=251"), parseScheme(t, "ring:v=10")}, Cases: DefaultCases(false)[:1],
		Clock: func() time.Duration { now += time.Second; return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, bytes := range []int{2 * 251, 12 * 40} {
		if c := r.Costs[i]; c.Build != time.Second || c.Lookup != 1e6 || c.Ratio != 1 || c.Bytes != bytes {
			t.Errorf("%s: %+v, want %d bytes", c.Scheme.Spec(), c, bytes)
		}
	}
}
