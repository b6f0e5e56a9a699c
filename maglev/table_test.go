package maglev

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawSize draws a table size: tiny ones, and primes of all magnitudes.
func drawSize(t *rapid.T, most uint32) uint32 {
	n := rapid.OneOf(rapid.Uint32Range(2, 130), rapid.Uint32Range(2, most)).Draw(t, "size")
	for !isPrime(uint64(n)) {
		n--
	}
	return n
}

var drawWeight = rapid.OneOf(
	rapid.Just(uint32(1)),
	rapid.Uint32Range(1, 4),
	rapid.Uint32Range(1, 1000),
	rapid.SampledFrom([]uint32{1, 2, 4, 8, 16, 32, 64, 128, 1 << 20}),
	rapid.Uint32Range(1, 1<<24),
)

// drawHosts draws hosts with short keys, so that some share one, and with
// addresses that tell them apart.
func drawHosts(t *rapid.T, most, localities int) []Host {
	equal := rapid.Bool().Draw(t, "equal")
	alphabet := rapid.SampledFrom([]rune{'0', '1', '.', ':', 0, 'é'})
	prefix := rapid.SampledFrom([]string{"", "10.0.", "[2001:db8::"}).Draw(t, "prefix")
	n := rapid.IntRange(0, most).Draw(t, "hosts")
	hosts := make([]Host, n)
	for i := range hosts {
		weight := uint32(7)
		if !equal {
			weight = drawWeight.Draw(t, "weight")
		}
		hosts[i] = Host{
			Key:      prefix + rapid.StringOfN(alphabet, 0, 12, -1).Draw(t, "key"),
			Addr:     fmt.Sprint(i),
			Weight:   weight,
			Locality: rapid.IntRange(0, max(0, localities-1)).Draw(t, "locality"),
		}
	}
	return hosts
}

func drawLocalities(t *rapid.T) []Locality {
	if rapid.Bool().Draw(t, "flat") {
		return nil
	}
	n := rapid.IntRange(1, 4).Draw(t, "localities")
	localities := make([]Locality, n)
	for i := range localities {
		localities[i].Weight = rapid.OneOf(rapid.Uint32Range(0, 3), rapid.Uint32Range(0, 1000)).Draw(t, "locality weight")
	}
	return localities
}

func checkAgainstPlain(t rapid.TB, size uint32, hosts []Host, localities []Locality) *Table {
	table, err := Build(size, hosts, localities)
	if err != nil {
		t.Fatal(err)
	}
	want := buildPlainly(size, hosts, localities)
	if want == nil {
		if !table.Empty() || table.Lookup(42) != -1 {
			t.Fatalf("the table is not empty")
		}
		return table
	}
	for slot, owner := range want {
		if got := table.Owner(uint32(slot)); got != int(owner) {
			t.Fatalf("slot %d of %d belongs to host %d, want %d", slot, size, got, owner)
		}
	}
	counted := make([]uint32, len(hosts))
	for _, owner := range want {
		counted[owner]++
	}
	if got := counts(table); !slices.Equal(got, counted) {
		t.Fatalf("counts %v, want %v", got, counted)
	}
	return table
}

func TestBuildIsEnvoysLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		localities := drawLocalities(t)
		hosts := drawHosts(t, 150, len(localities))
		checkAgainstPlain(t, drawSize(t, 20011), hosts, localities)
	})
}

// TestBuildIsEnvoysLoopInTies takes small weights in localities, where whether a
// host takes a slot is often decided by the last bit of its share: in one of
// twenty, dividing before multiplying would give another table.
func TestBuildIsEnvoysLoopInTies(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		localities := []Locality{{Weight: random.Uint32N(9) + 1}, {Weight: random.Uint32N(9) + 1}}
		hosts := benchHosts(random.IntN(6)+2, func(int) uint32 { return random.Uint32N(9) + 1 })
		for i := range hosts {
			hosts[i].Locality = i % 2
		}
		checkAgainstPlain(t, 101, hosts, localities)
	}
}

