package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/controlplane/plan"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// Foresee says what Reload would change with a configuration, and what would become of the flows there are.
// Nothing is changed. resolve is asked for DNS clusters that are new or have other settings.
func (c *Control) Foresee(ctx context.Context, config *model.Config, resolve Resolve) (*plan.Change, error) {
	var base *outlook
	err := errors.New("the process is shutting down")
	c.do(func() {
		if err = nil; c.inForce == nil {
			err = errors.New("the process is still starting: try again once it is ready")
			return
		}
		base = c.outlook()
	})
	if err != nil {
		return nil, err
	}
	next, assumed, err := base.next(ctx, config, resolve)
	if err != nil {
		return nil, err
	}
	change := plan.Compare(base.inForce, next)
	change.Identify(base.inForce, next)
	change.Assumed = assumed
	if flows := flowsOf(c.Dataplane); flows != nil {
		change.Flows = plan.Foresee(flows, base.inForce, next)
	}
	return change, nil
}

// ForeseeOffline says what a running instance would change if its configuration were from and became to,
// with every host as healthy as the configurations say.
func ForeseeOffline(ctx context.Context, from, to *model.Config, resolve Resolve) (*plan.Change, error) {
	nothing := &outlook{inForce: &dataplane.Snapshot{}}
	first, _, err := nothing.next(ctx, from, resolve)
	if err != nil {
		return nil, fmt.Errorf("the former configuration: %w", err)
	}
	base := &outlook{inForce: first, clusters: nothing.foreseen}
	next, assumed, err := base.next(ctx, to, resolve)
	if err != nil {
		return nil, err
	}
	change := plan.Compare(first, next)
	change.Identify(first, next)
	change.Assumed = assumed
	return change, nil
}

// outlook is what the future is foreseen from: copies of all that the loop knows of clusters.
type outlook struct {
	inForce  *dataplane.Snapshot
	clusters map[string]*cluster
	// listeners that came by LDS.
	listeners []*dataplane.Listener
	// overrides are the admin layer of the runtime.
	overrides map[string]string
	// foreseen are the clusters that next made.
	foreseen map[string]*cluster

	assumed map[string]bool
}

// outlook copies what the loop knows.
func (c *Control) outlook() *outlook {
	o := &outlook{inForce: c.inForce, clusters: map[string]*cluster{}, overrides: c.overrides}
	for _, name := range sortedNames(c.clusters) {
		o.clusters[name] = c.newest(name).copy()
	}
	for name, w := range c.warming {
		if o.clusters[name] == nil {
			o.clusters[name] = w.copy()
		}
	}
	for _, l := range c.listeners {
		if l.AddedViaAPI {
			o.listeners = append(o.listeners, l.Listener)
		}
	}
	return o
}

// copy is a cluster for others to read: its hosts do not change with it.
func (c *cluster) copy() *cluster {
	d := *c
	d.hosts = make(map[hostKey]*host, len(c.hosts))
	for key, h := range c.hosts {
		one := *h
		d.hosts[key] = &one
	}
	return &d
}

// next makes the snapshot that a configuration leads to once new hosts have passed their checks.
func (o *outlook) next(ctx context.Context, config *model.Config, resolve Resolve) (*dataplane.Snapshot, []string, error) {
	o.foreseen, o.assumed = map[string]*cluster{}, map[string]bool{}
	runtime := mergeRuntime(config.Runtime)
	maps.Copy(runtime, o.overrides)
	s := &dataplane.Snapshot{Clusters: map[string]*dataplane.Cluster{}, MaxConnections: config.MaxConnections}
	for _, m := range config.Clusters {
		v, err := o.cluster(ctx, m, config.Node.Locality, runtime, resolve)
		if err != nil {
			return nil, nil, fmt.Errorf("cluster %q: %w", m.Settings.Name, err)
		}
		if v != nil {
			s.Clusters[m.Settings.Name] = v
		}
	}
	for name, was := range o.clusters {
		if was.desired.Settings.AddedViaAPI && o.foreseen[name] == nil {
			o.foreseen[name] = was
			if v := o.inForce.Clusters[name]; v != nil {
				s.Clusters[name] = v
			}
		}
	}
	static := map[string]bool{}
	for _, l := range config.Listeners {
		if !static[l.Name] { // of two of one name the first is used
			static[l.Name] = true
			s.Listeners = append(s.Listeners, o.listener(l.Listener))
		}
	}
	for _, l := range o.listeners {
		if !static[l.Name] {
			s.Listeners = append(s.Listeners, l)
		}
	}
	return s, slices.Sorted(maps.Keys(o.assumed)), nil
}

// listener is the one in force if it is equal.
func (o *outlook) listener(l *dataplane.Listener) *dataplane.Listener {
	for _, old := range o.inForce.Listeners {
		if old.Name == l.Name && old.Hash == l.Hash && old.AddedViaAPI == l.AddedViaAPI {
			return old
		}
	}
	return l
}

// cluster is the version of a cluster that its desired state leads to; nil if it will not come into force.
func (o *outlook) cluster(ctx context.Context, m *model.Cluster, node dataplane.Locality, runtime map[string]string, resolve Resolve) (*dataplane.Cluster, error) {
	name := m.Settings.Name
	was := o.clusters[name]
	panicAt := panicThreshold(m, runtime)
	if was != nil && was.desired.ContentHash == m.ContentHash && !was.desired.Settings.AddedViaAPI && was.panicAt == panicAt {
		o.foreseen[name] = was
		return o.inForce.Clusters[name], nil
	}
	c := newCluster(m, 1, node, stats.NewStore())
	c.pretended, c.panicAt = true, panicAt
	known := map[hostKey]bool{}
	if was != nil {
		c.inherit(was)
		c.incarnation = was.incarnation
		if was.desired.SettingsHash != m.SettingsHash || m.Discovery != model.Static {
			c.incarnation++
		}
		for key := range was.hosts {
			known[key] = healthHash(was.desired) == healthHash(m)
		}
	}
	a, err := o.assignment(ctx, m, was, resolve)
	if err != nil {
		return nil, err
	}
	c.assign(a)
	for key, h := range c.hosts {
		if !known[key] && h.checked != 0 {
			h.checked = 0
			o.assumed["new hosts, and those with new health checks, pass their first check"] = true
		}
	}
	c.checker = nil
	o.foreseen[name] = c
	return c.build()
}

// assignment is what discovery finds for a cluster.
func (o *outlook) assignment(ctx context.Context, m *model.Cluster, was *cluster, resolve Resolve) (model.Assignment, error) {
	switch m.Discovery {
	case model.StrictDNS, model.LogicalDNS:
		ctx, cancel := context.WithTimeout(ctx, resolveTime)
		defer cancel()
		o.assumed["names resolve as they do now"] = true
		return resolve(ctx, m)
	case model.EDS:
		if was == nil || was.desired.Discovery != model.EDS {
			o.assumed[fmt.Sprintf("cluster %q has no endpoints: what EDS will say is not known", m.Settings.Name)] = true
			return model.Assignment{OverprovisioningFactor: 140}, nil
		}
		o.assumed["endpoints by EDS stay as they are"] = true
		return was.assignment, nil
	}
	return m.Assignment, nil
}

// resolveTime bounds the look-up of names for a plan.
const resolveTime = 10 * time.Second
