package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
)

// Endpoints come by the ten thousand, many times an hour, and nearly all of them say no more than an IP
// address, a port, a weight and a health status. Walking over each by reflection takes far longer than
// everything else that happens to them, so what is plain is known by its fields.

// withoutPlain returns an assignment that has only what the walks have to look at.
func withoutPlain(m *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	rest := &endpointv3.ClusterLoadAssignment{ClusterName: m.GetClusterName(), NamedEndpoints: m.GetNamedEndpoints(), Policy: m.GetPolicy()}
	rest.ProtoReflect().SetUnknown(m.ProtoReflect().GetUnknown())
	for _, l := range m.GetEndpoints() {
		left := make([]*endpointv3.LbEndpoint, 0)
		for _, e := range l.GetLbEndpoints() {
			if !plainEndpoint(e) {
				left = append(left, e)
			}
		}
		if len(left) == len(l.GetLbEndpoints()) {
			rest.Endpoints = append(rest.Endpoints, l)
			continue
		}
		some := &endpointv3.LocalityLbEndpoints{
			Locality: l.GetLocality(), Metadata: l.GetMetadata(), LbEndpoints: left, LoadBalancingWeight: l.GetLoadBalancingWeight(),
			Priority: l.GetPriority(), Proximity: l.GetProximity(), LbConfig: l.GetLbConfig(),
		}
		some.ProtoReflect().SetUnknown(l.ProtoReflect().GetUnknown())
		rest.Endpoints = append(rest.Endpoints, some)
	}
	return rest
}

// plainEndpoint reports whether nothing in an endpoint could be refused or warned of.
func plainEndpoint(e *endpointv3.LbEndpoint) bool {
	ep := e.GetEndpoint()
	s := ep.GetAddress().GetSocketAddress()
	if s == nil || e.GetMetadata() != nil || ep.GetHealthCheckConfig() != nil || ep.GetAdditionalAddresses() != nil {
		return false
	}
	if w := e.GetLoadBalancingWeight(); w != nil && (w.GetValue() == 0 || unknownIn(w)) {
		return false
	}
	if _, ok := corev3.HealthStatus_name[int32(e.GetHealthStatus())]; !ok {
		return false
	}
	port, numbered := s.GetPortSpecifier().(*corev3.SocketAddress_PortValue)
	if !numbered || port.PortValue == 0 || port.PortValue > 65535 || s.GetResolverName() != "" || s.GetIpv4Compat() || s.GetNetworkNamespaceFilepath() != "" ||
		s.GetProtocol() != corev3.SocketAddress_TCP && s.GetProtocol() != corev3.SocketAddress_UDP {
		return false
	}
	return !unknownIn(e) && !unknownIn(ep) && !unknownIn(ep.GetAddress()) && !unknownIn(s)
}

func unknownIn(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }
