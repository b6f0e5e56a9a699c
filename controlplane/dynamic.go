package controlplane

import (
	"context"
	"fmt"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane/envoy"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/controlplane/xds"
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
