package controlplane

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/guideway/guideway/controlplane/health"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
	"github.com/guideway/guideway/dataplane/stats"
)

// cluster is what the control loop knows of one cluster: its desired state, the hosts discovery has
// found, and the version that is in force.
type cluster struct {
	desired     *model.Cluster
	incarnation uint64
	node        dataplane.Locality
	panicAt     uint32 // percent

	stats *dataplane.ClusterStats
	live  *dataplane.ClusterLive
	// observer hears of connects, for outlier detection; nil without.
	observer dataplane.ConnectObserver
	detector *health.Detector // the same, nil without
	checker  *health.Checker  // nil without active checks
	// passes is the detector that hears of passed checks. It goes with the checker, which outlives incarnations.
	passes  *atomic.Pointer[health.Detector]
	stopDNS func()    // nil without DNS
	eds     *edsState // nil without EDS
	// version is that of the cluster's resource, "" for a static one.
	version string
	// known is set once discovery has said something; closed once the cluster has ended.
	known, closed bool

	hosts  map[hostKey]*host
	states map[*dataplane.HostState]*host // the same, by their states; nil until somebody asks
	order  []*host                        // those of the assignment, in its order
	// assignment is what discovery found last, addresses resolved.
	assignment model.Assignment
	// current is the version in the newest snapshot; stale is set when something changed since.
	current *dataplane.Cluster
	stale   bool
	// pressing is set with stale when flows may be going to a host that cannot serve: it is built first.
	pressing bool
	// pretended is set for a cluster that only foresees a change: nothing of it may show elsewhere.
	pretended bool
	// updated is when the desired state came, changed when current did.
	updated, changed time.Time
	tables           *lb.Cache
}

func newCluster(desired *model.Cluster, incarnation uint64, node dataplane.Locality, store *stats.Store) *cluster {
	c := &cluster{
		desired:     desired,
		incarnation: incarnation,
		node:        node,
		stats:       dataplane.NewClusterStats(store, desired.Settings.StatName),
		live:        &dataplane.ClusterLive{},
		hosts:       map[hostKey]*host{},
		tables:      lb.NewCache(),
		updated:     time.Now(),
	}
	c.stats.TrackRemaining(desired.Settings.Breakers, c.live)
	return c
}

// checksHealth reports whether hosts have an active checker.
func (c *cluster) checksHealth() bool { return len(c.desired.HealthChecks) > 0 }

// assign takes a newly discovered assignment, all addresses resolved. It keeps what is known of hosts
// that stay, and reports whether the set of hosts changed.
func (c *cluster) assign(a model.Assignment) bool {
	c.assignment = a
	c.stale = true
	size := 0
	for i := range a.Localities {
		size += len(a.Localities[i].Endpoints)
	}
	hosts := make(map[hostKey]*host, size)
	c.order = make([]*host, 0, size)
	changed := false
	c.eachEndpoint(hosts, func(key hostKey, l *model.LocalityEndpoints, e *model.Endpoint) {
		h := c.hosts[key]
		if h == nil {
			h = &host{key: key, state: &dataplane.HostState{}, checked: c.unchecked(e), changed: true}
			changed = true
		}
		if h.changed || !h.endpoint.Equal(e) || h.locality != l.Locality || h.priority != l.Priority {
			h.changed = true
			h.endpoint, h.locality, h.priority = *e, l.Locality, l.Priority
		}
		h.leaving = false
		hosts[key] = h
		c.order = append(c.order, h)
	})
	for key, h := range c.hosts {
		if hosts[key] != nil {
			continue
		}
		if c.lingers(h) {
			h.leaving = true
			hosts[key] = h
			continue
		}
		if !c.pretended {
			h.state.Removed.Store(true)
		}
		changed = true
	}
	c.hosts = hosts
	c.states = nil
	return changed
}

// hostOf finds the host of a state, nil if it is none of the cluster's.
func (c *cluster) hostOf(state *dataplane.HostState) *host {
	if c.states == nil {
		c.states = make(map[*dataplane.HostState]*host, len(c.hosts))
		for _, h := range c.hosts {
			c.states[h.state] = h
		}
	}
	return c.states[state]
}

// ready reports whether the cluster's hosts and their first checks are known.
func (c *cluster) ready() bool {
	if !c.known {
		return false
	}
	if c.checker == nil {
		return true
	}
	select {
	case <-c.checker.FirstRoundDone():
		return true
	default:
		return false
	}
}

