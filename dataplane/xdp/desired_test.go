package xdp

import (
	"math"
	"testing"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
	"github.com/guideway/guideway/dataplane/stats"
)

// balancedBy returns a cluster of priorities of hosts.
func balancedBy(t testing.TB, name string, priorities ...[]hostSpec) *dataplane.Cluster {
	t.Helper()
	c := &dataplane.Cluster{Name: name, Stats: dataplane.NewClusterStats(stats.NewStore(), name), Live: &dataplane.ClusterLive{}}
	in := lb.Input{Overprovisioning: 140, Live: c.Live, Stats: c.Stats}
	for p, hosts := range priorities {
		s := snapshot(t, dataplane.TCP, hosts...).Clusters["c"]
		set := lb.HostSet{}
		for _, h := range s.Hosts {
			x := *h
			x.Priority = uint32(p)
			set.Hosts = append(set.Hosts, &x)
		}
		set.Localities = []lb.Locality{{Hosts: set.Hosts}}
		in.Priorities = append(in.Priorities, set)
		c.Hosts = append(c.Hosts, set.Hosts...)
	}
	var err error
	if c.Balancer, err = lb.New(lb.Config{Policy: lb.Maglev, TableSize: 251}, in, lb.NewCache()); err != nil {
		t.Fatal(err)
	}
	return c
}

// follow walks a view as the program does.
func follow(v conntrack.View, hash, classHash uint64) uint16 {
	a := v.Arrays[0]
	for {
		h := hash
		if a.By == conntrack.ByClassHash {
			h = classHash
		}
		o := conntrack.Owner(a.Slots[h%uint64(len(a.Slots))])
		if a.Leaf {
			return o
		}
		a = v.Arrays[o]
	}
}

// Every hash goes where the cluster's balancer sends it: priorities are classes of hundredths.
func TestPrioritiesAreThoseOfTheBalancer(t *testing.T) {
	b := answering(t)
	s := snapshot(t, dataplane.TCP)
	// Two of three hosts fail: 140 * 1/3 percent stay with the first priority.
	s.Clusters["c"] = balancedBy(t, "c",
		[]hostSpec{{n: 1}, {n: 2, health: dataplane.FailedEDSHealth}, {n: 3, health: dataplane.FailedEDSHealth}}, []hostSpec{{n: 4}, {n: 5}})
	b.apply(t, s)
	v := b.services["l"].steering.View()
	if v.Only >= 0 {
		t.Fatal("two priorities made one table")
	}
	first := 0
	for hash := range uint64(100 * 251) {
		_, _, want := lb.Explain(s.Clusters["c"].Balancer, hash)
		got := b.services["l"].members[follow(v, hash, 0)]
		if got.host != want {
			t.Fatalf("hash %d goes to %v, want %v", hash, got.id.addr, want.Address)
		}
		if want.Priority == 0 {
			first++
		}
	}
	if share := float64(first) / (100 * 251); math.Abs(share-0.46) > 0.01 {
		t.Errorf("%.3f of the hashes have the first priority, want 0.46", share)
	}
	// All is well again: the classes move, and keep their flows.
	s2 := *s
	s2.Clusters = map[string]*dataplane.Cluster{"c": balancedBy(t, "c", []hostSpec{{n: 1}, {n: 2}, {n: 3}}, []hostSpec{{n: 4}, {n: 5}})}
	b.apply(t, &s2)
	open := 0
	for _, a := range b.services["l"].steering.View().Arrays {
		open += a.Open
	}
	if open == 0 {
		t.Error("a shift between priorities opened nothing")
	}
}

// Weighted clusters have their shares of the flows, and a change of weights moves no more than it must.
func TestWeightedClusters(t *testing.T) {
	b := answering(t)
	weighted := func(c, d uint32) *dataplane.Snapshot {
		s := snapshot(t, dataplane.TCP)
		l := *s.Listeners[0]
		l.DefaultChain = &dataplane.FilterChain{Proxy: &dataplane.TCPProxy{
			Clusters: []dataplane.WeightedCluster{{Name: "c", Weight: c}, {Name: "d", Weight: d}}, TotalWeight: uint64(c + d), IdleTimeout: conntrack.DefaultIdle(conntrack.TCP),
		}}
		s.Listeners[0] = &l
		s.Clusters = map[string]*dataplane.Cluster{"c": balancedBy(t, "c", []hostSpec{{n: 1}, {n: 2}}), "d": balancedBy(t, "d", []hostSpec{{n: 2}, {n: 3}})}
		return s
	}
	share := func() map[string]float64 {
		n := map[string]float64{}
		v := b.services["l"].steering.View()
		for class := range uint64(weightTable) {
			n[b.services["l"].members[follow(v, 7, class)].cluster.Name] += 1.0 / weightTable
		}
		return n
	}
	b.apply(t, weighted(1, 3))
	if got := share(); math.Abs(got["d"]-0.75) > 0.001 {
		t.Errorf("shares %v, want 0.25 and 0.75", got)
	}
	if n := len(b.services["l"].byID); n != 4 {
		t.Errorf("%d backends, want 4: one address in two clusters is two", n)
	}
	b.apply(t, weighted(3, 1))
	got := share()
	open := 0
	for _, a := range b.services["l"].steering.View().Arrays {
		if !a.Leaf {
			open += a.Open
		}
	}
	if math.Abs(got["d"]-0.25) > 0.001 || float64(open) > weightTable*0.55 {
		t.Errorf("shares %v, %d classes of %d open; want 0.75 and 0.25, and half of them", got, open, weightTable)
	}
}
