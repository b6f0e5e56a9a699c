package xdp

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
)

// answering is a bed whose backends 1 to 5 answer.
func answering(t testing.TB) *fakeBed {
	n := newFakeNet()
	for i := 1; i <= 5; i++ {
		n.answer(addr(i), byte(i))
	}
	return newFakeBed(t, newFakeMaps(), n)
}

func (b *fakeBed) apply(t testing.TB, s *dataplane.Snapshot) {
	t.Helper()
	if err := b.Apply(context.Background(), s); err != nil {
		t.Fatal(err)
	}
}

func TestEqualSnapshotWritesNothing(t *testing.T) {
	b := answering(t)
	b.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 2}))
	before := b.maps.writes
	// Everything is built anew, and equal.
	b.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 2}, hostSpec{n: 1}))
	if n := b.maps.writes - before; n != 0 {
		t.Errorf("%d writes for an equal configuration", n)
	}
}

// Whatever write fails, packets always find a table and a backend that serves, and the push succeeds when it is tried
// again; nothing is left over.
func TestEveryWriteMayFail(t *testing.T) {
	steps := []*dataplane.Snapshot{
		snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 2}),
		snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 2}, hostSpec{n: 3}),
		snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 3}),
	}
	clean := answering(t)
	var last int
	for _, s := range steps {
		last = clean.maps.writes
		clean.apply(t, s)
	}
	want := clean.shares(t)
	if clean.maps.writes-last < 2 {
		t.Fatalf("the last step takes %d writes only", clean.maps.writes-last)
	}
	for fail := 1; fail <= clean.maps.writes; fail++ {
		b := answering(t)
		for n := fail; n < fail+2*attempts; n++ { // so often that the push gives up for now
			b.maps.failAt[n] = true
		}
		b.maps.watch = func() {
			for h := range uint64(251) {
				if _, err := b.maps.where(theKey, h); err != nil {
					t.Fatalf("write %d failed; then a packet met: %v", fail, err)
				}
			}
		}
		for _, s := range steps {
			err := b.Apply(context.Background(), s)
			var some *dataplane.ListenerError
			if err != nil && (!errors.As(err, &some) || !errors.Is(err, errInjected)) {
				t.Fatalf("write %d failed: %v", fail, err)
			}
			// The loop that follows the kernel tries again.
			for range 10 {
				b.updateAll()
			}
		}
		if got := b.shares(t); !maps.Equal(got, want) {
			t.Errorf("write %d failed: shares %v, want %v", fail, got, want)
		}
		b.reconcile()
		if len(b.maps.svc) != 2 || len(b.maps.tab) != len(clean.maps.tab) {
			t.Errorf("write %d failed: %d entries of services and %d tables are left, want 2 and %d", fail, len(b.maps.svc), len(b.maps.tab), len(clean.maps.tab))
		}
	}
}

// A table that is not what was written is found out, and pushed again.
func TestDamagedTableIsPushedAgain(t *testing.T) {
	b := answering(t)
	b.maps.damage = 1
	b.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 2}))
	if b.stats.inSync.Value() != 1 || b.shares(t)[addr(1).String()] == 0 {
		t.Errorf("in sync %d, shares %v", b.stats.inSync.Value(), b.shares(t))
	}
	b.maps.damage = 100
	if err := b.Apply(context.Background(), snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 3})); !errors.Is(err, errMismatch) {
		t.Fatalf("tables that are never right: %v, want %v", err, errMismatch)
	}
	if b.stats.inSync.Value() != 0 {
		t.Error("table_in_sync is 1 though the maps are wrong")
	}
	b.maps.damage = 0
	b.updateAll()
	if b.stats.inSync.Value() != 1 {
		t.Error("table_in_sync stays 0 though the maps are right again")
	}
}

