package scheme

import (
	"fmt"

	"github.com/guideway/guideway/maglev"
)

// maglevScheme is Maglev hashing (Eisenbud et al., 2016), the table as Envoy and
// Guideway build it.
type maglevScheme struct{ size uint32 }

func (s maglevScheme) Spec() string   { return fmt.Sprintf("maglev:m=%d", s.size) }
func (s maglevScheme) Kind() string   { return "maglev" }
func (s maglevScheme) Weighted() bool { return true }

func (s maglevScheme) build(backends []Backend) (*maglev.Table, error) {
	if err := check(backends); err != nil {
		return nil, err
	}
	return maglev.Build(s.size, hosts(backends), nil)
}

func (s maglevScheme) Place(backends []Backend, _ Placement) (Placement, error) {
	table, err := s.build(backends)
	if err != nil {
		return nil, err
	}
	return &maglevPlacement{table}, nil
}

// maglevPlacement takes 2 bytes a slot.
type maglevPlacement struct{ table *maglev.Table }

func (p *maglevPlacement) Bytes() int { return 2*len(p.table.Narrow()) + 4*len(p.table.Wide()) }

func (p *maglevPlacement) Pick(keys []Key, owners []int32) {
	for i := range keys {
		owners[i] = int32(p.table.Lookup(hashOf(&keys[i])))
	}
}

// Top takes the owners of the slots that follow, each once.
func (p *maglevPlacement) Top(dst []int32, key *Key, k int) []int32 {
	from, slot := len(dst), p.table.Slot(hashOf(key))
	for range p.table.Size() {
		if dst = distinct(dst, from, int32(p.table.Owner(slot))); len(dst)-from == k {
			break
		}
		if slot++; slot == p.table.Size() {
			slot = 0
		}
	}
	return dst
}
