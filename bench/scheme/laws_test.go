package scheme

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/guideway/guideway/conntrack"
)

// keysFrom returns n keys that look random, others for each seed.
func keysFrom(seed uint64, n int) []Key {
	keys := make([]Key, n)
	for i := range keys {
		binary.LittleEndian.PutUint64(keys[i][:], mix64(seed+uint64(i)*0x9e3779b97f4a7c15))
		binary.LittleEndian.PutUint32(keys[i][8:], uint32(mix64(^seed+uint64(i))))
		keys[i][12] = 6
	}
	return keys
}

func backend(i int, weight uint32) Backend {
	return Backend{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8080), weight}
}

func parse(t interface{ Fatal(...any) }, spec string) Scheme {
	s, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func place(t interface{ Fatal(...any) }, s Scheme, backends []Backend, former Placement) Placement {
	p, err := s.Place(backends, former)
	if err != nil {
		t.Fatal(s.Spec(), err)
	}
	return p
}

// owners returns the addresses that have the keys.
func owners(p Placement, backends []Backend, keys []Key) []netip.AddrPort {
	indexes := make([]int32, len(keys))
	for i := range indexes {
		indexes[i] = -1
	}
	p.Pick(keys, indexes)
	out := make([]netip.AddrPort, len(keys))
	for i, o := range indexes {
		out[i] = backends[o].Addr
	}
	return out
}

// specs are small members of every kind.
var specs = []string{
	"modulo", "ring:v=1", "ring:v=20", "ring:v=20,weights=off", "ketama", "nginx", "envoy-ring:min=64", "rendezvous",
	"rendezvous:weights=off", "jump", "jump-indirect", "bounded-ring:v=20,c=1.1", "bounded-maglev:c=1.1,m=251", "redis-slots", "maglev:m=251",
}

func TestEveryKindIsTested(t *testing.T) {
	for _, k := range Kinds() {
		if !slices.ContainsFunc(specs, func(s string) bool { return parse(t, s).Kind() == k.Name }) {
			t.Errorf("no spec of kind %s", k.Name)
		}
	}
}

func drawSet(t *rapid.T, label string) []Backend {
	numbers := rapid.SliceOfNDistinct(rapid.IntRange(1, 400), 1, 12, rapid.ID[int]).Draw(t, label)
	backends := make([]Backend, len(numbers))
	even := rapid.Bool().Draw(t, label+" even")
	for i, n := range numbers {
		weight := uint32(1)
		if !even {
			weight = rapid.Uint32Range(1, 5).Draw(t, label+" weight")
		}
		backends[i] = backend(n, weight)
	}
	return backends
}

// Over any history of sets, each key has an owner that is there, and the placement does not change
// when it is asked again.
func TestNoKeyGoesToAnAbsentBackend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, rapid.SampledFrom(specs).Draw(t, "scheme"))
		keys := keysFrom(rapid.Uint64().Draw(t, "keys"), 200)
		var p Placement
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			backends := drawSet(t, "set")
			p = place(t, s, backends, p)
			first := owners(p, backends, keys) // panics if an index is out of range
			if !slices.Equal(first, owners(p, backends, keys)) {
				t.Fatalf("%s: a second pick differs", s.Spec())
			}
			if p.Bytes() <= 0 {
				t.Fatalf("%s: %d bytes", s.Spec(), p.Bytes())
			}
		}
	})
}

// For most schemes neither the order in which backends are listed nor what was there before counts.
func TestPicksDependOnTheSetOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, rapid.SampledFrom([]string{
			"ring:v=20", "ring:v=20,weights=off", "ketama", "nginx", "rendezvous", "rendezvous:weights=off", "bounded-ring:v=20,c=1.1", "maglev:m=251",
		}).Draw(t, "scheme"))
		keys := keysFrom(rapid.Uint64().Draw(t, "keys"), 200)
		backends, other := drawSet(t, "set"), drawSet(t, "other")
		shuffled := rapid.Permutation(backends).Draw(t, "shuffled")
		want := owners(place(t, s, backends, nil), backends, keys)
		got := owners(place(t, s, shuffled, place(t, s, other, nil)), shuffled, keys)
		if !slices.Equal(want, got) {
			t.Fatalf("%s: order or history counts", s.Spec())
		}
	})
}