func TestExtrasAreRemoved(t *testing.T) {
	b := answering(t)
	b.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 1}))
	want := maps.Clone(b.maps.svc)
	b.maps.svc[serviceKey{netip.MustParseAddrPort("203.0.113.9:443"), 6}] = bpf.Service{Id: 9}
	b.maps.tab[50] = &fakeTable{mapID: 999}
	b.maps.dev[77] = true
	b.pub.devices[77] = true
	changed := b.maps.svc[theKey]
	changed.Idle = 1
	b.maps.svc[theKey] = changed
	b.reconcile()
	b.updateAll()
	got := maps.Clone(b.maps.svc)
	// It was written again, to another place.
	for k, s := range got {
		s.Arrays, s.Only = want[k].Arrays, want[k].Only
		got[k] = s
	}
	if !maps.Equal(got, want) || b.maps.tab[50] != nil || b.maps.dev[77] {
		t.Errorf("services %v, want %v; table 50 %v, device 77 %v", got, want, b.maps.tab[50], b.maps.dev[77])
	}
	// And what leaves the configuration leaves the maps.
	b.apply(t, &dataplane.Snapshot{})
	if len(b.maps.svc) != 0 || len(b.maps.tab) != 0 {
		t.Errorf("without listeners there are %d services and %d tables", len(b.maps.svc), len(b.maps.tab))
	}
}

// A host that does not answer has no slots until it does; one that ceases to loses them after a while and keeps its
// flows.
func TestUnresolvedHostsHaveNoSlots(t *testing.T) {
	n := newFakeNet()
	n.answer(addr(1), 1)
	b := newFakeBed(t, newFakeMaps(), n)
	b.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 2}))
	if got := b.shares(t); got[addr(1).String()] != 251 {
		t.Fatalf("shares %v, want all with the one that answers", got)
	}
	if !slices.Contains(n.asked, addr(2)) {
		t.Error("the other one was not asked for")
	}
	n.answer(addr(2), 2)
	b.hops.heard(neighbour{place{3, addr(2)}, n.macs[addr(2)], nudReachable}, b.time)
	b.updateAll()
	if got := b.shares(t); got[addr(2).String()] < 100 {
		t.Fatalf("shares %v once it answers", got)
	}
	n.states[addr(1)] = nudFailed
	b.hops.tick(b.time)
	b.updateAll()
	if got := b.shares(t); got[addr(1).String()] < 100 {
		t.Errorf("shares %v at once when a neighbour fails: it is not asked for again first", got)
	}
	b.time += patience
	b.hops.tick(b.time)
	b.updateAll()
	if got := b.shares(t); got[addr(2).String()] != 251 {
		t.Errorf("shares %v when a neighbour has failed for %v", got, patience)
	}
	s := b.services["l"]
	if v := s.steering.View(); !v.Members[s.byID[identity{cluster: clusterHash("c"), addr: netip.AddrPortFrom(addr(1), 80)}]].Serves {
		t.Error("its flows are gone")
	}
}

// A new agent goes on from the maps of the former one: the same slots open, generations never used again, nothing
// written until a snapshot is there.
func TestAdoption(t *testing.T) {
	b := answering(t)
	two := snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 2})
	b.apply(t, two)
	b.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 2}, hostSpec{n: 3}))
	was := b.services["l"].steering.View()
	if was.Arrays[was.Only].Open == 0 {
		t.Fatal("no slot is open")
	}
	writes := b.maps.writes
	next := newFakeBed(t, b.maps, b.net)
	if b.maps.writes != writes {
		t.Errorf("%d writes before a snapshot", b.maps.writes-writes)
	}
	next.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 3}, hostSpec{n: 1}, hostSpec{n: 2}))
	if n := b.maps.writes - writes; n != 0 {
		t.Errorf("%d writes though the configuration is the same", n)
	}
	is := next.services["l"].steering.View()
	if !slices.Equal(is.Arrays[is.Only].Slots, was.Arrays[was.Only].Slots) {
		t.Error("the slots are not those of the former agent")
	}
	generations := map[uint32]bool{}
	for _, e := range b.maps.back {
		generations[e.Generation] = true
	}
	next.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 3}, hostSpec{n: 1}, hostSpec{n: 4}))
	i := next.services["l"].byID[identity{cluster: clusterHash("c"), addr: netip.AddrPortFrom(addr(4), 80)}]
	if g := next.services["l"].placed.members[i].entry.Generation; generations[g] || g&1 != 0 {
		t.Errorf("a new backend has generation %d, which was there before or is odd", g)
	}
}

// A service that cannot be understood is begun anew rather than guessed at.
func TestAdoptionOfDamage(t *testing.T) {
	b := answering(t)
	b.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 2}))
	want := b.shares(t)
	for _, x := range b.maps.tab {
		x.array.Slots[0] ^= 3
	}
	next := newFakeBed(t, b.maps, b.net)
	next.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 2}))
	if got := next.shares(t); !maps.Equal(got, want) {
		t.Errorf("shares %v, want %v", got, want)
	}
}

