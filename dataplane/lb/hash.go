package lb

import (
	"slices"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/maglev"
)

// hashPicker picks by a Maglev table or a ring, with a bound on load if there is one.
type hashPicker struct {
	hosts []*dataplane.Host
	table *maglev.Table // one of these two
	ring  *maglev.Ring
	bound *maglev.BoundedLoad // nil for none
	live  *dataplane.ClusterLive
	// localities that the table was built with.
	localities []maglev.Locality
}

func newHashPicker(c Config, in Input, set HostSet, panic bool, cache *Cache, priority int) (picker, error) {
	hosts, localities := arrange(c, set, panic)
	p := &hashPicker{hosts: hosts, live: in.Live}
	keys := make([]maglev.Host, len(hosts))
	index := localityIndex(c, set)
	for i, h := range hosts {
		keys[i] = maglev.Host{Key: h.Key, Addr: maglev.HostKey(h.Address), Weight: h.Weight, Locality: index[h]}
	}
	built, err := cache.build(c, priority, keys, localities)
	if err != nil {
		return nil, err
	}
	p.table, p.ring, p.localities = built.table, built.ring, localities
	if len(hosts) > 0 {
		cache.report(built, in.Stats.Scope)
	}
	if c.BalanceFactor > 0 && len(hosts) > 0 {
		if p.bound, err = maglev.NewBoundedLoad(c.BalanceFactor, keys, localities); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// arrange returns the hosts that go into the table, in host-set order, and the localities.
func arrange(c Config, set HostSet, panic bool) ([]*dataplane.Host, []maglev.Locality) {
	if !c.LocalityWeighted {
		return usable(set.Hosts, panic), nil
	}
	localities := make([]maglev.Locality, len(set.Localities))
	var hosts []*dataplane.Host
	for i, l := range set.Localities {
		localities[i] = maglev.Locality{Weight: l.Weight, Empty: len(l.Hosts) == 0}
		hosts = append(hosts, usable(l.Hosts, panic)...)
	}
	return hosts, localities
}

func localityIndex(c Config, set HostSet) map[*dataplane.Host]int {
	if !c.LocalityWeighted {
		return nil
	}
	index := make(map[*dataplane.Host]int, len(set.Hosts))
	for i, l := range set.Localities {
		for _, h := range l.Hosts {
			index[h] = i
		}
	}
	return index
}

func (p *hashPicker) pick(hash uint64, _ bool) *dataplane.Host {
	var i int
	if p.table != nil {
		i = p.table.Lookup(hash)
	} else {
		i = p.ring.Lookup(hash)
	}
	if i < 0 {
		return nil
	}
	if p.bound != nil {
		i = p.bound.Pick(i, hash, uint32(p.live.Requests.Value()), func(j int) uint32 {
			return uint32(p.hosts[j].State.RqActive.Load())
		})
	}
	return p.hosts[i]
}

// Table is the Maglev table of one priority.
type Table struct {
	Priority int
	*maglev.Table
	// Hosts by the table's host index.
	Hosts []*dataplane.Host

	localities []maglev.Locality
}

// Without returns the table as it is with hosts left out, and which hosts its indexes stand for: a data
// plane that cannot reach some hosts yet, or any more, gives their share to the others. Those that are not
// asked for keep their places as far as Maglev can.
func (t Table) Without(out func(*dataplane.Host) bool) (Table, error) {
	var hosts []maglev.Host
	kept := t
	kept.Hosts = nil
	for i, h := range t.Hosts {
		if !out(h) {
			hosts = append(hosts, t.Host(i))
			kept.Hosts = append(kept.Hosts, h)
		}
	}
	if len(kept.Hosts) == len(t.Hosts) {
		return t, nil
	}
	localities := t.localities
	if localities != nil {
		// One without hosts has no share.
		localities = slices.Clone(localities)
		for i := range localities {
			localities[i].Empty = !slices.ContainsFunc(hosts, func(h maglev.Host) bool { return h.Locality == i })
		}
	}
	var err error
	kept.Table, err = maglev.Build(t.Size(), hosts, localities)
	return kept, err
}

// Bounded reports whether a balancer moves flows away from busy hosts (hash_balance_factor), which takes
// more than a table.
func Bounded(b dataplane.Balancer) bool {
	lb, ok := b.(*balancer)
	return ok && slices.ContainsFunc(lb.pickers, func(p picker) bool {
		h, ok := p.(*hashPicker)
		return ok && h.bound != nil
	})
}

// Tables returns the Maglev tables of a balancer made by New, by priority; none for other policies.
func Tables(b dataplane.Balancer) []Table {
	var tables []Table
	if b, ok := b.(*balancer); ok {
		for p, pk := range b.pickers {
			if h, ok := pk.(*hashPicker); ok && h.table != nil {
				tables = append(tables, Table{Priority: p, Table: h.table, Hosts: h.hosts, localities: h.localities})
			}
		}
	}
	return tables
}

// Explain tells how a hash is picked: the priority, and for Maglev the slot (-1 for other policies).
func Explain(b dataplane.Balancer, hash uint64) (priority, slot int, host *dataplane.Host) {
	lb, ok := b.(*balancer)
	if !ok {
		return -1, -1, nil
	}
	p, degraded := maglev.PickPriority(lb.loads, hash)
	if p < 0 {
		return -1, -1, nil
	}
	slot = -1
	if h, ok := lb.pickers[p].(*hashPicker); ok && h.table != nil && !h.table.Empty() {
		slot = int(h.table.Slot(hash))
	}
	return p, slot, lb.pickers[p].pick(hash, degraded)
}

// Owner returns the host that a table or ring gives a hash, whatever the load on it; nil for policies that
// use no hash, or without hosts. Unlike Pick it counts nothing.
func Owner(b dataplane.Balancer, hash uint64) *dataplane.Host {
	lb, ok := b.(*balancer)
	if !ok || !lb.hashes {
		return nil
	}
	p, _ := maglev.PickPriority(lb.loads, hash)
	if p < 0 {
		return nil
	}
	h := lb.pickers[p].(*hashPicker)
	i := -1
	if h.table != nil {
		i = h.table.Lookup(hash)
	} else {
		i = h.ring.Lookup(hash)
	}
	if i < 0 {
		return nil
	}
	return h.hosts[i]
}

// Panics reports whether any priority that gets load is in panic.
func Panics(b dataplane.Balancer) bool {
	lb, ok := b.(*balancer)
	return ok && slices.ContainsFunc(lb.loads, func(l maglev.PriorityLoad) bool {
		return l.Panic && l.Healthy+l.Degraded > 0
	})
}