// inherit takes over what a former incarnation of the cluster knows of its hosts: connections are
// counted on, and with equal checks the checker goes on and health stays known.
func (c *cluster) inherit(former *cluster) {
	sameChecks := healthHash(former.desired) == healthHash(c.desired)
	if sameChecks {
		c.checker, c.passes = former.checker, former.passes
	}
	for key, old := range former.hosts {
		h := &host{key: key, endpoint: old.endpoint, locality: old.locality, priority: old.priority, state: old.state, drained: old.drained}
		if sameChecks {
			h.checked = old.checked
		} else {
			h.checked = c.unchecked(&h.endpoint)
		}
		c.hosts[key] = h
	}
	c.states = nil
	c.live = former.live
}

// unchecked is the health of a host before its first active check.
func (c *cluster) unchecked(e *model.Endpoint) dataplane.Health {
	if !c.checksHealth() || e.DisableActiveHC {
		return 0
	}
	if c.pendsNewHosts() {
		return dataplane.FailedActiveHC | dataplane.PendingActiveHC
	}
	return dataplane.FailedActiveHC
}

// pendsNewHosts tells whether new hosts are left out of all counts until their first check.
func (c *cluster) pendsNewHosts() bool {
	return c.desired.IgnoreNewHostsUntilFirstHC && (c.desired.Discovery == model.EDS || c.desired.Discovery == model.StrictDNS)
}

// hasTraffic reports whether the cluster has ever carried any: TCP connections, or bytes (UDP).
func (c *cluster) hasTraffic() bool {
	s := c.stats
	return s.UpstreamCxTotal.Value() > 0 || s.UpstreamCxTxBytesTotal.Value() > 0 || s.UpstreamCxRxBytesTotal.Value() > 0
}

// lingers tells whether a host that has left discovery stays in use until it fails a check.
func (c *cluster) lingers(h *host) bool {
	return c.desired.Discovery != model.Static && c.checksHealth() && !c.desired.IgnoreHealthOnHostRemoval &&
		!h.endpoint.DisableActiveHC && h.checked&dataplane.FailedActiveHC == 0 && h.endpoint.Health&dataplane.FailedEDSHealth == 0
}

// eachEndpoint walks the assignment in its order and gives each endpoint that counts its key: one that
// taken, which f fills, does not have.
func (c *cluster) eachEndpoint(taken map[hostKey]*host, f func(hostKey, *model.LocalityEndpoints, *model.Endpoint)) {
	copies := map[hostKey]int{}
	for i := range c.assignment.Localities {
		l := &c.assignment.Localities[i]
		for j := range l.Endpoints {
			e := &l.Endpoints[j]
			key := hostKey{name: e.Host, address: e.Address}
			if taken[key] != nil {
				if c.desired.Discovery != model.Static {
					continue // the first counts
				}
				copies[key]++
				key.copy = copies[key]
			}
			f(key, l, e)
		}
	}
}

// build makes the version of the cluster for the next snapshot. It returns the version in force if
// nothing changed.
func (c *cluster) build() (*dataplane.Cluster, error) {
	if !c.stale && c.current != nil {
		return c.current, nil
	}
	c.stale, c.pressing = false, false
	in, hosts := c.hostSets()
	if c.current != nil && c.current.Incarnation == c.incarnation && slices.Equal(c.current.Hosts, hosts) &&
		c.tables.Same(in) {
		return c.current, nil
	}
	balancer, err := lb.New(c.desired.LB, in, c.tables)
	if err != nil {
		return nil, err
	}
	v := c.desired.Settings
	v.Hosts = hosts
	v.Balancer = balancer
	v.Observer = c.observer
	v.Stats = c.stats
	v.Live = c.live
	v.Incarnation = c.incarnation
	c.current, c.changed = &v, time.Now()
	c.countMembers(hosts)
	return c.current, nil
}

// assignmentView is the assignment for others to see; the loop replaces its own, but never changes it.
func (c *cluster) assignmentView() *model.Assignment {
	a := c.assignment
	return &a
}

