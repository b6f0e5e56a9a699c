package lb

import (
	"slices"

	"github.com/guideway/guideway/dataplane/stats"
	"github.com/guideway/guideway/maglev"
)

// Cache keeps the tables and rings of one cluster from one build to the next, so that a change that
// leaves a priority's table as it is costs no build. Not safe for concurrent use.
type Cache struct {
	input Input
	built map[int]*built // by priority
	next  map[int]*built

	gauges map[string]*stats.Gauge
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{built: map[int]*built{}, gauges: map[string]*stats.Gauge{}} }

// built is a table or ring and what it was made from.
type built struct {
	config     Config
	hosts      []maglev.Host
	localities []maglev.Locality
	table      *maglev.Table
	ring       *maglev.Ring
}

func (c *Cache) begin(in Input) {
	c.input = in
	c.input.Priorities = slices.Clone(in.Priorities)
	c.next = map[int]*built{}
}

func (c *Cache) end() { c.built = c.next }

// Same reports whether in is what the last balancer was built from.
func (c *Cache) Same(in Input) bool {
	old := c.input
	return old.Stats != nil && old.PanicThreshold == in.PanicThreshold && old.Overprovisioning == in.Overprovisioning &&
		old.WeightedPriorityHealth == in.WeightedPriorityHealth && old.Live == in.Live &&
		slices.EqualFunc(old.Priorities, in.Priorities, func(a, b HostSet) bool {
			return slices.Equal(a.Hosts, b.Hosts) && slices.EqualFunc(a.Localities, b.Localities, func(a, b Locality) bool {
				return a.Weight == b.Weight && slices.Equal(a.Hosts, b.Hosts)
			})
		})
}

func (c *Cache) build(config Config, priority int, hosts []maglev.Host, localities []maglev.Locality) (*built, error) {
	if old := c.built[priority]; old != nil && old.config == config && slices.Equal(old.hosts, hosts) &&
		(old.localities == nil) == (localities == nil) && slices.Equal(old.localities, localities) {
		c.next[priority] = old
		return old, nil
	}
	b := &built{config: config, hosts: hosts, localities: localities}
	var err error
	switch config.Policy {
	case Maglev:
		b.table, err = maglev.Build(config.TableSize, hosts, localities)
	case RingHash:
		options := maglev.RingOptions{MinSize: config.MinRing, MaxSize: config.MaxRing}
		if config.Murmur {
			options.Hash = maglev.MurmurHash
		}
		b.ring, err = maglev.BuildRing(options, hosts, localities)
	}
	if err != nil {
		return nil, err
	}
	c.next[priority] = b
	return b, nil
}

// report sets the gauges of a table or ring in a cluster's scope. With several priorities the last
// one built wins, as in Envoy.
func (c *Cache) report(b *built, scope *stats.Scope) {
	if b.table != nil {
		smallest, largest := b.table.Entries()
		c.gauge(scope, "maglev_lb.min_entries_per_host").Set(int64(smallest))
		c.gauge(scope, "maglev_lb.max_entries_per_host").Set(int64(largest))
		return
	}
	size, smallest, largest := b.ring.Entries()
	c.gauge(scope, "ring_hash_lb.size").Set(int64(size))
	c.gauge(scope, "ring_hash_lb.min_hashes_per_host").Set(int64(smallest))
	c.gauge(scope, "ring_hash_lb.max_hashes_per_host").Set(int64(largest))
}

func (c *Cache) gauge(scope *stats.Scope, name string) *stats.Gauge {
	g := c.gauges[name]
	if g == nil {
		g = scope.Gauge(name)
		c.gauges[name] = g
	}
	return g
}
