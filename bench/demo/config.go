package demo

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// configText is the demo's Envoy configuration. drained is the index of the draining backend, -1 for none.
func configText(admin, tcp, udp netip.AddrPort, backends []netip.AddrPort, drained int) string {
	var endpoints strings.Builder
	for i, b := range backends {
		fmt.Fprintf(&endpoints, "        - endpoint: { address: { socket_address: { address: %s, port_value: %d } } }\n", b.Addr(), b.Port())
		if i == drained {
			endpoints.WriteString("          health_status: DRAINING\n")
		}
	}
	cluster := func(name string) string {
		return fmt.Sprintf(`  - name: %s
    type: STATIC
    connect_timeout: 1s
    lb_policy: MAGLEV
    circuit_breakers: { thresholds: [ { max_connections: 10000 } ] }
    load_assignment:
      cluster_name: %s
      endpoints:
      - lb_endpoints:
%s`, name, name, endpoints.String())
	}
	return fmt.Sprintf(`# Written by "guideway demo". Change it while it runs: a valid change takes effect at once.
admin:
  address: { socket_address: { address: %s, port_value: %d } }
static_resources:
  listeners:
  - name: web
    address: { socket_address: { address: %s, port_value: %d } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: web
          cluster: web
  - name: game
    address: { socket_address: { protocol: UDP, address: %s, port_value: %d } }
    listener_filters:
    - name: envoy.filters.udp_listener.udp_proxy
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig
        stat_prefix: game
        matcher:
          on_no_match:
            action:
              name: route
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route
                cluster: game
  clusters:
%s%s`, admin.Addr(), admin.Port(), tcp.Addr(), tcp.Port(), udp.Addr(), udp.Port(), cluster("web"), cluster("game"))
}

// replaceFile writes text to path so that readers see the old or the new content, never a part.
func replaceFile(path, text string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(text)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}
