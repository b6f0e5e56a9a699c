package envoy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	udpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/udp/udp_proxy/v3"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// defaultFiltersTimeout is Envoy's default of listener_filters_timeout.
const defaultFiltersTimeout = 15 * time.Second

// listener translates one listener; nil after a problem that leaves nothing to go on with.
func (t *translator) listener(l *listenerv3.Listener, at cursor) *model.Listener {
	if l.GetName() != "" {
		at = at.named("listener %q", l.GetName())
	} else if s := addressText(l.GetAddress()); s != "" {
		at = at.named("listener %s", s)
	}
	if l.GetInternalListener() != nil {
		at.field("internal_listener").fail("internal listeners exist only inside Envoy")
		return nil
	}
	if l.GetApiListener() != nil {
		at.field("api_listener").fail("it is for gRPC clients that embed Envoy")
		return nil
	}
	if l.GetAddress() == nil {
		at.field("address").failAs(fmt.Sprintf("error adding listener named '%s': address is necessary", l.GetName()), "address is required")
		return nil
	}
	s, where := at.field("address").socketAddress(l.GetAddress())
	if s == nil {
		return nil
	}
	addr, ok := where.ip(s)
	if !ok {
		return nil
	}
	d := &dataplane.Listener{
		Name:                     listenerName(l),
		StatName:                 statName(l.GetStatPrefix(), addr.String()),
		Protocol:                 protocolOf(s),
		Addresses:                []dataplane.ListenAddress{{Addr: addr, IPv4Compat: s.GetIpv4Compat()}},
		ReusePort:                reusePort(l, at),
		Freebind:                 l.GetFreebind().GetValue(),
		Transparent:              l.GetTransparent().GetValue(),
		Backlog:                  int(l.GetTcpBacklogSize().GetValue()),
		SocketOptions:            socketOptions(l.GetSocketOptions(), at.field("socket_options")),
		Keepalive:                keepalive(l.GetTcpKeepalive()),
		BufferLimit:              defaultBuffer,
		IgnoreGlobalConnLimit:    l.GetIgnoreGlobalConnLimit(),
		DrainModifyOnly:          l.GetDrainType() == listenerv3.Listener_MODIFY_ONLY,
		Dataplane:                listenerDataplane(l.GetMetadata(), at),
		Inbound:                  l.GetTrafficDirection() == corev3.TrafficDirection_INBOUND,
		AddedViaAPI:              t.api,
		FiltersTimeout:           duration(l.GetListenerFiltersTimeout(), defaultFiltersTimeout),
		ContinueOnFiltersTimeout: l.GetContinueOnListenerFiltersTimeout(),
		AccessLog:                t.accessLogs(l.GetAccessLog(), at.field("access_log")),
		Hash:                     hashMessage(l),
		SocketHash:               hashMessage(l, "filter_chains", "default_filter_chain"),
	}
	if strings.Contains(l.GetStatPrefix(), ".") {
		at.field("stat_prefix").warn("it has a dot, so Prometheus labels hold only the part before it, as in Envoy")
	}
	if b := l.GetPerConnectionBufferLimitBytes(); b != nil {
		d.BufferLimit = b.GetValue()
	}
	if b := l.GetBindToPort(); b != nil && !b.GetValue() {
		at.field("bind_to_port").fail("the listener would receive nothing: connections are not handed from one listener to another")
	}
	if n, ok := runtimeInteger(t.runtime, "envoy.resource_limits.listener."+l.GetName()+".connection_limit"); ok {
		d.ConnectionLimit = &n
	}
	t.moreAddresses(l, d, at)
	if d.Protocol == dataplane.UDP {
		t.udpListener(l, d, at)
	} else {
		t.tcpListener(l, d, at)
	}
	return &model.Listener{Listener: d, Source: l}
}

