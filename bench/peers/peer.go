package peers

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Ports are where a proxy listens and where it sends to. All are on 127.0.0.1.
type Ports struct {
	Bulk, Echo, UDP                      uint16 // of the proxy
	BulkBackend, EchoBackend, UDPBackend uint16
}

// Peer is a proxy that can take part.
type Peer struct {
	Name string
	// program and its arguments, after configure has written its files into dir.
	program   string
	configure func(dir string, p Ports) (args []string, err error)
	version   []string // arguments that print one
	// skipUDP is why it takes no part in UDP, "" if it does.
	skipUDP string
}

// Peers returns those that can be found, and for each other one why it takes no part.
func Peers(guideway, envoy string) (found []Peer, missing []string) {
	candidates := []Peer{
		{Name: "guideway", program: guideway, configure: guidewayFiles, version: []string{"version"}},
		{Name: "haproxy", program: "haproxy", configure: haproxyFiles, version: []string{"-v"}, skipUDP: "HAProxy does not forward UDP"},
		{Name: "nginx", program: "nginx", configure: nginxFiles, version: []string{"-v"}},
		{Name: "envoy", program: envoy, configure: envoyFiles, version: []string{"--version"}},
	}
	for _, c := range candidates {
		path, err := exec.LookPath(c.program)
		if err != nil && c.Name == "nginx" {
			path, err = exec.LookPath("/usr/sbin/nginx")
		}
		if err != nil && c.Name == "haproxy" {
			path, err = exec.LookPath("/usr/sbin/haproxy")
		}
		if c.program == "" || err != nil {
			missing = append(missing, fmt.Sprintf("%s is not installed", c.Name))
			continue
		}
		c.program = path
		if c.Name == "nginx" && streamModule() == "" && !hasStream(path) {
			missing = append(missing, "nginx has no stream module (Debian: libnginx-mod-stream)")
			continue
		}
		found = append(found, c)
	}
	return found, missing
}

// Version is the first line the program prints about itself.
func (p Peer) Version() string {
	out, err := exec.Command(p.program, p.version...).CombinedOutput()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return strings.TrimSpace(line)
}

func address(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

// bootstrap is the same file for Envoy and Guideway.
func bootstrap(dir string, p Ports) (string, error) {
	tcp := func(name string, port uint16) string {
		return fmt.Sprintf(`  - name: %s
    address: { socket_address: { address: 127.0.0.1, port_value: %d } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: %s
          cluster: %s
`, name, port, name, name)
	}
	cluster := func(name string, port uint16) string {
		return fmt.Sprintf(`  - name: %s
    type: STATIC
    connect_timeout: 5s
    circuit_breakers: { thresholds: [ { max_connections: 100000, max_pending_requests: 100000 } ] }
    load_assignment:
      cluster_name: %s
      endpoints: [ { lb_endpoints: [ { endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: %d } } } } ] } ]
`, name, name, port)
	}
	text := "static_resources:\n  listeners:\n" + tcp("bulk", p.Bulk) + tcp("echo", p.Echo) + fmt.Sprintf(`  - name: udp
    address: { socket_address: { protocol: UDP, address: 127.0.0.1, port_value: %d } }
    listener_filters:
    - name: envoy.filters.udp_listener.udp_proxy
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig
        stat_prefix: udp
        matcher:
          on_no_match:
            action:
              name: route
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route
                cluster: udp
  clusters:
`, p.UDP) + cluster("bulk", p.BulkBackend) + cluster("echo", p.EchoBackend) + cluster("udp", p.UDPBackend)
	path := filepath.Join(dir, "envoy.yaml")
	return path, os.WriteFile(path, []byte(text), 0o644)
}

func guidewayFiles(dir string, p Ports) ([]string, error) {
	path, err := bootstrap(dir, p)
	return []string{"run", "-c", path, "--concurrency", "1", "-l", "error"}, err
}

func envoyFiles(dir string, p Ports) ([]string, error) {
	path, err := bootstrap(dir, p)
	return []string{"-c", path, "--concurrency", "1", "--disable-hot-restart", "-l", "error"}, err
}

func haproxyFiles(dir string, p Ports) ([]string, error) {
	path := filepath.Join(dir, "haproxy.cfg")
	text := fmt.Sprintf(`global
  maxconn 9900
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen bulk
  bind 127.0.0.1:%d
  server s 127.0.0.1:%d
listen echo
  bind 127.0.0.1:%d
  server s 127.0.0.1:%d
`, p.Bulk, p.BulkBackend, p.Echo, p.EchoBackend)
	return []string{"-db", "-f", path}, os.WriteFile(path, []byte(text), 0o644)
}

// streamModule is where Debian puts nginx's stream module, "" if it is not there.
func streamModule() string {
	for _, path := range []string{"/usr/lib/nginx/modules/ngx_stream_module.so", "/usr/lib64/nginx/modules/ngx_stream_module.so"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

func hasStream(program string) bool {
	out, err := exec.Command(program, "-V").CombinedOutput()
	return err == nil && strings.Contains(string(out), "--with-stream") && !strings.Contains(string(out), "--with-stream=dynamic")
}

func nginxFiles(dir string, p Ports) ([]string, error) {
	load := ""
	if m := streamModule(); m != "" {
		load = "load_module " + m + ";\n"
	}
	path := filepath.Join(dir, "nginx.conf")
	text := load + fmt.Sprintf(`worker_processes 1;
daemon off;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log error;
worker_rlimit_nofile 19900;
events { worker_connections 19800; }
stream {
  proxy_timeout 1h;
  server { listen 127.0.0.1:%[2]d backlog=4096; proxy_pass 127.0.0.1:%[3]d; }
  server { listen 127.0.0.1:%[4]d backlog=4096; proxy_pass 127.0.0.1:%[5]d; }
  server { listen 127.0.0.1:%[6]d udp; proxy_pass 127.0.0.1:%[7]d; proxy_timeout 60s; }
}
`, dir, p.Bulk, p.BulkBackend, p.Echo, p.EchoBackend, p.UDP, p.UDPBackend)
	return []string{"-p", dir, "-c", path}, os.WriteFile(path, []byte(text), 0o644)
}
