package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane/envoy"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/controlplane/xds"
	"github.com/guideway/guideway/dataplane"
)

// DynamicOptions are the command line's word on resources that come by xDS.
type DynamicOptions struct {
	// RejectUnknown makes unknown fields errors, IgnoreUnknown silences the warning about them.
	RejectUnknown, IgnoreUnknown bool
	// IgnoreFilters are names of network filters to leave out.
	IgnoreFilters []string
	// StateDir keeps the last good state over restarts; "" for none.
	StateDir string
	// Version of the program in Envoy's form: sha/x.y.z/status/type/ssl.
	Version string
	// Transport is nil for gRPC.
	Transport func(xds.Server) (xds.Transport, error)
}

// stage is how far the start has come. Clusters come first, listeners only when all clusters are known.
type stage uint8

const (
	staticClusters stage = iota
	dynamicClusters
	dynamicListeners
	started
)

// lastTry is a resource that was refused, for config_dump.
type lastTry struct {
	at      time.Time
	version string
	message proto.Message
	details string
}

// openSources makes the client for what a configuration says; nothing is fetched yet.
func (c *Control) openSources() {
	c.sourcesKey = sourcesKey(c.config)
	c.sources = xds.New(xds.Deps{
		Context: c.ctx, Env: c.env(), Stats: c.Stats, Log: c.Log.For("config"), Post: c.post,
		Node: c.node(), Agent: "guideway", Transport: c.Dynamic.Transport,
	})
}

// node is the node of the configuration with what the program says of itself.
func (c *Control) node() *corev3.Node {
	n := &corev3.Node{}
	if boot, _ := c.config.Source.(*bootstrapv3.Bootstrap); boot.GetNode() != nil {
		n = proto.Clone(boot.GetNode()).(*corev3.Node)
	}
	identify(n, c.Dynamic.Version)
	n.ClientFeatures = nil // none of Envoy's is ours
	return n
}

func (c *Control) env() envoy.Env {
	return envoy.Env{Config: c.config, RejectUnknown: c.Dynamic.RejectUnknown, IgnoreFilters: c.Dynamic.IgnoreFilters}
}

// sourcesKey is what the sources of a configuration depend on: if it changes they begin anew.
func sourcesKey(config *model.Config) string {
	boot, _ := config.Source.(*bootstrapv3.Bootstrap)
	part := &bootstrapv3.Bootstrap{Node: boot.GetNode(), DynamicResources: boot.GetDynamicResources(), StaticResources: &bootstrapv3.Bootstrap_StaticResources{
		Secrets: boot.GetStaticResources().GetSecrets(),
	}}
	for _, m := range boot.GetStaticResources().GetClusters() {
		// Those of management servers are among them; the others change rarely enough.
		if m.GetTypedExtensionProtocolOptions() != nil || m.GetHttp2ProtocolOptions() != nil { //nolint:staticcheck // still in use
			part.StaticResources.Clusters = append(part.StaticResources.Clusters, m)
		}
	}
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(part)
	if err != nil {
		return ""
	}
	return string(b)
}

// reopenSources begins all subscriptions anew after a change of where resources come from. What came
// from the former sources stays until the new ones say otherwise.
func (c *Control) reopenSources() {
	if sourcesKey(c.config) == c.sourcesKey {
		c.sources.SetEnv(c.env())
		return
	}
	c.sources.Close()
	c.openSources()
	for _, clusters := range []map[string]*cluster{c.clusters, c.warming} {
		for _, cl := range clusters {
			if cl.eds != nil {
				c.subscribeEDS(cl)
			}
		}
	}
	if c.stage >= dynamicClusters {
		c.subscribeClusters()
	}
	if c.stage >= dynamicListeners {
		c.subscribeListeners()
	}
}

func sourceOf(s *model.ConfigSource) *corev3.ConfigSource {
	m, _ := s.Message.(*corev3.ConfigSource)
	return m
}

func (c *Control) subscribeClusters() {
	w := &clusterWatcher{c}
	if c.config.Dynamic.CDS == nil {
		c.clustersAnswered = true
		if w.Holds() > 0 {
			_ = w.Update(xds.Update{Full: true}) // removals cannot fail
		}
		return
	}
	c.counters.cdsReload = c.counters.cds.Counter("config_reload")
	if _, err := c.sources.Subscribe(xds.Clusters, sourceOf(c.config.Dynamic.CDS), "", c.counters.cds, w); err != nil {
		c.Log.For("config").Error("no clusters come by CDS", "reason", err)
		c.clustersAnswered = true
	} else if c.restored.inUse {
		w.Unreachable()
	}
}

