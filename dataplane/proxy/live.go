package proxy

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// liveListener is one version of a listener in force, shared by all workers. It does not change once it
// is published, but for what it points to.
type liveListener struct {
	cfg     *dataplane.Listener
	stats   *dataplane.ListenerStats
	sockets []*socketSet
	// chains holds the state of each chain of cfg, the default chain included.
	chains map[*dataplane.FilterChain]*liveChain
	// only is the chain that takes every connection, if there is but one and it asks for nothing.
	only    *liveChain
	filters []listenerFilter
	// open counts connections from accept to end, for the listener's limit; all versions share it.
	open  *atomic.Int64
	drain *drain
	// stopped is set once the sockets are closed by DrainListeners; guarded by Server.mu.
	stopped bool
	scopes  []*stats.Scope // of the listener and its listener filters
	// successor is the version that came in this one's place without its sockets or stats changing: a
	// connection whose chain is not chosen yet goes on there.
	successor atomic.Pointer[liveListener]
}

// liveChain is one filter chain in force. It outlives updates of its listener that do not touch it.
type liveChain struct {
	cfg    *dataplane.FilterChain
	drain  *drain
	tcp    *dataplane.TCPStats // nil for a chain without tcp_proxy
	limits []*connectionLimit
	rbac   []*rbac
	scopes []*stats.Scope
}

func (s *Server) newLiveListener(l *dataplane.Listener, former *liveListener) *liveListener {
	n := &liveListener{cfg: l, chains: map[*dataplane.FilterChain]*liveChain{}}
	if former != nil && former.cfg.StatName == l.StatName {
		// Only chains differ: connections and sockets stay, and with them limit, stats and drain.
		n.open, n.drain, n.stopped = former.open, former.drain, former.stopped
		n.stats, n.filters, n.scopes = former.stats, former.filters, former.scopes
	} else {
		n.open, n.drain = new(atomic.Int64), new(drain)
		n.stats = dataplane.NewListenerStats(s.cfg.Stats, l.StatName, l.Protocol, len(s.workers))
		n.scopes = append(n.scopes, n.stats.Scope)
		n.makeFilters(s.cfg.Stats)
	}
	add := func(c *dataplane.FilterChain) {
		if c == nil {
			return
		}
		if former != nil {
			for fc, lc := range former.chains {
				if fc.Hash == c.Hash && fc.Name == c.Name {
					n.chains[c] = lc
					return
				}
			}
		}
		n.chains[c] = newLiveChain(s.cfg.Stats, c, n.drain)
	}
	for _, c := range l.Chains {
		add(c)
	}
	add(l.DefaultChain)
	n.findOnly()
	return n
}

// findOnly spares the search for a chain where there is nothing to choose.
func (l *liveListener) findOnly() {
	switch chains := l.cfg.Chains; {
	case len(chains) == 0 && l.cfg.DefaultChain != nil:
		l.only = l.chains[l.cfg.DefaultChain]
	case len(chains) == 1 && chains[0].Match.IsEmpty():
		l.only = l.chains[chains[0]]
	}
}

// sameAs is the version for a configuration that is equal but newly read.
func (l *liveListener) sameAs(cfg *dataplane.Listener) *liveListener {
	if l.cfg == cfg {
		return l
	}
	n := &liveListener{
		cfg: cfg, stats: l.stats, sockets: l.sockets, chains: map[*dataplane.FilterChain]*liveChain{},
		filters: l.filters, open: l.open, drain: l.drain, stopped: l.stopped, scopes: l.scopes,
	}
	find := func(c *dataplane.FilterChain) {
		if c == nil {
			return
		}
		for fc, lc := range l.chains {
			if fc.Hash == c.Hash && fc.Name == c.Name {
				n.chains[c] = lc
				return
			}
		}
	}
	for _, c := range cfg.Chains {
		find(c)
	}
	find(cfg.DefaultChain)
	n.findOnly()
	return n
}

func newLiveChain(store *stats.Store, c *dataplane.FilterChain, d *drain) *liveChain {
	n := &liveChain{cfg: c, drain: d}
	for _, f := range c.Filters {
		switch f := f.(type) {
		case *dataplane.ConnectionLimit:
			n.limits = append(n.limits, n.newConnectionLimit(store, f))
		case *dataplane.RBAC:
			n.rbac = append(n.rbac, n.newRBAC(store, f))
		}
	}
	if c.Proxy != nil {
		n.tcp = dataplane.NewTCPStats(store, c.Proxy.StatPrefix)
		n.scopes = append(n.scopes, n.tcp.Scope)
	}
	return n
}

// newest follows the successors to the version in force.
func (l *liveListener) newest() *liveListener {
	for {
		next := l.successor.Load()
		if next == nil {
			return l
		}
		l = next
	}
}

// release gives up the stats of a listener version that never served or has ended.
func (l *liveListener) release() {
	release(l.scopes)
	l.scopes = nil
}

func release(scopes []*stats.Scope) {
	for _, c := range scopes {
		c.Release()
	}
}

// retire ends a version of a listener: connections of chains that its successor does not have may go on
// for the drain time, then they are cut, and the stats nobody else has are given up.
func (s *Server) retire(r retirement) {
	keep := map[*liveChain]bool{}
	listenerStays := false
	if r.new != nil {
		for _, c := range r.new.chains {
			keep[c] = true
		}
		listenerStays = r.new.stats == r.old.stats
	}
	gone := map[*liveChain]bool{}
	for _, c := range r.old.chains {
		if !keep[c] {
			gone[c] = true
		}
	}
	if listenerStays {
		r.old.successor.Store(r.new)
	} else {
		r.old.drain.begin(time.Now(), s.cfg.DrainTime)
	}
	if len(gone) == 0 && listenerStays {
		return
	}
	var left atomic.Int64
	left.Store(int64(len(s.workers)))
	var once sync.Once
	done := func() {
		if left.Add(-1) > 0 {
			return
		}
		once.Do(func() {
			for c := range gone {
				release(c.scopes)
			}
			if !listenerStays {
				release(r.old.scopes)
			}
		})
	}
	match := func(c *conn) bool {
		return gone[c.chain] || c.chain == nil && !listenerStays && c.ln.newest() == r.old
	}
	why := reasonChainGone
	if !listenerStays {
		why = reasonShutdown
	}
	s.everyWorker(func(w *worker) { w.tcp.drainConns(match, why, s.cfg.DrainTime, done) })
}

// drain is the state of a listener that is being drained. Safe for concurrent use.
type drain struct {
	since, time atomic.Int64 // nanoseconds; since is 0 as long as no drain began
}

func (d *drain) begin(now time.Time, t time.Duration) {
	d.time.Store(int64(t))
	d.since.CompareAndSwap(0, now.UnixNano())
}

func (d *drain) begun() bool { return d.since.Load() != 0 }

// share is the part of the drain time that is over, 0 to 1, and 0 without a drain.
func (d *drain) share(now time.Time) float64 {
	since := d.since.Load()
	if since == 0 {
		return 0
	}
	t := d.time.Load()
	if t <= 0 {
		return 1
	}
	return min(float64(now.UnixNano()-since)/float64(t), 1)
}
