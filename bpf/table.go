package bpf

import (
	"fmt"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/cilium/ebpf"

	"github.com/guideway/guideway/conntrack"
)

// NewTable makes the inner map of an array of slots or classes, filled and
// ready to be put into tables. version is what its head says.
func NewTable(a conntrack.ArrayImage, version uint64) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "table", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(TableChunk{})),
		MaxEntries: Chunks(a.Len()), Flags: flagMmapable | flagInnerMap, // as in maps.h
	})
	if err != nil {
		return nil, fmt.Errorf("make a table of %d slots: %w", a.Len(), err)
	}
	if err := fill(m, a, version); err != nil {
		m.Close()
		return nil, fmt.Errorf("fill a table of %d slots: %w", a.Len(), err)
	}
	return m, nil
}

// BPF_F_MMAPABLE and BPF_F_INNER_MAP of linux/bpf.h.
const (
	flagMmapable = 1 << 10
	flagInnerMap = 1 << 12
)

func fill(m *ebpf.Map, a conntrack.ArrayImage, version uint64) error {
	memory, err := m.Memory()
	if err != nil {
		return err
	}
	t := Table(make([]byte, int(m.MaxEntries())*int(m.ValueSize())))
	slots := t.Slots(a.Len())
	a.Copy(slots)
	*t.Head() = TableHead{
		Slots: uint32(a.Len()), By: uint8(a.By()), Digest: Digest(slots), Version: version,
	}
	if a.Leaf() {
		t.Head().Leaf = 1
	}
	_, err = memory.WriteAt(t, 0)
	return err
}

// Digest returns the digest that the head of a table holds: the XXH64 of its
// slots, as the map has them.
func Digest(slots []uint32) uint64 {
	return xxhash.Sum64(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(slots))), 4*len(slots)))
}
