package scheme

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// recorded is what record.py saw another program do.
type recorded struct {
	Source  string
	Keys    []string
	Vectors []struct {
		Backends []recordedBackend
		Picks    []int32              // by key
		Runs     [][2]json.RawMessage // first slot and node
	}
}

type recordedBackend struct {
	Addr   netip.AddrPort
	Weight uint32
}

func (b *recordedBackend) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&b.Addr, &b.Weight})
}

func load(t *testing.T, name string) recorded {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Vectors) == 0 {
		t.Fatalf("%s has no vectors", name)
	}
	return r
}

func backendsOf(recorded []recordedBackend) []Backend {
	out := make([]Backend, len(recorded))
	for i, b := range recorded {
		out[i] = Backend(b)
	}
	return out
}

func TestRingsPickAsTheirPrograms(t *testing.T) {
	for name, s := range map[string]Scheme{"ketama.json": ketama{}, "nginx.json": nginx{}} {
		r := load(t, name)
		keys := make([]Key, len(r.Keys))
		for i, k := range r.Keys {
			if copy(keys[i][:], k) != len(k) || len(k) != len(keys[i]) {
				t.Fatalf("key %q is not as long as a key", k)
			}
		}
		for v, vector := range r.Vectors {
			p, err := s.Place(backendsOf(vector.Backends), nil)
			if err != nil {
				t.Fatal(err)
			}
			owners := make([]int32, len(keys))
			p.Pick(keys, owners)
			differ := 0
			for i := range owners {
				if owners[i] != vector.Picks[i] {
					differ++
				}
			}
			if differ > 0 {
				t.Errorf("%s: vector %d: %d of %d picks differ from %s", name, v, differ, len(keys), r.Source)
			}
		}
	}
}

func TestSlotsMoveAsWithRedisCLI(t *testing.T) {
	r := load(t, "redis.json")
	var p Placement
	for v, vector := range r.Vectors {
		var err error
		if p, err = (fixedSlots{}).Place(backendsOf(vector.Backends), p); err != nil {
			t.Fatal(err)
		}
		owners := p.(*slotsPlacement)
		run, differ := -1, 0
		var owner netip.AddrPort
		for slot := range redisSlots {
			if run+1 < len(vector.Runs) {
				var first int
				json.Unmarshal(vector.Runs[run+1][0], &first)
				if first == slot {
					run++
					if err := json.Unmarshal(vector.Runs[run][1], &owner); err != nil {
						t.Fatal(err)
					}
				}
			}
			if owners.names[owners.owners[slot]] != owner {
				differ++
			}
		}
		if differ > 0 {
			t.Errorf("step %d: %d of %d slots are elsewhere with %s", v, differ, redisSlots, r.Source)
		}
	}
}

// The check value of CRC-16/XMODEM, and slots that Redis's documentation of CLUSTER KEYSLOT gives.
func TestCRC16(t *testing.T) {
	if got := crc16([]byte("123456789")); got != 0x31c3 {
		t.Errorf("crc16 of 123456789: %#x, want 0x31c3", got)
	}
	for key, slot := range map[string]uint16{"somekey": 11058, "foo{hash_tag}"[4:12]: 2515} {
		if got := crc16([]byte(key)) % redisSlots; got != slot {
			t.Errorf("slot of %q: %d, want %d", key, got, slot)
		}
	}
}
