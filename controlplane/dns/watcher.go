package dns

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
)

// Deps are what a Watcher needs from around it.
type Deps struct {
	// Resolver looks names up; nil means NewResolver of the cluster's settings.
	Resolver Resolver
	// Stats count attempts and their ends. Required.
	Stats *dataplane.ClusterStats
	// OnUpdate takes the endpoints, resolved: with the first result of any name, be it a failure (the
	// start must not wait for a server that is away), and whenever they change. Calls come one at a
	// time; they hold up lookups, so they should hand on and return. Required.
	OnUpdate func(model.Assignment)
	// Log tells of failures, once for each row of them; nil means slog.Default().
	Log *slog.Logger
	// Random returns a number in [0, n); nil means math/rand/v2.
	Random func(n int64) int64
}

// Watcher keeps the names of one cluster resolved.
type Watcher struct {
	cluster *model.Cluster
	deps    Deps
	logical bool

	mu    sync.Mutex
	names []*name
	told  bool
}

// name is one endpoint as configured and what it resolved to.
type name struct {
	locality, endpoint int // its place in the assignment
	host               string
	port               uint16
	addrs              []netip.Addr
	failing            bool
}

// NewWatcher prepares to watch a STRICT_DNS or LOGICAL_DNS cluster. Nothing happens until Run.
func NewWatcher(c *model.Cluster, deps Deps) *Watcher {
	if deps.Resolver == nil {
		deps.Resolver = NewResolver(&c.DNS)
	}
	if deps.Log == nil {
		deps.Log = slog.Default()
	}
	if deps.Random == nil {
		deps.Random = rand.Int64N
	}
	w := &Watcher{cluster: c, deps: deps, logical: c.Discovery == model.LogicalDNS}
	for i, l := range c.Assignment.Localities {
		for j, e := range l.Endpoints {
			n := &name{locality: i, endpoint: j, host: e.Host, port: e.Port}
			if n.host == "" { // an address resolves to itself, and counts as a lookup all the same
				n.host, n.port = e.Address.Addr().String(), e.Address.Port()
			}
			w.names = append(w.names, n)
		}
	}
	return w
}

// Run looks the names up until ctx ends, each on its own time, and returns when the last call of
// OnUpdate has returned.
func (w *Watcher) Run(ctx context.Context) {
	if len(w.names) == 0 || !w.cluster.WaitForWarmOnInit {
		w.mu.Lock()
		w.tell()
		w.mu.Unlock()
	}
	var wg sync.WaitGroup
	for _, n := range w.names {
		wg.Go(func() { w.keep(ctx, n) })
	}
	wg.Wait()
}

// keep looks one name up again and again.
func (w *Watcher) keep(ctx context.Context, n *name) {
	r := newRefresh(&w.cluster.DNS, w.deps.Random)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		w.deps.Stats.UpdateAttempt.Inc()
		a, err := w.deps.Resolver.Lookup(ctx, n.host, w.cluster.DNS.Family)
		if ctx.Err() != nil {
			return
		}
		// A LOGICAL_DNS cluster has one host; an answer without any would leave it with none.
		if err == nil && w.logical && len(a.Addrs) == 0 {
			err = errNoAddress
		}
		if err != nil {
			w.fail(n, err)
			timer.Reset(r.failed())
			continue
		}
		w.succeed(n, a)
		timer.Reset(r.succeeded(a))
	}
}

var errNoAddress = errors.New("the answer has no address")

// fail keeps the hosts there are.
func (w *Watcher) fail(n *name, err error) {
	w.deps.Stats.UpdateFailure.Inc()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !n.failing {
		n.failing = true
		w.deps.Log.Warn("DNS lookup failed, keeping the hosts known so far", "cluster", w.cluster.Settings.Name, "name", n.host, "hosts", len(n.addrs), "error", err)
	}
	if !w.told {
		w.tell()
	}
}

// succeed takes an answer over.
func (w *Watcher) succeed(n *name, a Answer) {
	w.deps.Stats.UpdateSuccess.Inc()
	w.mu.Lock()
	defer w.mu.Unlock()
	n.failing = false
	if w.same(n.addrs, a.Addrs) {
		w.deps.Stats.UpdateNoRebuild.Inc()
		if !w.told {
			w.tell()
		}
		return
	}
	n.addrs = slices.Clone(a.Addrs)
	w.tell()
}

// same reports whether two answers mean the same hosts. Order matters where the first one is taken.
func (w *Watcher) same(a, b []netip.Addr) bool {
	if w.logical {
		return slices.Equal(a, b)
	}
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		if !slices.Contains(b, x) {
			return false
		}
	}
	return true
}

// tell gives the present endpoints to OnUpdate. w.mu is held.
func (w *Watcher) tell() {
	w.told = true
	w.deps.OnUpdate(w.assignment())
}

// assignment is the cluster's with each name replaced by its addresses: one endpoint an address, or
// for LOGICAL_DNS one with the first address (and the others to try if that one refuses), at priority
// 0. An endpoint without a hostname of its own gets the name as one.
func (w *Watcher) assignment() model.Assignment {
	out := w.cluster.Assignment
	out.Localities = slices.Clone(out.Localities)
	for i := range out.Localities {
		out.Localities[i].Endpoints = nil
		if w.logical {
			out.Localities[i].Priority = 0
		}
	}
	for _, n := range w.names {
		l := &out.Localities[n.locality]
		e := w.cluster.Assignment.Localities[n.locality].Endpoints[n.endpoint]
		if e.Hostname == "" {
			e.Hostname = n.host
		}

		for k, a := range n.addrs {
			e.Address = netip.AddrPortFrom(a, n.port)
			if w.logical {
				e.Additional = nil
				for _, other := range n.addrs[k+1:] {
					e.Additional = append(e.Additional, netip.AddrPortFrom(other, n.port))
				}
			}
			l.Endpoints = append(l.Endpoints, e)
			if w.logical {
				break
			}
		}
	}
	return out
}
