package main_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// The tests in this file start a real Envoy and Guideway on the same configuration, each in a network
// namespace of its own with the same backends, and compare what they do.

// newSeed returns the seed of a test: a new one each run, or GUIDEWAY_TEST_SEED. It is printed.
func newSeed(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("GUIDEWAY_TEST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("GUIDEWAY_TEST_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("seed %d (GUIDEWAY_TEST_SEED=%d repeats this run)", seed, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

const (
	oraclePort  = 18080
	oracleHosts = 24
)

// randomCluster is a cluster of loopback hosts of both families with random weights, localities,
// priorities and health, as kind says.
func randomCluster(r *rand.Rand, name string, policy testbed.Message, kind string) testbed.Message {
	host := func(i int) testbed.Message {
		ip := fmt.Sprintf("127.%d.%d.%d", 1+r.IntN(200), r.IntN(256), 1+i)
		if r.IntN(3) == 0 {
			ip = fmt.Sprintf("fd00:%x::%x", r.IntN(1<<16), i+1)
		}
		m := testbed.Message{"endpoint": testbed.Message{"address": testbed.SocketAddress(ip, oraclePort)}}
		switch kind {
		case "skewed":
			m["load_balancing_weight"] = 1 + r.IntN(1<<r.IntN(10))
		case "localities":
			m["load_balancing_weight"] = 1 + r.IntN(5)
		case "priorities":
			m["load_balancing_weight"] = 1 + r.IntN(3)
			m["health_status"] = []string{"HEALTHY", "HEALTHY", "UNKNOWN", "UNHEALTHY", "DEGRADED", "DRAINING", "TIMEOUT"}[r.IntN(7)]
		}
		return m
	}
	groups := 1
	if kind == "localities" || kind == "priorities" {
		groups = 4
	}
	var endpoints []any
	for g := range groups {
		var hosts []any
		for i := range oracleHosts / groups {
			hosts = append(hosts, host(g*oracleHosts/groups+i))
		}
		e := testbed.Message{"lb_endpoints": hosts}
		switch kind {
		case "localities":
			e["locality"] = testbed.Message{"region": string(rune('a' + r.IntN(26))), "zone": strconv.Itoa(g)}
			if r.IntN(4) > 0 {
				e["load_balancing_weight"] = 1 + r.IntN(100)
			}
		case "priorities":
			e["priority"] = g
		}
		endpoints = append(endpoints, e)
	}
	c := testbed.Merge(testbed.Message{
		"name": name, "type": "STATIC", "connect_timeout": "2s",
		"circuit_breakers": testbed.Message{"thresholds": []any{testbed.Message{"max_connections": 10000, "max_pending_requests": 10000}}},
		"load_assignment":  testbed.Message{"cluster_name": name, "endpoints": endpoints},
	}, policy)
	if kind == "localities" {
		c = testbed.Merge(c, testbed.Message{"common_lb_config": testbed.Message{"locality_weighted_lb_config": testbed.Message{}}})
	}
	return c
}

// sources are random client addresses of both families.
func sources(r *rand.Rand, n int) []netip.Addr {
	var out []netip.Addr
	for i := range n {
		if i%2 == 0 {
			out = append(out, netip.AddrFrom4([4]byte{127, byte(r.IntN(256)), byte(r.IntN(256)), byte(1 + r.IntN(254))}))
			continue
		}
		var b [16]byte
		b[0], b[1] = 0xfd, 0x77
		for j := 2; j < 16; j++ {
			if r.IntN(3) > 0 {
				b[j] = byte(r.IntN(256))
			}
		}
		out = append(out, netip.AddrFrom16(b))
	}
	return out
}

// oraclePair starts both programs on one configuration, with backends that answer with their address.
func oraclePair(t *testing.T, config any) (pair [2]*testbed.Proxy, spaces [2]*testbed.Namespace) {
	t.Helper()
	for i, s := range []testbed.Subject{testbed.Envoy(t), testbed.Guideway(t)} {
		ns := testbed.NewNamespace(t)
		ns.MakeAllLocal(t)
		for _, any4or6 := range []string{"0.0.0.0", "::"} {
			testbed.StartBackend(t, ns, backend.Config{}, netip.AddrPortFrom(netip.MustParseAddr(any4or6), oraclePort))
		}
		pair[i], spaces[i] = s.Start(t, ns, config), ns
	}
	for _, p := range pair {
		p.Ready()
	}
	return pair, spaces
}

func TestPicksEqualEnvoys(t *testing.T) {
	r := newSeed(t)
	maglev := func(size int) testbed.Message {
		return testbed.Message{"lb_policy": "MAGLEV", "maglev_lb_config": testbed.Message{"table_size": size}}
	}
	ring := testbed.Message{"lb_policy": "RING_HASH", "ring_hash_lb_config": testbed.Message{"minimum_ring_size": 1 + r.IntN(4096)}}
	murmur := testbed.Message{"lb_policy": "RING_HASH", "ring_hash_lb_config": testbed.Message{"hash_function": "MURMUR_HASH_2"}}
	var listeners, clusters []any
	var names []string
	add := func(name string, policy testbed.Message, kind string) {
		port := 15000 + len(names)
		proxy := testbed.TCPProxy("t", name, testbed.Message{"hash_policy": []any{testbed.Message{"source_ip": testbed.Message{}}}})
		l := testbed.Listener(name, port, proxy)
		l["address"] = testbed.Message{"socket_address": testbed.Message{"address": "::", "port_value": port, "ipv4_compat": true}}
		listeners = append(listeners, l)
		clusters = append(clusters, randomCluster(r, name, policy, kind))
		names = append(names, name)
	}
	for _, kind := range []string{"equal", "skewed", "localities", "priorities"} {
		add("maglev-"+kind, maglev(65537), kind)
		add("small-"+kind, maglev(1009), kind)
		add("ring-"+kind, ring, kind)
	}
	add("murmur", murmur, "skewed")
	_, spaces := oraclePair(t, testbed.Bootstrap(listeners, clusters))

	clients := sources(r, 250)
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			picked := map[string]int{}
			for _, from := range clients {
				to := fmt.Sprintf("127.0.0.1:%d", 15000+i)
				if from.Is6() {
					to = fmt.Sprintf("[::1]:%d", 15000+i)
				}
				envoy, ours := pick(t, spaces[0], from, to), pick(t, spaces[1], from, to)
				if envoy != ours {
					t.Fatalf("client %v: Envoy picks %q, Guideway %q", from, envoy, ours)
				}
				picked[envoy]++
			}
			t.Logf("%d clients, %d hosts, all picks equal", len(clients), len(picked))
			if len(picked) < 3 {
				t.Errorf("only %v were picked: this compares nothing", picked)
			}
		})
	}
}

