package envoy

import (
	"net/netip"
	"time"

	udpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/udp/udp_proxy/v3"
	"github.com/guideway/guideway/dataplane"
)

// udpProxy translates envoy.filters.udp_listener.udp_proxy.
func (t *translator) udpProxy(m *udpproxyv3.UdpProxyConfig, at cursor) *dataplane.UDPProxy {
	upstream := m.GetUpstreamSocketConfig()
	p := &dataplane.UDPProxy{
		StatPrefix:       statName(m.GetStatPrefix()),
		IdleTimeout:      duration(m.GetIdleTimeout(), time.Minute),
		PerPacket:        m.GetUsePerPacketLoadBalancing(),
		MaxRxUpstream:    datagram(upstream.GetMaxRxDatagramSize()),
		UpstreamGRO:      upstream.GetPreferGro() == nil || upstream.GetPreferGro().GetValue(),
		UseOriginalSrcIP: m.GetUseOriginalSrcIp(),
		AccessLog:        t.accessLogs(m.GetAccessLog(), at.field("access_log")),
		ProxyAccessLog:   t.accessLogs(m.GetProxyAccessLog(), at.field("proxy_access_log")),
		LogInterval:      duration(m.GetAccessLogOptions().GetAccessLogFlushInterval(), 0),
		Hash:             t.udpHash(m.GetHashPolicies()),
	}
	dotted(m.GetStatPrefix(), at)
	switch r := m.GetRouteSpecifier().(type) {
	case *udpproxyv3.UdpProxyConfig_Cluster:
		p.Clusters, p.Only = []string{r.Cluster}, r.Cluster
		p.Route = func(_, _ netip.AddrPort) string { return r.Cluster }
	case *udpproxyv3.UdpProxyConfig_Matcher:
		p.Route, p.Clusters = udpRoutes(r.Matcher, at.field("matcher"))
		if r.Matcher.GetMatcherType() == nil && r.Matcher.GetOnNoMatch().GetAction() != nil && len(p.Clusters) == 1 {
			p.Only = p.Clusters[0]
		}
	}
	if p.Route == nil { // after a problem
		p.Route = func(_, _ netip.AddrPort) string { return "" }
	}
	return p
}

// udpHash reads the hash policy; the schema allows one. Without one Guideway hashes the 5-tuple.
func (t *translator) udpHash(ps []*udpproxyv3.UdpProxyConfig_HashPolicy) dataplane.HashPolicy {
	out := dataplane.HashPolicy{Kind: dataplane.HashFiveTuple, Seed: t.seed}
	for _, p := range ps {
		switch s := p.GetPolicySpecifier().(type) {
		case *udpproxyv3.UdpProxyConfig_HashPolicy_SourceIp:
			out = dataplane.HashPolicy{Kind: dataplane.HashSourceIP}
		case *udpproxyv3.UdpProxyConfig_HashPolicy_Key:
			out = dataplane.HashPolicy{Kind: dataplane.HashKey, Key: s.Key}
		}
	}
	return out
}
