package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// Resolve turns the names of an assignment's endpoints into addresses; see package dns.
type Resolve func(ctx context.Context, m *model.Cluster) (model.Assignment, error)

// Offline builds a cluster as it would stand with every host as healthy as its configuration says,
// without sockets or checks: what a running instance has once all checks have passed. resolve is asked for
// DNS clusters only.
func Offline(ctx context.Context, config *model.Config, name string, resolve Resolve) (ClusterState, error) {
	for _, m := range config.Clusters {
		if m.Settings.Name != name {
			continue
		}
		assignment := m.Assignment
		switch m.Discovery {
		case model.EDS:
			return ClusterState{}, fmt.Errorf("cluster %q gets its endpoints by EDS, which this command does not ask: look at a running instance (/clusters, /maglev/%s)", name, name)
		case model.StrictDNS, model.LogicalDNS:
			var err error
			if assignment, err = resolve(ctx, m); err != nil {
				return ClusterState{}, fmt.Errorf("cluster %q: %w", name, err)
			}
		}
		desired := *m
		desired.HealthChecks = nil
		c := newCluster(&desired, 1, config.Node.Locality, stats.NewStore())
		c.panicAt = panicThreshold(m, mergeRuntime(config.Runtime))
		c.assign(assignment)
		active, err := c.build()
		if err != nil {
			return ClusterState{}, fmt.Errorf("cluster %q: %w", name, err)
		}
		return ClusterState{Desired: m, Active: active, Assignment: &c.assignment}, nil
	}
	return ClusterState{}, fmt.Errorf("cluster %q is not in the configuration", name)
}

// panicThreshold is a cluster's threshold in percent: the runtime's, if it has one.
func panicThreshold(m *model.Cluster, runtime map[string]string) uint32 {
	if v, ok := percent(runtime["upstream.healthy_panic_threshold"]); ok {
		return v
	}
	return m.PanicThreshold
}

// FindListener returns the listener of a name.
func FindListener(config *model.Config, name string) (*model.Listener, error) {
	for _, l := range config.Listeners {
		if l.Name == name {
			return l, nil
		}
	}
	return nil, fmt.Errorf("listener %q is not in the configuration", name)
}

// defaultDestination is the address a client is taken to have connected to: the listener's first, with
// the client's family in place of a wildcard.
func defaultDestination(l *dataplane.Listener, src netip.AddrPort) netip.AddrPort {
	dst := l.Addresses[0].Addr
	if dst.Addr().IsUnspecified() {
		if src.Addr().Is4() {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), dst.Port())
		}
		return netip.AddrPortFrom(netip.IPv6Loopback(), dst.Port())
	}
	return dst
}

// Route is where a new flow goes, as far as it does not depend on chance.
type Route struct {
	// Chain is the filter chain's name, "" for UDP or an unnamed one.
	Chain string
	// Clusters are the possible clusters; several for weighted_clusters.
	Clusters []dataplane.WeightedCluster
	// Hash policy of the proxy.
	Hash dataplane.HashPolicy
}

// RouteOf finds the filter chain or UDP route for a client of a listener. An invalid dst stands for the
// listener's own address.
func RouteOf(l *dataplane.Listener, src, dst netip.AddrPort) (Route, netip.AddrPort, error) {
	if !dst.IsValid() {
		dst = defaultDestination(l, src)
	}
	if l.UDP != nil {
		name := l.UDP.Route(src, dst)
		if name == "" {
			return Route{}, dst, fmt.Errorf("listener %q has no route for %v", l.Name, src)
		}
		return Route{Clusters: []dataplane.WeightedCluster{{Name: name, Weight: 1}}, Hash: l.UDP.Hash}, dst, nil
	}
	chain := l.Matcher.Find(dataplane.ConnAddrs{Remote: src, Direct: src, Local: dst}, "raw_buffer", nil)
	if chain == nil {
		return Route{}, dst, fmt.Errorf("listener %q has no filter chain for %v", l.Name, src)
	}
	if chain.Proxy == nil {
		return Route{}, dst, fmt.Errorf("listener %q: the filter chain for %v has no tcp_proxy", l.Name, src)
	}
	return Route{Chain: chain.Name, Clusters: chain.Proxy.Clusters, Hash: chain.Proxy.Hash}, dst, nil
}

// healthHash tells the health checks of clusters apart, and what follows from them.
func healthHash(m *model.Cluster) string {
	b, err := json.Marshal(struct {
		Checks   []model.HealthCheck
		HoldDown model.HoldDown
	}{m.HealthChecks, m.Guideway.HoldDown})
	if err != nil {
		panic(fmt.Sprintf("health checks are plain data: %v", err))
	}
	return string(b)
}