// TestBuildIsEnvoysLoopLarge takes sizes and weights that rapid's cases are too
// small for: several windows of the schedule, hosts of one slot in thousands of
// rounds, and each of the filler's stages.
func TestBuildIsEnvoysLoopLarge(t *testing.T) {
	for _, c := range []struct {
		size   uint32
		hosts  int
		weight func(i int) uint32
	}{
		{65537, 2, func(i int) uint32 { return uint32(1 + i*2) }},
		{65537, 3, func(i int) uint32 { return []uint32{1, 1, math.MaxUint32 - 2}[i] }},
		{65537, 7, func(i int) uint32 { return 1 << (4 * i) }},
		{65537, 64, func(i int) uint32 { return uint32(100 + i%2) }},
		{65537, 65, func(i int) uint32 { return uint32(1 + i*i) }},
		{65537, 128, func(i int) uint32 { return uint32(i/127*126 + 1) }},
		{65537, 1000, func(i int) uint32 { return uint32(i%10 + 1) }},
		{65537, 1000, func(i int) uint32 { return 1 << (i % 8) }},
		{65537, 3000, func(i int) uint32 { return uint32(i/2999*4999 + 1) }},
		{65537, 70000, func(i int) uint32 { return 1 }},
		{131071, 66000, func(i int) uint32 { return uint32(i%3 + 1) }},
		{655373, 1000, func(i int) uint32 { return 1 }},
		{MaxTableSize, 100, func(i int) uint32 { return uint32(i%5 + 1) }},
	} {
		t.Run(fmt.Sprintf("%d-%d", c.size, c.hosts), func(t *testing.T) {
			if testing.Short() && c.size > 1000000 {
				t.Skip("takes seconds, with the race detector a minute")
			}
			table := checkAgainstPlain(t, c.size, benchHosts(c.hosts, c.weight), nil)
			if wide := c.hosts > 65536; (table.Wide() != nil) != wide || (table.Narrow() != nil) == wide {
				t.Errorf("%d hosts: narrow %v, wide %v", c.hosts, table.Narrow() != nil, table.Wide() != nil)
			}
		})
	}
}

// TestFirstRound compares the schedule's arithmetic with asking every round.
func TestFirstRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sum := float64(rapid.Uint32Range(1, math.MaxUint32).Draw(t, "sum"))
		weight := float64(rapid.Uint32Range(1, 1000).Draw(t, "weight")) / sum
		heaviest := float64(rapid.Uint32Range(1, 100000).Draw(t, "heaviest")) / sum
		if weight > heaviest {
			weight, heaviest = heaviest, weight
		}
		target, round := 0.0, uint32(1)
		for range 20 {
			target += heaviest
			got := firstRound(weight, 1/weight, target, round+1)
			for round++; float64(round)*weight < target && round < never; {
				round++
			}
			if got != round {
				t.Fatalf("weight %v, target %v: round %d, want %d", weight, target, got, round)
			}
			if round == never {
				return
			}
		}
	})
}

func TestTableIsAFunctionOfTheSet(t *testing.T) {
	hosts := benchHosts(60, func(i int) uint32 { return uint32(i%7 + 1) })
	for i := range hosts {
		hosts[i].Locality = i % 3
		hosts[i].Addr = hosts[i].Key
	}
	// Some share a key, and are told apart by their addresses.
	for i := range 10 {
		hosts[i].Key = "shared"
	}
	localities := []Locality{{Weight: 3}, {Weight: 1}, {Weight: 9}}
	for _, l := range [][]Locality{nil, localities} {
		first := build(t, 1009, hosts, l)
		digest, ordered := first.Digest(), first.OrderedDigest()
		random := rand.New(rand.NewPCG(1, 2))
		differently := 0
		for range 1000 {
			shuffled := slices.Clone(hosts)
			random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			table := build(t, 1009, shuffled, l)
			if table.Digest() != digest {
				t.Fatal("a shuffle of the hosts has another digest")
			}
			if table.OrderedDigest() != ordered {
				differently++
			}
			moved, err := Disrupt(first, table)
			if err != nil || moved != (Disruption{}) {
				t.Fatalf("a shuffle of the hosts moves slots: %+v (%v)", moved, err)
			}
		}
		if differently < 990 {
			t.Errorf("only %d of 1000 shuffles have another ordered digest", differently)
		}
	}
}

