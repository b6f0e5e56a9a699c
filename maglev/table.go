package maglev

import (
	"math"
	"slices"
)

// Table is a Maglev table: for each of a prime number of slots, the host that
// owns it. A table without hosts has no owners, and every lookup in it fails.
//
// A Table does not change, so any number of goroutines may use it. It takes 2
// bytes a slot, 4 with more than 65,536 hosts, and less than 100 bytes a host.
type Table struct {
	size   uint32
	narrow []uint16 // owner of each slot as index into hosts, or
	wide   []uint32 // the same for more hosts than 16 bits can name
	hosts  []Host
	order  []uint32 // hosts that have a share, in key order
	counts []uint32 // slots of each host
}

// narrowHosts is the largest number of hosts whose indexes fit in 16 bits.
const narrowHosts = 1 << 16

// Build builds Envoy's table of a size for these hosts: those of one priority
// that are healthy, or all of them in panic.
//
// With a nil list of localities the hosts compete by their own weights (Envoy's
// default). Else they compete within their localities, and these by theirs
// (locality_weighted_lb_config); if no locality has a weight, or there is no
// host, the table is empty.
//
// The order of hosts decides nothing but the indexes in the table, as long as
// no two hosts have the same key and the same address. With more hosts than
// slots the first in key order get one each, the others none.
func Build(size uint32, hosts []Host, localities []Locality) (*Table, error) {
	if err := CheckTableSize(uint64(size)); err != nil {
		return nil, err
	}
	shares, err := normalise(hosts, localities)
	if err != nil {
		return nil, err
	}
	t := &Table{size: size, hosts: slices.Clone(hosts), counts: make([]uint32, len(hosts))}
	if len(shares) == 0 {
		return t, nil
	}
	t.order = make([]uint32, len(shares))
	for i := range shares {
		t.order[i] = shares[i].host
	}
	sortByKey(t.hosts, t.order)
	if len(hosts) <= narrowHosts {
		t.narrow = make([]uint16, size)
		fill(t, t.narrow, shares)
	} else {
		t.wide = make([]uint32, size)
		fill(t, t.wide, shares)
	}
	return t, nil
}

// fill decides the owner of each slot.
func fill[S uint16 | uint32](t *Table, slots []S, shares []share) {
	n := len(t.order)
	if n == 1 {
		for i := range slots {
			slots[i] = S(t.order[0])
		}
		t.counts[t.order[0]] = t.size
		return
	}
	scratch := scratches.Get().(*scratch)
	defer scratches.Put(scratch)
	owners := make([]S, n)
	cursors := make([]cursor, n)
	for rank, host := range t.order {
		owners[rank] = S(host)
		cursors[rank] = newCursor(t.hosts[host].Key, t.size)
	}
	f := newFiller(slots, owners, cursors, scratch)

	lightest, heaviest := lightestAndHeaviest(shares)
	if lightest == heaviest {
		// Everybody takes a slot in every round.
		all := make([]uint32, n)
		for rank := range all {
			all[rank] = uint32(rank)
		}
		for f.free > 0 {
			f.take(all)
		}
		rounds, extra := t.size/uint32(n), int(t.size%uint32(n))
		for rank, host := range t.order {
			t.counts[host] = rounds
			if rank < extra {
				t.counts[host]++
			}
		}
		return
	}
	weights := make([]float64, len(t.hosts))
	for _, s := range shares {
		weights[s.host] = s.weight
	}
	byRank := make([]float64, n)
	for rank, host := range t.order {
		byRank[rank] = weights[host]
	}
	if heaviest > 0.5 {
		f.skipSecondStage()
	}
	schedule := newSchedule(byRank, heaviest)
	for f.free > 0 {
		ranks := schedule.next(heaviest)
		ranks = ranks[:min(len(ranks), f.free)]
		for _, rank := range ranks {
			t.counts[t.order[rank]]++
		}
		f.take(ranks)
	}
}

func lightestAndHeaviest(shares []share) (lightest, heaviest float64) {
	lightest, heaviest = math.Inf(1), math.Inf(-1)
	for _, s := range shares {
		lightest = min(lightest, s.weight)
		heaviest = max(heaviest, s.weight)
	}
	return lightest, heaviest
}

// Size is the number of slots.
func (t *Table) Size() uint32 { return t.size }

// Empty says whether no slot has an owner.
func (t *Table) Empty() bool { return t.narrow == nil && t.wide == nil }

// Len is the number of hosts the table was built from, also those without a
// slot.
func (t *Table) Len() int { return len(t.hosts) }

// Host returns the i-th of the hosts the table was built from.
func (t *Table) Host(i int) Host { return t.hosts[i] }

// Slot returns the slot of a hash, whether or not it has an owner.
func (t *Table) Slot(hash uint64) uint32 { return uint32(hash % uint64(t.size)) }

// Owner returns the index of the host that owns a slot, or -1 in an empty table.
func (t *Table) Owner(slot uint32) int {
	switch {
	case t.narrow != nil:
		return int(t.narrow[slot])
	case t.wide != nil:
		return int(t.wide[slot])
	}
	return -1
}

// Lookup returns the index of the host that has a hash, or -1 in an empty table.
func (t *Table) Lookup(hash uint64) int { return t.Owner(t.Slot(hash)) }

// Narrow returns the owner of each slot if 16 bits can name all hosts, else nil;
// also nil for an empty table. The slice is the table's own: it is for reading.
func (t *Table) Narrow() []uint16 { return t.narrow }

// Wide returns the owner of each slot if [Table.Narrow] cannot, else nil. The
// slice is the table's own: it is for reading.
func (t *Table) Wide() []uint32 { return t.wide }

// Count returns the number of slots the i-th host owns.
func (t *Table) Count(i int) uint32 { return t.counts[i] }

// Entries returns the smallest and the largest number of slots a host owns, as
// Envoy's gauges min_entries_per_host and max_entries_per_host have it: hosts
// that have no share do not count, and a lone host counts as one entry, since
// Envoy builds no table for it.
func (t *Table) Entries() (smallest, largest uint32) {
	if len(t.order) == 0 {
		return 0, 0
	}
	if len(t.order) == 1 {
		return 1, 1
	}
	smallest = math.MaxUint32
	for _, host := range t.order {
		smallest = min(smallest, t.counts[host])
		largest = max(largest, t.counts[host])
	}
	return smallest, largest
}