// pick is the backend a client gets: what it says on accept.
func pick(t *testing.T, ns *testbed.Namespace, from netip.Addr, to string) string {
	t.Helper()
	c := testbed.ConnectTo(t, ns, from, to)
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(testbed.Patience))
	b := make([]byte, 100)
	n, err := c.Read(b)
	if err != nil {
		return "nothing (" + err.Error() + ")"
	}
	return strings.TrimSpace(string(b[:n]))
}

func TestUDPPicksEqualEnvoys(t *testing.T) {
	r := newSeed(t)
	var listeners, clusters []any
	kinds := []string{"equal", "skewed", "priorities"}
	for i, kind := range kinds {
		l := testbed.UDPListener(kind, 15000+i, testbed.UDPProxy("u", kind, testbed.Message{"hash_policies": []any{testbed.Message{"source_ip": true}}}))
		l["address"] = testbed.Message{"socket_address": testbed.Message{"protocol": "UDP", "address": "::", "port_value": 15000 + i, "ipv4_compat": true}}
		listeners = append(listeners, l)
		clusters = append(clusters, randomCluster(r, kind, testbed.Message{"lb_policy": "MAGLEV"}, kind))
	}
	_, spaces := oraclePair(t, testbed.Bootstrap(listeners, clusters))
	clients := sources(r, 250)
	for i, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			for _, from := range clients {
				to := fmt.Sprintf("127.0.0.1:%d", 15000+i)
				if from.Is6() {
					to = fmt.Sprintf("[::1]:%d", 15000+i)
				}
				var got [2][]string
				for s, ns := range spaces {
					// Two datagrams of one client: one session, one host.
					c := testbed.DatagramsTo(t, ns, from, to)
					for range 2 {
						answer, ok := c.Ask("x", testbed.Patience)
						if !ok {
							t.Fatalf("client %v gets no answer from %s", from, []string{"Envoy", "Guideway"}[s])
						}
						got[s] = append(got[s], answer)
					}
					c.Close()
				}
				if !slices.Equal(got[0], got[1]) {
					t.Fatalf("client %v: Envoy picks %q, Guideway %q", from, got[0], got[1])
				}
			}
		})
	}
}

