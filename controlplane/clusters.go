package controlplane

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/guideway/guideway/controlplane/dns"
	"github.com/guideway/guideway/controlplane/health"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
)

// addCluster begins a cluster that was not there. It warms until its hosts are known.
func (c *Control) addCluster(ctx context.Context, m *model.Cluster) *cluster {
	cl := c.open(m)
	c.warming[m.Settings.Name] = cl
	c.begin(ctx, cl)
	return cl
}

// modifyCluster takes new desired state for a cluster. If only its endpoints changed it stays the same
// cluster, else a new incarnation warms beside it and takes its place once its hosts are known. Health of
// hosts is kept where the checks are the same.
func (c *Control) modifyCluster(ctx context.Context, m *model.Cluster) *cluster {
	name := m.Settings.Name
	newest := c.newest(name)
	if newest.desired.SettingsHash == m.SettingsHash && newest.desired.Settings.AddedViaAPI == m.Settings.AddedViaAPI && m.Discovery == model.Static {
		newest.desired, newest.updated = m, time.Now()
		c.discovered(newest, m.Assignment)
		return newest
	}
	former, old := c.warming[name], c.clusters[name]
	next := c.open(m)
	if old != nil {
		next.inherit(old)
	}
	next.cacheEDS(former, old)
	if former == nil {
		c.warming[name] = next
		c.begin(ctx, next)
		return next
	}
	if old != nil && old.desired.ContentHash == m.ContentHash {
		// Back to what is in force: there is nothing to warm for.
		c.close(next)
		c.discard(former)
		return old
	}
	// The new subscription begins before the old one ends, so that endpoints stay subscribed.
	c.begin(ctx, next)
	c.discard(former)
	c.warming[name] = next
	return next
}

// removeCluster ends a cluster; connections to its hosts live on.
func (c *Control) removeCluster(name string) {
	if w := c.warming[name]; w != nil {
		c.discard(w)
	}
	cl := c.clusters[name]
	if cl == nil {
		return // it never was in force
	}
	for _, h := range cl.hosts {
		h.state.Removed.Store(true)
	}
	c.close(cl)
	delete(c.clusters, name)
}

// newest is the incarnation of a cluster that has the newest desired state; nil if there is none.
func (c *Control) newest(name string) *cluster {
	if w := c.warming[name]; w != nil {
		return w
	}
	return c.clusters[name]
}

func (c *Control) open(m *model.Cluster) *cluster {
	c.incarnation++
	cl := newCluster(m, c.incarnation, c.config.Node.Locality, c.Stats)
	cl.panicAt = panicThreshold(m, c.runtime)
	return cl
}

// begin starts discovery and checks of a cluster.
func (c *Control) begin(ctx context.Context, cl *cluster) {
	if cl.desired.Outlier != nil {
		c.beginOutlier(cl)
	}
	if cl.checksHealth() && cl.checker == nil {
		c.beginChecks(cl)
	}
	switch cl.desired.Discovery {
	case model.Static:
		c.discovered(cl, cl.desired.Assignment)
	case model.StrictDNS, model.LogicalDNS:
		c.beginDNS(ctx, cl)
	case model.EDS:
		c.beginEDS(cl)
	}
}

// discovered takes a new assignment of a cluster's discovery.
func (c *Control) discovered(cl *cluster, a model.Assignment) {
	if cl.assign(a) {
		cl.stats.MembershipChange.Inc()
	}
	cl.known = true
	c.drainAgain(cl)
	c.watchHosts(cl)
	c.touch(cl)
}

// touch has the cluster built anew for the next snapshot.
func (c *Control) touch(cl *cluster) {
	cl.stale = true
	c.dirty = true
}

// watchHosts tells the checker and the outlier detector which hosts there are.
func (c *Control) watchHosts(cl *cluster) {
	if cl.checker == nil && cl.detector == nil {
		return
	}
	targets := cl.targets()
	if cl.checker != nil {
		cl.checker.SetHosts(targets)
	}
	if cl.detector != nil {
		cl.detector.SetHosts(targets)
	}
}

func (c *Control) beginDNS(ctx context.Context, cl *cluster) {
	w := dns.NewWatcher(cl.desired, dns.Deps{
		Stats: cl.stats,
		Log:   c.Log.For("dns"),
		OnUpdate: func(a model.Assignment) {
			c.post(func() {
				if !cl.closed {
					c.discovered(cl, a)
				}
			})
		},
	})
	ctx, cl.stopDNS = context.WithCancel(ctx)
	go w.Run(ctx)
}