// A backend that joins takes keys and no others move; one that leaves gives its keys and no others
// move. Which schemes promise it, and where: Maglev, bounded loads and Envoy's ring (whose points depend
// on all weights) do not.
func TestOnlyKeysOfTheChangedBackendMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := rapid.SampledFrom([]string{"ring:v=20", "ring:v=20,weights=off", "nginx", "ketama", "rendezvous", "rendezvous:weights=off", "jump", "jump-indirect"}).Draw(t, "scheme")
		s := parse(t, spec)
		keys := keysFrom(rapid.Uint64().Draw(t, "keys"), 300)
		without := drawSet(t, "set")
		if spec == "ketama" { // whose points depend on all weights
			for i := range without {
				without[i].Weight = 1
			}
		}
		joins := backend(500, without[0].Weight)
		at := len(without)
		if spec != "jump" && spec != "jump-indirect" { // which are made for the end of the list
			at = rapid.IntRange(0, len(without)).Draw(t, "position")
		}
		with := slices.Insert(slices.Clone(without), at, joins)

		small := place(t, s, without, nil)
		large := place(t, s, with, small)
		again := place(t, s, without, large)
		before, during, after := owners(small, without, keys), owners(large, with, keys), owners(again, without, keys)
		for i := range keys {
			if during[i] != before[i] && during[i] != joins.Addr {
				t.Fatalf("%s: key %d went from %v to %v when %v joined", spec, i, before[i], during[i], joins.Addr)
			}
			if after[i] != during[i] && during[i] != joins.Addr {
				t.Fatalf("%s: key %d went from %v to %v when %v left", spec, i, during[i], after[i], joins.Addr)
			}
		}
	})
}

// With buckets, any backend may leave and return, and only its keys go and come.
func TestJumpIndirectReturnsKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := keysFrom(rapid.Uint64().Draw(t, "keys"), 300)
		all := drawSet(t, "set")
		if len(all) == 1 {
			all = append(all, backend(500, 1))
		}
		at := rapid.IntRange(0, len(all)-1).Draw(t, "leaves")
		rest := slices.Delete(slices.Clone(all), at, at+1)
		first := place(t, jumpIndirect{}, all, nil)
		second := place(t, jumpIndirect{}, rest, first)
		third := place(t, jumpIndirect{}, all, second)
		before, during, after := owners(first, all, keys), owners(second, rest, keys), owners(third, all, keys)
		if !slices.Equal(before, after) {
			t.Fatal("keys did not return")
		}
		for i := range keys {
			if before[i] != all[at].Addr && during[i] != before[i] {
				t.Fatalf("key %d moved though its backend stayed", i)
			}
		}
	})
}

// No backend has more than its bound.
func TestBoundedLoads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		percent := rapid.IntRange(100, 200).Draw(t, "percent")
		factor := float64(percent) / 100
		backends := drawSet(t, "set")
		keys := keysFrom(rapid.Uint64().Draw(t, "keys"), rapid.IntRange(1, 600).Draw(t, "number"))
		total := 0
		for _, b := range backends {
			total += int(b.Weight)
		}
		up := func(dividend, divisor int) int { return (dividend + divisor - 1) / divisor }
		for _, s := range []Scheme{boundedRing{ring{points: 5}, factor}, boundedMaglev{maglevScheme{251}, factor}} {
			loads := map[netip.AddrPort]int{}
			for _, o := range owners(place(t, s, backends, nil), backends, keys) {
				loads[o]++
			}
			for _, b := range backends {
				bound := up(percent*len(keys)*int(b.Weight), 100*total)
				if s.Kind() == "bounded-maglev" {
					// Envoy rounds up twice, in floats, and compares what is there before the key comes.
					bound = up(up(percent*len(keys), 100)*int(b.Weight), total) + 2
				}
				if loads[b.Addr] > bound {
					t.Fatalf("%s: %v has %d of %d keys, bound %d", s.Spec(), b.Addr, loads[b.Addr], len(keys), bound)
				}
			}
		}
	})
}

// The first of the k is the owner, and they are distinct.
func TestTop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := parse(t, rapid.SampledFrom(specs).Draw(t, "scheme"))
		backends := drawSet(t, "set")
		p, ok := place(t, s, backends, nil).(Replicated)
		if !ok {
			t.Skip("no replicas")
		}
		k := rapid.IntRange(1, 6).Draw(t, "k")
		keys := keysFrom(rapid.Uint64().Draw(t, "keys"), 50)
		first := make([]int32, len(keys))
		p.Pick(keys, first)
		for i := range keys {
			top := p.Top([]int32{-7}, &keys[i], k)[1:]
			distinct := slices.Compact(slices.Sorted(slices.Values(top)))
			if len(top) == 0 || top[0] != first[i] || len(distinct) != len(top) || len(top) > k || distinct[0] < 0 || int(distinct[len(distinct)-1]) >= len(backends) {
				t.Fatalf("%s: owner %d, top %d are %v", s.Spec(), first[i], k, top)
			}
			if len(top) < min(k, len(backends)) && s.Kind() != "maglev" && s.Kind() != "ketama" && s.Kind() != "envoy-ring" {
				t.Fatalf("%s: top %d of %d are %v", s.Spec(), k, len(backends), top)
			}
		}
	})
}