// TestVerdictsEqualEnvoys compares "--mode validate" on every configuration file of the project.
func TestVerdictsEqualEnvoys(t *testing.T) {
	var files []string
	for _, glob := range []string{"../../controlplane/envoy/testdata/configs/*.yaml", "../../controlplane/envoy/testdata/configs/invalid/*.yaml", "../../deploy/examples/*.yaml"} {
		found, err := filepath.Glob(glob)
		if err != nil || len(found) == 0 {
			t.Fatalf("no files match %s (%v)", glob, err)
		}
		files = append(files, found...)
	}
	envoy, ours := testbed.Envoy(t), testbed.Guideway(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			path, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			a := envoy.Exec(t, nil, t.TempDir(), "-c", path, "--mode", "validate")
			b := ours.Exec(t, nil, t.TempDir(), "-c", path, "--mode", "validate")
			if x, y := a.Wait(), b.Wait(); x != y {
				t.Errorf("Envoy ends with %d, Guideway with %d:\n%s", x, y, b.Stderr())
			}
		})
	}
}

// TestNamesAndShapesEqualEnvoys compares the names on /stats/prometheus and the shape of /clusters.
func TestNamesAndShapesEqualEnvoys(t *testing.T) {
	r := newSeed(t)
	l := testbed.Listener("l", 15000, testbed.TCPProxy("ingress", "web"))
	u := testbed.UDPListener("u", 15001, testbed.UDPProxy("dns", "res"))
	web := randomCluster(r, "web", testbed.Message{"lb_policy": "MAGLEV", "outlier_detection": testbed.Message{}}, "priorities")
	res := randomCluster(r, "res", testbed.Message{"lb_policy": "RING_HASH"}, "localities")
	pair, spaces := oraclePair(t, testbed.Bootstrap([]any{l, u}, []any{web, res}))
	for _, ns := range spaces {
		pick(t, ns, netip.Addr{}, "127.0.0.1:15000")
		testbed.DatagramsTo(t, ns, netip.Addr{}, "127.0.0.1:15001").Ask("x", testbed.Patience)
	}
	names := func(p *testbed.Proxy) map[string]bool {
		m := map[string]bool{}
		for _, line := range strings.Split(p.Get("/stats/prometheus").Body, "\n") {
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			name, _, _ := strings.Cut(strings.ReplaceAll(line, "} ", "}\x00"), "\x00")
			name, _, _ = strings.Cut(name, " ")
			m[strings.TrimSuffix(name, "{}")] = true
		}
		return m
	}
	ofInterest := regexp.MustCompile(`^envoy_(cluster|tcp|udp|listener|listener_manager|cluster_manager|server_(live|uptime|state|concurrency|memory|total_connections|parent_connections|version|days|hot_restart_epoch|hot_restart_generation|static_unknown|dynamic_unknown|debug|envoy_bug|initialization))`)
	var want int
	envoy, ours := names(pair[0]), names(pair[1])
	for name := range envoy {
		if !ofInterest.MatchString(name) || strings.Contains(name, "_admin_") {
			continue
		}
		want++
		if !ours[name] {
			t.Errorf("missing on /stats/prometheus: %s", name)
		}
	}
	if want < 300 {
		t.Errorf("Envoy shows only %d names: this compares nothing", want)
	}

	shapeOf := func(p *testbed.Proxy) []string {
		var v any
		if err := json.Unmarshal([]byte(p.Get("/clusters?format=json").Body), &v); err != nil {
			t.Fatal(err)
		}
		set := map[string]bool{}
		shape("", v, set)
		var out []string
		for s := range set {
			out = append(out, s)
		}
		slices.Sort(out)
		return out
	}
	a, b := shapeOf(pair[0]), shapeOf(pair[1])
	if !slices.Equal(a, b) {
		t.Errorf("/clusters?format=json has other keys\nEnvoy:    %v\nGuideway: %v", a, b)
	}
}

// shape collects the paths of a JSON value, with the types of leaves; lists count as their elements.
func shape(path string, v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			shape(path+"."+k, e, into)
		}
		if len(v) == 0 {
			into[path+" {}"] = true
		}
	case []any:
		for _, e := range v {
			shape(path+"[]", e, into)
		}
	default:
		into[fmt.Sprintf("%s %T", path, v)] = true
	}
}
