package controlplane

import (
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// extensions are Envoy's extensions that Guideway acts on, by category: name, and the message that
// configures it if there is one. Control planes and scripts look here for what an instance can do.
var extensions = []struct {
	category string
	names    [][2]string
}{
	{"envoy.access_loggers", [][2]string{
		{"envoy.access_loggers.file", "envoy.extensions.access_loggers.file.v3.FileAccessLog"},
		{"envoy.access_loggers.stderr", "envoy.extensions.access_loggers.stream.v3.StderrAccessLog"},
		{"envoy.access_loggers.stdout", "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"},
	}},
	{"envoy.clusters", [][2]string{
		{"envoy.cluster.eds"}, {"envoy.cluster.logical_dns"}, {"envoy.cluster.static"}, {"envoy.cluster.strict_dns"},
	}},
	{"envoy.filters.listener", [][2]string{
		{"envoy.filters.listener.proxy_protocol", "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol"},
		{"envoy.filters.listener.tls_inspector", "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"},
	}},
	{"envoy.filters.network", [][2]string{
		{"envoy.filters.network.connection_limit", "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit"},
		{"envoy.filters.network.rbac", "envoy.extensions.filters.network.rbac.v3.RBAC"},
		{"envoy.filters.network.tcp_proxy", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"},
	}},
	{"envoy.filters.udp_listener", [][2]string{
		{"envoy.filters.udp_listener.udp_proxy", "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig"},
	}},
	{"envoy.load_balancing_policies", [][2]string{
		{"envoy.load_balancing_policies.least_request", "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest"},
		{"envoy.load_balancing_policies.maglev", "envoy.extensions.load_balancing_policies.maglev.v3.Maglev"},
		{"envoy.load_balancing_policies.random", "envoy.extensions.load_balancing_policies.random.v3.Random"},
		{"envoy.load_balancing_policies.ring_hash", "envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash"},
		{"envoy.load_balancing_policies.round_robin", "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"},
	}},
	{"envoy.transport_sockets.upstream", [][2]string{
		{"envoy.transport_sockets.raw_buffer", "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"},
		{"envoy.transport_sockets.upstream_proxy_protocol", "envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport"},
	}},
}

// identify fills in what a program says of itself in a node: name, build and extensions. version has
// Envoy's form sha/x.y.z/status/type/ssl.
func identify(n *corev3.Node, version string) {
	n.UserAgentName = "guideway"
	parts := strings.Split(version, "/")
	for len(parts) < 5 {
		parts = append(parts, "unknown")
	}
	semantic := &typev3.SemanticVersion{}
	for i, number := range strings.SplitN(parts[1], ".", 3) {
		v, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			break
		}
		*[...]*uint32{&semantic.MajorNumber, &semantic.MinorNumber, &semantic.Patch}[i] = uint32(v)
	}
	metadata := map[string]*structpb.Value{}
	for i, key := range map[int]string{0: "revision.sha", 2: "revision.status", 3: "build.type", 4: "ssl.version"} {
		metadata[key] = structpb.NewStringValue(parts[i])
	}
	n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
		Version: semantic, Metadata: &structpb.Struct{Fields: metadata},
	}}
	n.Extensions = nil
	for _, c := range extensions {
		for _, name := range c.names {
			e := &corev3.Extension{Category: c.category, Name: name[0]}
			if name[1] != "" {
				e.TypeUrls = []string{name[1]}
			}
			n.Extensions = append(n.Extensions, e)
		}
	}
}
