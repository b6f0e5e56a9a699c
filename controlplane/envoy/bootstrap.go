package envoy

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"google.golang.org/protobuf/types/known/structpb"
)

// bootstrap translates everything; problems are in the report.
func (t *translator) bootstrap(b *bootstrapv3.Bootstrap, o Options) *model.Config {
	top := cursor{r: t.r}
	cfg := &model.Config{
		Source:             b,
		StatsFlushInterval: duration(b.GetStatsFlushInterval(), 5*time.Second),
		StatsFlushOnAdmin:  b.GetStatsFlushOnAdmin(),
	}
	t.node(b, o, cfg, top.field("node"))
	t.seed = cfg.Guideway.HashSeed
	cfg.Runtime = runtimeLayers(b.GetLayeredRuntime(), top.field("layered_runtime"))
	t.runtime = mergedRuntime(cfg.Runtime)
	cfg.Admin = admin(b.GetAdmin(), top.field("admin"))
	cfg.Stats = statsConfig(b.GetStatsConfig(), top.field("stats_config"))
	t.overload(b, cfg, top.field("overload_manager"))
	cfg.OutlierEventLogPath = b.GetClusterManager().GetOutlierDetection().GetEventLogPath()

	static := top.field("static_resources")
	t.clusters(b, cfg, static.field("clusters"))
	t.listeners(b, cfg, static.field("listeners"))
	cfg.Dynamic = t.dynamic(b, top.field("dynamic_resources"))
	t.needNode(b, cfg, top)
	return cfg
}

// node reads the node, with what the command line says instead.
func (t *translator) node(b *bootstrapv3.Bootstrap, o Options, cfg *model.Config, at cursor) {
	n := b.GetNode()
	if o.ServiceNode != "" || o.ServiceCluster != "" || o.ServiceZone != "" {
		if n == nil {
			n = &corev3.Node{}
			b.Node = n
		}
		if o.ServiceNode != "" {
			n.Id = o.ServiceNode
		}
		if o.ServiceCluster != "" {
			n.Cluster = o.ServiceCluster
		}
		if o.ServiceZone != "" {
			if n.Locality == nil {
				n.Locality = &corev3.Locality{}
			}
			n.Locality.Zone = o.ServiceZone
		}
	}
	cfg.Node = model.Node{
		ID: n.GetId(), Cluster: n.GetCluster(), Locality: locality(n.GetLocality()),
		Metadata: n.GetMetadata().AsMap(),
	}
	cfg.Guideway = nodeSettings(n.GetMetadata(), at.field("metadata"))
}

func locality(l *corev3.Locality) dataplane.Locality {
	return dataplane.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
}

// clusters translates static clusters. Names must be unique.
func (t *translator) clusters(b *bootstrapv3.Bootstrap, cfg *model.Config, at cursor) {
	seen := map[string]bool{}
	for i, c := range b.GetStaticResources().GetClusters() {
		here := at.at(i)
		if c.GetName() != "" && seen[c.GetName()] {
			here.field("name").failAs(fmt.Sprintf("cluster manager: duplicate cluster '%s'", c.GetName()),
				"cluster %q is defined twice; rename or remove one", c.GetName())
			continue
		}
		seen[c.GetName()] = true
		if m := t.cluster(c, here); m != nil {
			cfg.Clusters = append(cfg.Clusters, m)
		}
	}
}

// listeners translates static listeners. Of several with one name only the first is used, as in
// Envoy; addresses must be unique by protocol.
func (t *translator) listeners(b *bootstrapv3.Bootstrap, cfg *model.Config, at cursor) {
	names := map[string]bool{}
	type socket struct {
		protocol dataplane.Protocol
		addr     netip.AddrPort
	}
	taken := map[socket]string{}
	for i, l := range b.GetStaticResources().GetListeners() {
		here := at.at(i)
		if name := l.GetName(); name != "" {
			if names[name] {
				here.field("name").warn("listener %q is defined twice: only the first is used; rename this one", name)
				continue
			}
			names[name] = true
		}
		if m, ok := t.httpListener(l); ok {
			cfg.HTTP = append(cfg.HTTP, m)
			t.r.skip(here.p)
			continue
		}
		m := t.listener(l, here)
		if m == nil {
			continue
		}
		for _, a := range m.Addresses {
			s := socket{m.Protocol, a.Addr}
			if other, twice := taken[s]; twice && a.Addr.Port() != 0 {
				here.field("address").failAs(
					fmt.Sprintf("error adding listener: '%s' has duplicate address '%s' as existing listener", l.GetName(), a.Addr),
					"listener %q: %s %s is taken by listener %q; give one of them another address or port", l.GetName(), m.Protocol, a.Addr, other)
			} else if !twice {
				taken[s] = l.GetName()
			}
		}
		cfg.Listeners = append(cfg.Listeners, m)
	}
	t.checkHashing(cfg, at)
}

