package xdp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
	"github.com/guideway/guideway/dataplane/stats"
	"github.com/guideway/guideway/maglev"
)

// fakeMaps are maps in memory. Its n-th write fails if failAt says so, and the first so many tables are not what was
// written.
type fakeMaps struct {
	svc      map[serviceKey]bpf.Service
	tab      map[uint32]*fakeTable
	back     []bpf.Backend
	ids      []identity
	dev      map[uint32]bool
	writes   int
	failAt   map[int]bool
	barriers int
	nextID   uint32
	damage   int
	flowList []rememberedFlow
	counts   map[uint32]bpf.BackendCounters
	// watch is called after each write: a packet might come now.
	watch func()
}

func newFakeMaps() *fakeMaps {
	return &fakeMaps{
		svc: map[serviceKey]bpf.Service{}, tab: map[uint32]*fakeTable{}, back: make([]bpf.Backend, 256), ids: make([]identity, 256),
		dev: map[uint32]bool{}, failAt: map[int]bool{}, counts: map[uint32]bpf.BackendCounters{},
	}
}

var errInjected = errors.New("injected")

func (f *fakeMaps) write(do func()) error {
	f.writes++
	if f.failAt[f.writes] {
		return fmt.Errorf("write %d: %w", f.writes, errInjected)
	}
	do()
	if f.watch != nil {
		f.watch()
	}
	return nil
}

type fakeTable struct {
	mapID uint32
	array conntrack.Array
	sum   uint64
}

func (t *fakeTable) id() uint32                             { return t.mapID }
func (t *fakeTable) read() (conntrack.Array, uint64, error) { return t.array, t.sum, nil }
func (t *fakeTable) close()                                 {}

func (f *fakeMaps) services() (map[serviceKey]bpf.Service, error) { return maps.Clone(f.svc), nil }
func (f *fakeMaps) service(k serviceKey) (bpf.Service, bool, error) {
	s, ok := f.svc[k]
	return s, ok, nil
}
func (f *fakeMaps) putService(k serviceKey, s bpf.Service) error {
	return f.write(func() { f.svc[k] = s })
}
func (f *fakeMaps) deleteService(k serviceKey) error { return f.write(func() { delete(f.svc, k) }) }
func (f *fakeMaps) makeTable(a conntrack.Array, _ uint64) (table, error) {
	f.nextID++
	a.Slots = slices.Clone(a.Slots)
	t := &fakeTable{mapID: f.nextID, array: a, sum: digest(a.Slots)}
	if f.damage > 0 {
		f.damage--
		t.array.Slots[0] ^= 1
	}
	return t, f.write(func() {})
}
func (f *fakeMaps) putTable(i uint32, t table) error {
	return f.write(func() { f.tab[i] = t.(*fakeTable) })
}
func (f *fakeMaps) deleteTable(i uint32) error { return f.write(func() { delete(f.tab, i) }) }
func (f *fakeMaps) tableID(i uint32) (uint32, error) {
	if t := f.tab[i]; t != nil {
		return t.mapID, nil
	}
	return 0, nil
}
func (f *fakeMaps) openTable(i uint32) (table, error) {
	if t := f.tab[i]; t != nil {
		return t, nil
	}
	return nil, nil
}
func (f *fakeMaps) dropPins(map[uint32]bool) error        { return nil }
func (f *fakeMaps) backend(i uint32) (bpf.Backend, error) { return f.back[i], nil }
func (f *fakeMaps) putBackend(i uint32, b bpf.Backend) error {
	return f.write(func() { f.back[i] = b })
}
func (f *fakeMaps) identity(i uint32) (identity, error) { return f.ids[i], nil }
func (f *fakeMaps) putIdentity(i uint32, id identity) error {
	return f.write(func() { f.ids[i], f.counts[i] = id, bpf.BackendCounters{} })
}
func (f *fakeMaps) devices() ([]uint32, error)    { return slices.Collect(maps.Keys(f.dev)), nil }
func (f *fakeMaps) putDevice(i uint32) error      { return f.write(func() { f.dev[i] = true }) }
func (f *fakeMaps) deleteDevice(i uint32) error   { return f.write(func() { delete(f.dev, i) }) }
func (f *fakeMaps) barrier() error                { f.barriers++; return nil }
func (f *fakeMaps) capacity() capacity            { return capacity{64, 64, 256} }
func (f *fakeMaps) forget(x rememberedFlow) error { return nil }
func (f *fakeMaps) flows(yield func(rememberedFlow) bool) error {
	for _, x := range f.flowList {
		if !yield(x) {
			return nil
		}
	}
	return nil
}
func (f *fakeMaps) backendCounters(i uint32) (bpf.BackendCounters, error) { return f.counts[i], nil }
func (f *fakeMaps) serviceCounters(uint32) (bpf.ServiceCounters, error) {
	return bpf.ServiceCounters{}, nil
}
func (f *fakeMaps) events() ([bpf.EventCount]uint64, error) { return [bpf.EventCount]uint64{}, nil }

// where follows a hash as a packet does: the address of the backend that gets it, "" for nobody.
func (f *fakeMaps) where(k serviceKey, hash uint64) (string, error) {
	s, ok := f.svc[k]
	if !ok {
		return "", nil
	}
	array, n := uint32(0), 0
	for {
		t := f.tab[s.Arrays+array]
		if t == nil {
			return "", fmt.Errorf("array %d is not there", array)
		}
		w := t.array.Slots[hash%uint64(len(t.array.Slots))]
		o := conntrack.Owner(w)
		if !t.array.Leaf {
			array = uint32(o)
			if n++; n > 5 {
				return "", errors.New("a circle")
			}
			continue
		}
		if o == conntrack.NoBackend {
			return "", nil
		}
		if uint32(o) >= s.Members {
			return "", fmt.Errorf("backend %d of %d", o, s.Members)
		}
		b := f.back[s.Backends+uint32(o)]
		if b.Generation&1 != 0 {
			return "", fmt.Errorf("%s does not serve", netip.AddrFrom4([4]byte(b.Addr[:4])))
		}
		return netip.AddrFrom4([4]byte(b.Addr[:4])).String(), nil
	}
}

