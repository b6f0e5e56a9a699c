package stats

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Config says how a store names, keeps and shows its stats; the zero value is Envoy's default.
type Config struct {
	// Reject tells by full name which stats are not to be kept: they can be written, and show nowhere.
	Reject func(name string) bool
	// Tags extracts tags; nil means Envoy's default tags.
	Tags *TagExtractor
	// Bounds returns the bucket bounds of a histogram, ascending; nil, or a nil result, means DefaultBounds.
	Bounds func(name string) []float64
}

// Store holds every stat of a process by its name. Safe for concurrent use.
//
// Stats are kept by scope, not by name: a scope of a hundred bound stats holds one block of values and
// refers to names that all scopes of its kind share, so a cluster's stats cost about 20 bytes each.
type Store struct {
	config atomic.Pointer[Config]

	mu    sync.RWMutex
	nodes map[string]*node // by prefix
	root  *node            // stats made by their full name

	tagging sync.Mutex // guards the tag caches of all nodes, and:
	names   map[string]string
}

// node holds the stats below one prefix.
type node struct {
	store  *Store
	prefix string
	refs   int // scopes that hold it; the root and pinned nodes are never given up
	pinned bool
	groups []*group
	single []entry
	zeros  []*Names
	tagged map[*string]tagged // by the address of the name in its layout, list or entry
}

// entry is one stat below a node's prefix.
type entry struct {
	name *string
	kind Kind
	stat any // *Counter, *Gauge, *Histogram, *Text or gaugeFunc; nil for a name that always reads 0
}

// Names are stats that exist below a prefix and always read 0: those of features that Guideway does not
// have and Envoy's users look at. One list serves all scopes of a kind.
type Names struct{ Counters, Gauges, Histograms []string }

// NewStore returns an empty store with Envoy's defaults.
func NewStore() *Store { return NewStoreWith(Config{}) }

// NewStoreWith returns an empty store.
func NewStoreWith(config Config) *Store {
	s := &Store{}
	s.root = &node{store: s, pinned: true}
	s.nodes = map[string]*node{"": s.root}
	s.Configure(config)
	return s
}

// Configure replaces the configuration, for a store that had to exist before its configuration was
// read. Stats that exist already stay, whatever Reject says.
func (s *Store) Configure(config Config) {
	if config.Tags == nil {
		config.Tags = defaultTags
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tagging.Lock()
	defer s.tagging.Unlock()
	s.config.Store(&config)
	s.names = map[string]string{}
	for _, n := range s.nodes {
		n.tagged = nil
	}
}

// rejected reports whether the configuration does not want a stat.
func (s *Store) rejected(name string) bool {
	reject := s.config.Load().Reject
	return reject != nil && reject(name)
}

// Scope returns a new scope for names that begin with prefix (with its final dot). Scopes of one prefix
// share their stats; these live until every one of the scopes is released.
func (s *Store) Scope(prefix string) *Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[prefix]
	if n == nil {
		n = &node{store: s, prefix: prefix}
		s.nodes[prefix] = n
	}
	n.refs++
	return &Scope{store: s, node: n}
}

// Counter returns the counter of that full name, made if it is not there, for the life of the store.
func (s *Store) Counter(name string) *Counter { return obtain[Counter](s, nil, name, CounterKind) }

// Gauge returns the gauge of that full name, made if it is not there, for the life of the store.
func (s *Store) Gauge(name string) *Gauge { return obtain[Gauge](s, nil, name, GaugeKind) }

// Histogram returns the histogram of that full name, made if it is not there, for the life of the store.
func (s *Store) Histogram(name string) *Histogram {
	return obtain[Histogram](s, nil, name, HistogramKind)
}

// Text returns the text readout of that full name, made if it is not there, for the life of the store.
func (s *Store) Text(name string) *Text { return obtain[Text](s, nil, name, TextKind) }

// Scope makes stats below a prefix and gives them up together.
type Scope struct {
	store    *Store
	node     *node
	released bool // guarded by the store's lock
}

