package stats

import "iter"

// Kind of a stat.
type Kind uint8

// Kinds.
const (
	CounterKind Kind = iota
	GaugeKind
	HistogramKind
	TextKind
	kinds
)

// Stat is one stat as found in a store.
type Stat struct {
	// Name is the full, raw name.
	Name string

	node *node
	key  *string // the entry's name
	stat any
	Kind Kind
}

// All returns every stat, in no order. Values are read when asked for, not at the time of the call.
func (s *Store) All() []Stat { return s.Select(nil) }

// Select returns the stats whose full names keep accepts; a nil keep accepts all.
func (s *Store) Select(keep func(name string) bool) []Stat {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []Stat
	if keep == nil {
		total := 0
		for _, n := range s.nodes {
			total += n.size()
		}
		out = make([]Stat, 0, total)
	}
	for _, n := range s.nodes {
		for e := range n.entries() {
			name := n.prefix + *e.name
			if keep != nil && !keep(name) || e.stat == nil && s.rejected(name) {
				continue
			}
			out = append(out, Stat{Name: name, Kind: e.kind, key: e.name, stat: e.stat, node: n})
		}
	}
	return out
}

// size is how many entries a node has at most.
func (n *node) size() int {
	total := len(n.single)
	for _, g := range n.groups {
		total += len(g.layout.fields)
	}
	for _, z := range n.zeros {
		total += len(z.Counters) + len(z.Gauges) + len(z.Histograms)
	}
	return total
}

// entries yields what a node shows.
func (n *node) entries() iter.Seq[entry] {
	return func(yield func(entry) bool) {
		for _, g := range n.groups {
			for i := range g.layout.fields {
				if g.hidden[i] {
					continue
				}
				f := &g.layout.fields[i]
				if !yield(entry{&f.name, f.kind, g.stat(i)}) {
					return
				}
			}
		}
		for _, e := range n.single {
			if !yield(e) {
				return
			}
		}
		for _, z := range n.zeros {
			for _, list := range []struct {
				kind  Kind
				names []string
			}{{CounterKind, z.Counters}, {GaugeKind, z.Gauges}, {HistogramKind, z.Histograms}} {
				for i := range list.names {
					if n.find(list.names[i]) != nil {
						continue
					}
					if !yield(entry{name: &list.names[i], kind: list.kind}) {
						return
					}
				}
			}
		}
	}
}

// Number returns the value of a counter or gauge. For a gauge, unsigned tells that the value is to be
// read as a uint64.
func (t Stat) Number() (value int64, unsigned bool) {
	switch v := t.stat.(type) {
	case *Counter:
		return int64(v.Value()), true
	case *Gauge:
		return v.Value(), v.unsigned()
	case gaugeFunc:
		return v(), false
	}
	return 0, true
}

// Text returns the value of a text readout.
func (t Stat) Text() string {
	if v, ok := t.stat.(*Text); ok {
		return v.Value()
	}
	return ""
}

// Distributions returns those of a histogram: of the last interval, and of all time.
func (t Stat) Distributions() (interval, cumulative Distribution) {
	if v, ok := t.stat.(*Histogram); ok {
		return v.Interval(), v.Cumulative()
	}
	return Distribution{}, Distribution{}
}

// Bounds returns the bucket bounds of a histogram, without the infinite one.
func (t Stat) Bounds() []float64 {
	if f := t.node.store.config.Load().Bounds; f != nil {
		if bounds := f(t.Name); bounds != nil {
			return bounds
		}
	}
	return DefaultBounds
}

// Used reports whether the stat has ever been written.
func (t Stat) Used() bool {
	v, ok := t.stat.(interface{ Used() bool })
	return ok && v.Used()
}

// ResetCounters sets all counters to 0.
func (s *Store) ResetCounters() {
	for _, t := range s.All() {
		if c, ok := t.stat.(*Counter); ok {
			c.Reset()
		}
	}
}

// Flush ends the interval of all histograms: what was recorded since the last flush becomes visible. The
// control loop calls it every stats_flush_interval.
func (s *Store) Flush() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, n := range s.nodes {
		for _, g := range n.groups {
			for i := range g.histograms {
				g.histograms[i].flush()
			}
		}
		for _, e := range n.single {
			if h, ok := e.stat.(*Histogram); ok {
				h.flush()
			}
		}
	}
}

// tagged is a name without its tags, and these.
type tagged struct {
	name string
	tags *[]Tag
}

// Tagged returns the name without the values of tags, and the tags. The result is kept with the stat;
// it must not be changed.
func (t Stat) Tagged() (name string, tags []Tag) {
	s := t.node.store
	s.tagging.Lock()
	defer s.tagging.Unlock()
	if have, ok := t.node.tagged[t.key]; ok {
		return have.name, *have.tags
	}
	name, tags = s.config.Load().Tags.Extract(t.Name)
	if shared, ok := s.names[name]; ok { // the same for all clusters
		name = shared
	} else {
		if len(s.names) > 1<<16 { // many scopes have come and gone
			clear(s.names)
		}
		s.names[name] = name
	}
	kept := tagged{name: name}
	for _, other := range t.node.tagged { // most stats of a scope have the same tags
		if equalTags(*other.tags, tags) {
			kept.tags = other.tags
		}
		break
	}
	if kept.tags == nil {
		kept.tags = &tags
	}
	if t.node.tagged == nil {
		t.node.tagged = map[*string]tagged{}
	}
	t.node.tagged[t.key] = kept
	return name, *kept.tags
}

func equalTags(a, b []Tag) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
