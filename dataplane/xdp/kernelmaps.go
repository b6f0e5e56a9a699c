package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/cilium/ebpf"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
)

// kernelMaps are the maps of the program. They implement programMaps.
type kernelMaps struct {
	*bpf.Maps
	dir        string // of pins
	identities *ebpf.Map
	words      *ebpf.Memory // of backends
	idle       *kernelTable // what barriers write
}

// identitySpec is the map of identities: by index in backends, 40 bytes each. Only agents read it.
func identitySpec(backends uint32) *ebpf.MapSpec {
	return &ebpf.MapSpec{
		Name: "identities", Type: ebpf.Array, KeySize: 4, ValueSize: 40, MaxEntries: backends, Pinning: ebpf.PinByName,
	}
}

func newKernelMaps(dir string, m *bpf.Maps, identities *ebpf.Map) (*kernelMaps, error) {
	words, err := m.Backends.Memory()
	if err != nil {
		return nil, fmt.Errorf("map the backends into memory: %w", err)
	}
	k := &kernelMaps{Maps: m, dir: dir, identities: identities, words: words}
	t, err := k.makeTable(conntrack.Array{Slots: []uint32{0xffff0000 | uint32(conntrack.NoBackend)}}, 0)
	if err != nil {
		return nil, err
	}
	k.idle = t.(*kernelTable)
	return k, nil
}

func (k *kernelMaps) close() { k.idle.m.Close() }

func (k *kernelMaps) capacity() capacity {
	return capacity{k.Services4.MaxEntries(), k.Tables.MaxEntries(), k.Backends.MaxEntries()}
}

func (k *kernelMaps) barrier() error {
	if err := k.Tables.Put(uint32(barrierTable), k.idle.m); err != nil {
		return fmt.Errorf("wait for packets under way: %w", err)
	}
	return nil
}

// of returns the map of a key's family, and the key as the map has it.
func (k *kernelMaps) of(key serviceKey) (*ebpf.Map, any) {
	if key.vip.Addr().Is4() {
		x := bpf.Key4(key.vip, key.proto)
		return k.Services4, &x
	}
	x := bpf.Key6(key.vip, key.proto)
	return k.Services6, &x
}

func (k *kernelMaps) service(key serviceKey) (s bpf.Service, ok bool, err error) {
	m, x := k.of(key)
	err = m.Lookup(x, &s)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return s, false, nil
	}
	return s, err == nil, err
}

func (k *kernelMaps) putService(key serviceKey, s bpf.Service) error {
	m, x := k.of(key)
	return m.Put(x, &s)
}

