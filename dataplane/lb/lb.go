package lb

import (
	"fmt"
	"math/rand/v2"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
	"github.com/guideway/guideway/maglev"
)

// HostSet holds the hosts of one priority.
type HostSet struct {
	// Hosts in host-set order: as in the assignment.
	Hosts []*dataplane.Host
	// Localities in Envoy's order: the node's own first, then by region, zone and sub-zone. Together
	// they hold the same hosts.
	Localities []Locality
}

// Locality is a locality of one priority.
type Locality struct {
	// Weight is 0 if none was given.
	Weight uint32
	Hosts  []*dataplane.Host
}

// Input is one state of a cluster's hosts.
type Input struct {
	// Priorities by their number; gaps are empty sets.
	Priorities []HostSet
	// PanicThreshold in percent, 0 for no panic; Overprovisioning in percent, 140 in Envoy by default.
	PanicThreshold, Overprovisioning uint32
	WeightedPriorityHealth           bool
	// Live counts the cluster's requests, for the bounded load.
	Live *dataplane.ClusterLive
	// Stats gets lb_healthy_panic, total_match_count and the gauges of tables.
	Stats *dataplane.ClusterStats
}

// balancer is one priority split with a picker for each priority.
type balancer struct {
	loads   []maglev.PriorityLoad
	pickers []picker // by priority
	panics  *stats.Counter
	matches *stats.Counter
	hashes  bool
}

// picker picks within one priority. degraded tells that the priority was chosen for its degraded share.
type picker interface {
	pick(hash uint64, degraded bool) *dataplane.Host
}

// New returns the balancer for a state of a cluster. cache keeps tables that did not change from one
// call to the next of the same cluster. It fails if weights overflow or a size is not allowed.
func New(c Config, in Input, cache *Cache) (dataplane.Balancer, error) {
	b := &balancer{hashes: c.Policy.Hashes(), panics: in.Stats.LBHealthyPanic, matches: in.Stats.TotalMatchCount}
	counts := make([]maglev.PriorityHosts, len(in.Priorities))
	for p, set := range in.Priorities {
		for _, h := range set.Hosts {
			counts[p].Add(healthOf(h), h.Weight)
		}
	}
	b.loads = maglev.SplitLoad(counts, maglev.PriorityPolicy{
		Overprovisioning: in.Overprovisioning,
		PanicThreshold:   in.PanicThreshold,
		ByWeight:         in.WeightedPriorityHealth,
	})
	cache.begin(in)
	for p, set := range in.Priorities {
		var pk picker
		var err error
		if b.hashes {
			pk, err = newHashPicker(c, in, set, b.loads[p].Panic, cache, p)
		} else {
			pk, err = newSchedulePicker(c, in, set, b.loads[p].Panic)
		}
		if err != nil {
			return nil, fmt.Errorf("priority %d: %w", p, err)
		}
		b.pickers = append(b.pickers, pk)
	}
	cache.end()
	return b, nil
}

func healthOf(h *dataplane.Host) maglev.Health {
	switch {
	case h.Health.Excluded():
		return maglev.Excluded
	case h.Health.Failed():
		return maglev.Unhealthy
	case h.Health.Degraded():
		return maglev.Degraded
	}
	return maglev.Healthy
}

// Pick implements dataplane.Balancer.
func (b *balancer) Pick(hash uint64, hashed bool) *dataplane.Host {
	if !hashed || !b.hashes {
		hash = rand.Uint64()
	}
	p, degraded := maglev.PickPriority(b.loads, hash)
	if p < 0 {
		return nil
	}
	if b.loads[p].Panic {
		b.panics.Inc()
	}
	h := b.pickers[p].pick(hash, degraded)
	if h != nil {
		b.matches.Inc()
	}
	return h
}

// usable returns the hosts that get picks: all of them in panic, else the healthy ones.
func usable(hosts []*dataplane.Host, panic bool) []*dataplane.Host {
	if panic {
		return hosts
	}
	return filter(hosts, dataplane.Health.Healthy)
}

func filter(hosts []*dataplane.Host, keep func(dataplane.Health) bool) []*dataplane.Host {
	out := make([]*dataplane.Host, 0, len(hosts))
	for _, h := range hosts {
		if keep(h.Health) {
			out = append(out, h)
		}
	}
	return out
}
