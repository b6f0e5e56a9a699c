package maglev

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

// readGolden decodes a file of vectors. A section or field the test does not
// know is a failure: it would go unchecked.
func readGolden(t *testing.T, name string, into any) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	d := json.NewDecoder(file)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if d.More() {
		t.Fatalf("%s: more than one document", name)
	}
}

// TestGoldenFiles fails when a file of vectors appears that no test reads.
func TestGoldenFiles(t *testing.T) {
	read := []string{"addresses.json", "bounded_load.json", "disruption.json", "envoy-unit-tests.json",
		"large-65537.json", "large-655373.json", "retry_slots.json", "ring_hash.json", "small.json",
		"source_ip.json", "xxh64.json"}
	found, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	slices.Sort(found)
	slices.Sort(read)
	if !slices.Equal(found, read) {
		t.Errorf("files of vectors: %v\ntests read:       %v", found, read)
	}
}

// hexNumber is a 64-bit number written as hexadecimal digits.
type hexNumber uint64

func (h *hexNumber) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*h = hexNumber(n)
	return err
}

type goldenHost struct {
	Key    string
	Weight uint32
}

type goldenLocality struct {
	Weight uint32
	Hosts  []int
}

// hostsOf turns the vectors' form of hosts and localities into ours.
func hostsOf(golden []goldenHost, localities []goldenLocality) ([]Host, []Locality) {
	hosts := make([]Host, len(golden))
	for i, g := range golden {
		hosts[i] = Host{Key: g.Key, Weight: g.Weight}
	}
	var ours []Locality
	for j, l := range localities {
		ours = append(ours, Locality{Weight: l.Weight, Empty: len(l.Hosts) == 0})
		for _, i := range l.Hosts {
			hosts[i].Locality = j
		}
	}
	return hosts, ours
}

func build(t rapid.TB, size uint32, hosts []Host, localities []Locality) *Table {
	t.Helper()
	table, err := Build(size, hosts, localities)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func owners(table *Table) []int {
	all := make([]int, 0, table.Size())
	for slot := range table.Size() {
		if owner := table.Owner(slot); owner >= 0 {
			all = append(all, owner)
		}
	}
	return all
}

func counts(table *Table) []uint32 {
	all := make([]uint32, table.Len())
	for i := range all {
		all[i] = table.Count(i)
	}
	return all
}

func TestGoldenXXH64(t *testing.T) {
	var golden struct {
		Format  int
		Vectors []struct {
			Name         string
			Seed0, Seed1 hexNumber
		}
	}
	readGolden(t, "xxh64.json", &golden)
	for _, v := range golden.Vectors {
		for _, c := range []struct {
			how       string
			got, want uint64
		}{
			{"KeyHash", KeyHash(v.Name), uint64(v.Seed0)},
			{"seed 0", seededXXH64(v.Name, 0), uint64(v.Seed0)},
			{"seed 1", seededXXH64(v.Name, 1), uint64(v.Seed1)},
		} {
			if c.got != c.want {
				t.Errorf("%q, %s: %016x, want %016x", v.Name, c.how, c.got, c.want)
			}
		}
	}
}

func TestGoldenAddresses(t *testing.T) {
	var golden struct {
		Format  int
		Vectors []struct {
			Name, Configured string
			Port             uint16
			HostKey          string    `json:"host_key"`
			IPString         string    `json:"ip_string"`
			HashOfKey        hexNumber `json:"xxh64_host_key"`
			HashOfIP         hexNumber `json:"xxh64_ip_string"`
		}
	}
	readGolden(t, "addresses.json", &golden)
	for _, v := range golden.Vectors {
		addr := netip.MustParseAddr(v.Configured)
		key := HostKey(netip.AddrPortFrom(addr, v.Port))
		if key != v.HostKey || KeyHash(key) != uint64(v.HashOfKey) {
			t.Errorf("%s: key %s with hash %016x, want %s and %016x", v.Name, key, KeyHash(key), v.HostKey, v.HashOfKey)
		}
		if text := AddrString(addr); text != v.IPString || SourceIPHash(addr) != uint64(v.HashOfIP) {
			t.Errorf("%s: text %s with hash %016x, want %s and %016x", v.Name, text, SourceIPHash(addr), v.IPString, v.HashOfIP)
		}
	}
}

func TestGoldenSmall(t *testing.T) {
	var golden struct {
		Format  int
		Vectors []struct {
			Name, Note string
			Size       uint32 `json:"table_size"`
			Hosts      []goldenHost
			Localities []goldenLocality
			Table      []int
			Counts     []uint32
		}
	}
	readGolden(t, "small.json", &golden)
	for _, v := range golden.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			hosts, localities := hostsOf(v.Hosts, v.Localities)
			table := build(t, v.Size, hosts, localities)
			if got := owners(table); !slices.Equal(got, v.Table) {
				t.Errorf("table %v\nwant  %v", got, v.Table)
			}
			if got := counts(table); !slices.Equal(got, v.Counts) {
				t.Errorf("counts %v\nwant   %v", got, v.Counts)
			}
		})
	}
}