func TestDigestTellsTablesApart(t *testing.T) {
	base := []Host{{Key: "a", Weight: 1}, {Key: "b", Weight: 1}, {Key: "c", Weight: 2}}
	with := func(change func(hosts []Host)) []Host {
		hosts := slices.Clone(base)
		change(hosts)
		return hosts
	}
	tables := map[string]*Table{
		"base":            build(t, 101, base, nil),
		"another size":    build(t, 103, base, nil),
		"another key":     build(t, 101, with(func(h []Host) { h[0].Key = "A" }), nil),
		"another address": build(t, 101, with(func(h []Host) { h[0].Addr = "10.0.0.1:80" }), nil),
		"another weight":  build(t, 101, with(func(h []Host) { h[0].Weight = 2 }), nil),
		"one host less":   build(t, 101, base[1:], nil),
		"key moved over":  build(t, 101, with(func(h []Host) { h[0].Key, h[0].Addr = "", "a" }), nil),
		"empty":           build(t, 101, nil, nil),
		"empty, larger":   build(t, 103, nil, nil),
	}
	seen := map[[32]byte]string{}
	for name, table := range tables {
		if other, again := seen[table.Digest()]; again {
			t.Errorf("%q and %q have one digest", name, other)
		}
		seen[table.Digest()] = name
	}
	// A host that gets nothing does not change what the table does.
	localities := []Locality{{Weight: 1}, {}}
	without := build(t, 101, base, localities)
	and := build(t, 101, append(slices.Clone(base), Host{Key: "d", Weight: 1, Locality: 1}), localities)
	if without.Digest() != and.Digest() {
		t.Error("a host without a share changes the digest")
	}
}

func TestEntries(t *testing.T) {
	for _, c := range []struct {
		name        string
		size        uint32
		hosts       []Host
		localities  []Locality
		least, most uint32
	}{
		{"no host", 7, nil, nil, 0, 0},
		{"one host", 7, []Host{{Key: "a", Weight: 3}}, nil, 1, 1},
		{"two hosts", 7, []Host{{Key: "a", Weight: 1}, {Key: "b", Weight: 1}}, nil, 3, 4},
		{"more hosts than slots", 2, []Host{{Key: "a", Weight: 1}, {Key: "b", Weight: 1}, {Key: "c", Weight: 1}}, nil, 0, 1},
		{"a host without a share", 7, []Host{{Key: "a", Weight: 1}, {Key: "b", Weight: 1}, {Key: "c", Weight: 1, Locality: 1}},
			[]Locality{{Weight: 1}, {}}, 3, 4},
		{"one host with a share", 7, []Host{{Key: "a", Weight: 1}, {Key: "c", Weight: 1, Locality: 1}},
			[]Locality{{Weight: 1}, {}}, 1, 1},
	} {
		table := build(t, c.size, c.hosts, c.localities)
		if least, most := table.Entries(); least != c.least || most != c.most {
			t.Errorf("%s: %d to %d, want %d to %d", c.name, least, most, c.least, c.most)
		}
	}
}

