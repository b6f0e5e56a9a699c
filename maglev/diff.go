package maglev

import (
	"fmt"
	"iter"
)

// A Move is a slot that has another owner in a newer table. From and To are
// indexes into the older and the newer table's hosts; -1 says that that table
// is empty.
type Move struct {
	Slot     uint32
	From, To int
}

// Diff returns the slots that have changed owner from older to newer, in order.
//
// A host of one table is the host of the other that has the same key and the
// same address; where hosts share both, the first is the first, and so on.
// Tables of different sizes cannot be compared slot by slot: that is the error.
func Diff(older, newer *Table) (iter.Seq[Move], error) {
	if older.size != newer.size {
		return nil, fmt.Errorf("a table of %d slots cannot be compared with one of %d slot by slot", older.size, newer.size)
	}
	successor := successors(older, newer)
	return func(yield func(Move) bool) {
		for slot := range older.size {
			from, to := older.Owner(slot), newer.Owner(slot)
			same := from < 0 && to < 0 || from >= 0 && to >= 0 && successor[from] == to
			if !same && !yield(Move{slot, from, to}) {
				return
			}
		}
	}, nil
}

// A Disruption counts, in slots, what the change from one table to another
// moves, and what of it had to move.
type Disruption struct {
	// Moved is the number of slots that changed owner.
	Moved uint32
	// Orphaned is the number of those whose former owner is not among the
	// hosts any more.
	Orphaned uint32
	// Minimum is the least number of slots any table would have moved that
	// gives each host as many slots as the newer one does. It is at least
	// Orphaned.
	Minimum uint32
}

// Collateral is the number of slots that moved and need not have.
func (d Disruption) Collateral() uint32 { return d.Moved - d.Minimum }

// Disrupt counts what changed from older to newer, hosts and errors as in
// [Diff].
func Disrupt(older, newer *Table) (Disruption, error) {
	moves, err := Diff(older, newer)
	if err != nil {
		return Disruption{}, err
	}
	var d Disruption
	successor := successors(older, newer)
	for m := range moves {
		d.Moved++
		if m.From >= 0 && successor[m.From] < 0 {
			d.Orphaned++
		}
	}
	// Every slot a host has less had to move. A table without owners is as one
	// whose slots all belong to nobody.
	for from, to := range successor {
		had, has := older.counts[from], uint32(0)
		if to >= 0 {
			has = newer.counts[to]
		}
		if had > has {
			d.Minimum += had - has
		}
	}
	if older.Empty() && !newer.Empty() {
		d.Minimum = older.size
	}
	return d, nil
}

// successors returns, for each host of older, its index in newer, or -1.
func successors(older, newer *Table) []int {
	type identity struct{ key, addr string }
	positions := make(map[identity][]int, len(newer.hosts))
	for i, h := range newer.hosts {
		id := identity{h.Key, h.Addr}
		positions[id] = append(positions[id], i)
	}
	successor := make([]int, len(older.hosts))
	for i, h := range older.hosts {
		id := identity{h.Key, h.Addr}
		successor[i] = -1
		if same := positions[id]; len(same) > 0 {
			successor[i], positions[id] = same[0], same[1:]
		}
	}
	return successor
}
