package envoy

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
)

// defaultBuffer is Envoy's default of per_connection_buffer_limit_bytes.
const defaultBuffer = 1 << 20

// cluster translates one cluster.
func (t *translator) cluster(c *clusterv3.Cluster, at cursor) *model.Cluster {
	at = at.named("cluster %q", c.GetName())
	m := &model.Cluster{
		Source:                     c,
		Settings:                   t.clusterData(c, at),
		EDSServiceName:             c.GetEdsClusterConfig().GetServiceName(),
		IgnoreHealthOnHostRemoval:  c.GetIgnoreHealthOnHostRemoval(),
		IgnoreNewHostsUntilFirstHC: c.GetCommonLbConfig().GetIgnoreNewHostsUntilFirstHc(),
		WaitForWarmOnInit:          c.GetWaitForWarmOnInit() == nil || c.GetWaitForWarmOnInit().GetValue(),
		SettingsHash:               hashMessage(c, "load_assignment"),
		ContentHash:                hashMessage(c),
	}
	if name := t.boot.GetClusterManager().GetLocalClusterName(); name != "" && name == c.GetName() {
		// No traffic goes to the cluster that this process belongs to, so its zones route nothing.
		for i := range c.GetLoadBalancingPolicy().GetPolicies() {
			t.r.skip(at.field("load_balancing_policy").field("policies").at(i).field("typed_extension_config").field("typed_config").
				field("locality_lb_config").field("zone_aware_lb_config").p)
		}
		t.r.skip(at.field("common_lb_config").field("zone_aware_lb_config").p)
	}
	m.Guideway = clusterSettings(c.GetMetadata(), at)
	m.Settings.UDPDraining = m.Guideway.UDPDraining
	m.Settings.RandomHash = m.Guideway.RandomHash
	m.Settings.Forwarding, m.Settings.Track = m.Guideway.Forwarding, m.Guideway.Track
	m.Settings.LearningWindow = m.Guideway.LearningWindow
	m.Settings.CloseAfter = m.Guideway.CloseAfter
	m.HTTP2 = http2(c, at)
	typed := t.discovery(c, m, at)
	m.PanicThreshold = panicThreshold(c)
	t.policy(c, m, typed, at)
	m.Settings.HashSourceIP = m.LB.HashSourceIP
	t.healthChecks(c, m, at.field("health_checks"))
	m.Outlier = t.outlier(c.GetOutlierDetection())

	where := at.field("load_assignment")
	switch {
	case m.Discovery == model.EDS:
		t.eds(c, m, at)
	case c.GetLoadAssignment() == nil:
		if m.Discovery == model.LogicalDNS {
			where.failAs("LOGICAL_DNS clusters must have a single host", "a LOGICAL_DNS cluster needs a load_assignment with one endpoint")
		}
		m.Assignment = model.Assignment{ClusterName: c.GetName(), OverprovisioningFactor: defaultOverprovisioning}
	default:
		m.Assignment = t.assignment(c.GetLoadAssignment(), m.Discovery, where)
		if m.Discovery == model.LogicalDNS {
			if n := m.Assignment.Localities; len(n) != 1 || len(n[0].Endpoints) != 1 {
				where.failAs("LOGICAL_DNS clusters must have a single locality_lb_endpoint and a single lb_endpoint",
					"a LOGICAL_DNS cluster must have exactly one endpoint; use STRICT_DNS for several")
			}
		}
		warnHostnames(m, where)
	}
	if m.LB.UseHostname && m.Discovery == model.EDS {
		at.warn("hosts are hashed by hostname; EDS endpoints without one share the empty key")
	}
	return m
}