// Prefix returns the scope's prefix, with its final dot.
func (c *Scope) Prefix() string { return c.node.prefix }

// Counter returns the counter prefix+name.
func (c *Scope) Counter(name string) *Counter {
	return obtain[Counter](c.store, c.node, name, CounterKind)
}

// Gauge returns the gauge prefix+name.
func (c *Scope) Gauge(name string) *Gauge { return obtain[Gauge](c.store, c.node, name, GaugeKind) }

// Histogram returns the histogram prefix+name.
func (c *Scope) Histogram(name string) *Histogram {
	return obtain[Histogram](c.store, c.node, name, HistogramKind)
}

// Text returns the text readout prefix+name.
func (c *Scope) Text(name string) *Text { return obtain[Text](c.store, c.node, name, TextKind) }

// GaugeFunc makes the gauge prefix+name, whose value is what f returns when it is read. It replaces an
// earlier gauge of the name that was not bound, and a later Gauge of the name replaces it.
func (c *Scope) GaugeFunc(name string, f func() int64) {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rejected(c.node.prefix + name) {
		return
	}
	if c.node.replace(name, GaugeKind, gaugeFunc(f)) == nil {
		c.node.single = append(c.node.single, entry{name: &name, kind: GaugeKind, stat: gaugeFunc(f)})
	}
}

// replace gives a stat of a node that was made by itself another value, and returns that; nil if there is
// no such stat.
func (n *node) replace(name string, kind Kind, stat any) any {
	for i := range n.single {
		if e := &n.single[i]; *e.name == name {
			e.kind, e.stat = kind, stat
			return stat
		}
	}
	return nil
}

// gaugeFunc is a gauge that is computed.
type gaugeFunc func() int64

// Used is true: there is always a value.
func (gaugeFunc) Used() bool { return true }

// Zero adds names that always read 0; one that is also made otherwise is the one made.
func (c *Scope) Zero(names *Names) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if !slices.Contains(c.node.zeros, names) {
		c.node.zeros = append(c.node.zeros, names)
	}
}

// Release gives the scope's stats up; when no other scope of the prefix holds them, they disappear
// from the store. Pointers handed out stay usable. Releasing twice does nothing.
func (c *Scope) Release() {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.released {
		return
	}
	c.released = true
	if c.node.refs--; c.node.refs == 0 && !c.node.pinned {
		delete(c.store.nodes, c.node.prefix)
	}
}

// obtain returns the stat below n (nil: of that full name), made if it is not there.
func obtain[T any](s *Store, n *node, name string, kind Kind) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	pin := n == nil
	if pin {
		n = s.root
	}
	full := n.prefix + name
	home, stat := s.find(full)
	if _, computed := stat.(gaugeFunc); computed && kind == GaugeKind {
		stat = home.replace(full[len(home.prefix):], kind, new(Gauge))
	}
	if stat == nil {
		v := new(T)
		if !s.rejected(full) {
			n.single = append(n.single, entry{name: &name, kind: kind, stat: v})
		}
		return v
	}
	if pin {
		home.pinned = true
	}
	v, ok := stat.(*T)
	if !ok {
		panic(fmt.Sprintf("stat %q is a %T, asked for as %T", full, stat, v))
	}
	return v
}

// find returns the stat of that full name and the node that holds it, wherever the name is split.
func (s *Store) find(full string) (*node, any) {
	for dot := strings.LastIndexByte(full, '.'); dot >= 0; dot = strings.LastIndexByte(full[:dot], '.') {
		if n := s.nodes[full[:dot+1]]; n != nil {
			if stat := n.find(full[dot+1:]); stat != nil {
				return n, stat
			}
		}
	}
	return s.root, s.root.find(full)
}

func (n *node) find(name string) any {
	for _, g := range n.groups {
		if stat := g.find(name); stat != nil {
			return stat
		}
	}
	for i := range n.single {
		if *n.single[i].name == name {
			return n.single[i].stat
		}
	}
	return nil
}
