package bpf

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/guideway/guideway/conntrack"
)

// bed is the program under BPF_PROG_TEST_RUN, with maps that a test fills.
type bed struct {
	t testing.TB
	*Program
	tables map[uint32]*ebpf.Map // inner maps, by index in tables
	events []uint64             // at the last look
}

const (
	thisInterface = 1 // what BPF_PROG_TEST_RUN says packets come from: lo
	testSlots     = 7
)

func requireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading an XDP program takes root")
	}
}

func newBed(t testing.TB, change func(*Switches)) *bed {
	t.Helper()
	requireRoot(t)
	s := DefaultSwitches()
	s.SetClock = 1
	if change != nil {
		change(&s)
	}
	p, err := Load(Options{Switches: &s, Capacity: Capacity{
		Services: 64, Tables: 256, Backends: 256, Flows: 16384, HalfOpen: 16384, Fragments: 256, NATFlows: 4096,
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	b := &bed{t: t, Program: p, tables: map[uint32]*ebpf.Map{}}
	t.Cleanup(func() {
		b.closeTables()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	b.setClock(time.Hour)
	b.events = b.readEvents()
	return b
}

func (b *bed) closeTables() {
	for _, m := range b.tables {
		m.Close()
	}
	clear(b.tables)
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatalf("%+v", err)
	}
}

func (b *bed) setClock(now time.Duration) {
	b.t.Helper()
	b.must(b.clock.Set(uint64(now)))
}

// reset empties every map but tables, which nothing leads to then (each deletion
// there waits for an RCU grace period).
func (b *bed) reset() {
	b.t.Helper()
	for _, m := range []*ebpf.Map{
		b.Services4, b.Services6, b.Flows4, b.Flows6, b.HalfOpen4, b.HalfOpen6, b.Fragments, b.NATFlows, b.NATBacks,
	} {
		var keys [][]byte
		var k, v []byte
		it := m.Iterate()
		for it.Next(&k, &v) {
			keys = append(keys, slices.Clone(k))
		}
		b.must(it.Err())
		for _, k := range keys {
			b.must(m.Delete(k))
		}
	}
	cpus := ebpf.MustPossibleCPU()
	b.must(b.Limits.Put(uint32(0), make([]guidewayLimit, cpus)))
	for i := range uint32(16) {
		b.must(b.Backends.Put(i, Backend{Generation: 1}))
		b.must(b.BackendCounts.Put(i, make([]BackendCounters, cpus)))
		b.must(b.ServiceCounts.Put(i, make([]ServiceCounters, cpus)))
	}
	b.events = b.readEvents()
}

func (b *bed) readEvents() []uint64 {
	b.t.Helper()
	n := make([]uint64, EventCount)
	for e := range n {
		var perCPU []uint64
		b.must(b.Events.Lookup(uint32(e), &perCPU))
		for _, c := range perCPU {
			n[e] += c
		}
	}
	return n
}

// newEvents returns the counts since the last look that are not zero, by name.
func (b *bed) newEvents() map[string]uint64 {
	b.t.Helper()
	now, delta := b.readEvents(), map[string]uint64{}
	for e := range now {
		if d := now[e] - b.events[e]; d != 0 {
			delta[EventName(Event(e))] = d
		}
	}
	b.events = now
	return delta
}

func (b *bed) backendCounters(i uint32) (sum BackendCounters) {
	b.t.Helper()
	var perCPU []BackendCounters
	b.must(b.BackendCounts.Lookup(i, &perCPU))
	for _, c := range perCPU {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
		sum.Flows += c.Flows
		sum.Unresolved += c.Unresolved
		sum.Back += c.Back
	}
	return sum
}

func (b *bed) serviceCounters(id uint32) (sum ServiceCounters) {
	b.t.Helper()
	var perCPU []ServiceCounters
	b.must(b.ServiceCounts.Lookup(id, &perCPU))
	for _, c := range perCPU {
		sum.Lookups += c.Lookups
		sum.Found += c.Found
		sum.Remembered += c.Remembered
		sum.HalfOpen += c.HalfOpen
		sum.Promoted += c.Promoted
		sum.InsertFailed += c.InsertFailed
		sum.Dropped += c.Dropped
	}
	return sum
}

var verdicts = map[uint32]string{0: "aborted", 1: "drop", 2: "pass", 3: "tx", 4: "redirect"}

// run sends a packet through the program.
func (b *bed) run(packet []byte) (verdict string, out []byte) {
	b.t.Helper()
	action, out, err := b.XDP.Test(packet)
	b.must(err)
	return verdicts[action], out
}

// put makes a service whose state is img, at tables from..., with the service's
// and its backends' own fields as they are given.
func (b *bed) put(vip netip.AddrPort, proto uint8, s Service, img conntrack.Image, backends []Backend) Service {
	b.t.Helper()
	for i, be := range backends {
		b.must(b.Backends.Put(s.Backends+uint32(i), be))
	}
	s.Members, s.Idle, s.Track = uint32(len(backends)), uint64(img.Idle()), uint8(img.Track())
	b.pushTables(&s, img, nil)
	b.putService(vip, proto, s)
	b.putService(netip.AddrPortFrom(vip.Addr(), 0), protoOf(vip), Service{Flags: ServiceVIP})
	return s
}

func protoOf(vip netip.AddrPort) uint8 {
	if vip.Addr().Is4() {
		return protoICMP
	}
	return protoV6
}

func (b *bed) putService(vip netip.AddrPort, proto uint8, s Service) {
	b.t.Helper()
	if vip.Addr().Is4() {
		b.must(b.Services4.Put(Key4(vip, proto), s))
	} else {
		b.must(b.Services6.Put(Key6(vip, proto), s))
	}
}

// pushTables puts the arrays of img at s.Arrays, but for those that are the same
// in old. Nobody reads the tables meanwhile, so that one that is long enough is
// written over: a new one takes an RCU grace period.
func (b *bed) pushTables(s *Service, img conntrack.Image, old *conntrack.Image) {
	b.t.Helper()
	var keys, fds []uint32
	s.OnlySlots = 0
	for i := range img.Arrays() {
		a, ok := img.Array(i)
		if !ok {
			continue
		}
		if old != nil && i < old.Arrays() {
			if was, ok := old.Array(i); ok && was.Same(a) {
				continue
			}
		}
		at := s.Arrays + uint32(i)
		m := b.tables[at]
		if m != nil && m.MaxEntries() == Chunks(a.Len()) {
			b.must(fill(m, a, 0))
			continue
		}
		if m != nil {
			m.Close()
		}
		m, err := NewTable(a, 0)
		b.must(err)
		b.tables[at] = m
		keys, fds = append(keys, at), append(fds, uint32(m.FD()))
	}
	if len(keys) > 0 {
		_, err := b.Tables.BatchUpdate(keys, fds, nil)
		b.must(err)
	}
	if i, ok := img.Only(); ok {
		a, _ := img.Array(i)
		s.Only, s.OnlySlots = s.Arrays+uint32(i), uint32(a.Len())
	}
}

// oneTable is the state of a service with a single table.
func oneTable(t testing.TB, track conntrack.Track, members int, slots ...conntrack.Backend) (*conntrack.Steering, conntrack.Desired) {
	t.Helper()
	d := conntrack.Desired{
		Tables: []conntrack.Table{{ID: 1, Slots: slots}}, Top: 1, Track: track, Idle: time.Minute,
	}
	for i := range members {
		d.Members = append(d.Members, conntrack.Member{
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, 0, byte(i)}), 80), Serves: true,
		})
	}
	s := new(conntrack.Steering)
	if _, err := s.Apply(d, 0); err != nil {
		t.Fatal(err)
	}
	return s, d
}

func image(t testing.TB, s *conntrack.Steering) conntrack.Image {
	t.Helper()
	img, ok := s.Image()
	if !ok {
		t.Fatal("nothing applied")
	}
	return img
}