// TestMoreHostsThanSlots: the first in key order get a slot each.
func TestMoreHostsThanSlots(t *testing.T) {
	hosts := []Host{{Key: "d", Weight: 9}, {Key: "b", Weight: 1}, {Key: "a", Weight: 1}, {Key: "c", Weight: 1}}
	table := build(t, 3, hosts, nil)
	if got, want := counts(table), []uint32{0, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
}

func TestEqualKeysAreOrderedByAddressThenPosition(t *testing.T) {
	// Hosts of one key have one sequence: with two slots, the first of them
	// gets the first slot of it.
	first := build(t, 2, []Host{{Key: "k", Weight: 1}}, nil).Slot(KeyHash("k"))
	for _, c := range []struct {
		addrs string
		want  int
	}{{"a b", 0}, {"b a", 1}, {"a a", 0}} {
		addrs := strings.Fields(c.addrs)
		hosts := []Host{{Key: "k", Addr: addrs[0], Weight: 1}, {Key: "k", Addr: addrs[1], Weight: 1}}
		if got := build(t, 2, hosts, nil).Owner(first); got != c.want {
			t.Errorf("addresses %s: host %d, want %d", c.addrs, got, c.want)
		}
	}
}

func TestCheckTableSize(t *testing.T) {
	for size, want := range map[uint64]string{
		0:             "0 is not a prime number (nearest prime: 2)",
		1:             "1 is not a prime number (nearest prime: 2)",
		2:             "",
		3:             "",
		4:             "4 is not a prime number (nearest primes: 3, 5)",
		9:             "9 is not a prime number (nearest primes: 7, 11)",
		65536:         "65536 is not a prime number (nearest primes: 65521, 65537)",
		65537:         "",
		655373:        "",
		5000010:       "5000010 is not a prime number (nearest primes: 4999999, 5000011)",
		5000011:       "",
		5000012:       "table size 5000012 is too large (the largest is 5000011)",
		math.MaxInt64: "table size 9223372036854775807 is too large (the largest is 5000011)",
	} {
		got := ""
		if err := CheckTableSize(size); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%d: %q, want %q", size, got, want)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	a := []Host{{Key: "a", Weight: 1}}
	heavy := []Host{{Key: "a", Weight: math.MaxUint32}, {Key: "b", Weight: 1}}
	for _, c := range []struct {
		size       uint32
		hosts      []Host
		localities []Locality
		want       string
	}{
		{8, a, nil, "8 is not a prime number"},
		{7, []Host{{Key: "a"}}, nil, `host "a" has no weight`},
		{7, []Host{{Key: "a"}}, []Locality{{Weight: 1}}, `host "a" has no weight`},
		{7, heavy, nil, "the sum of weights of all upstream hosts in a locality exceeds 4294967295"},
		{7, heavy, []Locality{{Weight: 1}}, "the sum of weights of all upstream hosts in a locality exceeds 4294967295"},
		{7, a, []Locality{{Weight: math.MaxUint32}, {Weight: 1}}, "the sum of weights of all localities at the same priority exceeds 4294967295"},
		{7, a, []Locality{}, `host "a" is in locality 0 of 0`},
		{7, a, []Locality{{Weight: 1, Empty: true}}, `host "a" is in locality 0, which is declared empty`},
	} {
		if _, err := Build(c.size, c.hosts, c.localities); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("size %d, %v, %v: error %v, want %q", c.size, c.hosts, c.localities, err, c.want)
		}
	}
}

// TestBuildAllocatesTheTableAndItsHosts: what a build allocates is the table and
// something for each host, nothing for each slot besides.
func TestBuildAllocatesTheTableAndItsHosts(t *testing.T) {
	const perHost = 300
	for _, weight := range []func(int) uint32{func(int) uint32 { return 1 }, func(i int) uint32 { return uint32(i%9 + 1) }} {
		for _, c := range []struct {
			size  uint32
			hosts int
		}{{65537, 100}, {65537, 10000}, {655373, 10}} {
			hosts := benchHosts(c.hosts, weight)
			const builds = 10
			var before, after runtime.MemStats
			build(t, c.size, hosts, nil) // fills the pool
			runtime.ReadMemStats(&before)
			for range builds {
				build(t, c.size, hosts, nil)
			}
			runtime.ReadMemStats(&after)
			// The tenth is for the bitmap, should the pool be emptied.
			most := uint64(c.size)*2*11/10 + uint64(c.hosts*perHost) + 8192
			if got := (after.TotalAlloc - before.TotalAlloc) / builds; got > most {
				t.Errorf("size %d, %d hosts: %d bytes, want at most %d", c.size, c.hosts, got, most)
			}
		}
	}
}
