package envoy

import (
	"fmt"
	"math"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"google.golang.org/protobuf/types/known/structpb"
)

// defaultOverprovisioning is Envoy's default of overprovisioning_factor, in percent.
const defaultOverprovisioning = 140

// assignment translates the endpoints of a cluster.
func (t *translator) assignment(a *endpointv3.ClusterLoadAssignment, by model.Discovery, at cursor) model.Assignment {
	out := model.Assignment{
		ClusterName:            a.GetClusterName(),
		OverprovisioningFactor: defaultOverprovisioning,
		WeightedPriorityHealth: a.GetPolicy().GetWeightedPriorityHealth(),
		StaleAfter:             duration(a.GetPolicy().GetEndpointStaleAfter(), 0),
	}
	if f := a.GetPolicy().GetOverprovisioningFactor(); f != nil {
		out.OverprovisioningFactor = f.GetValue()
	}
	weights := map[uint32]uint64{}
	for i, l := range a.GetEndpoints() {
		where := at.field("endpoints").at(i)
		m := model.LocalityEndpoints{
			Locality:    locality(l.GetLocality()),
			HasLocality: l.GetLocality() != nil,
			Weight:      l.GetLoadBalancingWeight().GetValue(),
			HasWeight:   l.GetLoadBalancingWeight() != nil,
			Priority:    l.GetPriority(),
		}
		if m.HasLocality {
			if weights[m.Priority] += uint64(m.Weight); weights[m.Priority] > math.MaxUint32 {
				where.field("load_balancing_weight").failAs("The sum of weights of all localities at the same priority exceeds 4294967295",
					"the weights of the localities of priority %d add up to more than 4294967295", m.Priority)
			}
		}
		var sum uint64
		m.Endpoints = make([]model.Endpoint, 0, len(l.GetLbEndpoints()))
		for j, e := range l.GetLbEndpoints() {
			here := where.field("lb_endpoints").at(j)
			ep, ok := t.endpoint(e, by, here)
			if !ok {
				continue
			}
			if sum += uint64(ep.Weight); sum > math.MaxUint32 {
				here.field("load_balancing_weight").failAs("The sum of weights of all upstream hosts in a locality exceeds 4294967295",
					"the weights of the hosts of one locality add up to more than 4294967295")
			}
			m.Endpoints = append(m.Endpoints, ep)
		}
		out.Localities = append(out.Localities, m)
	}
	return out
}

// endpoint translates one endpoint.
func (t *translator) endpoint(e *endpointv3.LbEndpoint, by model.Discovery, at cursor) (out model.Endpoint, ok bool) {
	ep, where := e.GetEndpoint(), at.field("endpoint")
	if ep == nil {
		if e.GetEndpointName() == "" {
			where.fail("an endpoint needs an address")
		}
		return out, false
	}
	if ep.GetAddress() == nil {
		where.field("address").fail("an endpoint needs an address")
		return out, false
	}
	s, socket := where.field("address").socketAddress(ep.GetAddress())
	if s == nil {
		return out, false
	}
	if s.GetNamedPort() != "" {
		socket.field("named_port").fail("named ports need a resolver, which Guideway does not have; use port_value")
		return out, false
	}
	resolved := by == model.StrictDNS || by == model.LogicalDNS
	addr, err := parseIP(s.GetAddress())
	switch {
	case err == nil:
		out.Address = netip.AddrPortFrom(addr, uint16(s.GetPortValue()))
	case resolved:
		out.Host, out.Port = s.GetAddress(), uint16(s.GetPortValue())
	default:
		where.field("address").failAs(
			fmt.Sprintf("malformed IP address: %s. Consider setting resolver_name or setting cluster type to 'STRICT_DNS' or 'LOGICAL_DNS'", s.GetAddress()),
			"endpoint address %q is not an IP address; use type STRICT_DNS or LOGICAL_DNS for host names", s.GetAddress())
		return out, false
	}
	if s.GetPortValue() == 0 && !resolved {
		where.field("address").warn("endpoint %s has port 0; nothing can connect to it", addr)
	}
	out.Additional = additional(ep, where)
	out.Hostname = ep.GetHostname()
	if out.Hostname == "" && resolved {
		out.Hostname = s.GetAddress()
	}
	lb := e.GetMetadata().GetFilterMetadata()["envoy.lb"]
	if v := lb.GetFields()["hash_key"]; v != nil {
		if text, isText := v.GetKind().(*structpb.Value_StringValue); isText {
			out.HashKey = text.StringValue
		} else {
			at.field("metadata").field("filter_metadata").field("envoy.lb").field("hash_key").warn("hash_key is ignored: it must be a string")
		}
	}
	out.Canary = lb.GetFields()["canary"].GetBoolValue()
	out.Forwarding = endpointForwarding(e.GetMetadata(), at)
	out.Weight = 1
	if w := e.GetLoadBalancingWeight(); w != nil {
		out.Weight = w.GetValue()
	}
	out.HealthStatus = e.GetHealthStatus().String()
	switch e.GetHealthStatus() {
	case corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_TIMEOUT:
		out.Health = dataplane.FailedEDSHealth
	case corev3.HealthStatus_DRAINING:
		out.Health = dataplane.EDSStatusDraining
	case corev3.HealthStatus_DEGRADED:
		out.Health = dataplane.DegradedEDSHealth
	}
	hc, hcAt := ep.GetHealthCheckConfig(), where.field("health_check_config")
	out.HealthCheckPort = uint16(hc.GetPortValue())
	out.HealthCheckHost = hc.GetHostname()
	out.DisableActiveHC = hc.GetDisableActiveHealthCheck()
	if hc.GetAddress() != nil {
		if s, socket := hcAt.field("address").socketAddress(hc.GetAddress()); s != nil {
			if a, ok := socket.ip(s); ok {
				out.HealthCheckAddress = a.Addr()
				if out.HealthCheckPort == 0 {
					out.HealthCheckPort = a.Port()
				}
			}
		}
	}
	return out, true
}

func additional(ep *endpointv3.Endpoint, at cursor) []netip.AddrPort {
	var out []netip.AddrPort
	for i, a := range ep.GetAdditionalAddresses() {
		if s, where := at.field("additional_addresses").at(i).field("address").socketAddress(a.GetAddress()); s != nil {
			if addr, ok := where.ip(s); ok {
				out = append(out, addr)
			}
		}
	}
	return out
}

// warnHostnames warns of hosts that hostname hashing cannot tell apart.
func warnHostnames(m *model.Cluster, at cursor) {
	if !m.LB.UseHostname {
		return
	}
	for i, l := range m.Assignment.Localities {
		for j, e := range l.Endpoints {
			if e.Hostname == "" && e.HashKey == "" {
				at.field("endpoints").at(i).field("lb_endpoints").at(j).field("endpoint").warn(
					"hosts are hashed by hostname, and endpoint %s has none: all such hosts share the empty key; set hostname", e.Address)
				return
			}
		}
	}
}