// clusterData fills what the data plane needs of the cluster's own settings.
func (t *translator) clusterData(c *clusterv3.Cluster, at cursor) dataplane.Cluster {
	d := dataplane.Cluster{
		Name:                 c.GetName(),
		StatName:             statName(c.GetAltStatName(), c.GetName()),
		EDSServiceName:       c.GetEdsClusterConfig().GetServiceName(),
		AddedViaAPI:          t.api,
		ConnectTimeout:       duration(c.GetConnectTimeout(), 5*time.Second),
		BufferLimit:          defaultBuffer,
		Breakers:             breakers(c.GetCircuitBreakers(), at.field("circuit_breakers")),
		CloseOnHealthFailure: c.GetCloseConnectionsOnHostHealthFailure(),
		Keepalive:            keepalive(c.GetUpstreamConnectionOptions().GetTcpKeepalive()),
	}
	if l := c.GetPerConnectionBufferLimitBytes(); l != nil {
		d.BufferLimit = l.GetValue()
	}
	if strings.Contains(d.StatName, ".") {
		name := at.field("name")
		if c.GetAltStatName() != "" {
			name = at.field("alt_stat_name")
		}
		name.warn("the name in stats has a dot, so Prometheus labels hold only the part before it, as in Envoy; set alt_stat_name without dots")
	}
	if !t.managementTLS(c, at) {
		d.ProxyProtocol = transportSocket(c.GetTransportSocket(), at.field("transport_socket"))
	}
	for i, m := range c.GetTransportSocketMatches() {
		where := at.field("transport_socket_matches").at(i).field("transport_socket")
		if transportSocket(m.GetTransportSocket(), where) != nil {
			where.fail("sockets are not chosen by endpoint; set transport_socket")
		}
	}
	bind, where := c.GetUpstreamBindConfig(), at.field("upstream_bind_config")
	if bind == nil && t.boot != nil {
		bind = t.boot.GetClusterManager().GetUpstreamBindConfig()
		where = cursor{r: t.r}.field("cluster_manager").field("upstream_bind_config")
	}
	if a := bind.GetSourceAddress(); a != nil {
		d.BindAddress, _ = where.field("source_address").ip(a)
	}
	return d
}

// statName is how a name stands in the names of stats.
func statName(names ...string) string {
	for _, n := range names {
		if n != "" {
			return strings.ReplaceAll(n, ":", "_")
		}
	}
	return ""
}

// keepalive reads tcp_keepalive; nil leaves keepalives off, an empty one takes the kernel's values.
func keepalive(k *corev3.TcpKeepalive) *dataplane.TCPKeepalive {
	if k == nil {
		return nil
	}
	return &dataplane.TCPKeepalive{
		Time:     time.Duration(k.GetKeepaliveTime().GetValue()) * time.Second,
		Interval: time.Duration(k.GetKeepaliveInterval().GetValue()) * time.Second,
		Probes:   int(k.GetKeepaliveProbes().GetValue()),
	}
}

// breakers reads circuit breakers. Of several thresholds for one priority the first counts, as in
// Envoy.
func breakers(b *clusterv3.CircuitBreakers, at cursor) dataplane.CircuitBreakers {
	usual := dataplane.Thresholds{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRequests: 1024, MaxRetries: 3}
	out := dataplane.CircuitBreakers{Default: usual, High: usual}
	seen := map[corev3.RoutingPriority]bool{}
	for i, th := range b.GetThresholds() {
		where := at.field("thresholds").at(i)
		if seen[th.GetPriority()] {
			where.warn("thresholds for priority %s are given twice: only the first count", th.GetPriority())
			continue
		}
		seen[th.GetPriority()] = true
		v := usual
		if x := th.GetMaxConnections(); x != nil {
			v.MaxConnections = x.GetValue()
		}
		if x := th.GetMaxPendingRequests(); x != nil {
			v.MaxPendingRequests = x.GetValue()
		}
		if x := th.GetMaxRequests(); x != nil {
			v.MaxRequests = x.GetValue()
		}
		if x := th.GetMaxRetries(); x != nil {
			v.MaxRetries = x.GetValue()
		}
		v.TrackRemaining = th.GetTrackRemaining()
		if th.GetPriority() == corev3.RoutingPriority_HIGH {
			out.High = v
		} else {
			out.Default = v
		}
	}
	for i, th := range b.GetPerHostThresholds() {
		where := at.field("per_host_thresholds").at(i)
		if th.GetMaxPendingRequests() != nil || th.GetMaxRequests() != nil || th.GetMaxRetries() != nil ||
			th.GetRetryBudget() != nil || th.GetMaxConnectionPools() != nil || th.GetTrackRemaining() {
			where.failAs("Unsupported field in per_host_thresholds", "per_host_thresholds takes max_connections only")
			continue
		}
		if th.GetPriority() == corev3.RoutingPriority_DEFAULT && th.GetMaxConnections() != nil && out.PerHostMaxConnections == nil {
			v := th.GetMaxConnections().GetValue()
			out.PerHostMaxConnections = &v
		}
	}
	return out
}

