package controlplane

import (
	"fmt"
	"slices"
	"time"

	"github.com/guideway/guideway/controlplane/xds"
)

// clusterWatcher takes what comes by CDS.
type clusterWatcher struct{ c *Control }

// Holds implements xds.Holder.
func (w *clusterWatcher) Holds() int { return len(w.c.apiClusters()) }

// apiClusters names the clusters that came by CDS, in order.
func (c *Control) apiClusters() []string {
	var names []string
	for _, clusters := range []map[string]*cluster{c.clusters, c.warming} {
		for name, cl := range clusters {
			if cl.desired.Settings.AddedViaAPI {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Missing implements xds.Watcher.
func (w *clusterWatcher) Missing() {
	w.Unreachable()
	w.c.clustersAnswered = true
}

// Unreachable puts stored clusters in force if the server has not said anything yet.
func (w *clusterWatcher) Unreachable() {
	c := w.c
	if c.clustersAnswered || len(c.restored.clusters) == 0 {
		return
	}
	c.Log.For("config").Warn("the management server cannot be reached: the state stored in the state directory is in force until it can", "clusters", len(c.restored.clusters))
	c.restored.inUse = true
	if err := w.Update(xds.Update{Resources: c.restored.clusters, Full: true}); err != nil {
		c.Log.For("config").Warn("not all of the stored state is in force", "reason", err)
	}
}

// Update implements xds.Watcher.
func (w *clusterWatcher) Update(u xds.Update) error {
	c := w.c
	c.clustersAnswered = true
	refusal := &xds.Refusal{Prefix: "Error adding/updating cluster(s)"}
	refuse := func(r *xds.Resource, err error) {
		refusal.Refused = append(refusal.Refused, xds.Refused{Name: r.Name, Err: err})
		c.refused.clusters[r.Name] = &lastTry{time.Now(), u.Version, r.Message, err.Error()}
		c.Log.For("config").Warn(fmt.Sprintf("cds: cluster '%s' config rejected: %s: %v", r.Name, r.Name, err))
	}
	named := map[string]bool{}
	updated := false
	for _, r := range u.Resources {
		if named[r.Name] {
			refuse(r, fmt.Errorf("duplicate cluster %s found", r.Name))
			continue
		}
		named[r.Name] = true
		old := c.newest(r.Name)
		switch {
		case r.Heartbeat:
			continue
		case old != nil && !old.desired.Settings.AddedViaAPI:
			continue // static clusters cannot be changed by CDS
		case r.Err != nil:
			refuse(r, r.Err)
			continue
		}
		c.notes(r)
		delete(c.refused.clusters, r.Name)
		switch {
		case old == nil:
			old = c.addCluster(c.ctx, r.Cluster)
			c.counters.clusterAdded.Inc()
		case old.desired.ContentHash == r.Cluster.ContentHash:
			continue // equal, whatever its version and bytes
		default:
			old = c.modifyCluster(c.ctx, r.Cluster)
			c.counters.clusterModified.Inc()
		}
		old.version = u.Version
		if r.Version != "" {
			old.version = r.Version
		}
		updated = true
	}
	changed := updated
	gone := u.Removed
	if u.Full {
		gone = c.apiClusters()
	}
	for _, name := range gone {
		old := c.newest(name)
		if named[name] || old == nil || !old.desired.Settings.AddedViaAPI {
			continue
		}
		c.removeCluster(name)
		c.counters.clusterRemoved.Inc()
		changed = true
		c.dirty = true
	}
	for name := range c.refused.clusters {
		if !named[name] && (u.Full || slices.Contains(u.Removed, name)) {
			delete(c.refused.clusters, name)
		}
	}
	c.unsaved = c.unsaved || changed
	c.clusterVersion = u.Version
	c.unseen = true
	c.dirty = c.dirty || changed
	if len(refusal.Refused) > 0 {
		return refusal
	}
	if updated && c.counters.cdsReload != nil {
		c.counters.cdsReload.Inc()
	}
	return nil
}