func TestGoldenLarge(t *testing.T) {
	for _, name := range []string{"large-65537.json", "large-655373.json"} {
		var golden struct {
			Format  int
			Vectors []struct {
				Name       string
				Size       uint32 `json:"table_size"`
				Hosts      []goldenHost
				Localities []goldenLocality
				Counts     []uint32
				SHA256     string    `json:"table_sha256"`
				XXH64      hexNumber `json:"table_xxh64"`
				Sample     [][2]int
			}
		}
		readGolden(t, name, &golden)
		for _, v := range golden.Vectors {
			t.Run(v.Name, func(t *testing.T) {
				hosts, localities := hostsOf(v.Hosts, v.Localities)
				table := build(t, v.Size, hosts, localities)
				if got := counts(table); !slices.Equal(got, v.Counts) {
					t.Errorf("counts %v\nwant   %v", got, v.Counts)
				}
				for _, s := range v.Sample {
					if got := table.Owner(uint32(s[0])); got != s[1] {
						t.Errorf("slot %d: host %d, want %d", s[0], got, s[1])
					}
				}
				digest := table.OrderedDigest()
				if got := hex.EncodeToString(digest[:]); got != v.SHA256 {
					t.Errorf("SHA-256 %s, want %s", got, v.SHA256)
				}
				h := xxhash.New()
				table.hashOwners(h, func(owner uint32) uint32 { return owner })
				if got := h.Sum64(); got != uint64(v.XXH64) {
					t.Errorf("XXH64 %016x, want %016x", got, v.XXH64)
				}
			})
		}
	}
}

func TestGoldenSourceIP(t *testing.T) {
	var golden struct {
		Format int
		Tables map[string]struct {
			Size  uint32 `json:"table_size"`
			Hosts []goldenHost
		}
		Vectors []struct {
			Name   string
			Hashed string `json:"hashed_string"`
			XXH64  hexNumber
			Chosen map[string][2]int
		}
	}
	readGolden(t, "source_ip.json", &golden)
	tables := map[string]*Table{}
	for name, g := range golden.Tables {
		hosts, _ := hostsOf(g.Hosts, nil)
		tables[name] = build(t, g.Size, hosts, nil)
	}
	for _, v := range golden.Vectors {
		addr := netip.MustParseAddr(v.Name)
		if got := AddrString(addr); got != v.Hashed {
			t.Errorf("%s: text %s, want %s", v.Name, got, v.Hashed)
		}
		hash := SourceIPHash(addr)
		if hash != uint64(v.XXH64) {
			t.Errorf("%s: hash %016x, want %016x", v.Name, hash, v.XXH64)
		}
		if len(v.Chosen) != len(tables) {
			t.Errorf("%s: %d choices for %d tables", v.Name, len(v.Chosen), len(tables))
		}
		for name, want := range v.Chosen {
			table := tables[name]
			if got := [2]int{int(table.Slot(hash)), table.Lookup(hash)}; got != want {
				t.Errorf("%s, table %s: slot and host %v, want %v", v.Name, name, got, want)
			}
		}
	}
}

func TestGoldenRetrySlots(t *testing.T) {
	var golden struct {
		Format  int
		Vectors []struct {
			Name  string
			Hash  hexNumber
			Size  uint32   `json:"table_size"`
			Slots []uint32 `json:"slots_by_attempt"`
		}
	}
	readGolden(t, "retry_slots.json", &golden)
	for _, v := range golden.Vectors {
		table := build(t, v.Size, nil, nil)
		for attempt, want := range v.Slots {
			if got := table.Slot(AttemptHash(uint64(v.Hash), uint32(attempt))); got != want {
				t.Errorf("%s, attempt %d: slot %d, want %d", v.Name, attempt, got, want)
			}
		}
	}
}

