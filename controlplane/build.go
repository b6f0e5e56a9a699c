package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// urge has the loop run f before all that post brings, and while tables of other clusters are built: for
// news of hosts that fail. f may touch hosts, but neither add nor remove clusters or listeners.
func (c *Control) urge(f func()) {
	select {
	case c.pressing <- f:
	case <-c.ended:
	}
}

// urgent has the cluster built before others for the next snapshot.
func (c *Control) urgent(cl *cluster) {
	cl.pressing = true
	c.touch(cl)
}

// takeEvents runs what has queued up, so that it becomes one change. It does not wait.
func (c *Control) takeEvents() {
	for {
		select {
		case f := <-c.pressing:
			f()
			continue
		default:
		}
		select {
		case f := <-c.pressing:
			f()
		case f := <-c.events:
			f()
		default:
			return
		}
	}
}

// takePressing runs what cannot wait, and reports whether there was any.
func (c *Control) takePressing() (any bool) {
	for {
		select {
		case f := <-c.pressing:
			f()
			any = true
		default:
			return any
		}
	}
}

// build brings all clusters up to date and returns them. A table takes a millisecond, and hundreds of
// clusters may change at once: clusters with news of failing hosts come first, and what such news comes
// while others are built is in force before the next table is begun. An error comes only from the start.
func (c *Control) build(ctx context.Context) (map[string]*dataplane.Cluster, error) {
	defer func() { c.dirty = c.anyStale() }()
	built := make(map[string]*dataplane.Cluster, len(c.clusters))
	var waiting []*cluster
	for name, cl := range c.clusters {
		switch {
		case cl.stale || cl.current == nil:
			waiting = append(waiting, cl)
		default:
			built[name] = cl.current
		}
	}
	if len(waiting) > 1 {
		c.expedite(ctx, waiting)
	}
	for i, cl := range waiting {
		if i > 0 && c.inForce != nil && c.takePressing() {
			c.expedite(ctx, nil)
		}
		if err := c.buildOne(cl); err != nil {
			return nil, err
		}
	}
	for _, cl := range waiting {
		if cl.current != nil {
			built[cl.desired.Settings.Name] = cl.current
		}
	}
	return built, nil
}

// anyStale reports whether a cluster waits to be built: one that news came of after its turn.
func (c *Control) anyStale() bool {
	for _, cl := range c.clusters {
		if cl.stale {
			return true
		}
	}
	return false
}

// buildOne brings one cluster up to date. If that cannot be it keeps what it has, which is an error only
// in the start.
func (c *Control) buildOne(cl *cluster) error {
	name := cl.desired.Settings.Name
	_, err := cl.build()
	if err == nil {
		return nil
	}
	if c.starting {
		return fmt.Errorf("cluster %q: %w", name, err)
	}
	c.Log.For("upstream").Error("cluster keeps its last good state", "cluster", name, "reason", err)
	c.counters.updateRejected.Inc()
	return nil
}

// expedite puts the clusters that press in force, alone, with all else as it was. Among other clusters
// that wait there must be one that does not press, or there is nothing to be gained.
func (c *Control) expedite(ctx context.Context, among []*cluster) {
	if c.inForce == nil || c.starting {
		return
	}
	var press []*cluster
	for _, cl := range c.clusters {
		if cl.pressing && cl.stale && c.inForce.Clusters[cl.desired.Settings.Name] != nil {
			press = append(press, cl)
		}
	}
	if len(press) == 0 || len(press) == len(among) {
		return
	}
	before := c.changes.before(c, true)
	next := *c.inForce
	next.Clusters = maps.Clone(next.Clusters)
	for _, cl := range press {
		if c.buildOne(cl) == nil && cl.current != nil {
			next.Clusters[cl.desired.Settings.Name] = cl.current
		}
	}
	if err := c.put(ctx, &next, before); err != nil && !ofListeners(err) {
		c.Log.For("config").Error("an urgent change is not in force", "reason", err)
		return
	}
	c.counters.expedited.Inc()
}

// ofListeners tells the failure of some listeners, beside which all else is in force.
func ofListeners(err error) bool {
	var some *dataplane.ListenerError
	return errors.As(err, &some)
}

// put makes a snapshot the one in force and records what that changed. before are the flows there were
// before it was built (HostState.CurrentHealth tells of it from then on), nil if they were not looked at.
func (c *Control) put(ctx context.Context, s *dataplane.Snapshot, before []dataplane.Flow) error {
	s.Generation = c.generation + 1
	began := time.Now()
	err := c.Dataplane.Apply(ctx, s)
	took := time.Since(began)
	if err != nil && !ofListeners(err) {
		return err // nothing of it is in force
	}
	c.generation = s.Generation
	c.counters.applied(took)
	if c.inForce != nil {
		c.changes.record(c, before, s, took)
	}
	c.inForce = s
	return err
}