func (k *kernelMaps) deleteService(key serviceKey) error {
	m, x := k.of(key)
	if err := m.Delete(x); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

func (k *kernelMaps) services() (map[serviceKey]bpf.Service, error) {
	all := map[serviceKey]bpf.Service{}
	var s bpf.Service
	var k4 bpf.ServiceKey4
	it := k.Services4.Iterate()
	for it.Next(&k4, &s) {
		var a [4]byte
		binary.NativeEndian.PutUint32(a[:], k4.Vip)
		all[serviceKey{netip.AddrPortFrom(netip.AddrFrom4(a), bpf.BigEndian(k4.Port)), k4.Proto}] = s
	}
	if err := it.Err(); err != nil {
		return nil, err
	}
	var k6 bpf.ServiceKey6
	it = k.Services6.Iterate()
	for it.Next(&k6, &s) {
		all[serviceKey{netip.AddrPortFrom(netip.AddrFrom16(k6.Vip), bpf.BigEndian(k6.Port)), k6.Proto}] = s
	}
	return all, it.Err()
}

// backend and putBackend go through memory: a word at a time, so that packets never see half of one.
func (k *kernelMaps) backend(index uint32) (bpf.Backend, error) {
	var b bpf.Backend
	if index >= k.Backends.MaxEntries() {
		return b, fmt.Errorf("backend %d is beyond the map's %d", index, k.Backends.MaxEntries())
	}
	_, err := k.words.ReadAt(bytesOf(&b), int64(index)*int64(unsafe.Sizeof(b)))
	return b, err
}

// backendWords is the order in which the words of an entry are written: interface and generation last, before
// them forwarding and flags.
var backendWords = [...]int{1, 2, 4, 5, 6, 7, 3, 0}

func (k *kernelMaps) putBackend(index uint32, b bpf.Backend) error {
	old, err := k.backend(index)
	if err != nil {
		return err
	}
	was, is := bytesOf(&old), bytesOf(&b)
	for _, w := range backendWords {
		at := w * 8
		if string(was[at:at+8]) == string(is[at:at+8]) {
			continue
		}
		if _, err := k.words.WriteAt(is[at:at+8], int64(index)*int64(len(is))+int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// wordsDiffer counts the 8-byte words in which two entries differ.
func wordsDiffer(a, b bpf.Backend) int {
	n := 0
	x, y := bytesOf(&a), bytesOf(&b)
	for at := 0; at < len(x); at += 8 {
		if string(x[at:at+8]) != string(y[at:at+8]) {
			n++
		}
	}
	return n
}

func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// An identity in its map: cluster, address in 16 bytes, port, copy, whether the address is IPv4.
func (k *kernelMaps) putIdentity(index uint32, id identity) error {
	var v [40]byte
	binary.NativeEndian.PutUint64(v[0:], id.cluster)
	a := id.addr.Addr().As16()
	copy(v[8:], a[:])
	binary.NativeEndian.PutUint16(v[24:], id.addr.Port())
	v[26] = id.copy
	if id.addr.Addr().Is4() {
		v[27] = 4
	}
	none := make([]bpf.BackendCounters, ebpf.MustPossibleCPU())
	if err := k.BackendCounts.Put(index, none); err != nil {
		return fmt.Errorf("begin its counters anew: %w", err)
	}
	return k.identities.Put(index, v[:])
}

func (k *kernelMaps) identity(index uint32) (identity, error) {
	var v [40]byte
	if err := k.identities.Lookup(index, v[:]); err != nil {
		return identity{}, err
	}
	a := netip.AddrFrom16([16]byte(v[8:24]))
	if v[27] == 4 {
		a = a.Unmap()
	}
	return identity{
		cluster: binary.NativeEndian.Uint64(v[0:]), copy: v[26],
		addr: netip.AddrPortFrom(a, binary.NativeEndian.Uint16(v[24:])),
	}, nil
}

func (k *kernelMaps) devices() ([]uint32, error) {
	var all []uint32
	var index uint32
	var d bpf.Device
	it := k.Devices.Iterate()
	for it.Next(&index, &d) {
		all = append(all, index)
	}
	return all, it.Err()
}

func (k *kernelMaps) putDevice(ifindex uint32) error {
	return k.Devices.Put(ifindex, &bpf.Device{Ifindex: ifindex})
}

func (k *kernelMaps) deleteDevice(ifindex uint32) error {
	if err := k.Devices.Delete(ifindex); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// kernelTable is an inner map.
type kernelTable struct {
	m     *ebpf.Map
	mapID uint32
	pin   string
}

// tablePins begins the names of the pins of inner maps, which end with their ids. Without a pin it takes
// CAP_SYS_ADMIN to open a map that another process has made.
const tablePins = "table-"

func (k *kernelMaps) pinOf(id uint32) string {
	return filepath.Join(k.dir, tablePins+strconv.FormatUint(uint64(id), 10))
}

func (k *kernelMaps) makeTable(a conntrack.Array, version uint64) (table, error) {
	// The outer map's template, but for the size.
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "table", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(bpf.TableChunk{})),
		MaxEntries: bpf.Chunks(len(a.Slots)), Flags: mmapable | innerMap,
	})
	if err != nil {
		return nil, fmt.Errorf("make a table of %d slots: %w", len(a.Slots), err)
	}
	t, err := k.tableOf(m)
	if err != nil {
		m.Close()
		return nil, err
	}
	image := bpf.Table(make([]byte, int(m.MaxEntries())*int(m.ValueSize())))
	h := image.Head()
	h.Slots, h.By, h.Version, h.Digest = uint32(len(a.Slots)), uint8(a.By), version, digest(a.Slots)
	h.Spare[0] = uint64(a.ID)
	if a.Leaf {
		h.Leaf = 1
	}
	copy(image.Slots(len(a.Slots)), a.Slots)
	memory, err := m.Memory()
	if err == nil {
		_, err = memory.WriteAt(image, 0)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("fill a table of %d slots: %w", len(a.Slots), err)
	}
	return t, nil
}

// BPF_F_MMAPABLE and BPF_F_INNER_MAP of linux/bpf.h (Linux 5.5 and 5.10).
const (
	mmapable = 1 << 10
	innerMap = 1 << 12
)

func (k *kernelMaps) tableOf(m *ebpf.Map) (*kernelTable, error) {
	info, err := m.Info()
	if err != nil {
		return nil, err
	}
	id, ok := info.ID()
	if !ok {
		return nil, errors.New("the kernel tells no ids of maps: Linux 4.13 or newer is needed")
	}
	return &kernelTable{m, uint32(id), k.pinOf(uint32(id))}, nil
}

func (k *kernelMaps) putTable(index uint32, t table) error {
	x := t.(*kernelTable)
	if _, err := os.Lstat(x.pin); errors.Is(err, os.ErrNotExist) {
		if err := x.m.Pin(x.pin); err != nil {
			return fmt.Errorf("pin a table: %w", err)
		}
	}
	return k.Tables.Put(index, x.m)
}

func (k *kernelMaps) deleteTable(index uint32) error {
	if err := k.Tables.Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

func (k *kernelMaps) tableID(index uint32) (uint32, error) {
	var id [4]byte
	err := k.Tables.Lookup(index, &id)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, nil
	}
	return binary.NativeEndian.Uint32(id[:]), err
}

func (k *kernelMaps) openTable(index uint32) (table, error) {
	id, err := k.tableID(index)
	if err != nil || id == 0 {
		return nil, err
	}
	m, err := ebpf.LoadPinnedMap(k.pinOf(id), nil)
	if err != nil {
		if m, err = ebpf.NewMapFromID(ebpf.MapID(id)); err != nil {
			return nil, fmt.Errorf("open table %d of the former agent, which is not pinned (this needs CAP_SYS_ADMIN): %w", index, err)
		}
	}
	return k.tableOf(m)
}

func (t *kernelTable) id() uint32 { return t.mapID }

// close ends a table that is not in force: the kernel frees it when the last packet has left it.
func (t *kernelTable) close() {
	_ = os.Remove(t.pin) // if it was ever put; what stays is removed by the next reconciliation
	t.m.Close()
}

func (k *kernelMaps) dropPins(inForce map[uint32]bool) error {
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return fmt.Errorf("look at what is pinned: %w", err)
	}
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), tablePins)
		if id, err := strconv.ParseUint(text, 10, 32); ok && err == nil && !inForce[uint32(id)] {
			if err := os.Remove(filepath.Join(k.dir, e.Name())); err != nil {
				return fmt.Errorf("remove the pin of a table that is not in force: %w", err)
			}
		}
	}
	return nil
}

func (t *kernelTable) read() (conntrack.Array, uint64, error) {
	var a conntrack.Array
	memory, err := t.m.Memory()
	if err != nil {
		return a, 0, err
	}
	image := bpf.Table(make([]byte, memory.Size()))
	if _, err := memory.ReadAt(image, 0); err != nil {
		return a, 0, err
	}
	h := image.Head()
	if h.Slots == 0 || bpf.Chunks(int(h.Slots)) > t.m.MaxEntries() {
		return a, 0, fmt.Errorf("a table says that it has %d slots in %d chunks: %w", h.Slots, t.m.MaxEntries(), errMismatch)
	}
	return conntrack.Array{
		ID: conntrack.ID(h.Spare[0]), By: conntrack.HashKind(h.By), Leaf: h.Leaf != 0, Slots: image.Slots(int(h.Slots)),
	}, h.Digest, nil
}

// digest is what the head of a table holds: the XXH64 of its slots, as the map has them.
func digest(slots []uint32) uint64 {
	return xxhash.Sum64(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(slots))), 4*len(slots)))
}