func TestGoldenDisruption(t *testing.T) {
	var golden struct {
		Format  int
		Vectors []struct {
			Name         string
			Size         uint32 `json:"table_size"`
			Hosts        []goldenHost
			Removed      int
			Changed      uint32 `json:"slots_changed"`
			OfTheRemoved uint32 `json:"slots_of_removed_host"`
		}
	}
	readGolden(t, "disruption.json", &golden)
	for _, v := range golden.Vectors {
		hosts, _ := hostsOf(v.Hosts, nil)
		before := build(t, v.Size, hosts, nil)
		after := build(t, v.Size, slices.Delete(slices.Clone(hosts), v.Removed, v.Removed+1), nil)
		got, err := Disrupt(before, after)
		if err != nil {
			t.Fatal(err)
		}
		if got.Moved != v.Changed || got.Orphaned != v.OfTheRemoved {
			t.Errorf("%s: %d slots changed, %d of the removed host, want %d and %d",
				v.Name, got.Moved, got.Orphaned, v.Changed, v.OfTheRemoved)
		}
	}
}

func TestGoldenBoundedLoad(t *testing.T) {
	var golden struct {
		Format  int
		Vectors []struct {
			Name  string
			Hash  hexNumber
			Hosts int
			Order []uint32 `json:"probe_order"`
		}
	}
	readGolden(t, "bounded_load.json", &golden)
	for _, v := range golden.Vectors {
		if got := slices.Collect(probeOrder(uint64(v.Hash), v.Hosts)); !slices.Equal(got, v.Order) {
			t.Errorf("%s: order %v\nwant %v", v.Name, got, v.Order)
		}
	}
}

func TestGoldenRingHash(t *testing.T) {
	type pair struct {
		hash hexNumber
		host int
	}
	var golden struct {
		Format  int
		Vectors []struct {
			Name    string
			Min     uint64 `json:"minimum_ring_size"`
			Max     uint64 `json:"maximum_ring_size"`
			Hosts   []goldenHost
			Entries int `json:"ring_entries"`
			Counts  []uint32
			Probes  [][2]any
			Ring    [][2]any
		}
	}
	readGolden(t, "ring_hash.json", &golden)
	pairs := func(t *testing.T, raw [][2]any) []pair {
		out := make([]pair, len(raw))
		for i, r := range raw {
			if err := out[i].hash.UnmarshalText([]byte(r[0].(string))); err != nil {
				t.Fatal(err)
			}
			out[i].host = int(r[1].(float64))
		}
		return out
	}
	for _, v := range golden.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			hosts, _ := hostsOf(v.Hosts, nil)
			// The vectors also have minima above the maximum, which a
			// configuration cannot: see BuildRing.
			ring, err := buildRing(RingOptions{MinSize: v.Min, MaxSize: v.Max}, hosts, nil)
			if err != nil {
				t.Fatal(err)
			}
			if ring.Len() != v.Entries {
				t.Errorf("%d entries, want %d", ring.Len(), v.Entries)
			}
			for i, want := range v.Counts {
				if got := ring.Count(i); got != want {
					t.Errorf("host %d: %d entries, want %d", i, got, want)
				}
			}
			for _, p := range pairs(t, v.Probes) {
				if got := ring.Lookup(uint64(p.hash)); got != p.host {
					t.Errorf("hash %016x: host %d, want %d", p.hash, got, p.host)
				}
			}
			if len(v.Ring) == 0 && v.Entries <= 64 {
				t.Error("the vector lacks the ring")
			}
			for i, p := range pairs(t, v.Ring) {
				if ring.hashes[i] != uint64(p.hash) || int(ring.owners[i]) != p.host {
					t.Errorf("entry %d: %016x of host %d, want %016x of %d", i, ring.hashes[i], ring.owners[i], p.hash, p.host)
				}
			}
		})
	}
}