func (c *Control) beginChecks(cl *cluster) {
	name := cl.desired.Settings.Name
	passes := &atomic.Pointer[health.Detector]{}
	passes.Store(cl.detector)
	checker, err := health.New(health.Config{
		Cluster:         name,
		Check:           cl.desired.HealthChecks[0],
		PendingNewHosts: cl.pendsNewHosts(),
		BindAddress:     cl.desired.Settings.BindAddress,
		ProxyProtocol:   proxyVersion(cl.desired),
		HoldDown:        health.HoldDown(cl.desired.Guideway.HoldDown),
	}, health.Deps{
		Scope:      cl.stats.Scope,
		Pool:       c.probes,
		EventLog:   c.eventLog(cl.desired.HealthChecks[0].EventLogPath),
		HasTraffic: cl.hasTraffic,
		Limits:     c.checkLimits(),
		OnChange: func(t *health.Target, flags dataplane.Health) {
			c.urge(func() { c.checked(name, t.State, flags) })
		},
		OnPass: func(t *health.Target) {
			if d := passes.Load(); d != nil {
				d.ActiveCheckPassed(t)
			}
		},
	})
	if err != nil {
		// The configuration was validated: this cannot be one that a user wrote.
		c.Log.For("hc").Error("no health checks", "cluster", name, "reason", err)
		return
	}
	cl.checker, cl.passes = checker, passes
	go func() {
		<-checker.FirstRoundDone()
		c.post(func() { c.dirty = true })
	}()
}

// checked takes what a checker found out about a host.
func (c *Control) checked(name string, state *dataplane.HostState, flags dataplane.Health) {
	for _, cl := range []*cluster{c.clusters[name], c.warming[name]} {
		if cl == nil {
			continue
		}
		h := cl.hostOf(state)
		if h == nil {
			continue
		}
		h.checked = flags
		if h.leaving && flags&dataplane.FailedActiveHC != 0 {
			delete(cl.hosts, h.key)
			cl.states = nil
			h.state.Removed.Store(true)
			cl.stats.MembershipChange.Inc()
			c.watchHosts(cl)
		}
		c.urgent(cl)
	}
}

func (c *Control) beginOutlier(cl *cluster) {
	name := cl.desired.Settings.Name
	cl.detector = health.NewDetector(*cl.desired.Outlier, health.DetectorDeps{
		Cluster:  name,
		Scope:    cl.stats.Scope,
		EventLog: c.eventLog(c.config.OutlierEventLogPath),
		OnChange: func(t *health.Target, flags dataplane.Health) {
			c.urge(func() {
				if h := cl.hostOf(t.State); h != nil && !cl.closed {
					h.ejected = flags
					c.urgent(cl)
				}
			})
		},
	})
	cl.observer = cl.detector
}

// promote puts warm clusters in the place of those they replace. It reports whether there were any.
func (c *Control) promote() bool {
	promoted := false
	for name, w := range c.warming {
		if !w.ready() {
			continue
		}
		if old := c.clusters[name]; old != nil {
			if old.checker == w.checker {
				old.checker = nil
			}
			if w.passes != nil {
				w.passes.Store(w.detector)
			}
			c.close(old)
			for key, h := range old.hosts {
				if now := w.hosts[key]; now == nil || now.state != h.state {
					h.state.Removed.Store(true)
				}
			}
		}
		delete(c.warming, name)
		c.clusters[name] = w
		promoted = true
	}
	return promoted
}

// discard ends a warming cluster that never came into force.
func (c *Control) discard(w *cluster) {
	name := w.desired.Settings.Name
	if old := c.clusters[name]; old != nil && old.checker == w.checker {
		w.checker = nil
	}
	c.close(w)
	delete(c.warming, name)
}

// close ends what a cluster does and gives up its stats.
func (c *Control) close(cl *cluster) {
	cl.closed = true
	if cl.stopDNS != nil {
		cl.stopDNS()
	}
	cl.eds.close()
	if cl.checker != nil {
		cl.checker.Stop()
	}
	if cl.detector != nil {
		cl.detector.Stop()
	}
	cl.release()
}

// stopClusters ends all discovery and checks.
func (c *Control) stopClusters() {
	for _, w := range c.warming {
		c.discard(w)
	}
	for _, cl := range c.clusters {
		c.close(cl)
	}
}

func proxyVersion(m *model.Cluster) int {
	if p := m.Settings.ProxyProtocol; p != nil {
		return p.Version
	}
	return 0
}
