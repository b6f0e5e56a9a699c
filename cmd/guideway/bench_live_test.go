package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// benchReport is what the tests read of a report in JSON.
type benchReport struct {
	Sections []struct {
		Title  string
		Tables []struct {
			Name string
			Rows []map[string]any
		}
	}
}

// table finds the rows of a table.
func (r *benchReport) table(t *testing.T, name string) []map[string]any {
	t.Helper()
	for _, s := range r.Sections {
		for _, table := range s.Tables {
			if table.Name == name {
				return table.Rows
			}
		}
	}
	t.Fatalf("the report has no table %q", name)
	return nil
}

// TestBenchLiveSeesNothingBreakBehindGuideway is the claim that the product makes: with 5,000 flows through it, one
// of ten backends is drained and another added, and no flow breaks or moves. Balancer, backends
// and the measuring program are processes of their own; the scenario file makes the changes.
func TestBenchLiveSeesNothingBreakBehindGuideway(t *testing.T) {
	ns := testbed.NewNamespace(t)
	dir := t.TempDir()
	guideway := testbed.Guideway(t)

	const tcp, udp, backends = 2500, 2500, 11
	var hosts []int
	var listen []string
	for i := range backends {
		hosts = append(hosts, 9001+i)
		listen = append(listen, "--listen", fmt.Sprintf("b%d=127.0.0.1:%d", i+1, 9001+i))
	}
	fleet := guideway.Exec(t, ns, dir, append([]string{"bench", "backend", "--control", "127.0.0.1:9900"}, listen...)...)
	testbed.Eventually(t, "backends are up", func() bool { return strings.Contains(fleet.Stdout(), "control on") })

	config := func(drained int, ports ...int) string {
		clusters := []any{}
		for _, name := range []string{"tcp", "udp"} {
			c := testbed.Merge(testbed.Cluster(name, ports...), testbed.Message{
				"lb_policy":        "MAGLEV",
				"circuit_breakers": testbed.Message{"thresholds": []any{testbed.Message{"max_connections": 100000}}},
			})
			if drained >= 0 {
				host := c["load_assignment"].(testbed.Message)["endpoints"].([]any)[0].(testbed.Message)["lb_endpoints"].([]any)[drained]
				host.(testbed.Message)["health_status"] = "DRAINING"
			}
			clusters = append(clusters, c)
		}
		text, err := json.Marshal(testbed.Bootstrap([]any{
			testbed.Message{
				"name": "tcp", "address": testbed.SocketAddress("127.0.0.1", 10000),
				"filter_chains": []any{testbed.Message{"filters": []any{testbed.TCPProxy("tcp", "tcp")}}},
			},
			testbed.Message{
				"name": "udp", "address": testbed.UDPAddress("127.0.0.1", 10000),
				"listener_filters": []any{testbed.Typed("envoy.filters.udp_listener.udp_proxy", "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", testbed.Message{
					"stat_prefix": "udp",
					"matcher": testbed.Message{"on_no_match": testbed.Message{"action": testbed.Typed("route",
						"envoy.extensions.filters.udp.udp_proxy.v3.Route", testbed.Message{"cluster": "udp"})}},
				})},
			},
		}, clusters))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("drained.json", config(0, hosts[:10]...))
	write("added.json", config(0, hosts...))
	balancer := guideway.Exec(t, ns, dir, "-c", write("boot.json", config(-1, hosts[:10]...)))
	scenario := write("scenario.yaml", `
steps:
- name: drain b1
  changes: [b1]
  do:
  - rename: {from: drained.json, to: boot.json}
  - until: {url: "http://127.0.0.1:9901/clusters", contains: "tcp::127.0.0.1:9001::health_flags::/eds_status_draining"}
  - until: {url: "http://127.0.0.1:9901/clusters", contains: "udp::127.0.0.1:9001::health_flags::/eds_status_draining"}
- name: add b11
  changes: [b11]
  do:
  - rename: {from: added.json, to: boot.json}
  - until: {url: "http://127.0.0.1:9901/clusters", contains: "tcp::127.0.0.1:9011::"}
  - until: {url: "http://127.0.0.1:9901/clusters", contains: "udp::127.0.0.1:9011::"}
- name: b2 dies
  changes: [b2]
  do:
  - backend: {id: b2, behaviour: refuse, control: "http://127.0.0.1:9900"}
`)
	testbed.Eventually(t, "guideway listens", func() bool {
		c, err := ns.DialContext(t.Context(), "tcp", "127.0.0.1:10000")
		if err != nil {
			return balancer.Ended()
		}
		defer c.Close()
		line, err := bufio.NewReader(c).ReadString('\n')
		return err == nil && strings.HasPrefix(line, "b")
	})

	// Times that a busy machine does not reach; the flows of the dead backend are waited for as long.
	cmd := exec.Command(guideway.Exe, "bench", "live", "--target", "127.0.0.1:10000", "--tcp", fmt.Sprint(tcp), "--udp", fmt.Sprint(udp),
		"--interval", "1s", "--stalled-after", "6s", "--broken-after", "12s", "--open-timeout", "15s", "--new-rate", "5",
		"--scenario", scenario, "--html", filepath.Join(dir, "report.html"), "-o", "json")
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := ns.Do(cmd.Run); err != nil {
		t.Fatalf("bench live: %v\n%s\n%s", err, complaints.String(), out.String())
	}
	var r benchReport
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	flows := r.table(t, "flows")
	if len(flows) != 2*4 {
		t.Fatalf("the report tells of %d steps and protocols: %v", len(flows), flows)
	}
	want := map[string]float64{"tcp": tcp, "udp": udp}
	onDead := map[string]float64{}
	for _, row := range flows {
		step, network := row["step"].(string), row["network"].(string)
		n := func(key string) float64 {
			v, ok := row[key].(float64)
			if !ok {
				t.Fatalf("%s, %s: no %s in %v", step, network, key, row)
			}
			return v
		}
		if n("flows") != want[network] {
			t.Errorf("%s, %s: %v flows, want %v", step, network, n("flows"), want[network])
		}
		if step == "b2 dies" {
			onDead[network] = n("affected")
			if n("broken_elsewhere") != 0 || n("moved_elsewhere") != 0 || n("affected") == 0 {
				t.Errorf("%s, %s: %v", step, network, row)
			}
			// What tells us that breakage would be seen.
			if network == "tcp" && n("broken") != n("affected") {
				t.Errorf("%v connections were on the backend that died, %v broke", n("affected"), n("broken"))
			}
			continue
		}
		if n("broken") != 0 || n("moved") != 0 || n("reordered") != 0 || n("duplicated") != 0 {
			t.Errorf("%s, %s: flows were disturbed: %v", step, network, row)
		}
		if step == "drain b1" && n("affected") == 0 {
			t.Errorf("%s: no flow was on the drained backend", network)
		}
	}
	// A Maglev table gives each of ten backends its tenth but for a slot.
	for network, got := range onDead {
		if share := got / want[network]; share < 0.05 || share > 0.15 {
			t.Errorf("%v of %v %s flows were on one of ten backends", got, want[network], network)
		}
	}
	for _, row := range r.table(t, "new") {
		if step := row["step"]; step != "b2 dies" && row["failed"].(float64) != 0 {
			t.Errorf("%v: new flows failed: %v", step, row)
		}
	}
	for _, row := range r.table(t, "backends") {
		if row["step"] == "add b11" && row["backend"] == "b1" {
			t.Errorf("new flows went to the drained backend: %v", row)
		}
	}
	if page, err := os.ReadFile(filepath.Join(dir, "report.html")); err != nil || !strings.Contains(string(page), "</html>") {
		t.Errorf("the page: %v", err)
	}
}

func TestBenchLiveSaysWhatIsMissing(t *testing.T) {
	guideway := testbed.Guideway(t)
	for args, want := range map[string]string{
		"live":                                       "--scenario FILE, or --watch",
		"live --watch":                               "no target",
		"live --watch --target x":                    "HOST:PORT",
		"live --watch --source x":                    "IP address",
		"live --lab --watch":                         "--lab brings",
		"live --lab --subject apache":                `no subject "apache"`,
		"live --lab --backends 2":                    "use 4 to",
		"live --target 127.0.0.1:1 --scenario /no":   "/no",
		"live --watch --target 127.0.0.1:1 --udp 0":  "guideway bench backend",
		"backend":                                    "--listen",
		"backend --listen x":                         "--listen",
		"backend --listen 127.0.0.1:0 --network x":   "use tcp, udp",
		"backend --listen 127.0.0.1:0 --behaviour x": "no behaviour",
	} {
		p := guideway.Exec(t, nil, t.TempDir(), append([]string{"bench"}, strings.Fields(args)...)...)
		if code := p.Wait(); code != 1 || !strings.Contains(p.Stderr(), want) {
			t.Errorf("bench %s: exit code %d: %s", args, code, p.Stderr())
		}
	}
}
