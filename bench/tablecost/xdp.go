package tablecost

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/maglev"
)

// XDP returns a target that is the map of tables of the XDP program, written as its data plane does: a new inner map
// with the steering table, filled at once, takes the place of the former one; then the barrier, after which no packet
// can have that one in hand; then the table is read back. No program runs on it. It needs the right to make BPF maps.
func XDP() (Target, error) {
	spec, err := bpf.Spec(bpf.Options{})
	if err != nil {
		return nil, err
	}
	tables, err := ebpf.NewMap(spec.Maps["tables"])
	if err != nil {
		return nil, explain(err)
	}
	x := &inXDP{tables: tables}
	// What barriers write: the table of a service without backends.
	var idle conntrack.Steering
	if _, err := idle.Apply(conntrack.Desired{
		Tables: []conntrack.Table{{ID: 1, Slots: []conntrack.Backend{conntrack.NoBackend}}}, Top: 1, Idle: conntrack.NoIdle,
	}, 0); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	array, err := only(&idle)
	if err == nil {
		x.idle, err = bpf.NewTable(array, 0)
	}
	if err != nil {
		return nil, errors.Join(explain(err), x.Close())
	}
	return x, nil
}

type inXDP struct {
	userspace
	tables, idle, table *ebpf.Map
	version             uint64
}

// Indices in tables: of the service's table, and of what only barriers write.
const (
	barrierIndex = 0
	tableIndex   = 1
)

func (x *inXDP) Name() string { return "XDP: a new map, swapped" }

func (x *inXDP) Close() error {
	var errs []error
	for _, m := range []*ebpf.Map{x.table, x.idle, x.tables} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

func (x *inXDP) Push(hosts []netip.AddrPort, t *maglev.Table) error {
	if err := x.userspace.Push(hosts, t); err != nil {
		return err
	}
	array, err := only(&x.steering)
	if err != nil {
		return err
	}
	x.version++
	table, err := bpf.NewTable(array, x.version)
	if err != nil {
		return err
	}
	if err := x.swap(table); err != nil {
		return errors.Join(err, table.Close())
	}
	former := x.table
	x.table = table
	if former != nil {
		if err := former.Close(); err != nil {
			return err
		}
	}
	return check(table, array)
}

// swap puts a table in force. Each of the updates waits until packets under way are through.
func (x *inXDP) swap(table *ebpf.Map) error {
	if err := x.tables.Put(uint32(tableIndex), table); err != nil {
		return fmt.Errorf("put the table in force: %w", err)
	}
	if err := x.tables.Put(uint32(barrierIndex), x.idle); err != nil {
		return fmt.Errorf("wait for packets under way: %w", err)
	}
	return nil
}

// check reads a table back.
func check(table *ebpf.Map, array conntrack.ArrayImage) error {
	memory, err := table.Memory()
	if err != nil {
		return err
	}
	got := bpf.Table(make([]byte, memory.Size()))
	if _, err := memory.ReadAt(got, 0); err != nil {
		return fmt.Errorf("read the table back: %w", err)
	}
	want := make([]uint32, array.Len())
	array.Copy(want)
	if h := got.Head(); int(h.Slots) != len(want) || h.Digest != bpf.Digest(got.Slots(len(want))) || h.Digest != bpf.Digest(want) {
		return errors.New("read back, the table is not what was written")
	}
	return nil
}

// only returns the table of a service that has one.
func only(s *conntrack.Steering) (conntrack.ArrayImage, error) {
	image, ok := s.Image()
	if !ok {
		return conntrack.ArrayImage{}, errors.New("the service has no state")
	}
	i, ok := image.Only()
	if !ok {
		return conntrack.ArrayImage{}, errors.New("the service has more than one table")
	}
	array, _ := image.Array(i)
	return array, nil
}

// PerSlot returns a target that is what many balancers have: a plain array map with an owner for each slot, in 4
// bytes, written by one bpf(2) call for each slot; with changed, for each slot whose owner changed only. There is no
// steering, and while it is written packets meet some slots from before and some from after. It needs the right to
// make BPF maps.
func PerSlot(changed bool) (Target, error) { return &perSlot{changed: changed}, nil }

type perSlot struct {
	changed bool
	slots   *ebpf.Map // made for the first table
	owners  []uint32
}

func (s *perSlot) Name() string {
	if s.changed {
		return "one update a changed slot"
	}
	return "one update a slot"
}

func (s *perSlot) Close() error {
	if s.slots == nil {
		return nil
	}
	return s.slots.Close()
}

func (s *perSlot) Push(_ []netip.AddrPort, t *maglev.Table) error {
	first := s.slots == nil
	if first {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "slots", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: t.Size()})
		if err != nil {
			return explain(err)
		}
		s.slots, s.owners = m, make([]uint32, t.Size())
	}
	for slot := range t.Size() {
		owner := uint32(t.Owner(slot))
		if s.changed && !first && owner == s.owners[slot] {
			continue
		}
		s.owners[slot] = owner
		if err := s.slots.Put(&slot, &owner); err != nil {
			return fmt.Errorf("write slot %d: %w", slot, err)
		}
	}
	return nil
}

// explain says what an error of making a map most often means.
func explain(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("not allowed to make BPF maps (CAP_BPF is missing: run as root, or give --target userspace): %w", err)
	}
	return err
}
