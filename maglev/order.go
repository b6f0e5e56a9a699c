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
	// Most keys of a cluster begin alike, "10.0." or "[2001:db8:", so compare
	// the eight bytes after what they share as one number, and the rest of the
	// strings only where these are equal.
	type entry struct {
		window uint64
		index  uint32
	}
	shared := sharedPrefix(hosts, indexes)
	entries := make([]entry, len(indexes))
	for i, index := range indexes {
		entries[i] = entry{window(hosts[index].Key[shared:]), index}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		if a.window != b.window {
			if a.window < b.window {
				return -1
			}
			return 1
		}
		x, y := &hosts[a.index], &hosts[b.index]
		if order := strings.Compare(x.Key[shared:], y.Key[shared:]); order != 0 {
			return order
		}
		if order := strings.Compare(x.Addr, y.Addr); order != 0 {
			return order
		}
		return cmp.Compare(a.index, b.index)
	})
	for i := range entries {
		indexes[i] = entries[i].index
	}
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
