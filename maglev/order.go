package maglev

import (
	"cmp"
	"slices"
	"strings"
)

// sortByKey puts indexes of hosts in the order of the hosts' keys, bytewise.
// Equal keys are ordered by address, then by position. (Envoy orders them by
// object pointer, so which of them owns a slot is not defined there.)
func sortByKey(hosts []Host, indexes []uint32) {
	// Most keys of a cluster begin alike, "10.0." or "[2001:db8:". The eight
	// bytes after what they share, as one number, put most of them in order;
	// what these leave equal is compared as strings.
	shared := sharedPrefix(hosts, indexes)
	entries := make([]windowed, len(indexes))
	for i, index := range indexes {
		entries[i] = windowed{window(hosts[index].Key[shared:]), index}
	}
	entries = sortByWindow(entries)
	for start := 0; start < len(entries); {
		end := start + 1
		for end < len(entries) && entries[end].window == entries[start].window {
			end++
		}
		if end > start+1 {
			slices.SortFunc(entries[start:end], func(a, b windowed) int {
				x, y := &hosts[a.index], &hosts[b.index]
				if order := strings.Compare(x.Key[shared:], y.Key[shared:]); order != 0 {
					return order
				}
				if order := strings.Compare(x.Addr, y.Addr); order != 0 {
					return order
				}
				return cmp.Compare(a.index, b.index)
			})
		}
		start = end
	}
	for i := range entries {
		indexes[i] = entries[i].index
	}
}

// A windowed is the index of a host with a part of its key.
type windowed struct {
	window uint64
	index  uint32
}

// sortByWindow returns the entries in order, in the same memory or other. It is
// a radix sort, a byte at a time from the last: with ten thousand hosts a sort
// by comparison would take as long as filling the table.
func sortByWindow(entries []windowed) []windowed {
	var histograms [8][256]uint32
	for _, e := range entries {
		for digit := range histograms {
			histograms[digit][byte(e.window>>(8*digit))]++
		}
	}
	other := make([]windowed, len(entries))
	for digit := range histograms {
		starts := &histograms[digit]
		if len(entries) > 0 && starts[byte(entries[0].window>>(8*digit))] == uint32(len(entries)) {
			continue // all have the same byte here
		}
		var sum uint32
		for b, n := range starts {
			starts[b] = sum
			sum += n
		}
		for _, e := range entries {
			start := &starts[byte(e.window>>(8*digit))]
			other[*start] = e
			*start++
		}
		entries, other = other, entries
	}
	return entries
}

// sharedPrefix returns the number of bytes that all keys begin with.
func sharedPrefix(hosts []Host, indexes []uint32) int {
	if len(indexes) == 0 {
		return 0
	}
	first := hosts[indexes[0]].Key
	shared := len(first)
	for _, index := range indexes[1:] {
		key := hosts[index].Key
		shared = min(shared, len(key))
		for i := range shared {
			if key[i] != first[i] {
				shared = i
				break
			}
		}
	}
	return shared
}

// window is the first eight bytes of s as a number that orders as they do. A
// shorter s counts as if zeros followed.
func window(s string) uint64 {
	var w uint64
	for i := range 8 {
		w <<= 8
		if i < len(s) {
			w |= uint64(s[i])
		}
	}
	return w
}