// transportSocket accepts plain sockets and PROXY headers around them.
func transportSocket(s *corev3.TransportSocket, at cursor) *dataplane.UpstreamProxyProtocol {
	if s == nil {
		return nil
	}
	if s.GetTypedConfig() == nil {
		at.failAs(noFactory(s.GetName(), ""), "transport socket %q has no typed_config", s.GetName())
		return nil
	}
	switch m := unpack(s.GetTypedConfig()).(type) {
	case nil:
		return nil // the walk over fields reports it
	case *rawbufferv3.RawBuffer:
		return nil
	case *proxyprotocolv3.ProxyProtocolUpstreamTransport:
		where := at.field("typed_config")
		if inner := m.GetTransportSocket(); inner != nil {
			if transportSocket(inner, where.field("transport_socket")) != nil {
				where.field("transport_socket").fail("one PROXY header is enough; use raw_buffer inside")
			}
		}
		return upstreamProxyProtocol(m.GetConfig(), where.field("config"))
	default:
		at.field("typed_config").fail("only plain TCP (raw_buffer), with or without a PROXY header (upstream_proxy_protocol), is supported: Guideway neither starts nor ends TLS (got %s)", m.ProtoReflect().Descriptor().FullName())
	}
	return nil
}

// noFactory is Envoy's message for a type that is no extension of the kind wanted.
func noFactory(name, url string) string {
	return fmt.Sprintf("Didn't find a registered implementation for '%s' with type URL: '%s'", name, url)
}

func upstreamProxyProtocol(c *corev3.ProxyProtocolConfig, at cursor) *dataplane.UpstreamProxyProtocol {
	out := &dataplane.UpstreamProxyProtocol{Version: 1}
	if c.GetVersion() == corev3.ProxyProtocolConfig_V2 {
		out.Version = 2
	}
	out.PassAllTLVs, out.PassTLVs = passThrough(c.GetPassThroughTlvs(), at.field("pass_through_tlvs"))
	out.Added = tlvs(c.GetAddedTlvs(), at.field("added_tlvs"))
	if out.Version == 1 && (out.PassAllTLVs || len(out.PassTLVs) > 0 || len(out.Added) > 0) {
		at.warn("TLVs are ignored: a PROXY header of version 1 has none; use version V2")
	}
	return out
}

// passThrough reads which TLVs go on.
func passThrough(p *corev3.ProxyProtocolPassThroughTLVs, at cursor) (all bool, types []byte) {
	if p == nil {
		return false, nil
	}
	if p.GetMatchType() == corev3.ProxyProtocolPassThroughTLVs_INCLUDE_ALL {
		return true, nil
	}
	for i, v := range p.GetTlvType() {
		if v > 255 {
			at.field("tlv_type").at(i).fail("a TLV type is a byte, not %d", v)
			continue
		}
		types = append(types, byte(v))
	}
	return false, types
}

// tlvs reads TLVs with fixed values.
func tlvs(entries []*corev3.TlvEntry, at cursor) []dataplane.TLV {
	var out []dataplane.TLV
	for i, e := range entries {
		if e.GetType() > 255 {
			at.at(i).field("type").fail("a TLV type is a byte, not %d", e.GetType())
			continue
		}
		if len(e.GetValue()) > 1<<16-1 {
			at.at(i).field("value").fail("a TLV has at most 65535 bytes")
			continue
		}
		if len(e.GetValue()) == 0 && e.GetFormatString() == nil {
			at.at(i).failAs("Invalid TLV configuration: one of 'value' or 'format_string' must be set.", "value is required")
			continue
		}
		out = append(out, dataplane.TLV{Type: byte(e.GetType()), Value: e.GetValue()})
	}
	return out
}

