package envoy

import (
	"net/netip"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/health_check/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/guideway/guideway/controlplane/model"
)

// ReadHTTPListener recognises the HTTP listeners that control planes give to every proxy, whatever it
// balances: one that Kubernetes asks whether the process takes traffic, and one that hands out metrics.
// They have one chain whose http_connection_manager has the filters health_check (for one exact path, not
// passed through; optional) and router, and routes that answer directly or forward one path to a static
// cluster. Any other HTTP listener is none of these.
func (e Env) ReadHTTPListener(l *listenerv3.Listener) (*model.HTTPListener, bool) {
	t := newTranslator(&report{}, nil, nil)
	t.boot = bootOf(e.Config)
	return t.httpListener(l)
}

func (t *translator) httpListener(l *listenerv3.Listener) (*model.HTTPListener, bool) {
	s := l.GetAddress().GetSocketAddress()
	ip, err := parseIP(s.GetAddress())
	if err != nil || len(l.GetFilterChains()) != 1 || l.GetDefaultFilterChain() != nil || len(l.GetListenerFilters()) != 0 || len(l.GetAdditionalAddresses()) != 0 {
		return nil, false
	}
	chain := l.GetFilterChains()[0]
	if len(chain.GetFilters()) != 1 || chain.GetTransportSocket() != nil || chain.GetFilterChainMatch() != nil {
		return nil, false
	}
	hcm, ok := unpack(chain.GetFilters()[0].GetTypedConfig()).(*hcmv3.HttpConnectionManager)
	filters := hcm.GetHttpFilters()
	if !ok || len(filters) == 0 {
		return nil, false
	}
	if _, ok := unpack(filters[len(filters)-1].GetTypedConfig()).(*routerv3.Router); !ok {
		return nil, false
	}
	out := &model.HTTPListener{Name: l.GetName(), Source: l, Address: netip.AddrPortFrom(ip, uint16(s.GetPortValue())), Hash: hashMessage(l)}
	switch len(filters) {
	case 1:
	case 2:
		if out.HealthPath, ok = healthPath(unpack(filters[0].GetTypedConfig())); !ok {
			return nil, false
		}
	default:
		return nil, false
	}
	for _, host := range hcm.GetRouteConfig().GetVirtualHosts() {
		if len(host.GetDomains()) != 1 || host.GetDomains()[0] != "*" {
			return nil, false
		}
		for _, r := range host.GetRoutes() {
			route, ok := t.httpRoute(r)
			if !ok {
				return nil, false
			}
			out.Routes = append(out.Routes, route)
		}
	}
	return out, out.HealthPath != "" || len(out.Routes) > 0
}

// healthPath is the one path of a health_check filter that answers by itself.
func healthPath(m any) (string, bool) {
	check, ok := m.(*healthv3.HealthCheck)
	if !ok || check.GetPassThroughMode().GetValue() || len(check.GetClusterMinHealthyPercentages()) > 0 || len(check.GetHeaders()) != 1 {
		return "", false
	}
	h := check.GetHeaders()[0]
	path := h.GetStringMatch().GetExact()
	if path == "" {
		path = h.GetExactMatch() //nolint:staticcheck // the older form of the same
	}
	return path, h.GetName() == ":path" && strings.HasPrefix(path, "/") && !h.GetInvertMatch()
}

// httpRoute reads a route: a direct response without a body, or a static cluster of the bootstrap.
func (t *translator) httpRoute(r *routev3.Route) (model.HTTPRoute, bool) {
	out := model.HTTPRoute{}
	switch m := r.GetMatch(); m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Path:
		out.Path = m.GetPath()
	case *routev3.RouteMatch_Prefix:
		out.Path, out.Prefix = m.GetPrefix(), true
	default:
		return out, false
	}
	for _, h := range r.GetMatch().GetHeaders() {
		if h.GetName() != ":method" || h.GetStringMatch().GetExact() == "" || h.GetInvertMatch() || out.Method != "" {
			return out, false
		}
		out.Method = h.GetStringMatch().GetExact()
	}
	switch a := r.GetAction().(type) {
	case *routev3.Route_DirectResponse:
		out.Status = int(a.DirectResponse.GetStatus())
		return out, a.DirectResponse.GetBody() == nil
	case *routev3.Route_Route:
		for _, c := range t.boot.GetStaticResources().GetClusters() {
			if c.GetName() != a.Route.GetCluster() || c.GetTransportSocket() != nil {
				continue
			}
			for _, l := range c.GetLoadAssignment().GetEndpoints() {
				for _, e := range l.GetLbEndpoints() {
					s := e.GetEndpoint().GetAddress().GetSocketAddress()
					if ip, err := parseIP(s.GetAddress()); err == nil {
						out.Target = netip.AddrPortFrom(ip, uint16(s.GetPortValue()))
						return out, true
					}
				}
			}
		}
	}
	return out, false
}
