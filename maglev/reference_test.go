package maglev

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// buildPlainly is Envoy's way of building a table, step by step: the slow and
// obvious twin of Build. It returns the owner of each slot, or nil.
func buildPlainly(size uint32, hosts []Host, localities []Locality) []uint32 {
	type entry struct {
		host         uint32
		offset, skip uint64
		weight       float64
		target       float64
		next         uint64
	}
	var entries []entry
	add := func(members []uint32, share float64) {
		var sum uint64
		for _, i := range members {
			sum += uint64(hosts[i].Weight)
		}
		for _, i := range members {
			entries = append(entries, entry{host: i, weight: float64(hosts[i].Weight) * share / float64(sum)})
		}
	}
	if localities == nil {
		all := make([]uint32, len(hosts))
		for i := range all {
			all[i] = uint32(i)
		}
		add(all, 1)
	} else {
		var total uint64
		for _, l := range localities {
			if !l.Empty {
				total += uint64(l.Weight)
			}
		}
		for j, l := range localities {
			var members []uint32
			for i := range hosts {
				if hosts[i].Locality == j {
					members = append(members, uint32(i))
				}
			}
			if l.Weight > 0 {
				add(members, float64(l.Weight)/float64(total))
			}
		}
	}
	if len(entries) == 0 {
		return nil
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(strings.Compare(hosts[a.host].Key, hosts[b.host].Key),
			strings.Compare(hosts[a.host].Addr, hosts[b.host].Addr), cmp.Compare(a.host, b.host))
	})
	m := uint64(size)
	heaviest := 0.0
	for i := range entries {
		e := &entries[i]
		key := hosts[e.host].Key
		seeded := xxhash.NewWithSeed(1)
		seeded.WriteString(key)
		e.offset = xxhash.Sum64String(key) % m
		e.skip = seeded.Sum64()%(m-1) + 1
		heaviest = max(heaviest, e.weight)
	}
	table := make([]uint32, size)
	taken := make([]bool, size)
	filled := uint32(0)
	for round := uint32(1); filled < size; round++ {
		for i := 0; i < len(entries) && filled < size; i++ {
			e := &entries[i]
			if float64(round)*e.weight < e.target {
				continue
			}
			e.target += heaviest
			slot := (e.offset + e.skip*e.next) % m
			for taken[slot] {
				e.next++
				slot = (e.offset + e.skip*e.next) % m
			}
			table[slot] = e.host
			taken[slot] = true
			e.next++
			filled++
		}
	}
	return table
}