// admin reads the address and the allowed paths.
func admin(a *bootstrapv3.Admin, at cursor) model.Admin {
	var out model.Admin
	if a.GetAddress() == nil {
		return out
	}
	if s, where := at.field("address").socketAddress(a.GetAddress()); s != nil {
		out.Address, _ = where.ip(s)
	}
	for i, m := range a.GetAllowPaths() {
		where := at.field("allow_paths").at(i)
		switch {
		case m.GetIgnoreCase():
			where.fail("paths are matched with their case")
		case m.GetExact() != "":
			out.AllowPaths = append(out.AllowPaths, m.GetExact())
		case m.GetPrefix() != "":
			out.AllowPaths = append(out.AllowPaths, m.GetPrefix()+"*")
		default:
			where.fail("only exact and prefix matches of paths are supported")
		}
	}
	return out
}

const connectionMonitor = "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"

// overload reads the bound on connections: the resource monitor's, or the old runtime key's.
func (t *translator) overload(b *bootstrapv3.Bootstrap, cfg *model.Config, at cursor) {
	for i, m := range b.GetOverloadManager().GetResourceMonitors() {
		where := at.field("resource_monitors").at(i)
		packed := unpack(m.GetTypedConfig())
		if packed == nil || string(packed.ProtoReflect().Descriptor().FullName()) != connectionMonitor {
			where.warn("resource monitor %q is ignored: only envoy.resource_monitors.global_downstream_max_connections is acted on", m.GetName())
			continue
		}
		limit := packed.(interface{ GetMaxActiveDownstreamConnections() int64 }).GetMaxActiveDownstreamConnections()
		if limit > 0 {
			cfg.MaxConnections, cfg.OverloadMonitor = uint64(limit), true
		}
	}
	if v, ok := runtimeInteger(t.runtime, "overload.global_downstream_max_connections"); ok && !cfg.OverloadMonitor && v > 0 {
		cfg.MaxConnections = v
	}
}

// runtimeLayers flattens layered_runtime.
func runtimeLayers(l *bootstrapv3.LayeredRuntime, at cursor) []model.RuntimeLayer {
	var out []model.RuntimeLayer
	seen := map[string]bool{}
	for i, layer := range l.GetLayers() {
		where := at.field("layers").at(i)
		if seen[layer.GetName()] {
			where.field("name").failAs(fmt.Sprintf("Duplicate layer name: %s", layer.GetName()), "runtime layer %q is defined twice; rename one", layer.GetName())
		}
		seen[layer.GetName()] = true
		m := model.RuntimeLayer{Name: layer.GetName(), Admin: layer.GetAdminLayer() != nil, Values: map[string]string{}}
		flatten("", layer.GetStaticLayer(), m.Values)
		if m.Admin && slices.ContainsFunc(out, func(l model.RuntimeLayer) bool { return l.Admin }) {
			where.failAs("Too many admin layers specified in LayeredRuntime, at most one may be specified",
				"at most one admin_layer may be given")
		}
		if _, fraction := layer.GetStaticLayer().GetFields()[panicKey].GetKind().(*structpb.Value_StructValue); fraction {
			where.field("static_layer").field(panicKey).warn("%s must be a whole number to have an effect (Envoy does not read a fraction here either)", panicKey)
		}
		out = append(out, m)
	}
	return out
}

const panicKey = "upstream.healthy_panic_threshold"

// flatten writes the values of a struct as text, keys joined by dots. A fraction (numerator and
// denominator) is one value.
func flatten(before string, s *structpb.Struct, into map[string]string) {
	for name, v := range s.GetFields() {
		key := before + name
		switch k := v.GetKind().(type) {
		case *structpb.Value_StructValue:
			if k.StructValue.GetFields()["numerator"] != nil || k.StructValue.GetFields()["denominator"] != nil {
				text, _ := json.Marshal(k.StructValue.AsMap()) // protojson's spaces vary
				into[key] = string(text)
				continue
			}
			flatten(key+".", k.StructValue, into)
		case *structpb.Value_NumberValue:
			if k.NumberValue == math.Trunc(k.NumberValue) && math.Abs(k.NumberValue) < 1<<53 {
				into[key] = fmt.Sprintf("%d", int64(k.NumberValue))
			} else {
				into[key] = fmt.Sprintf("%g", k.NumberValue)
			}
		case *structpb.Value_StringValue:
			into[key] = k.StringValue
		case *structpb.Value_BoolValue:
			into[key] = fmt.Sprint(k.BoolValue)
		}
	}
}

// mergedRuntime is what counts when all layers are laid over each other.
func mergedRuntime(layers []model.RuntimeLayer) map[string]string {
	out := map[string]string{}
	for _, l := range layers {
		for k, v := range l.Values {
			out[k] = v
		}
	}
	return out
}

// runtimeInteger reads a value as Envoy's getInteger: whole and not negative, or absent.
func runtimeInteger(values map[string]string, key string) (uint64, bool) {
	v, err := strconv.ParseUint(values[key], 10, 64)
	return v, err == nil
}
