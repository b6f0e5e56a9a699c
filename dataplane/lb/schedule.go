package lb

import (
	"math"
	"math/rand/v2"
	"sync"

	"github.com/guideway/guideway/dataplane"
)

// schedulePicker serves the policies that take turns or chances instead of hashes. With locality
// weights it takes a locality first, then a host in it.
type schedulePicker struct {
	healthy, degraded source
}

// source picks among a list of hosts.
type source interface {
	next() *dataplane.Host
}

func newSchedulePicker(c Config, in Input, set HostSet, panic bool) (picker, error) {
	if panic {
		s := newSource(c, in, set, func(dataplane.Health) bool { return true })
		return &schedulePicker{healthy: s, degraded: s}, nil
	}
	return &schedulePicker{
		healthy:  newSource(c, in, set, dataplane.Health.Healthy),
		degraded: newSource(c, in, set, dataplane.Health.Degraded),
	}, nil
}

func (p *schedulePicker) pick(_ uint64, degraded bool) *dataplane.Host {
	if degraded {
		return p.degraded.next()
	}
	return p.healthy.next()
}

func newSource(c Config, in Input, set HostSet, keep func(dataplane.Health) bool) source {
	if c.LocalityWeighted {
		return newLocalitySource(c, in, set, keep)
	}
	return newHostSource(c, filter(set.Hosts, keep))
}

func newHostSource(c Config, hosts []*dataplane.Host) source {
	equal := true
	for _, h := range hosts {
		equal = equal && h.Weight == hosts[0].Weight
	}
	switch c.Policy {
	case Random:
		return randomSource(hosts)
	case LeastRequest:
		if equal {
			return &leastSource{hosts: hosts, choices: int(max(c.ChoiceCount, 2)), full: c.FullScan}
		}
		bias := c.ActiveRequestBias
		return newWeightedSource(hosts, func(h *dataplane.Host) float64 {
			return float64(h.Weight) / math.Pow(float64(h.State.RqActive.Load()+1), bias)
		})
	}
	if equal {
		return &turnSource{hosts: hosts, turn: rand.Uint64()}
	}
	return newWeightedSource(hosts, func(h *dataplane.Host) float64 { return float64(h.Weight) })
}

// randomSource picks with equal chances; weights do not count, as in Envoy.
type randomSource []*dataplane.Host

func (s randomSource) next() *dataplane.Host {
	if len(s) == 0 {
		return nil
	}
	return s[rand.IntN(len(s))]
}

// turnSource goes round, from a random start.
type turnSource struct {
	hosts []*dataplane.Host
	mu    sync.Mutex
	turn  uint64
}

func (s *turnSource) next() *dataplane.Host {
	if len(s.hosts) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	return s.hosts[s.turn%uint64(len(s.hosts))]
}

// weightedSource takes turns by an earliest-deadline-first schedule.
type weightedSource struct {
	hosts  []*dataplane.Host
	weight func(int) float64
	mu     sync.Mutex
	queue  *edf
}

func newWeightedSource(hosts []*dataplane.Host, weight func(*dataplane.Host) float64) *weightedSource {
	s := &weightedSource{hosts: hosts, weight: func(i int) float64 { return weight(hosts[i]) }}
	s.queue = newEDF(len(hosts), s.weight)
	// A random start, so that several instances do not step alike.
	if len(hosts) > 0 {
		for range rand.IntN(len(hosts)) {
			s.queue.pick(s.weight)
		}
	}
	return s
}

func (s *weightedSource) next() *dataplane.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.queue.pick(s.weight); i >= 0 {
		return s.hosts[i]
	}
	return nil
}

// leastSource takes the least busy of some random hosts, or of all.
type leastSource struct {
	hosts   []*dataplane.Host
	choices int
	full    bool
}

func (s *leastSource) next() *dataplane.Host {
	n := len(s.hosts)
	if n == 0 {
		return nil
	}
	if s.full {
		return s.scan()
	}
	var best *dataplane.Host
	for range s.choices {
		if h := s.hosts[rand.IntN(n)]; best == nil || h.State.RqActive.Load() < best.State.RqActive.Load() {
			best = h
		}
	}
	return best
}

// scan looks at every host, from a random one on, so that ties are spread.
func (s *leastSource) scan() *dataplane.Host {
	n := len(s.hosts)
	start := rand.IntN(n)
	best := s.hosts[start]
	for i := 1; i < n; i++ {
		if h := s.hosts[(start+i)%n]; h.State.RqActive.Load() < best.State.RqActive.Load() {
			best = h
		}
	}
	return best
}

// localitySource takes localities by weight and availability, then a host within.
type localitySource struct {
	sources []source
	weight  func(int) float64
	mu      sync.Mutex
	queue   *edf
}

func newLocalitySource(c Config, in Input, set HostSet, keep func(dataplane.Health) bool) source {
	s := &localitySource{}
	weights := make([]float64, len(set.Localities))
	for i, l := range set.Localities {
		hosts := filter(l.Hosts, keep)
		s.sources = append(s.sources, newHostSource(c, hosts))
		if len(hosts) == 0 {
			continue
		}
		considered := filter(l.Hosts, func(h dataplane.Health) bool { return !h.Excluded() })
		share := 1.0
		if len(considered) > 0 {
			share = min(1, float64(in.Overprovisioning)/100*float64(len(hosts))/float64(len(considered)))
		}
		weights[i] = float64(l.Weight) * share
	}
	s.weight = func(i int) float64 { return weights[i] }
	s.queue = newEDF(len(weights), s.weight)
	if n := len(s.queue.queue); n > 0 {
		for range rand.IntN(n) {
			s.queue.pick(s.weight)
		}
	}
	return s
}

func (s *localitySource) next() *dataplane.Host {
	s.mu.Lock()
	i := s.queue.pick(s.weight)
	s.mu.Unlock()
	if i < 0 {
		return nil
	}
	return s.sources[i].next()
}
