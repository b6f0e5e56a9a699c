package controlplane_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane"
)

// authority makes certificates.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue makes a certificate with a DNS name.
func (a *authority) issue(name string) (certPEM, keyPEM []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.Fatal(err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b})
}

// serverOption makes a server that wants clients of this authority.
func (a *authority) serverOption(name string) grpc.ServerOption {
	c, k := a.issue(name)
	pair, err := tls.X509KeyPair(c, k)
	if err != nil {
		a.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}))
}

// gatewayFiles writes certificates and the secrets that name them, as Envoy Gateway mounts them.
func gatewayFiles(t *testing.T, a *authority, dir string) {
	c, k := a.issue("envoy")
	for name, content := range map[string][]byte{
		"ca.crt": a.pem, "tls.crt": c, "tls.key": k,
		"xds-certificate.json": fmt.Appendf(nil, `{"resources": [{"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "xds_certificate",
			"tls_certificate": {"certificate_chain": {"filename": "%[1]s/tls.crt"}, "private_key": {"filename": "%[1]s/tls.key"}}}]}`, dir),
		"xds-trusted-ca.json": fmt.Appendf(nil, `{"resources": [{"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "xds_trusted_ca",
			"validation_context": {"trusted_ca": {"filename": "%s/ca.crt"}, "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "envoy-gateway"}}]}}]}`, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// gatewayBootstrap is what Envoy Gateway gives its proxies, but for ports and paths.
func gatewayBootstrap(api, dir string, server, stats, admin uint32) string {
	return fmt.Sprintf(`
cluster_manager: {local_cluster_name: local_cluster}
node: {id: pod, cluster: default/gw, locality: {zone: z}}
deferredStatOptions: {enableDeferredCreationStats: true}
dynamic_resources:
  ads_config:
    api_type: %[1]s
    transport_api_version: V3
    grpc_services: [{envoy_grpc: {cluster_name: xds_cluster}}]
    set_node_on_first_message_only: true
  lds_config: {ads: {}, initial_fetch_timeout: 0s, resource_api_version: V3}
  cds_config: {ads: {}, initial_fetch_timeout: 0s, resource_api_version: V3}
static_resources:
  listeners:
  - name: envoy-gateway-proxy-stats
    address: {socket_address: {address: '127.0.0.1', port_value: %[4]d, protocol: TCP}}
    bypass_overload_manager: true
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: eg-stats-http
          normalize_path: true
          route_config:
            name: local_route
            virtual_hosts:
            - name: prometheus_stats
              domains: ["*"]
              routes:
              - match: {path: /stats/prometheus, headers: [{name: ":method", string_match: {exact: GET}}]}
                route: {cluster: prometheus_stats}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: prometheus_stats
    connect_timeout: 0.250s
    type: STATIC
    lb_policy: ROUND_ROBIN
    load_assignment: {cluster_name: prometheus_stats, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %[5]d}}}}]}]}
  - connect_timeout: 10s
    load_assignment: {cluster_name: xds_cluster, endpoints: [{load_balancing_weight: 1, lb_endpoints: [{load_balancing_weight: 1, endpoint: {address: {socket_address: {address: localhost, port_value: %[3]d}}}}]}]}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        explicit_http_config: {http2_protocol_options: {connection_keepalive: {interval: 30s, timeout: 5s}}}
    name: xds_cluster
    type: STRICT_DNS
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          tls_params: {tls_maximum_protocol_version: TLSv1_3}
          tls_certificate_sds_secret_configs:
          - {name: xds_certificate, sds_config: {path_config_source: {path: %[2]s/xds-certificate.json}, resource_api_version: V3}}
          validation_context_sds_secret_config: {name: xds_trusted_ca, sds_config: {path_config_source: {path: %[2]s/xds-trusted-ca.json}, resource_api_version: V3}}
`, api, dir, server, stats, admin)
}

// gatewayResources are the forms in which Envoy Gateway describes a TCPRoute and a UDPRoute, with its
// readiness listener.
func gatewayResources(t testing.TB, tcp, udp, ready, backend uint32) (clusters, endpoints, listeners []proto.Message) {
	log := func(filter string) string {
		return fmt.Sprintf(`"access_log": [{"name": "envoy.access_loggers.file", %s "typed_config": {"@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
			"path": "/dev/null", "log_format": {"json_format": {"start_time": "%%START_TIME%%", "bytes_received": "%%BYTES_RECEIVED%%", "upstream_host": "%%UPSTREAM_HOST%%",
			"response_flags": "%%RESPONSE_FLAGS%%", "requested_server_name": "%%REQUESTED_SERVER_NAME%%"}}}}]`, filter)
	}
	onlyNR := `"filter": {"response_flag_filter": {"flags": ["NR"]}},`
	name := func(kind string) string { return kind + "/default/app/rule/-1" }
	cluster := func(kind, policy string, breakers string) proto.Message {
		return resource(t, &clusterv3.Cluster{}, `{"name": %q, "type": "EDS", "connect_timeout": "10s", "per_connection_buffer_limit_bytes": 32768,
			"dns_lookup_family": "V4_PREFERRED", "ignore_health_on_host_removal": true, %s "common_lb_config": {},
			"metadata": {"filter_metadata": {"envoy-gateway": {"resources": [{"kind": "TCPRoute", "name": "app", "namespace": "default"}]}, "other": {"a": 1, "b": 2, "c": 3}}},
			"eds_cluster_config": {"service_name": %q, "eds_config": {"ads": {}, "resource_api_version": "V3"}},
			"load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "p", "typed_config": %s}}]}}`, name(kind), breakers, name(kind), policy)
	}
	clusters = []proto.Message{
		cluster("tcproute", `{"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.maglev.v3.Maglev", "table_size": "65537"}`,
			`"circuit_breakers": {"thresholds": [{"max_retries": 1024}]},`),
		cluster("udproute", `{"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest"}`, ""),
	}
	for _, kind := range []string{"tcproute", "udproute"} {
		endpoints = append(endpoints, resource(t, &endpointv3.ClusterLoadAssignment{}, `{"cluster_name": %q, "endpoints": [{"load_balancing_weight": 1,
			"locality": {"region": "%s/backend/0"}, "metadata": {"filter_metadata": {"envoy-gateway": {"resources": [{"kind": "Service", "name": "app"}]}}},
			"lb_endpoints": [{"load_balancing_weight": 1, "endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}}}]}]}`, name(kind), name(kind), backend))
	}
	listeners = []proto.Message{
		resource(t, &listenerv3.Listener{}, `{"name": "default/gw/tcp", "address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}, "per_connection_buffer_limit_bytes": 32768, %s,
			"metadata": {"filter_metadata": {"envoy-gateway": {"resources": [{"kind": "Gateway", "name": "gw", "namespace": "default", "sectionName": "tcp"}]}}},
			"filter_chains": [{"name": "tcproute/default/app", "filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": {
			"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "tcp-%d", "cluster": %q, "hash_policy": [{"source_ip": {}}], %s}}]}]}`,
			tcp, log(onlyNR), tcp, name("tcproute"), log("")),
		resource(t, &listenerv3.Listener{}, `{"name": "default/gw/udp", "address": {"socket_address": {"protocol": "UDP", "address": "127.0.0.1", "port_value": %d}}, %s,
			"listener_filters": [{"name": "envoy.filters.udp_listener.udp_proxy", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig",
			"stat_prefix": "service", %s, "matcher": {"on_no_match": {"action": {"name": "route", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route", "cluster": %q}}}}}}]}`,
			udp, log(onlyNR), log(""), name("udproute")),
		resource(t, &listenerv3.Listener{}, `{"name": "envoy-gateway-proxy-ready-0.0.0.0-19003", "address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}},
			"filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": {
			"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "eg-ready-http",
			"route_config": {"name": "ready_route", "virtual_hosts": [{"name": "ready_route", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 500}}]}]},
			"http_filters": [{"name": "envoy.filters.http.health_check", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck",
			"pass_through_mode": false, "headers": [{"name": ":path", "string_match": {"exact": "/ready"}}]}},
			{"name": "envoy.filters.http.router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}`, ready),
	}
	return clusters, endpoints, listeners
}

// TestEnvoyGateway serves what Envoy Gateway serves, over mutual TLS: all comes into force, nothing is
// refused, and what is sent again changes nothing.
func TestEnvoyGateway(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			dir := t.TempDir()
			gatewayFiles(t, a, dir)
			backend, tcp, udp, ready, stats := letter(t, "A"), freePort(t), freePort(t), freePort(t), freePort(t)
			metrics := metricsServer(t)
			m := newManaged(t, true, a.serverOption("envoy-gateway"))
			c, e, l := gatewayResources(t, tcp, udp, ready, backend)
			m.publish("1", c, e, l)
			i := start(t, gatewayBootstrap(api, dir, m.port, stats, metrics))
			until(t, "live", func() bool { return i.control.State().Phase == controlplane.Live })
			until(t, "traffic", func() bool { return gets(tcp) == "A" })
			for path, want := range map[string]int{"/ready": 200, "/": 500} {
				if got := status(t, ready, path); got != want {
					t.Errorf("%s answers %d, want %d", path, got, want)
				}
			}
			if got := status(t, stats, "/stats/prometheus"); got != 200 {
				t.Errorf("metrics answer %d", got)
			}
			if got := status(t, stats, "/other"); got != 404 {
				t.Errorf("another path of the metrics listener answers %d", got)
			}
			i.control.FailHealthCheck(true)
			until(t, "503 while draining", func() bool { return status(t, ready, "/ready") == 503 })
			i.control.FailHealthCheck(false)
			until(t, "200 again", func() bool { return status(t, ready, "/ready") == 200 })

			for n := range 5 { // maps are encoded in a random order each time
				c, e, l := gatewayResources(t, tcp, udp, ready, backend)
				m.publish(fmt.Sprint(n+2), c, e, l)
			}
			if api == "GRPC" {
				until(t, "the last version", func() bool { return i.control.State().ListenersVersion == "6" })
			}
			for _, name := range []string{
				"listener_manager.listener_modified", "listener_manager.listener_in_place_updated", "listener_manager.total_listeners_draining",
				"cluster_manager.cluster_modified", "cluster_manager.cds.update_rejected", "listener_manager.lds.update_rejected",
			} {
				if got := i.stat(name); got != 0 {
					t.Errorf("%s is %d", name, got)
				}
			}
			for _, x := range m.taken() {
				if x.Error != "" {
					t.Errorf("refused: %s", x.Error)
				}
			}
			if s := i.control.State(); len(s.Listeners) != 2 || len(s.HTTP) != 2 || s.Phase != controlplane.Live {
				t.Errorf("%d listeners, %d HTTP listeners, %v", len(s.Listeners), len(s.HTTP), s.Phase)
			}
		})
	}
}

// TestServerNameIsVerified has a server whose certificate is another's: nothing comes from it.
func TestServerNameIsVerified(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	dir := t.TempDir()
	gatewayFiles(t, a, dir)
	m := newManaged(t, true, a.serverOption("somebody-else"))
	i := start(t, gatewayBootstrap("GRPC", dir, m.port, freePort(t), freePort(t)))
	until(t, "failures", func() bool { return i.stat("cluster_manager.cds.update_failure") > 1 })
	if n := i.stat("cluster_manager.cds.update_success"); n != 0 {
		t.Errorf("%d answers were taken from a server of another name", n)
	}
	if len(m.taken()) != 0 {
		t.Error("requests went to a server of another name")
	}
}

func metricsServer(t *testing.T) uint32 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.URL.Path) })}
	go func() { _ = s.Serve(l) }() // ends with Close
	t.Cleanup(func() { s.Close() })
	return uint32(l.Addr().(*net.TCPAddr).Port)
}

func status(t *testing.T, port uint32, path string) int {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	r, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode
}