func (c *Control) subscribeListeners() {
	w := &listenerWatcher{c}
	if c.config.Dynamic.LDS == nil {
		c.listenersAnswered = true
		if w.Holds() > 0 {
			_ = w.Update(xds.Update{Full: true})
		}
		return
	}
	c.counters.lds.Counter("config_reload") // Envoy has it, and never counts it
	if _, err := c.sources.Subscribe(xds.Listeners, sourceOf(c.config.Dynamic.LDS), "", c.counters.lds, w); err != nil {
		c.Log.For("config").Error("no listeners come by LDS", "reason", err)
		c.listenersAnswered = true
	} else if c.restored.inUse {
		w.Unreachable()
	}
}

// advance takes the next steps of the start. It reports whether listeners may serve now.
func (c *Control) advance() bool {
	if c.stage == staticClusters && len(c.warming) == 0 {
		c.stage = dynamicClusters
		c.subscribeClusters()
	}
	if c.stage == dynamicClusters && c.clustersAnswered && len(c.warming) == 0 {
		c.stage = dynamicListeners
		c.phase(Initializing)
		c.subscribeListeners()
	}
	return c.stage == dynamicListeners && c.listenersAnswered
}

// notes reports what a resource's translation has to say, once for each content.
func (c *Control) notes(r *xds.Resource) {
	if !c.Dynamic.IgnoreUnknown {
		c.counters.dynamicUnknown.Add(uint64(r.Notes.UnknownFields))
	}
	log := c.Log.For("config")
	for _, w := range r.Notes.Warnings {
		text := fmt.Sprintf("%s: %s", r.Name, w.Error())
		if c.warned[text] || c.Dynamic.IgnoreUnknown && r.Notes.UnknownFields > 0 {
			continue
		}
		if len(c.warned) >= 10_000 { // names come and go
			clear(c.warned)
		}
		c.warned[text] = true
		log.Warn(text)
	}
}

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

// listenerWatcher takes what comes by LDS.
type listenerWatcher struct{ c *Control }

// Holds implements xds.Holder.
func (w *listenerWatcher) Holds() int {
	n := 0
	for _, h := range w.c.http {
		if h.api {
			n++
		}
	}
	for _, l := range w.c.listeners {
		if l.AddedViaAPI {
			n++
		}
	}
	return n
}

// Missing implements xds.Watcher.
func (w *listenerWatcher) Missing() {
	w.Unreachable()
	w.c.listenersAnswered = true
}

// Unreachable puts stored listeners in force if the server has not said anything yet.
func (w *listenerWatcher) Unreachable() {
	c := w.c
	if c.listenersAnswered || len(c.restored.listeners) == 0 {
		return
	}
	c.restored.inUse = true
	if err := w.Update(xds.Update{Resources: c.restored.listeners, Full: true}); err != nil {
		c.Log.For("config").Warn("not all of the stored state is in force", "reason", err)
	}
}

// Update implements xds.Watcher. Listeners are bound before it returns: whether they can be is part of
// the answer.
func (w *listenerWatcher) Update(u xds.Update) error {
	c := w.c
	c.listenersAnswered = true
	refusal := &xds.Refusal{Prefix: "Error adding/updating listener(s)"}
	refuse := func(r *xds.Resource, err error) {
		refusal.Refused = append(refusal.Refused, xds.Refused{Name: r.Name, Err: err})
		c.refused.listeners[r.Name] = &lastTry{time.Now(), u.Version, r.Message, err.Error()}
		c.Log.For("config").Warn(fmt.Sprintf("lds: listener '%s' config rejected: %v", r.Name, err))
	}

	named := map[string]bool{}
	for _, r := range u.Resources {
		named[r.Name] = true
	}
	gone := func(name string) bool {
		return !named[name] && (u.Full || slices.Contains(u.Removed, name))
	}
	// Removals come first, so that what is added may have their addresses.
	next := c.listeners[:0:0]
	for _, l := range c.listeners {
		if !l.AddedViaAPI || !gone(l.Name) {
			next = append(next, l)
		}
	}
	for name, h := range c.http {
		if h.api && gone(name) {
			c.endHTTP(name)
			c.counters.listenerRemoved.Inc()
		}
	}
	for name := range c.refused.listeners {
		if gone(name) {
			delete(c.refused.listeners, name)
		}
	}
	added := map[string]*xds.Resource{}
	seen := map[string]bool{}
	for _, r := range u.Resources {
		if seen[r.Name] {
			refuse(r, fmt.Errorf("duplicate listener %s found", r.Name))
			continue
		}
		seen[r.Name] = true
		at := slices.IndexFunc(next, func(l *model.Listener) bool { return l.Name == r.Name })
		if r.Heartbeat || at >= 0 && !next[at].AddedViaAPI {
			continue // static listeners cannot be changed by LDS
		}
		if r.Err != nil {
			if ok, err := c.takeHTTP(r, u.Version); ok {
				if err != nil {
					c.counters.listenerCreateFailure.Inc()
					refuse(r, err)
				}
				continue
			}
			refuse(r, r.Err)
			continue
		}
		if err := duplicateAddress(r.Listener, next); err != nil {
			refuse(r, err)
			continue
		}
		if err := c.openListenerLogs(r.Listener); err != nil {
			refuse(r, err)
			continue
		}
		c.notes(r)
		switch {
		case at < 0:
			next = append(next, c.limited(r.Listener))
		case next[at].Hash == r.Listener.Hash:
			delete(c.refused.listeners, r.Name)
			continue
		default:
			next[at] = c.limited(r.Listener)
		}
		added[r.Name] = r
	}
	for _, f := range c.changeListeners(next, u.Version) {
		if r := added[f.Name]; r != nil {
			refuse(r, f.Err)
			delete(added, f.Name)
		}
	}
	for name := range added {
		delete(c.refused.listeners, name)
	}
	c.listenerVersion = u.Version
	c.unseen = true
	c.unsaved = true
	if len(refusal.Refused) > 0 {
		return refusal
	}
	return nil
}

