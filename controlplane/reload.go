package controlplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane/accesslog"
)

// Change is what a new configuration changed.
type Change struct {
	ClustersAdded, ClustersModified, ClustersRemoved    []string
	ListenersAdded, ListenersModified, ListenersRemoved []string
}

// Empty reports whether nothing changed.
func (c Change) Empty() bool {
	return len(c.ClustersAdded)+len(c.ClustersModified)+len(c.ClustersRemoved)+
		len(c.ListenersAdded)+len(c.ListenersModified)+len(c.ListenersRemoved) == 0
}

// Reload puts a new configuration in force, as a difference: what is equal stays untouched, with its
// connections, health and counters. It returns what changed once that is in force.
func (c *Control) Reload(ctx context.Context, config *model.Config) (Change, error) {
	var change Change
	err := fmt.Errorf("reload: %w", errEnding)
	select {
	case <-c.live: // a change during the start waits for its end
	case <-c.ended:
		return change, err
	case <-ctx.Done():
		return change, ctx.Err()
	}
	c.do(func() {
		change, err = c.difference(ctx, config)
		if err == nil && c.promote() {
			c.dirty = true
		}
		if err == nil && c.dirty {
			c.dirty = false
			err = c.apply(ctx)
		}
		switch {
		case err != nil:
			c.counters.reloadRejected.Inc()
		case change.Empty():
			c.counters.reloadUnchanged.Inc()
		default:
			c.counters.reloadSuccess.Inc()
		}
	})
	return change, err
}

// load takes the first configuration.
func (c *Control) load(ctx context.Context, config *model.Config) error {
	c.config = config
	c.openSources()
	_, err := c.difference(ctx, config)
	return err
}

// difference turns the loop's desired state into config's. On an error nothing has changed.
func (c *Control) difference(ctx context.Context, config *model.Config) (Change, error) {
	var change Change
	if err := c.openLogs(config); err != nil {
		return change, err
	}
	c.config = config
	if !c.starting {
		c.reopenSources()
	}
	c.counters.unknownFields.Add(uint64(config.UnknownFields))
	c.runtime = mergeRuntime(c.layers()) // before clusters are opened with it

	wanted := map[string]*model.Cluster{}
	for _, m := range config.Clusters {
		name := m.Settings.Name
		wanted[name] = m
		switch old := c.newest(name); {
		case old == nil:
			change.ClustersAdded = append(change.ClustersAdded, name)
			c.addCluster(ctx, m)
			c.counters.clusterAdded.Inc()
		case old.desired.ContentHash == m.ContentHash && !old.desired.Settings.AddedViaAPI: // equal: it stays as it is
		default:
			change.ClustersModified = append(change.ClustersModified, name)
			c.modifyCluster(ctx, m)
			c.counters.clusterModified.Inc()
		}
	}
	for _, name := range c.staticNames() {
		if wanted[name] == nil {
			change.ClustersRemoved = append(change.ClustersRemoved, name)
			c.removeCluster(name)
			c.counters.clusterRemoved.Inc()
		}
	}
	c.listenerDifference(config.Listeners, &change)
	if !c.starting {
		if err := c.staticHTTP(); err != nil {
			c.Log.For("config").Error("not all of the change is in force", "reason", err)
		}
	}
	c.takeRuntime()
	if !change.Empty() {
		c.dirty = true
	}
	s := *c.state.Load()
	s.Updated = time.Now()
	c.state.Store(&s)
	return change, nil
}

// staticNames lists the clusters that came with the configuration file.
func (c *Control) staticNames() []string {
	names := map[string]bool{}
	for _, clusters := range []map[string]*cluster{c.clusters, c.warming} {
		for name, cl := range clusters {
			if !cl.desired.Settings.AddedViaAPI {
				names[name] = true
			}
		}
	}
	return sortedNames(names)
}

// listenerDifference takes the listeners of the configuration file; those that came by LDS stay, unless
// one of the file has their name.
func (c *Control) listenerDifference(wanted []*model.Listener, change *Change) {
	before := c.listeners
	old := byName(before)
	listeners := make([]*model.Listener, 0, len(wanted))
	static := map[string]bool{}
	for _, l := range wanted {
		static[l.Name] = true
		switch was := old[l.Name]; {
		case was == nil:
			change.ListenersAdded = append(change.ListenersAdded, l.Name)
		case was.Hash == l.Hash && !was.AddedViaAPI:
			l = was // the same pointer: nothing changed for the data plane
		default:
			change.ListenersModified = append(change.ListenersModified, l.Name)
		}
		listeners = append(listeners, l)
	}
	for _, l := range before {
		switch {
		case static[l.Name]:
		case l.AddedViaAPI:
			listeners = append(listeners, l)
		default:
			change.ListenersRemoved = append(change.ListenersRemoved, l.Name)
		}
	}
	slices.Sort(change.ListenersRemoved)
	c.listeners = listeners
	c.countListeners(before, listeners, "")
}

// openLogs opens the access logs of a configuration. Files that are open already are shared.
func (c *Control) openLogs(config *model.Config) error {
	for _, l := range config.Listeners {
		if err := c.openListenerLogs(l); err != nil {
			return fmt.Errorf("listener %q: %w", l.Name, err)
		}
	}
	return nil
}

func (c *Control) openListenerLogs(l *model.Listener) error {
	for _, log := range listenerLogs(l) {
		if err := log.Open(c.Files); err != nil {
			return err
		}
	}
	return nil
}

// listenerLogs lists every access log of a listener.
func listenerLogs(l *model.Listener) []*accesslog.Log {
	logs := slices.Clone(l.AccessLog)
	chains := l.Chains
	if l.DefaultChain != nil {
		chains = append(slices.Clone(chains), l.DefaultChain)
	}
	for _, chain := range chains {
		if chain.Proxy != nil {
			logs = append(logs, chain.Proxy.AccessLog...)
		}
	}
	if l.UDP != nil {
		logs = append(logs, l.UDP.AccessLog...)
		logs = append(logs, l.UDP.ProxyAccessLog...)
	}
	return logs
}

// mergeRuntime gives the value of each key: that of the last layer that has it.
func mergeRuntime(layers []model.RuntimeLayer) map[string]string {
	merged := map[string]string{}
	for _, layer := range layers {
		maps.Copy(merged, layer.Values)
	}
	return merged
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