// The highest scores win: recounted the slow way.
func TestRendezvousTopIsByScore(t *testing.T) {
	backends := []Backend{backend(1, 1), backend(2, 3), backend(3, 2), backend(4, 1)}
	p := place(t, rendezvous{}, backends, nil).(*rendezvousPlacement)
	for _, key := range keysFrom(1, 200) {
		hash := hashOf(&key)
		at := []int{0, 1, 2, 3}
		slices.SortFunc(at, func(a, b int) int {
			if p.score(a, hash) > p.score(b, hash) {
				return -1
			}
			return 1
		})
		for i, owner := range p.Top(nil, &key, 4) {
			if owner != p.order[at[i]] {
				t.Fatalf("place %d is %d, want %d", i, owner, p.order[at[i]])
			}
		}
	}
}

// A key belongs to the point at its hash or the next one, beyond the last to the first.
func TestCircle(t *testing.T) {
	c := circle[uint32]{hashes: []uint32{10, 20, 20, 30}, owners: []uint32{0, 1, 2, 3}}
	for hash, want := range map[uint32]int{0: 0, 10: 0, 11: 1, 20: 1, 21: 3, 30: 3, 31: 0} {
		if got := c.next(hash); got != want {
			t.Errorf("hash %d belongs to point %d, want %d", hash, got, want)
		}
	}
}

// Over any history of masters and weights, each has its share of the slots, near enough.
func TestRebalanceEvens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Placement
		for range 3 {
			backends := drawSet(t, "set")
			p = place(t, fixedSlots{}, backends, p)
			counts, total := make([]int, len(backends)), 0
			for _, owner := range p.(*slotsPlacement).owners {
				counts[owner]++
			}
			for _, b := range backends {
				total += int(b.Weight)
			}
			for i, b := range backends {
				share := redisSlots * int(b.Weight) / total
				// Within the threshold nothing moves; else a node is at its share, or takes what rounding left.
				if slack := share*rebalanceThreshold/100 + len(backends) + 1; counts[i] < share-slack || counts[i] > share+slack {
					t.Fatalf("node %d of weight %d of %d has %d slots, share %d", i, b.Weight, total, counts[i], share)
				}
			}
		}
	})
}

// Values of the published algorithm, from implementations in other languages.
func TestJumpHash(t *testing.T) {
	for _, c := range []struct {
		hash uint64
		n    int
		want int
	}{{1, 1, 0}, {42, 57, 43}, {0xdead10cc, 1, 0}, {0xdead10cc, 666, 361}, {256, 1024, 520}} {
		if got := jumpHash(c.hash, c.n); got != c.want {
			t.Errorf("jump(%#x, %d) = %d, want %d", c.hash, c.n, got, c.want)
		}
	}
}

// The hash of a key is the one Guideway takes of the flow.
func TestKeysAreHashedAsFlows(t *testing.T) {
	flow := conntrack.Flow{Src: netip.MustParseAddrPort("198.51.100.7:40000"), Dst: netip.MustParseAddrPort("192.0.2.1:443"), Proto: 6}
	key, ok := flow.Key4()
	if got, want := hashOf(&key), conntrack.Hash5Tuple(0, flow); !ok || got != want {
		t.Errorf("hash %#x, want %#x", got, want)
	}
}

func TestSpecs(t *testing.T) {
	for text, canonical := range map[string]string{
		"ring": "ring:v=100", "ring:weights=off,v=3": "ring:v=3,weights=off", "maglev": "maglev:m=65537", "bounded-ring:c=1.1": "bounded-ring:v=100,c=1.1",
		"bounded-maglev": "bounded-maglev:c=1.25", "envoy-ring:min=1024": "envoy-ring", "jump": "jump",
	} {
		s := parse(t, text)
		if s.Spec() != canonical {
			t.Errorf("%s is %s, want %s", text, s.Spec(), canonical)
		}
		if again := parse(t, s.Spec()); again != s {
			t.Errorf("%s is read back as %v", s.Spec(), again)
		}
	}
	for text, want := range map[string]string{
		"rong":               `unknown scheme "rong": use one of `,
		"ring:v":             `scheme "ring": option "v" is no name=value`,
		"ring:v=0":           `scheme "ring": v=0: use a number from 1 to`,
		"ring:v=1,v=2":       `there twice`,
		"ring:w=1":           `scheme "ring" has no option "w" (defaults: v=100,weights=on)`,
		"ring:weights=maybe": `use on or off`,
		"jump:v=1":           `scheme "jump" has no option "v" (it takes none)`,
		"maglev:m=65536":     `prime`,
		"bounded-ring:c=0.9": `use a number from 1 to 100`,
		"bounded-ring:c=NaN": `use a number from 1 to 100`,
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", text, err, want)
		}
	}
}

func TestPlaceRefuses(t *testing.T) {
	for _, spec := range specs {
		s := parse(t, spec)
		for _, backends := range [][]Backend{nil, {backend(1, 0)}, {backend(1, 1), backend(1, 2)}} {
			if _, err := s.Place(backends, nil); err == nil {
				t.Errorf("%s: no error for %v", spec, backends)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range append(specs, "ring:", "ring:v=1,", ":", "maglev:m=4") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(s.Spec())
		if err != nil || again != s {
			t.Errorf("%q is %q, which is read as %v, %v", text, s.Spec(), again, err)
		}
	})
}