// listenerName is the configured name. Envoy makes up a UUID where there is none; ours is made of the
// address, so that it stays the same when the configuration is read again.
func listenerName(l *listenerv3.Listener) string {
	if l.GetName() != "" {
		return l.GetName()
	}
	s := l.GetAddress().GetSocketAddress()
	u := sha256.Sum256([]byte(s.GetProtocol().String() + " " + addressText(l.GetAddress())))
	u[6] = u[6]&0x0f | 0x80 // version 8 (RFC 9562): made by a rule of our own
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// moreAddresses reads additional_addresses: each gets a socket of its own.
func (t *translator) moreAddresses(l *listenerv3.Listener, d *dataplane.Listener, at cursor) {
	seen := map[netip.AddrPort]bool{d.Addresses[0].Addr: true}
	for i, a := range l.GetAdditionalAddresses() {
		s, where := at.field("additional_addresses").at(i).field("address").socketAddress(a.GetAddress())
		if s == nil {
			continue
		}
		addr, ok := where.ip(s)
		switch {
		case !ok:
		case protocolOf(s) != d.Protocol:
			where.field("protocol").failAs(fmt.Sprintf("listener %s: has different socket type. The listener only support same socket type for all the addresses.", l.GetName()),
				"all addresses of a listener have one protocol, and the first is %s", d.Protocol)
		case seen[addr] && addr.Port() != 0:
			where.warn("address %s is given twice; it is bound once", addr)
		default:
			seen[addr] = true
			d.Addresses = append(d.Addresses, dataplane.ListenAddress{Addr: addr, IPv4Compat: s.GetIpv4Compat()})
		}
	}
}

// reusePort reads both fields; the newer wins.
func reusePort(l *listenerv3.Listener, at cursor) bool {
	v := l.GetEnableReusePort()
	if v == nil {
		return true // reuse_port, the deprecated one, can only turn it on
	}
	if l.GetReusePort() && !v.GetValue() {
		at.field("reuse_port").warn("enable_reuse_port says otherwise, and counts")
	}
	return v.GetValue()
}

// socketOptions reads raw options.
func socketOptions(os []*corev3.SocketOption, at cursor) []dataplane.SocketOption {
	var out []dataplane.SocketOption
	for _, o := range os {
		v := dataplane.SocketOption{Level: int(o.GetLevel()), Name: int(o.GetName())}
		if b, ok := o.GetValue().(*corev3.SocketOption_BufValue); ok {
			if v.Bytes = b.BufValue; v.Bytes == nil {
				v.Bytes = []byte{}
			}
		} else {
			v.Int = int(o.GetIntValue())
		}
		switch o.GetState() {
		case corev3.SocketOption_STATE_BOUND:
			v.State = dataplane.StateBound
		case corev3.SocketOption_STATE_LISTENING:
			v.State = dataplane.StateListening
		}
		out = append(out, v)
	}
	return out
}

// adding is how Envoy begins messages about a listener.
func adding(d *dataplane.Listener) string {
	return fmt.Sprintf("error adding listener '%s': ", d.Addresses[0].Addr)
}

// tcpListener reads listener filters and filter chains.
func (t *translator) tcpListener(l *listenerv3.Listener, d *dataplane.Listener, at cursor) {
	if l.GetUdpListenerConfig() != nil {
		at.field("udp_listener_config").warn("it has no effect on a TCP listener")
	}
	for i, f := range l.GetListenerFilters() {
		where := at.field("listener_filters").at(i)
		switch m := t.extension(f.GetName(), f.GetTypedConfig(), where).(type) {
		case nil:
		case *proxyprotocolv3.ProxyProtocol:
			d.ListenerFilters = append(d.ListenerFilters, proxyProtocol(m, where.field("typed_config")))
		case *tlsinspectorv3.TlsInspector:
			d.ListenerFilters = append(d.ListenerFilters, &dataplane.TLSInspector{})
		default:
			name := m.ProtoReflect().Descriptor().FullName()
			where.field("typed_config").failAs(noFactory(f.GetName(), string(name)),
				"listener filter %q (%s) is not supported on a TCP listener; proxy_protocol and tls_inspector are", f.GetName(), name)
		}
	}
	t.legacyProxyProtocol(l, d, at)
	if len(l.GetFilterChains()) == 0 && l.GetDefaultFilterChain() == nil {
		at.field("filter_chains").failAs(adding(d)+"no filter chains specified", "a TCP listener needs filter_chains")
		return
	}
	for i, c := range l.GetFilterChains() {
		if m := c.GetFilterChainMatch(); m.GetAddressSuffix() != "" || m.GetSuffixLen() != nil {
			at.field("filter_chains").at(i).field("filter_chain_match").failAs(
				adding(d)+fmt.Sprintf("filter chain '%s' contains unimplemented fields", c.GetName()),
				"address_suffix and suffix_len are not implemented, in Envoy neither; use prefix_ranges")
		}
		d.Chains = append(d.Chains, t.chain(c, d, at.field("filter_chains").at(i)))
	}
	if c := l.GetDefaultFilterChain(); c != nil {
		where := at.field("default_filter_chain")
		if m := c.GetFilterChainMatch(); m != nil && !proto.Equal(m, &listenerv3.FilterChainMatch{}) {
			where.field("filter_chain_match").warn("it has no effect on the default filter chain")
		}
		d.DefaultChain = t.chain(c, d, where)
	}
	matcher, err := dataplane.NewChainMatcher(d.Chains, d.DefaultChain)
	var conflict *dataplane.ChainConflict
	switch {
	case errors.As(err, &conflict):
		where := at.field("filter_chains").at(conflict.Second).field("filter_chain_match")
		a, b := l.GetFilterChains()[conflict.First], l.GetFilterChains()[conflict.Second]
		text := adding(d) + "multiple filter chains with overlapping matching rules are defined"
		if proto.Equal(a.GetFilterChainMatch(), b.GetFilterChainMatch()) {
			text = adding(d) + fmt.Sprintf("filter chain '%s' has the same matching rules defined as '%s'", b.GetName(), a.GetName())
		}
		where.failAs(text, "it takes connections that filter_chains[%d] takes as well; make one of the two more specific", conflict.First)
	case err != nil:
		at.field("filter_chains").fail("%v", err)
	}
	d.Matcher = matcher
}

// legacyProxyProtocol reads use_proxy_proto, which adds the listener filter; in Envoy it counts if the
// first chain has it.
func (t *translator) legacyProxyProtocol(l *listenerv3.Listener, d *dataplane.Listener, at cursor) {
	for i, c := range l.GetFilterChains() {
		if !c.GetUseProxyProto().GetValue() {
			continue
		}
		if i > 0 {
			at.field("filter_chains").at(i).field("use_proxy_proto").warn("it counts only in the first chain; use the proxy_protocol listener filter")
			continue
		}
		d.ListenerFilters = append([]dataplane.ListenerFilter{&dataplane.ProxyProtocolFilter{}}, d.ListenerFilters...)
	}
}

// extension unpacks the configuration of a filter; nil after a problem, or if the walk over fields
// will report one.
func (t *translator) extension(name string, packed interface {
	GetTypeUrl() string
	UnmarshalNew() (proto.Message, error)
}, at cursor) proto.Message {
	if packed.GetTypeUrl() == "" {
		at.failAs(noFactory(name, ""), "filter %q has no typed_config", name)
		return nil
	}
	m, err := packed.UnmarshalNew()
	if err != nil {
		return nil
	}
	return m
}

// proxyProtocol reads the proxy_protocol listener filter.
func proxyProtocol(m *proxyprotocolv3.ProxyProtocol, at cursor) *dataplane.ProxyProtocolFilter {
	out := &dataplane.ProxyProtocolFilter{
		StatPrefix:         strings.Trim(m.GetStatPrefix(), "."),
		AllowWithoutHeader: m.GetAllowRequestsWithoutProxyProtocol(),
	}
	for _, v := range m.GetDisallowedVersions() {
		if v == corev3.ProxyProtocolConfig_V2 {
			out.DisallowV2 = true
		} else {
			out.DisallowV1 = true
		}
	}
	if out.DisallowV1 && out.DisallowV2 {
		at.field("disallowed_versions").warn("both versions are disallowed: no connection with a header is accepted")
	}
	out.KeepAllTLVs, out.KeepTLVs = passThrough(m.GetPassThroughTlvs(), at.field("pass_through_tlvs"))
	return out
}

// udpListener reads what a UDP listener has: one udp_proxy, and no filter chains.
func (t *translator) udpListener(l *listenerv3.Listener, d *dataplane.Listener, at cursor) {
	if n := len(l.GetFilterChains()); n > 0 || l.GetDefaultFilterChain() != nil {
		field := "filter_chains"
		if n == 0 {
			field = "default_filter_chain"
		}
		at.field(field).failAs(adding(d)+fmt.Sprintf("%d filter chain(s) specified for connection-less UDP listener", n),
			"a UDP listener takes listener_filters (udp_proxy), not %s", field)
		return
	}
	if !d.ReusePort {
		at.field("enable_reuse_port").failAs("Listening on UDP when concurrency is > 1 without the SO_REUSEPORT socket option results in unstable packet proxying",
			"UDP sessions need a socket for each worker: leave enable_reuse_port on")
	}
	udp := l.GetUdpListenerConfig().GetDownstreamSocketConfig()
	for i, f := range l.GetListenerFilters() {
		where := at.field("listener_filters").at(i)
		switch m := t.extension(f.GetName(), f.GetTypedConfig(), where).(type) {
		case nil:
		case *udpproxyv3.UdpProxyConfig:
			if d.UDP != nil {
				where.fail("one udp_proxy a listener is supported; remove the others")
				continue
			}
			d.UDP = t.udpProxy(m, where.field("typed_config"))
			d.UDP.MaxRxDownstream = datagram(udp.GetMaxRxDatagramSize())
			d.UDP.DownstreamGRO = udp.GetPreferGro().GetValue()
		default:
			name := m.ProtoReflect().Descriptor().FullName()
			where.field("typed_config").failAs(noFactory(f.GetName(), string(name)),
				"listener filter %q (%s) is not supported on a UDP listener; udp_proxy is", f.GetName(), name)
		}
	}
	if len(l.GetListenerFilters()) == 0 {
		at.field("listener_filters").fail("a UDP listener without udp_proxy drops everything; add the filter")
	}
}

// datagram is a bound on the size of datagrams; Envoy's default is 1500 bytes.
func datagram(v *wrapperspb.UInt64Value) uint32 {
	if v == nil {
		return 1500
	}
	return uint32(min(v.GetValue(), 65535))
}