// fakeNet is a segment with neighbours.
type fakeNet struct {
	macs                  map[netip.Addr][6]byte
	states                map[netip.Addr]neighbourState
	asked, probed, forgot []netip.Addr
	unreachable           map[netip.Addr]bool
	gateway               map[netip.Addr]netip.Addr
}

func newFakeNet() *fakeNet {
	return &fakeNet{macs: map[netip.Addr][6]byte{}, states: map[netip.Addr]neighbourState{}, unreachable: map[netip.Addr]bool{}, gateway: map[netip.Addr]netip.Addr{}}
}

func (n *fakeNet) route(a netip.Addr) (hop, error) {
	if n.unreachable[a] {
		return hop{}, errors.New("no route")
	}
	h := hop{ifindex: 3, gateway: a, onLink: true, mtu: 1500, src: [6]byte{2}, source: netip.MustParseAddr("10.0.0.254")}
	if g, ok := n.gateway[a]; ok {
		h.gateway, h.onLink = g, false
	}
	return h, nil
}

func (n *fakeNet) neighbours() (map[place]neighbour, error) {
	known := map[place]neighbour{}
	for a, s := range n.states {
		p := place{3, a}
		known[p] = neighbour{p, n.macs[a], s}
	}
	return known, nil
}

func (n *fakeNet) ask(_ uint32, a netip.Addr) error    { n.asked = append(n.asked, a); return nil }
func (n *fakeNet) probe(_ uint32, a netip.Addr) error  { n.probed = append(n.probed, a); return nil }
func (n *fakeNet) forget(_ uint32, a netip.Addr) error { n.forgot = append(n.forgot, a); return nil }

// answer makes a neighbour known.
func (n *fakeNet) answer(a netip.Addr, last byte) {
	n.macs[a], n.states[a] = [6]byte{2, 0, 0, 0, 0, last}, nudReachable
}

// bench is a plane on fakes.
type fakeBed struct {
	*Plane
	maps *fakeMaps
	net  *fakeNet
	time time.Duration
}

func newFakeBed(t testing.TB, m *fakeMaps, n *fakeNet) *fakeBed {
	t.Helper()
	b := &fakeBed{maps: m, net: n, time: time.Hour}
	var err error
	b.Plane, err = newPlane(Config{}, m, n, m, m, func() time.Duration { return b.time })
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}) }

// hostSpec is a host of a test's cluster, by number.
type hostSpec struct {
	n      int
	health dataplane.Health
}

var states = map[int]*dataplane.HostState{}

// snapshot is one TCP listener at 192.0.2.1:80 on a cluster with these hosts.
func snapshot(t testing.TB, proto dataplane.Protocol, hosts ...hostSpec) *dataplane.Snapshot {
	t.Helper()
	store := stats.NewStore()
	c := &dataplane.Cluster{Name: "c", Stats: dataplane.NewClusterStats(store, "c"), Live: &dataplane.ClusterLive{}}
	c.Stats.BindUDP()
	set := lb.HostSet{}
	for _, h := range hosts {
		at := netip.AddrPortFrom(addr(h.n), 80)
		if states[h.n] == nil {
			states[h.n] = &dataplane.HostState{}
		}
		states[h.n].CurrentHealth.Store(uint32(h.health))
		set.Hosts = append(set.Hosts, &dataplane.Host{Address: at, Key: maglev.HostKey(at), Weight: 1, Health: h.health, State: states[h.n]})
	}
	set.Localities = []lb.Locality{{Hosts: set.Hosts}}
	c.Hosts = set.Hosts
	var err error
	c.Balancer, err = lb.New(lb.Config{Policy: lb.Maglev, TableSize: 251}, lb.Input{
		Priorities: []lb.HostSet{set}, Overprovisioning: 140, Live: c.Live, Stats: c.Stats,
	}, lb.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	l := &dataplane.Listener{
		Name: "l", StatName: "l", Protocol: proto, Addresses: []dataplane.ListenAddress{{Addr: netip.MustParseAddrPort("192.0.2.1:80")}},
	}
	if proto == dataplane.UDP {
		l.UDP = &dataplane.UDPProxy{Only: "c", IdleTimeout: time.Minute}
	} else {
		l.DefaultChain = &dataplane.FilterChain{Proxy: &dataplane.TCPProxy{Clusters: []dataplane.WeightedCluster{{Name: "c", Weight: 1}}, IdleTimeout: time.Hour}}
	}
	return &dataplane.Snapshot{Listeners: []*dataplane.Listener{l}, Clusters: map[string]*dataplane.Cluster{"c": c}}
}

var theKey = serviceKey{netip.MustParseAddrPort("192.0.2.1:80"), 6}

// shares counts the slots of each backend, as packets would find them.
func (b *fakeBed) shares(t testing.TB) map[string]int {
	t.Helper()
	n := map[string]int{}
	for h := range uint64(251) {
		who, err := b.maps.where(theKey, h)
		if err != nil {
			t.Fatal(err)
		}
		n[who]++
	}
	return n
}