func (c *cluster) countMembers(hosts []*dataplane.Host) {
	var healthy, degraded, excluded, weight int64
	for _, h := range hosts {
		switch {
		case h.Health.Healthy():
			healthy++
		case h.Health.Degraded():
			degraded++
		}
		if h.Health.Excluded() {
			excluded++
		}
		weight = max(weight, int64(h.Weight))
	}
	c.stats.MembershipTotal.Set(int64(len(hosts)))
	c.stats.MembershipHealthy.Set(healthy)
	c.stats.MembershipDegraded.Set(degraded)
	c.stats.MembershipExcluded.Set(excluded)
	c.stats.MaxHostWeight.Set(weight)
}

// hostSets arranges the hosts as balancers want them: by priority, each with its localities in
// Envoy's order, the node's own first if it has hosts, then by region, zone and sub-zone. It also
// returns all hosts in host-set order.
func (c *cluster) hostSets() (lb.Input, []*dataplane.Host) {
	type place struct {
		priority uint32
		locality dataplane.Locality
	}
	groups := map[place]*lb.Locality{}
	order := map[uint32][]dataplane.Locality{}
	flat := map[uint32][]*dataplane.Host{}
	priorities := uint32(0)
	add := func(p place) *lb.Locality {
		g := groups[p]
		if g == nil {
			g = &lb.Locality{}
			groups[p] = g
			order[p.priority] = append(order[p.priority], p.locality)
			priorities = max(priorities, p.priority+1)
		}
		return g
	}
	for i := range c.assignment.Localities {
		l := &c.assignment.Localities[i]
		g := add(place{l.Priority, l.Locality})
		g.Weight = 0
		if l.HasLocality {
			g.Weight = l.Weight // the last one given counts
		}
	}
	var last *lb.Locality
	var at place
	put := func(h *host) {
		if p := (place{h.priority, h.locality}); last == nil || p != at {
			last, at = add(p), p
		}
		v := h.view(c.desired.LB.UseHostname)
		if !c.pretended {
			h.state.CurrentHealth.Store(uint32(v.Health))
		}
		last.Hosts = append(last.Hosts, v)
		flat[h.priority] = append(flat[h.priority], v)
	}
	for _, h := range c.order {
		put(h)
	}
	if len(c.hosts) > len(c.order) {
		var leaving []*host
		for _, h := range c.hosts {
			if h.leaving {
				leaving = append(leaving, h)
			}
		}
		slices.SortFunc(leaving, func(a, b *host) int { return compareKeys(a.key, b.key) })
		for _, h := range leaving {
			put(h)
		}
	}

	in := lb.Input{
		Priorities:             make([]lb.HostSet, priorities),
		PanicThreshold:         c.panicAt,
		Overprovisioning:       c.assignment.OverprovisioningFactor,
		WeightedPriorityHealth: c.assignment.WeightedPriorityHealth,
		Live:                   c.live,
		Stats:                  c.stats,
	}
	var all []*dataplane.Host
	for p := range in.Priorities {
		names := order[uint32(p)]
		slices.SortFunc(names, func(a, b dataplane.Locality) int {
			if own := cmp.Compare(c.isOwn(b), c.isOwn(a)); own != 0 {
				return own
			}
			return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.SubZone, b.SubZone))
		})
		set := &in.Priorities[p]
		set.Hosts = flat[uint32(p)]
		for _, name := range names {
			set.Localities = append(set.Localities, *groups[place{uint32(p), name}])
		}
		all = append(all, set.Hosts...)
	}
	return in, all
}

// isOwn is 1 for the node's own locality, else 0.
func (c *cluster) isOwn(l dataplane.Locality) int {
	if l == c.node && l != (dataplane.Locality{}) {
		return 1
	}
	return 0
}

func compareKeys(a, b hostKey) int {
	return cmp.Or(cmp.Compare(a.name, b.name), a.address.Compare(b.address), cmp.Compare(a.copy, b.copy))
}

// targets are the hosts as the checker wants them.
func (c *cluster) targets() []*health.Target {
	targets := make([]*health.Target, 0, len(c.hosts))
	for _, h := range c.hosts {
		targets = append(targets, health.NewTarget(h.state, h.endpoint.Address, h.locality, &h.endpoint))
	}
	return targets
}

// find returns the hosts at an address.
func (c *cluster) find(address netip.AddrPort) []*host {
	var found []*host
	for _, h := range c.hosts {
		if h.endpoint.Address == address {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b *host) int { return compareKeys(a.key, b.key) })
	return found
}

// release gives up the cluster's stats.
func (c *cluster) release() { c.stats.Scope.Release() }
