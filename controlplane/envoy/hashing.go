package envoy

import (
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
)

// checkHashing warns where hash policies of filters and policies of clusters do not fit together. It
// looks at static resources only. at is static_resources.listeners.
func (t *translator) checkHashing(cfg *model.Config, at cursor) {
	clusters := map[string]*model.Cluster{}
	for _, c := range cfg.Clusters {
		clusters[c.Settings.Name] = c
	}
	unhashed := map[string]bool{}
	see := func(name string, p dataplane.HashPolicy, udp bool, where cursor) {
		c := clusters[name]
		switch {
		case c == nil: // legal: it may come later, or never
		case c.LB.HashSourceIP && udp:
			where.fail("cluster %q: its consistent_hashing_lb_config.hash_policy works for TCP only; set hash_policies here instead", name)
		case p.Kind != dataplane.HashFiveTuple && !c.LB.Policy.Hashes():
			where.warn("the hash policy has no effect on cluster %q, whose policy is %s; use MAGLEV or RING_HASH there", name, c.LB.Policy)
		case p.Kind == dataplane.HashFiveTuple && c.LB.Policy.Hashes() && !c.LB.HashSourceIP && !c.Guideway.RandomHash:
			unhashed[name] = true
		}
	}
	places := map[listenerMessage]int{}
	for i, l := range t.boot.GetStaticResources().GetListeners() {
		places[l] = i
	}
	for _, l := range cfg.Listeners {
		here := at.at(places[l.Source.(listenerMessage)]).named("listener %q", l.Name)
		if l.UDP != nil {
			for _, name := range l.UDP.Clusters {
				see(name, l.UDP.Hash, true, here.field("listener_filters").at(0).field("typed_config").field("hash_policies"))
			}
		}
		for j, chain := range l.Chains {
			if chain.Proxy == nil {
				continue
			}
			filters := l.Source.(listenerMessage).GetFilterChains()[j].GetFilters()
			for _, w := range chain.Proxy.Clusters {
				see(w.Name, chain.Proxy.Hash, false, here.field("filter_chains").at(j).field("filters").at(len(filters)-1).field("typed_config").field("hash_policy"))
			}
		}
		if chain := l.DefaultChain; chain != nil && chain.Proxy != nil {
			filters := l.Source.(listenerMessage).GetDefaultFilterChain().GetFilters()
			for _, w := range chain.Proxy.Clusters {
				see(w.Name, chain.Proxy.Hash, false, here.field("default_filter_chain").field("filters").at(len(filters)-1).field("typed_config").field("hash_policy"))
			}
		}
	}
	for i, c := range t.boot.GetStaticResources().GetClusters() {
		if unhashed[c.GetName()] {
			unhashed[c.GetName()] = false
			cursor{r: t.r}.field("static_resources").field("clusters").at(i).named("cluster %q", c.GetName()).field("lb_policy").warn(
				"flows come without a hash policy: Guideway hashes the 5-tuple where Envoy picks at random; set source_ip in the filter, or metadata guideway.hash: random for Envoy's way")
		}
	}
}
