package envoy

import (
	"net/netip"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/health_check/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// Readiness is an HTTP listener that does nothing but tell whether the process takes traffic.
type Readiness struct {
	Address netip.AddrPort
	// Path is answered 200 or, while the process is being drained, 503; all others get Otherwise.
	Path      string
	Otherwise int
}

// ReadReadiness recognises such a listener: one chain whose http_connection_manager has the filters
// health_check (for one exact path, not passed through) and router, and one route that answers directly.
// Control planes send it to every proxy; Kubernetes asks it.
func ReadReadiness(l *listenerv3.Listener) (Readiness, bool) {
	var out Readiness
	s := l.GetAddress().GetSocketAddress()
	ip, err := parseIP(s.GetAddress())
	if err != nil || len(l.GetFilterChains()) != 1 || l.GetDefaultFilterChain() != nil || len(l.GetListenerFilters()) != 0 || len(l.GetAdditionalAddresses()) != 0 {
		return out, false
	}
	chain := l.GetFilterChains()[0]
	if len(chain.GetFilters()) != 1 || chain.GetTransportSocket() != nil || chain.GetFilterChainMatch() != nil {
		return out, false
	}
	hcm, ok := unpack(chain.GetFilters()[0].GetTypedConfig()).(*hcmv3.HttpConnectionManager)
	if !ok || len(hcm.GetHttpFilters()) != 2 {
		return out, false
	}
	check, ok := unpack(hcm.GetHttpFilters()[0].GetTypedConfig()).(*healthv3.HealthCheck)
	if !ok || check.GetPassThroughMode().GetValue() || len(check.GetClusterMinHealthyPercentages()) > 0 || len(check.GetHeaders()) != 1 {
		return out, false
	}
	header := check.GetHeaders()[0]
	path := header.GetStringMatch().GetExact()
	if path == "" {
		path = header.GetExactMatch() //nolint:staticcheck // the older form of the same
	}
	if header.GetName() != ":path" || path == "" || header.GetInvertMatch() {
		return out, false
	}
	if _, ok := unpack(hcm.GetHttpFilters()[1].GetTypedConfig()).(*routerv3.Router); !ok {
		return out, false
	}
	hosts := hcm.GetRouteConfig().GetVirtualHosts()
	if len(hosts) != 1 || len(hosts[0].GetRoutes()) != 1 {
		return out, false
	}
	direct, ok := hosts[0].GetRoutes()[0].GetAction().(*routev3.Route_DirectResponse)
	if !ok || direct.DirectResponse.GetBody() != nil {
		return out, false
	}
	return Readiness{netip.AddrPortFrom(ip, uint16(s.GetPortValue())), path, int(direct.DirectResponse.GetStatus())}, true
}
