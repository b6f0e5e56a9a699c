package envoy

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"github.com/guideway/guideway/controlplane/model"
)

func endpointAt(address string, port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
		Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}},
	}}}}
}

func manyEndpoints(n int) *endpointv3.ClusterLoadAssignment {
	l := &endpointv3.LocalityLbEndpoints{}
	for i := range n {
		l.LbEndpoints = append(l.LbEndpoints, endpointAt(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), 80))
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: "c", Endpoints: []*endpointv3.LocalityLbEndpoints{l}}
}

var emptyEnv = Env{Config: &model.Config{Source: &bootstrapv3.Bootstrap{}}}

// TestPlainEndpointsAreChecked puts an endpoint that is wrong among plain ones: it is found, with its place.
func TestPlainEndpointsAreChecked(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*endpointv3.LbEndpoint)
		want  string
	}{
		{"no address", func(e *endpointv3.LbEndpoint) { *e = endpointv3.LbEndpoint{} }, ""},
		{"host name", func(e *endpointv3.LbEndpoint) { e.GetEndpoint().Address.GetSocketAddress().Address = "host.example" }, "endpoints[0].lb_endpoints[3].endpoint.address"},
		{"no weight", func(e *endpointv3.LbEndpoint) { e.LoadBalancingWeight = wrapperspb.UInt32(0) }, "endpoints[0].lb_endpoints[3].load_balancing_weight"},
		{"large port", func(e *endpointv3.LbEndpoint) {
			e.GetEndpoint().Address.GetSocketAddress().PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: 70000}
		}, "endpoints[0].lb_endpoints[3].endpoint.address.socket_address.port_value"},
		{"no port", func(e *endpointv3.LbEndpoint) { e.GetEndpoint().Address.GetSocketAddress().PortSpecifier = nil }, "endpoints[0].lb_endpoints[3].endpoint.address.socket_address.port_specifier"},
		{"resolver", func(e *endpointv3.LbEndpoint) { e.GetEndpoint().Address.GetSocketAddress().ResolverName = "x" }, "endpoints[0].lb_endpoints[3].endpoint.address.socket_address.resolver_name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := manyEndpoints(5)
			test.spoil(m.Endpoints[0].LbEndpoints[3])
			_, _, err := emptyEnv.TranslateAssignment(m)
			invalid, ok := err.(*Invalid)
			if !ok {
				t.Fatalf("not refused: %v", err)
			}
			if test.want != "" && invalid.Problems[0].Path != test.want {
				t.Errorf("refused at %s, want %s", invalid.Problems[0].Path, test.want)
			}
		})
	}
}

func BenchmarkTranslateAssignment(b *testing.B) {
	m := manyEndpoints(10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := emptyEnv.TranslateAssignment(m); err != nil {
			b.Fatal(err)
		}
	}
}
