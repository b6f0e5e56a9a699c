package envoy

import (
	"fmt"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/connection_limit/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/guideway/guideway/dataplane"
)

// chain translates one filter chain.
func (t *translator) chain(c *listenerv3.FilterChain, d *dataplane.Listener, at cursor) *dataplane.FilterChain {
	out := &dataplane.FilterChain{
		Name:  c.GetName(),
		Match: chainMatch(c.GetFilterChainMatch(), d, at.field("filter_chain_match")),
		Hash:  hashMessage(c),
	}
	if transportSocket(c.GetTransportSocket(), at.field("transport_socket")) != nil {
		at.field("transport_socket").fail("it writes PROXY headers to upstreams; to read them use the proxy_protocol listener filter")
	}
	for i, f := range c.GetFilters() {
		where := at.field("filters").at(i)
		if t.ignore[f.GetName()] {
			where.warn("filter %q is left out, as --ignore-network-filters says", f.GetName())
			t.r.skip(where.p)
			continue
		}
		last := i == len(c.GetFilters())-1
		config := where.field("typed_config")
		switch m := t.extension(f.GetName(), f.GetTypedConfig(), where).(type) {
		case nil:
		case *tcpproxyv3.TcpProxy:
			if !last {
				where.failAs(fmt.Sprintf("Error: terminal filter named %s of type envoy.filters.network.tcp_proxy must be the last filter in a network filter chain.", f.GetName()),
					"tcp_proxy must be the last filter of a chain")
			}
			out.Proxy = t.tcpProxy(m, config)
		case *limitv3.ConnectionLimit:
			if m.GetRuntimeEnabled() == nil || m.GetRuntimeEnabled().GetDefaultValue() == nil || m.GetRuntimeEnabled().GetDefaultValue().GetValue() {
				out.Filters = append(out.Filters, &dataplane.ConnectionLimit{
					StatPrefix: m.GetStatPrefix(), Max: m.GetMaxConnections().GetValue(), Delay: duration(m.GetDelay(), 0),
				})
			}
			t.notLast(f, "envoy.filters.network.connection_limit", last, where)
		case *rbacv3.RBAC:
			if filter := rbac(m, config); filter != nil {
				out.Filters = append(out.Filters, filter)
			}
			t.notLast(f, "envoy.filters.network.rbac", last, where)
		default:
			name := m.ProtoReflect().Descriptor().FullName()
			config.failAs(noFactory(f.GetName(), string(name)),
				"network filter %q (%s) is not supported; leave it out with --ignore-network-filters=%s if traffic may go without it", f.GetName(), name, f.GetName())
		}
	}
	return out
}

// notLast refuses a chain that ends in a filter that passes on to the next.
func (t *translator) notLast(f *listenerv3.Filter, kind string, last bool, at cursor) {
	if last {
		at.failAs(fmt.Sprintf("Error: non-terminal filter named %s of type %s is the last filter in a network filter chain.", f.GetName(), kind),
			"the last filter of a chain must be tcp_proxy")
	}
}

// chainMatch reads the criteria of a chain.
func chainMatch(m *listenerv3.FilterChainMatch, d *dataplane.Listener, at cursor) dataplane.ChainMatch {
	out := dataplane.ChainMatch{
		DestinationPort:      uint16(m.GetDestinationPort().GetValue()),
		PrefixRanges:         at.field("prefix_ranges").prefixes(m.GetPrefixRanges()),
		TransportProtocol:    m.GetTransportProtocol(),
		ApplicationProtocols: m.GetApplicationProtocols(),
		DirectSourceRanges:   at.field("direct_source_prefix_ranges").prefixes(m.GetDirectSourcePrefixRanges()),
		SourceRanges:         at.field("source_prefix_ranges").prefixes(m.GetSourcePrefixRanges()),
	}
	switch m.GetSourceType() {
	case listenerv3.FilterChainMatch_SAME_IP_OR_LOOPBACK:
		out.SourceType = dataplane.SameIPOrLoopback
	case listenerv3.FilterChainMatch_EXTERNAL:
		out.SourceType = dataplane.ExternalSource
	}
	for _, p := range m.GetSourcePorts() {
		out.SourcePorts = append(out.SourcePorts, uint16(p))
	}
	for i, name := range m.GetServerNames() {
		where := at.field("server_names").at(i)
		rest := strings.TrimPrefix(name, "*.")
		switch {
		case strings.Contains(rest, "*"):
			where.failAs(adding(d)+"partial wildcards are not supported in \"server_names\"",
				"server name %q: a wildcard stands for whole labels at the front only, as in *.example.com", name)
		default:
			out.ServerNames = append(out.ServerNames, strings.ToLower(name)) // as the client's will be
		}
	}
	inspected := false
	for _, f := range d.ListenerFilters {
		if _, ok := f.(*dataplane.TLSInspector); ok {
			inspected = true
		}
	}
	if !inspected && (len(out.ServerNames) > 0 || out.TransportProtocol != "" || len(out.ApplicationProtocols) > 0) {
		at.warn("server_names, transport_protocol and application_protocols match nothing without the tls_inspector listener filter")
	}
	return out
}
