package plan

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
	"github.com/guideway/guideway/dataplane/stats"
	"github.com/guideway/guideway/maglev"
)

// pool is hosts by number, whose states are the same in all versions of a cluster.
type pool map[int]*dataplane.HostState

func (p pool) host(i int, weight uint32, health dataplane.Health) *dataplane.Host {
	if p[i] == nil {
		p[i] = &dataplane.HostState{}
	}
	a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)
	return &dataplane.Host{Address: a, Key: maglev.HostKey(a), Weight: weight, Health: health, State: p[i]}
}

func cluster(t *testing.T, size uint32, hosts ...*dataplane.Host) *dataplane.Cluster {
	t.Helper()
	b, err := lb.New(lb.Config{Policy: lb.Maglev, TableSize: size}, lb.Input{
		Priorities: []lb.HostSet{{Hosts: hosts}}, Overprovisioning: 140,
		Stats: dataplane.NewClusterStats(stats.NewStore(), "c"), Live: &dataplane.ClusterLive{},
	}, lb.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	return &dataplane.Cluster{Name: "c", Hosts: hosts, Balancer: b, Incarnation: 1}
}

func listener(name string, hash, socket uint64, chains ...*dataplane.FilterChain) *dataplane.Listener {
	return &dataplane.Listener{Name: name, Hash: hash, SocketHash: socket, Chains: chains}
}

func snapshot(c *dataplane.Cluster, listeners ...*dataplane.Listener) *dataplane.Snapshot {
	s := &dataplane.Snapshot{Clusters: map[string]*dataplane.Cluster{}, Listeners: listeners}
	if c != nil {
		s.Clusters["c"] = c
	}
	return s
}

// flows are one TCP connection and one UDP session for each slot of a cluster's table, on its owner.
func flows(c *dataplane.Cluster, chain *dataplane.FilterChain) []dataplane.Flow {
	var all []dataplane.Flow
	table := lb.Tables(c.Balancer)[0]
	for slot := range table.Size() {
		h := table.Hosts[table.Owner(slot)]
		f := dataplane.Flow{ID: dataplane.FlowID{Number: uint64(slot)}, Protocol: dataplane.TCP, Listener: "l", Chain: chain, Cluster: "c", Host: h.State, Address: h.Address, Hash: uint64(slot), Hashed: true}
		all = append(all, f)
		f.ID.Owner, f.Protocol, f.Listener, f.Chain = 1, dataplane.UDP, "u", nil
		all = append(all, f)
	}
	return all
}

// TestForesee: a flow in each slot of a table, so that slots and flows must tell the same.
func TestForesee(t *testing.T) {
	const size = 1009
	p := pool{}
	chain, other := &dataplane.FilterChain{Hash: 1}, &dataplane.FilterChain{Hash: 2}
	l := listener("l", 1, 1, chain)
	three := cluster(t, size, p.host(1, 1, 0), p.host(2, 1, 0), p.host(3, 1, 0))
	base := snapshot(three, l)
	with := func(change func(*dataplane.Cluster), hosts ...*dataplane.Host) *dataplane.Cluster {
		c := cluster(t, size, hosts...)
		if change != nil {
			change(c)
		}
		return c
	}
	owned := int(lb.Tables(three.Balancer)[0].Count(2)) // slots of the third host
	for _, test := range []struct {
		name  string
		newer *dataplane.Snapshot
		// ends by reason; what is left of the moved flows is remembered
		ends map[dataplane.FlowEnd]int
	}{
		{"a host added", snapshot(with(nil, p.host(1, 1, 0), p.host(2, 1, 0), p.host(3, 1, 0), p.host(4, 1, 0)), l), nil},
		{"a host removed", snapshot(with(nil, p.host(1, 1, 0), p.host(2, 1, 0)), l), map[dataplane.FlowEnd]int{dataplane.EndHostRemoved: owned}},
		{"a host drained", snapshot(with(nil, p.host(1, 1, 0), p.host(2, 1, 0), p.host(3, 1, dataplane.AdminDraining)), l), nil},
		{"a host drained, sessions move", snapshot(with(func(c *dataplane.Cluster) { c.UDPDraining = dataplane.MoveSessions },
			p.host(1, 1, 0), p.host(2, 1, 0), p.host(3, 1, dataplane.EDSStatusDraining)), l), map[dataplane.FlowEnd]int{dataplane.EndHostDraining: owned}},
		{"a host drained, flows closed", snapshot(with(func(c *dataplane.Cluster) { c.CloseAfter = 1 },
			p.host(1, 1, 0), p.host(2, 1, 0), p.host(3, 1, dataplane.AdminDraining)), l), map[dataplane.FlowEnd]int{dataplane.EndCloseAfter: 2 * owned}},
		{"a host failed", snapshot(with(nil, p.host(1, 1, 0), p.host(2, 1, 0), p.host(3, 1, dataplane.FailedActiveHC)), l), map[dataplane.FlowEnd]int{dataplane.EndHostFailed: owned}},
		{"a host failed, connections closed", snapshot(with(func(c *dataplane.Cluster) { c.CloseOnHealthFailure = true },
			p.host(1, 1, 0), p.host(2, 1, 0), p.host(3, 1, dataplane.FailedActiveHC)), l),
			map[dataplane.FlowEnd]int{dataplane.EndHostFailed: owned, dataplane.EndHealthFailure: owned}},
		{"the listener removed", snapshot(three), map[dataplane.FlowEnd]int{dataplane.EndListenerRemoved: size}},
		{"the listener's socket changed", snapshot(three, listener("l", 2, 2, chain)), map[dataplane.FlowEnd]int{dataplane.EndListenerChanged: size}},
		{"the chain changed", snapshot(three, listener("l", 2, 1, other)), map[dataplane.FlowEnd]int{dataplane.EndChainRemoved: size}},
		{"another chain beside it", snapshot(three, listener("l", 2, 1, other, chain)), nil},
		{"the cluster removed", snapshot(nil, l), map[dataplane.FlowEnd]int{dataplane.EndHostRemoved: size}},
	} {
		t.Run(test.name, func(t *testing.T) {
			change := Compare(base, test.newer)
			got := Foresee(flows(three, chain), base, test.newer)
			broken := 0
			for _, n := range test.ends {
				broken += n
			}
			if got.Broken != broken || broken > 0 && !reflect.DeepEqual(got.Reasons, test.ends) {
				t.Errorf("broken %d %v, want %v", got.Broken, got.Reasons, test.ends)
			}
			moved := int(change.Slots.Moved) // each slot has a connection and a session
			if test.newer.Clusters["c"] == nil {
				moved = size
			}
			ended := 0 // of the flows in moved slots
			for why, n := range test.ends {
				if why != dataplane.EndListenerRemoved && why != dataplane.EndListenerChanged && why != dataplane.EndChainRemoved {
					ended += n
				}
			}
			if want := 2*moved - ended; got.Remembered != want {
				t.Errorf("%d remembered, want %d: %d slots move", got.Remembered, want, moved)
			}
			if got.TCP != size || got.UDP != size || got.AllRemembered != got.Remembered {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	p := pool{}
	older := snapshot(cluster(t, 1009, p.host(1, 1, 0), p.host(2, 1, 0), p.host(3, 1, 0)), listener("a", 1, 1), listener("b", 1, 1), listener("c", 1, 1))
	newer := snapshot(cluster(t, 1009, p.host(1, 3, 0), p.host(3, 1, dataplane.FailedEDSHealth), p.host(4, 2, 0)), listener("a", 2, 1), listener("c", 2, 2), listener("d", 1, 1))
	c := Compare(older, newer)
	if got, want := fmt.Sprint(c.Listeners), "[{a chains} {c socket} {d added} {b removed}]"; got != want {
		t.Errorf("listeners %s, want %s", got, want)
	}
	var got []string
	for _, h := range c.Clusters[0].Hosts {
		got = append(got, fmt.Sprint(h.Address, " ", h.Change))
	}
	if want := []string{"10.0.0.2:80 removed", "10.0.0.1:80 weight", "10.0.0.3:80 health", "10.0.0.4:80 added"}; !reflect.DeepEqual(got, want) {
		t.Errorf("hosts %q, want %q", got, want)
	}
	table := c.Clusters[0].Tables[0]
	if table.Moved != table.Unavoidable+table.Collateral || table.Moved == 0 || table.Size != 1009 || c.Slots != table.Slots || c.MostMoved() != table.Percent() {
		t.Errorf("%+v", table)
	}
	if c := Compare(newer, newer); !c.Empty() {
		t.Errorf("no change is %+v", c)
	}
	// Another size: the sample must come near the share of hashes that moves, which is nothing but collateral here.
	resized := snapshot(cluster(t, 65537, older.Clusters["c"].Hosts...))
	v := Compare(older, resized).Clusters[0].Tables[0]
	if v.FormerSize != 1009 || v.Percent() < 60 || v.Percent() > 73 { // two thirds: the tables have nothing in common
		t.Errorf("%+v, %.1f %%", v, v.Percent())
	}
	c.Identify(older, newer)
	if d := c.Clusters[0].Tables[0]; len(d.Digest) != 64 || d.Digest == d.FormerDigest {
		t.Errorf("digests %q and %q", d.Digest, d.FormerDigest)
	}
}

// TestObserve: what is gone without a reason is not put down to the change; what ended before it is not
// counted twice.
func TestObserve(t *testing.T) {
	p := pool{}
	chain := &dataplane.FilterChain{Hash: 1}
	l := listener("l", 1, 1, chain)
	two := cluster(t, 251, p.host(1, 1, 0), p.host(2, 1, 0))
	older, newer := snapshot(two, l), snapshot(cluster(t, 251, p.host(1, 1, 0)), l)
	before := flows(two, chain)
	before[0].Ends = dataplane.EndChainRemoved // it was about to end anyway
	want := Foresee(before, older, newer)
	var after []dataplane.Flow
	gone := false
	for _, f := range before {
		if f.Protocol == dataplane.UDP && f.Host == p[2] {
			continue
		}
		if f.Host == p[1] && f.Protocol == dataplane.TCP && f.Ends == "" && !gone {
			gone = true // its client has left
			continue
		}
		after = append(after, f)
	}
	got := Observe(before, after, older, newer)
	if got.Ended != 1 || got.Broken != want.Broken || got.Remembered != want.Remembered || !reflect.DeepEqual(got.Reasons, want.Reasons) {
		t.Errorf("observed %+v, foreseen %+v", got, want)
	}
}