// duplicateAddress refuses a listener whose address another one has.
func duplicateAddress(l *model.Listener, others []*model.Listener) error {
	for _, o := range others {
		if o.Name == l.Name || o.Protocol != l.Protocol {
			continue
		}
		for _, a := range l.Addresses {
			if a.Addr.Port() != 0 && slices.ContainsFunc(o.Addresses, func(b dataplane.ListenAddress) bool { return b.Addr == a.Addr }) {
				return errDuplicate(l.Name, a.Addr)
			}
		}
	}
	return nil
}

func errDuplicate(name string, addr netip.AddrPort) error {
	return fmt.Errorf("error adding listener: '%s' has duplicate address '%s' as existing listener, to check if the listener has duplicated addresses with other listeners or 'enable_reuse_port' is set to 'false' for the listener", name, addr)
}

// changeListeners puts a new list of listeners in force. It returns those that could not be.
func (c *Control) changeListeners(next []*model.Listener, version string) []dataplane.ListenerFailure {
	before := c.listeners
	c.listeners = next
	if !c.starting {
		if slices.Equal(before, next) {
			return nil
		}
		_ = c.promote()
		c.dirty = false
		_ = c.apply(c.ctx) // reports what fails
	} else if err := c.goLive(c.ctx); err != nil {
		c.failure = err // a static listener cannot serve: the start fails
		return nil
	}
	failed := c.failed
	c.failed = nil
	for _, f := range failed {
		c.counters.listenerCreateFailure.Inc()
		c.listeners = slices.Clone(c.listeners)
		c.listeners = slices.DeleteFunc(c.listeners, func(l *model.Listener) bool { return l.Name == f.Name })
		if i := slices.IndexFunc(before, func(l *model.Listener) bool { return l.Name == f.Name }); i >= 0 {
			c.listeners = append(c.listeners, before[i]) // the former version serves on
		}
	}
	c.countListeners(before, c.listeners, version)
	c.unseen = true
	return failed
}

// splitFailures tells failures of listeners that came by LDS, which are refused by name, from the others.
func (c *Control) splitFailures(err error) (dynamic []dataplane.ListenerFailure, rest error) {
	var some *dataplane.ListenerError
	if !errors.As(err, &some) {
		return nil, err
	}
	var others []dataplane.ListenerFailure
	for _, f := range some.Failed {
		if slices.ContainsFunc(c.listeners, func(l *model.Listener) bool { return l.Name == f.Name && l.AddedViaAPI }) {
			dynamic = append(dynamic, f)
		} else {
			others = append(others, f)
		}
	}
	if len(others) == 0 {
		return dynamic, nil
	}
	return dynamic, &dataplane.ListenerError{Failed: others}
}

// goLive ends the start: everything comes into force and listeners accept.
func (c *Control) goLive(ctx context.Context) error {
	if err := c.apply(ctx); err != nil {
		return err
	}
	if err := c.staticHTTP(); err != nil {
		return err
	}
	c.starting, c.dirty = false, false
	c.stage = started
	c.phase(Live)
	close(c.live)
	c.counters.workersStarted.Set(1)
	c.counters.initTime.Record(float64(time.Since(c.state.Load().Started).Milliseconds()))
	c.Log.For("main").Info("starting main dispatch loop")
	return nil
}