// http2 reports whether the cluster speaks HTTP/2, for gRPC checks and xDS.
func http2(c *clusterv3.Cluster, at cursor) bool {
	two := c.GetHttp2ProtocolOptions() != nil
	for name, packed := range c.GetTypedExtensionProtocolOptions() {
		where := at.field("typed_extension_protocol_options").field(name)
		m := unpack(packed)
		options, ok := m.(*httpv3.HttpProtocolOptions)
		if !ok {
			where.warn("typed_extension_protocol_options %q is ignored: only HTTP options for health checks and xDS are read", name)
			at.r.skip(where.p)
			continue
		}
		// There is one such key, so the order of the map does not show.
		two = two || options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil ||
			options.GetUseDownstreamProtocolConfig().GetHttp2ProtocolOptions() != nil
	}
	return two
}

// discovery reads how hosts are found. typed is true for the cluster_type form.
func (t *translator) discovery(c *clusterv3.Cluster, m *model.Cluster, at cursor) (typed bool) {
	dns := t.legacyDNS(c, at)
	ct := c.GetClusterType()
	if ct == nil {
		switch c.GetType() {
		case clusterv3.Cluster_STATIC:
			m.Discovery = model.Static
		case clusterv3.Cluster_STRICT_DNS:
			m.Discovery = model.StrictDNS
		case clusterv3.Cluster_LOGICAL_DNS:
			m.Discovery = model.LogicalDNS
		case clusterv3.Cluster_EDS:
			m.Discovery = model.EDS
		default:
			at.field("type").fail("type %s is not supported; use STATIC, STRICT_DNS, LOGICAL_DNS or EDS", c.GetType())
		}
		m.DNS = dns
		return false
	}
	where := at.field("cluster_type")
	switch packed := unpack(ct.GetTypedConfig()).(type) {
	case *dnsv3.DnsCluster:
		m.Discovery = model.StrictDNS
		if packed.GetAllAddressesInSingleEndpoint() {
			m.Discovery = model.LogicalDNS
		}
		m.DNS = t.typedDNS(packed, where.field("typed_config"))
	case nil:
		switch ct.GetName() {
		case "envoy.cluster.static":
			m.Discovery = model.Static
		case "envoy.cluster.strict_dns", "envoy.cluster.dns":
			m.Discovery = model.StrictDNS
		case "envoy.cluster.logical_dns":
			m.Discovery = model.LogicalDNS
		case "envoy.cluster.eds":
			m.Discovery = model.EDS
		default:
			where.failAs(fmt.Sprintf("Didn't find a registered cluster factory implementation for name: '%s'", ct.GetName()),
				"cluster type %q is not supported; use type STATIC, STRICT_DNS, LOGICAL_DNS or EDS", ct.GetName())
		}
		m.DNS = dns
	default:
		where.fail("cluster type %q is not supported; use type STATIC, STRICT_DNS, LOGICAL_DNS or EDS", ct.GetName())
	}
	return true
}

// typeName is how Envoy calls the kind of a cluster.
func typeName(d model.Discovery) string {
	return [...]string{"envoy.cluster.static", "envoy.cluster.strict_dns", "envoy.cluster.logical_dns", "envoy.cluster.eds"}[d]
}

// eds checks where an EDS cluster's endpoints come from.
func (t *translator) eds(c *clusterv3.Cluster, m *model.Cluster, at cursor) {
	if c.GetLoadAssignment() != nil {
		at.field("load_assignment").warn("it is ignored: the endpoints of an EDS cluster come from the server")
		t.r.skip(at.field("load_assignment").p)
	}
	source := c.GetEdsClusterConfig().GetEdsConfig()
	where := at.field("eds_cluster_config")
	if source == nil {
		where.failAs("cannot create an EDS cluster without an EDS config", "an EDS cluster needs eds_cluster_config.eds_config")
		return
	}
	m.EDS = t.configSource(source, where.field("eds_config"))
	m.Assignment = model.Assignment{ClusterName: c.GetName(), OverprovisioningFactor: defaultOverprovisioning}
}

// addrPorts reads addresses that must be IPs.
func (c cursor) addrPorts(as []*corev3.Address) []netip.AddrPort {
	var out []netip.AddrPort
	for i, a := range as {
		if s, where := c.at(i).socketAddress(a); s != nil {
			if addr, ok := where.ip(s); ok {
				out = append(out, addr)
			}
		}
	}
	return out
}
