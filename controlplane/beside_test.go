package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
)

// findEnvoy returns a real Envoy, or skips the test.
func findEnvoy(t *testing.T) string {
	for _, path := range []string{os.Getenv("GUIDEWAY_ENVOY"), "envoy", "../.venv/bin/envoy"} {
		if path == "" {
			continue
		}
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	t.Skip("no Envoy to compare with: set GUIDEWAY_ENVOY, or put envoy in PATH or .venv/bin")
	return ""
}

// TestBesideEnvoy lets one server drive a real Envoy and an instance through a random history: after each
// step both have the same clusters and hosts, and clients get the same backends.
func TestBesideEnvoy(t *testing.T) {
	exe := findEnvoy(t)
	for _, way := range ways[:2] {
		t.Run(way.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			beside(t, exe, way, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

// membership is what an instance says of its clusters: for each its hosts with weight and health.
type membership map[string][]string

func beside(t *testing.T, exe string, way wayOf, r *rand.Rand) {
	var backends []uint32
	for n := range 6 {
		backends = append(backends, letter(t, string(rune('A'+n))))
	}
	ours, theirs, admin := freePort(t), freePort(t), freePort(t)
	m := newManaged(t, true)
	history := &history{T: t, way: way, r: r, backends: backends}
	publish := func(step int) {
		clusters, endpoints, target := history.next()
		v := fmt.Sprint(step + 1)
		for node, port := range map[string]uint32{"n": ours, besideID: theirs} {
			l := tcpListener(t, "l", port, target, "t").(*listenerv3.Listener)
			proto.Merge(l, resource(t, &listenerv3.Listener{}, `{"stat_prefix": "s"}`))
			hashed(t, l)
			m.publishTo(node, [3]string{v, v, v}, clusters, endpoints, []proto.Message{l})
		}
	}
	publish(0)
	startEnvoy(t, exe, strings.Replace(way.bootstrap(m.port), "{id: n1, cluster: c1}", fmt.Sprintf("{id: %s, cluster: c1}", besideID), 1), admin)
	i := start(t, way.bootstrap(m.port))
	const steps = 15
	for step := range steps {
		if step > 0 {
			publish(step)
		}
		var want, got membership
		until(t, fmt.Sprintf("step %d: equal membership", step), func() bool {
			want, got = envoyMembership(admin), i.membership()
			return want != nil && len(want) == history.size+1 && fmt.Sprint(want) == fmt.Sprint(got) && history.inForce(got)
		})
		var picks [2][]string
		until(t, fmt.Sprintf("step %d: equal picks", step), func() bool {
			picks = [2][]string{}
			for n, port := range []uint32{theirs, ours} {
				for client := range 20 {
					picks[n] = append(picks[n], getsFrom(fmt.Sprintf("127.7.%d.%d", client, 3*client+1), port))
				}
			}
			return slices.Equal(picks[0], picks[1])
		})
	}
}

// hashed adds a hash policy to the listener's tcp_proxy.
func hashed(t *testing.T, l *listenerv3.Listener) {
	config := l.FilterChains[0].Filters[0].GetTypedConfig()
	proxy, err := config.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	extra := resource(t, proto.Clone(proxy), `{"stat_prefix": "t", "cluster": "x", "hash_policy": [{"source_ip": {}}]}`)
	cluster := proxy.ProtoReflect().Descriptor().Fields().ByName("cluster")
	extra.ProtoReflect().Set(cluster, proxy.ProtoReflect().Get(cluster))
	if err := config.MarshalFrom(extra); err != nil {
		t.Fatal(err)
	}
}

// history makes one state after the other.
type history struct {
	*testing.T
	way      wayOf
	r        *rand.Rand
	backends []uint32
	size     int
	hosts    map[string]int
}

// next returns clusters, their endpoints and the cluster that gets the traffic.
func (h *history) next() (clusters, endpoints []proto.Message, target string) {
	h.hosts = map[string]int{}
	for _, name := range []string{"one", "two", "three"} {
		if name != "one" && h.r.IntN(3) == 0 {
			continue
		}
		clusters = append(clusters, h.way.cluster(h, name, []int{1009, 5003}[h.r.IntN(2)]))
		a := &endpointv3.ClusterLoadAssignment{ClusterName: name}
		for _, n := range h.r.Perm(len(h.backends))[:1+h.r.IntN(len(h.backends))] {
			state := []string{"HEALTHY", "HEALTHY", "HEALTHY", "UNHEALTHY", "DEGRADED"}[h.r.IntN(5)]
			l := resource(h, &endpointv3.LocalityLbEndpoints{}, `{"lb_endpoints": [{"health_status": %q, "load_balancing_weight": %d,
				"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}}}]}`, state, 1+h.r.IntN(3), h.backends[n])
			a.Endpoints = append(a.Endpoints, l)
		}
		h.hosts[name] = len(a.Endpoints)
		endpoints = append(endpoints, a)
	}
	h.size = len(clusters)
	return clusters, endpoints, nameOf(clusters[h.r.IntN(len(clusters))])
}

// inForce reports whether the numbers of hosts are those of the last state.
func (h *history) inForce(m membership) bool {
	for name, n := range h.hosts {
		if len(m[name]) != n {
			return false
		}
	}
	return true
}

func (i *instance) membership() membership {
	m := membership{}
	for _, c := range i.control.State().Clusters {
		list := []string{}
		for _, h := range c.Active.Hosts {
			health := "HEALTHY"
			switch {
			case h.Health.Degraded():
				health = "DEGRADED"
			case !h.Health.Healthy():
				health = "UNHEALTHY"
			}
			list = append(list, fmt.Sprintf("%v weight %d %s", h.Address, h.Weight, health))
		}
		slices.Sort(list)
		m[c.Desired.Settings.Name] = list
	}
	return m
}

// envoyMembership asks a real Envoy; nil if it does not answer.
func envoyMembership(admin uint32) membership {
	r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/clusters?format=json", admin))
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	var answer struct {
		Clusters []struct {
			Name  string `json:"name"`
			Hosts []struct {
				Address struct {
					Socket struct {
						Address string `json:"address"`
						Port    uint32 `json:"port_value"`
					} `json:"socket_address"`
				} `json:"address"`
				Health struct {
					EDS string `json:"eds_health_status"`
				} `json:"health_status"`
				Weight uint32 `json:"weight"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	text, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(text, &answer) != nil {
		return nil
	}
	m := membership{}
	for _, c := range answer.Clusters {
		list := []string{}
		for _, h := range c.Hosts {
			list = append(list, fmt.Sprintf("%s:%d weight %d %s", h.Address.Socket.Address, h.Address.Socket.Port, h.Weight, h.Health.EDS))
		}
		slices.Sort(list)
		m[c.Name] = list
	}
	return m
}

// startEnvoy runs a real Envoy until the test ends.
func startEnvoy(t *testing.T, exe, bootstrap string, admin uint32) {
	dir := t.TempDir()
	path := filepath.Join(dir, "envoy.yaml")
	text := bootstrap + fmt.Sprintf("admin: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}\n", admin)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, exe, "-c", path, "--disable-hot-restart", "--concurrency", "1", "-l", "warning")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was interrupted
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("Envoy's log:\n%s", b)
		}
		log.Close()
	})
}

// getsFrom is gets for a client of another address.
func getsFrom(client string, port uint32) string {
	d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	c, err := d.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return "refused"
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	b := make([]byte, 1)
	n, _ := c.Read(b)
	return string(b[:n])
}