// remember makes the program remember a flow of a service's member.
func (b *fakeBed) remember(i uint16, client string, last time.Duration) {
	s := b.services["l"]
	b.maps.flowList = append(b.maps.flowList, rememberedFlow{
		flow:  conntrack.Flow{Src: netip.MustParseAddrPort(client), Dst: theKey.vip, Proto: conntrack.Proto(s.listener.Protocol)},
		entry: bpf.Flow{Backend: i, Generation: s.placed.members[i].entry.Generation, Last: uint64(last)},
	})
}

// A backend that was removed keeps its TCP flows until none is left; then its index is free.
func TestRemovedBackendLingers(t *testing.T) {
	b := answering(t)
	b.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 1}, hostSpec{n: 2}))
	s := b.services["l"]
	gone := s.byID[identity{cluster: clusterHash("c"), addr: netip.AddrPortFrom(addr(2), 80)}]
	b.apply(t, snapshot(t, dataplane.TCP, hostSpec{n: 1}))
	if e := b.maps.back[s.placed.backends.first+uint32(gone)]; e.Generation&1 != 0 {
		t.Fatal("a removed backend's TCP flows are void at once")
	}
	b.remember(gone, "198.51.100.1:1000", b.time)
	sweep := func(after time.Duration) {
		b.time += after
		b.sweep(context.Background())
	}
	sweep(time.Hour + time.Second) // open slots close
	b.maps.flowList[0].entry.Last = uint64(b.time)
	sweep(time.Minute)
	sweep(time.Minute)
	if v := s.steering.View(); v.Arrays[v.Only].Excepted > 1 {
		t.Errorf("%d slots are excepted for one flow", v.Arrays[v.Only].Excepted)
	}
	if s.members[gone] == nil {
		t.Fatal("a backend with a live flow is gone")
	}
	for range 3 {
		sweep(time.Hour)
	}
	if s.members[gone] != nil {
		t.Error("a backend without flows lingers")
	}
	if e := b.maps.back[s.placed.backends.first+uint32(gone)]; e.Generation&1 == 0 {
		t.Error("its generation did not end in the map")
	}
}

// A UDP backend that is gone gets nothing from the moment Apply returns.
func TestRemovedUDPBackendEndsAtOnce(t *testing.T) {
	b := answering(t)
	b.apply(t, snapshot(t, dataplane.UDP, hostSpec{n: 1}, hostSpec{n: 2}))
	s := b.services["l"]
	gone := s.byID[identity{cluster: clusterHash("c"), addr: netip.AddrPortFrom(addr(2), 80)}]
	b.apply(t, snapshot(t, dataplane.UDP, hostSpec{n: 1}))
	if e := b.maps.back[s.placed.backends.first+uint32(gone)]; e.Generation&1 == 0 {
		t.Error("its flows are still alive")
	}
}

func TestCountersUnderEnvoysNames(t *testing.T) {
	b := answering(t)
	snap := snapshot(t, dataplane.TCP, hostSpec{n: 1})
	b.apply(t, snap)
	at := b.services["l"].placed.backends.first
	for _, flows := range []uint64{3, 5} {
		b.maps.counts[at] = bpf.BackendCounters{Packets: flows * 10, Bytes: flows * 1000, Flows: flows}
		b.readCounters()
	}
	c := snap.Clusters["c"].Stats
	if c.UpstreamCxTotal.Value() != 5 || c.UpstreamCxTxBytesTotal.Value() != 5000 || c.UpstreamCxRxBytesTotal.Value() != 0 {
		t.Errorf("upstream: %d connections, %d bytes sent, %d received; want 5, 5000, 0", c.UpstreamCxTotal.Value(), c.UpstreamCxTxBytesTotal.Value(), c.UpstreamCxRxBytesTotal.Value())
	}
	x := b.stats.services["l"]
	if x.listener.CxTotal.Value() != 5 || x.packets.Value() != 50 {
		t.Errorf("listener: %d connections, %d packets; want 5, 50", x.listener.CxTotal.Value(), x.packets.Value())
	}
}