// TestGoldenEnvoyUnitTests holds what Envoy's own unit tests expect.
func TestGoldenEnvoyUnitTests(t *testing.T) {
	type decimalPair [2]any
	var golden struct {
		Source string
		Format int
		Errors []struct {
			Size  uint64 `json:"table_size"`
			Error string
		}
		Maglev []struct {
			Name, Note string
			Size       uint32 `json:"table_size"`
			Hosts      []goldenHost
			Localities []goldenLocality
			Table      []int
			Stats      *struct{ Min, Max uint32 }
			Retries    *struct {
				Hash           uint64
				HostsByAttempt []int `json:"hosts_by_attempt"`
			}
			HostsRule      string `json:"hosts_rule"`
			LocalitiesRule string `json:"localities_rule"`
			CountsRule     string `json:"counts_rule"`
		}
		RingHash []struct {
			Name  string
			Min   uint64 `json:"minimum_ring_size"`
			Hosts []goldenHost
			Ring  []decimalPair
			Picks []decimalPair
		} `json:"ring_hash"`
	}
	readGolden(t, "envoy-unit-tests.json", &golden)
	for _, e := range golden.Errors {
		if err := CheckTableSize(e.Size); err == nil || !strings.Contains(err.Error(), "prime number") || !strings.Contains(e.Error, "prime number") {
			t.Errorf("size %d: error %v, want one like %q", e.Size, err, e.Error)
		}
	}
	for _, v := range golden.Maglev {
		t.Run(v.Name, func(t *testing.T) {
			hosts, localities := hostsOf(v.Hosts, v.Localities)
			if v.HostsRule != "" {
				// The rules are for people to read; this is the one there is.
				if v.Name != "LocalityWeightedLopsided" {
					t.Fatalf("unknown rule %q", v.HostsRule)
				}
				localities = []Locality{{Weight: 127}, {Weight: 1}}
				for port := range 1024 {
					hosts = append(hosts, Host{Key: fmt.Sprintf("127.0.0.1:%d", port), Weight: 1, Locality: min(port, 1)})
				}
			}
			table := build(t, v.Size, hosts, localities)
			if v.HostsRule != "" {
				for i, got := range counts(table) {
					if want := map[bool]uint32{true: 64514, false: 1}[i == 0]; got != want {
						t.Errorf("host %d has %d slots, want %d", i, got, want)
					}
				}
			} else if got := owners(table); !slices.Equal(got, v.Table) {
				t.Errorf("table %v, want %v", got, v.Table)
			}
			if v.Stats != nil {
				if least, most := table.Entries(); least != v.Stats.Min || most != v.Stats.Max {
					t.Errorf("entries %d to %d, want %d to %d", least, most, v.Stats.Min, v.Stats.Max)
				}
			}
			if v.Retries != nil {
				for attempt, want := range v.Retries.HostsByAttempt {
					if got := table.Lookup(AttemptHash(v.Retries.Hash, uint32(attempt))); got != want {
						t.Errorf("attempt %d: host %d, want %d", attempt, got, want)
					}
				}
			}
		})
	}
	for _, v := range golden.RingHash {
		t.Run(v.Name, func(t *testing.T) {
			hosts, _ := hostsOf(v.Hosts, nil)
			ring, err := BuildRing(RingOptions{MinSize: v.Min, MaxSize: DefaultMaxRingSize}, hosts, nil)
			if err != nil {
				t.Fatal(err)
			}
			number := func(p decimalPair) uint64 {
				n, err := strconv.ParseUint(p[0].(string), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			if ring.Len() != len(v.Ring) {
				t.Fatalf("%d entries, want %d", ring.Len(), len(v.Ring))
			}
			for i, p := range v.Ring {
				if ring.hashes[i] != number(p) || int(ring.owners[i]) != int(p[1].(float64)) {
					t.Errorf("entry %d: %d of host %d, want %v", i, ring.hashes[i], ring.owners[i], p)
				}
			}
			for _, p := range v.Picks {
				if got := ring.Lookup(number(p)); got != int(p[1].(float64)) {
					t.Errorf("hash %d: host %d, want %v", number(p), got, p[1])
				}
			}
			size, least, most := ring.Entries()
			if size != 12 || least != 2 || most != 2 {
				t.Errorf("size %d, entries %d to %d, want 12 and 2 to 2", size, least, most)
			}
		})
	}
}
