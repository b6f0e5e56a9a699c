package xdp

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
	"github.com/guideway/guideway/dataplane/stats"
	"github.com/guideway/guideway/maglev"
)

// realMaps are the kernel's, in a bpffs of the test's own.
func realMaps(t testing.TB) *kernelMaps {
	t.Helper()
	if err := CheckPrivileges(); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "bpf")
	if err := openPins(dir); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if _, err := Detach(dir); err != nil {
			t.Error(err)
		}
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	p, err := openProgram(dir, bpf.Capacity{Flows: 4096, HalfOpen: 1024, NATFlows: 1024}, bpf.DefaultSwitches(), false, nil)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(p.close)
	return p.maps
}

// What is written is read back, by this process and by the next one.
func TestKernelMapsRoundTrip(t *testing.T) {
	m := realMaps(t)
	for _, k := range []serviceKey{
		{netip.MustParseAddrPort("192.0.2.1:80"), 6}, {netip.MustParseAddrPort("[2001:db8::1]:53"), 17},
		vipKey(netip.MustParseAddr("192.0.2.1")), vipKey(netip.MustParseAddr("2001:db8::1")),
	} {
		want := bpf.Service{Id: 7, Idle: 5, Members: 3}
		if err := m.putService(k, want); err != nil {
			t.Fatal(err)
		}
		all, err := m.services()
		if got := all[k]; err != nil || got != want {
			t.Errorf("%v: %+v, %v", k, got, err)
		}
		if err := m.deleteService(k); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := m.service(k); ok || err != nil {
			t.Errorf("%v is there after it was deleted (%v)", k, err)
		}
	}
	for _, id := range []identity{
		{1, netip.MustParseAddrPort("10.0.0.1:80"), 0}, {2, netip.MustParseAddrPort("[fd00::1]:81"), 3}, {},
	} {
		if err := m.putIdentity(5, id); err != nil {
			t.Fatal(err)
		}
		got, err := m.identity(5)
		if id == (identity{}) {
			if err != nil || got.addr.IsValid() && !got.addr.Addr().IsUnspecified() {
				t.Errorf("nobody came back as %+v, %v", got, err)
			}
		} else if err != nil || got != id {
			t.Errorf("%+v came back as %+v, %v", id, got, err)
		}
	}
	want := conntrack.Array{ID: 77, By: conntrack.ByClassHash, Leaf: true, Slots: slices.Repeat([]uint32{0xffff0001, 0x00020001, 0xfffe0003}, 33)}
	made, err := m.makeTable(want, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.putTable(9, made); err != nil {
		t.Fatal(err)
	}
	opened, err := m.openTable(9)
	if err != nil {
		t.Fatal(err)
	}
	got, sum, err := opened.read()
	if err != nil || got.ID != want.ID || got.By != want.By || got.Leaf != want.Leaf || !slices.Equal(got.Slots, want.Slots) || sum != digest(want.Slots) {
		t.Errorf("%+v, digest %x, %v", got, sum, err)
	}
	b := bpf.Backend{Generation: 4, Ifindex: 3, DstMac: [6]uint8{1, 2, 3, 4, 5, 6}, Mtu: 1500, Addr: [16]uint8{10}}
	if err := m.putBackend(11, b); err != nil {
		t.Fatal(err)
	}
	if got, err := m.backend(11); err != nil || got != b {
		t.Errorf("%+v, %v", got, err)
	}
}

// Maps of another layout are not read as if they were ours, and what that loses is said.
func TestForeignSchemaIsReplaced(t *testing.T) {
	m := realMaps(t)
	k, _ := conntrack.Flow{Src: netip.MustParseAddrPort("192.0.2.1:1"), Dst: netip.MustParseAddrPort("192.0.2.2:2"), Proto: 6}.Key4()
	if err := m.Flows4.Put(k[:], &bpf.Flow{}); err != nil {
		t.Fatal(err)
	}
	if _, lost, err := checkSchema(m.dir, 1234); err != nil || lost != 1 {
		t.Errorf("lost %d, %v; want 1", lost, err)
	}
	if _, err := os.Lstat(filepath.Join(m.dir, "flows4")); !os.IsNotExist(err) {
		t.Errorf("the old map is still pinned (%v)", err)
	}
}

// BenchmarkChange is what it takes from a change of one of 1,000 backends to the data path: the table of 65,537
// slots, conntrack, the push with the swap, and reading it back. slotwise is one map update for each slot, for
// comparison.
func BenchmarkChange(b *testing.B) {
	m := realMaps(b)
	n := newFakeNet()
	hosts := make([]*dataplane.Host, 1000)
	for i := range hosts {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		n.answer(a, byte(i))
		at := netip.AddrPortFrom(a, 80)
		hosts[i] = &dataplane.Host{Address: at, Key: maglev.HostKey(at), Weight: 1, State: &dataplane.HostState{}}
	}
	p, err := newPlane(Config{}, m, n, m, m, monotonic)
	if err != nil {
		b.Fatal(err)
	}
	snap := snapshot(b, dataplane.TCP)
	with := func(hosts []*dataplane.Host) *dataplane.Snapshot {
		c := &dataplane.Cluster{Name: "c", Stats: dataplane.NewClusterStats(stats.NewStore(), "c"), Live: &dataplane.ClusterLive{}, Hosts: hosts}
		set := lb.HostSet{Hosts: hosts, Localities: []lb.Locality{{Hosts: hosts}}}
		var err error
		c.Balancer, err = lb.New(lb.Config{Policy: lb.Maglev, TableSize: 65537}, lb.Input{Priorities: []lb.HostSet{set}, Overprovisioning: 140, Live: c.Live, Stats: c.Stats}, lb.NewCache())
		if err != nil {
			b.Fatal(err)
		}
		s := *snap
		s.Clusters = map[string]*dataplane.Cluster{"c": c}
		return &s
	}
	if err := p.Apply(context.Background(), with(hosts)); err != nil {
		b.Fatal(err)
	}
	b.Run("swap", func(b *testing.B) {
		var took []time.Duration
		for i := 0; b.Loop(); i++ {
			began := time.Now()
			if err := p.Apply(context.Background(), with(hosts[:len(hosts)-i%2])); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	})
	b.Run("slotwise", func(b *testing.B) {
		chunk := bpf.TableChunk{}
		made, err := m.makeTable(conntrack.Array{Slots: make([]uint32, 65537)}, 0)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			for i := range uint32(65537) { // a value of its own each, as tables are elsewhere
				if err := made.(*kernelTable).m.Put(1+i/16, &chunk); err != nil {
					b.Fatal(fmt.Errorf("slot %d: %w", i, err))
				}
			}
		}
	})
}
