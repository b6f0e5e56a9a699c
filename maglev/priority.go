package maglev

const (
	// DefaultOverprovisioning is Envoy's overprovisioning_factor, in percent.
	DefaultOverprovisioning = 140
	// DefaultPanicThreshold is Envoy's healthy_panic_threshold, in percent.
	DefaultPanicThreshold = 50
)

// Health is what a host's checks, outlier detection and the control plane say
// of it together.
type Health int

const (
	Healthy   Health = iota // also unknown
	Degraded                // serves, but is not in the table
	Unhealthy               // failed, ejected, UNHEALTHY or TIMEOUT
	Excluded                // draining, or new and not checked yet where such hosts are ignored
)

// PriorityHosts counts the hosts of a priority by health, and adds up their
// weights. The zero value is a priority without hosts.
type PriorityHosts struct {
	counts  [Excluded + 1]uint64
	weights [Excluded + 1]uint64
}

// Add counts one more host.
func (p *PriorityHosts) Add(health Health, weight uint32) {
	p.counts[health]++
	p.weights[health] += uint64(weight)
}

// Count returns the number of hosts of a health.
func (p *PriorityHosts) Count(health Health) uint64 { return p.counts[health] }

// Total returns the number of hosts, also the excluded ones.
func (p *PriorityHosts) Total() uint64 {
	return considered(p.counts) + p.counts[Excluded]
}

// considered adds up what counts when health is put in percent.
func considered(by [Excluded + 1]uint64) uint64 {
	return by[Healthy] + by[Degraded] + by[Unhealthy]
}

// availability returns the percentages of load the priority can take on its
// healthy and on its degraded hosts.
func (p *PriorityHosts) availability(policy PriorityPolicy) (healthy, degraded uint64) {
	if considered(p.counts) == 0 {
		return 0, 0
	}
	by := p.counts
	if policy.ByWeight {
		by = p.weights
	}
	all := considered(by)
	if all == 0 {
		return 0, 0
	}
	factor := uint64(policy.Overprovisioning)
	return min(100, factor*by[Healthy]/all), min(100, factor*by[Degraded]/all)
}

// inPanic says whether too few hosts are healthy or degraded.
func (p *PriorityHosts) inPanic(threshold uint32) bool {
	var percent float64
	if all := float64(considered(p.counts)); all > 0 {
		percent = 100*float64(p.counts[Healthy])/all + 100*float64(p.counts[Degraded])/all
	}
	return percent < float64(threshold)
}

// PriorityPolicy is how load is split over priorities.
type PriorityPolicy struct {
	Overprovisioning uint32 // overprovisioning_factor in percent, usually DefaultOverprovisioning
	PanicThreshold   uint32 // percent, usually DefaultPanicThreshold; 0 turns panic off, above 100 is 100
	ByWeight         bool   // weighted_priority_health: by weights, not by numbers of hosts
}

// PriorityLoad is what one priority gets.
type PriorityLoad struct {
	Healthy  uint32 // percent of all picks, for its healthy hosts
	Degraded uint32 // percent of all picks, for its degraded hosts
	Panic    bool   // its table is that of all its hosts, whatever their health
}

// SplitLoad returns the load of each priority, as Envoy assigns it. The loads
// add up to 100, unless there is no priority.
//
// A priority chosen for its degraded share still picks from its table, which
// has no degraded hosts; that is Envoy's way with hashing policies.
func SplitLoad(priorities []PriorityHosts, policy PriorityPolicy) []PriorityLoad {
	if len(priorities) == 0 {
		return nil
	}
	loads := make([]PriorityLoad, len(priorities))
	healthy := make([]uint64, len(priorities))
	degraded := make([]uint64, len(priorities))
	var available uint64
	for i := range priorities {
		healthy[i], degraded[i] = priorities[i].availability(policy)
		available += healthy[i] + degraded[i]
	}
	available = min(100, available)
	threshold := min(100, policy.PanicThreshold)

	if available > 0 {
		rest := uint64(100)
		portion := func(availability uint64) uint32 {
			load := min(rest, availability*100/available)
			rest -= load
			return uint32(load)
		}
		for i := range loads {
			loads[i].Healthy = portion(healthy[i])
		}
		for i := range loads {
			loads[i].Degraded = portion(degraded[i])
		}
		// What is left is from rounding.
		if i := firstPositive(healthy); i >= 0 {
			loads[i].Healthy += uint32(rest)
		} else {
			loads[firstPositive(degraded)].Degraded += uint32(rest)
		}
	} else if threshold == 0 {
		// Nobody can serve and panic is off: every pick will fail.
		loads[0].Healthy = 100
		return loads
	}

	allPanic := true
	for i := range loads {
		loads[i].Panic = available < 100 && priorities[i].inPanic(threshold)
		allPanic = allPanic && loads[i].Panic
	}
	switch {
	case allPanic:
		splitByHosts(priorities, loads)
	case available == 0:
		// By weight nothing rounds up to a percent, by number it is too much
		// to panic. Envoy leaves the loads as they were; ours has no before.
		loads[max(0, firstHealthy(priorities))].Healthy = 100
	}
	return loads
}

// splitByHosts is the split when all priorities are in panic: by their numbers
// of hosts, the rounding to the first that has any.
func splitByHosts(priorities []PriorityHosts, loads []PriorityLoad) {
	totals := make([]uint64, len(priorities))
	var sum uint64
	for i := range priorities {
		totals[i] = priorities[i].Total()
		sum += totals[i]
	}
	for i := range loads {
		loads[i].Healthy, loads[i].Degraded = 0, 0
	}
	if sum == 0 {
		loads[0].Healthy = 100
		return
	}
	rest := uint32(100)
	for i := range loads {
		loads[i].Healthy = uint32(100 * totals[i] / sum)
		rest -= loads[i].Healthy
	}
	loads[firstPositive(totals)].Healthy += rest
}

// firstHealthy returns the first priority that has a healthy host, or -1.
func firstHealthy(priorities []PriorityHosts) int {
	for i := range priorities {
		if priorities[i].counts[Healthy] > 0 {
			return i
		}
	}
	return -1
}

// firstPositive returns the index of the first number above 0, or -1.
func firstPositive(numbers []uint64) int {
	for i, n := range numbers {
		if n > 0 {
			return i
		}
	}
	return -1
}

// PickPriority returns the priority of a hash, and whether it was chosen for
// its degraded share; -1 if there is no priority. The same hash then picks the
// slot in the priority's table.
//
// Only hash mod 100 counts, so the 100 possible values tell all.
func PickPriority(loads []PriorityLoad, hash uint64) (priority int, degraded bool) {
	point := uint32(hash%100) + 1
	var sum uint32
	for i := range loads {
		if sum += loads[i].Healthy; point <= sum {
			return i, false
		}
	}
	for i := range loads {
		if sum += loads[i].Degraded; point <= sum {
			return i, true
		}
	}
	return -1, false
}
