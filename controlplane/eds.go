package controlplane

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/controlplane/xds"
)

// edsState is how a cluster gets its endpoints by EDS.
type edsState struct {
	subscription *xds.Subscription
	// message and version are what came last; nil and "" before.
	message proto.Message
	version string
	// cached is what a former incarnation of the cluster had, for a server that does not send it again.
	cached *edsState
	// assignment is message in our form.
	assignment model.Assignment
	// stale ends endpoint_stale_after; nil without.
	stale *time.Timer
}

func (e *edsState) close() {
	if e == nil {
		return
	}
	e.subscription.Close()
	if e.stale != nil {
		e.stale.Stop()
	}
}

// resourceName is what a cluster's endpoints are asked for by.
func resourceName(m *model.Cluster) string {
	if m.EDSServiceName != "" {
		return m.EDSServiceName
	}
	return m.Settings.Name
}

// cacheEDS remembers what the first of the former incarnations that knows it has got by EDS under the same
// name.
func (cl *cluster) cacheEDS(former ...*cluster) {
	if cl.desired.Discovery != model.EDS {
		return
	}
	cl.eds = &edsState{}
	for _, f := range former {
		if f == nil || f.eds == nil || resourceName(f.desired) != resourceName(cl.desired) {
			continue
		}
		switch {
		case f.eds.message != nil:
			cl.eds.cached = f.eds
		case f.eds.cached != nil:
			cl.eds.cached = f.eds.cached
		default:
			continue
		}
		cl.eds.cached.cached = nil // one is enough
		return
	}
}

// beginEDS subscribes to a cluster's endpoints.
func (c *Control) beginEDS(cl *cluster) {
	if cl.eds == nil {
		cl.eds = &edsState{}
	}
	c.subscribeEDS(cl)
	if kept := c.restored.endpoints[resourceName(cl.desired)]; kept != nil && c.restored.inUse && cl.eds.message == nil {
		c.assigned(cl, kept, "")
	}
}

func (c *Control) subscribeEDS(cl *cluster) {
	source, _ := cl.desired.EDS.Message.(*corev3.ConfigSource)
	var err error
	cl.eds.subscription, err = c.sources.Subscribe(xds.Endpoints, source, resourceName(cl.desired), cl.stats.Scope, &endpointWatcher{c, cl})
	if err != nil {
		c.Log.For("upstream").Error("the cluster stays without endpoints", "cluster", cl.desired.Settings.Name, "reason", err)
		cl.known = true
		c.touch(cl)
	}
}

// assigned takes endpoints that have come by EDS.
func (c *Control) assigned(cl *cluster, r *xds.Resource, version string) {
	equal := cl.known && cl.eds.message != nil && (cl.eds.message == r.Message || cl.assignment.Equal(&r.Assignment))
	if r.Version != "" {
		version = r.Version
	}
	cl.eds.message, cl.eds.version, cl.eds.assignment, cl.eds.cached = r.Message, version, r.Assignment, nil
	c.staleAfter(cl)
	if equal {
		cl.stats.UpdateNoRebuild.Inc()
		return
	}
	c.discovered(cl, r.Assignment)
}

// staleAfter empties the cluster when its endpoints are not renewed within endpoint_stale_after, as the
// server has asked for.
func (c *Control) staleAfter(cl *cluster) {
	if cl.eds.stale != nil {
		cl.eds.stale.Stop()
		cl.eds.stale = nil
	}
	after := cl.eds.assignment.StaleAfter
	if after <= 0 {
		return
	}
	cl.stats.AssignmentTimeoutReceived.Inc()
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		c.post(func() {
			if cl.closed || cl.eds.stale != timer {
				return
			}
			cl.stats.AssignmentStale.Inc()
			cl.eds.message = nil
			c.discovered(cl, model.Assignment{ClusterName: cl.assignment.ClusterName, OverprovisioningFactor: cl.assignment.OverprovisioningFactor})
		})
	})
	cl.eds.stale = timer
}

// endpointWatcher takes the endpoints of one incarnation of a cluster.
type endpointWatcher struct {
	c  *Control
	cl *cluster
}

// Update implements xds.Watcher. A resource that is removed empties nothing: the cluster's own removal
// does, as in Envoy.
func (w *endpointWatcher) Update(u xds.Update) error {
	cl := w.cl
	if len(u.Resources) == 0 {
		cl.stats.UpdateEmpty.Inc()
		if !cl.known {
			cl.known = true
			w.c.touch(cl)
		}
		return nil
	}
	r := u.Resources[0]
	w.c.notes(r)
	w.c.assigned(cl, r, u.Version)
	w.c.unsaved = true
	return nil
}

// Missing implements xds.Watcher: what a former incarnation had is better than nothing.
func (w *endpointWatcher) Missing() {
	cl := w.cl
	switch {
	case cl.known:
	case cl.eds.cached != nil:
		old := cl.eds.cached
		cl.stats.AssignmentUseCached.Inc()
		cl.eds.message, cl.eds.version, cl.eds.assignment, cl.eds.cached = old.message, old.version, old.assignment, nil
		w.c.discovered(cl, old.assignment)
	default:
		w.Unreachable()
		if !cl.known {
			cl.known = true
			w.c.touch(cl)
		}
	}
}

// Unreachable is called when the server cannot be reached: endpoints that were stored serve until it can.
func (w *endpointWatcher) Unreachable() {
	if w.cl.known || w.cl.eds.cached != nil {
		return
	}
	if kept := w.c.restored.endpoints[resourceName(w.cl.desired)]; kept != nil {
		w.c.Log.For("config").Warn(fmt.Sprintf("the server cannot be reached: cluster '%s' uses the endpoints stored in the state directory", w.cl.desired.Settings.Name))
		w.c.assigned(w.cl, kept, "")
	}
}
