package disruption

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/guideway/guideway/bench/scheme"
)

// Member is a backend and where it stands.
type Member struct {
	scheme.Backend
	Zone string // "" is none
}

// Fleet returns n backends, 10.0.0.1:8080 and on. Weights go round, nil is 1 for
// all; so do zones, which are named a, b, c and on, 0 is none.
func Fleet(n int, weights []uint32, zones int) []Member {
	members := make([]Member, n)
	for i := range members {
		members[i] = Member{scheme.Backend{Addr: address(i), Weight: 1}, ""}
		if len(weights) > 0 {
			members[i].Weight = weights[i%len(weights)]
		}
		if zones > 0 {
			members[i].Zone = zoneName(i % zones)
		}
	}
	return members
}

// address is that of the i-th backend: 10.0.0.1:8080 to 10.255.255.254:8080, with
// no last byte of 0 or 255.
func address(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i / 254 / 256), byte(i / 254), byte(i%254 + 1)}), 8080)
}

func zoneName(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return fmt.Sprintf("z%d", i+1)
}

// fleet is the state of all backends there ever were; a backend's index is its
// identity.
type fleet struct {
	members []memberState
	used    int // addresses handed out by address
}

type memberState struct {
	Member
	placed bool // gets new flows
	serves bool // keeps the flows it has
}

func newFleet(members []Member) *fleet {
	f := &fleet{}
	for _, m := range members {
		f.members = append(f.members, memberState{m, true, true})
	}
	return f
}

// fresh returns an address that no backend has or had.
func (f *fleet) fresh() netip.AddrPort {
	for {
		addr := address(f.used)
		f.used++
		if f.find(addr) < 0 {
			return addr
		}
	}
}

func (f *fleet) find(addr netip.AddrPort) int {
	return slices.IndexFunc(f.members, func(m memberState) bool { return m.Addr == addr })
}

// placed returns those that get new flows.
func (f *fleet) placed() []int {
	var out []int
	for id, m := range f.members {
		if m.placed {
			out = append(out, id)
		}
	}
	return out
}

// stage is a fleet at one time, as it is counted.
type stage struct {
	name     string
	ids      []int32          // of the backends that get new flows
	backends []scheme.Backend // the same ones
	serves   []bool           // by id
	fair     []float64        // each backend's fair share of all flows, by id
}

func (f *fleet) stage(name string) (stage, error) {
	s := stage{name: name, serves: make([]bool, len(f.members)), fair: make([]float64, len(f.members))}
	total := 0.0
	for id, m := range f.members {
		s.serves[id] = m.serves
		if m.placed {
			s.ids = append(s.ids, int32(id))
			s.backends = append(s.backends, m.Backend)
			total += float64(m.Weight)
		}
	}
	if len(s.ids) == 0 {
		return s, fmt.Errorf("%s: no backend is left", name)
	}
	for _, id := range s.ids {
		s.fair[id] = float64(f.members[id].Weight) / total
	}
	return s, nil
}
