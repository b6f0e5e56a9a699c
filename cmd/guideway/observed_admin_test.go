package main_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// startAdminSubject starts the configuration of the recorded admin answers, which config_dump.json holds, and one
// connection through it; it waits for the failing host to fail.
func startAdminSubject(t *testing.T, subject testbed.Subject) *testbed.Proxy {
	t.Helper()
	ns := testbed.Isolated(t)
	testbed.StartBackend(t, ns, backend.Config{Network: backend.TCP, Behaviour: backend.Echo},
		netip.MustParseAddrPort("127.0.0.1:20001"), netip.MustParseAddrPort("127.0.0.1:20002"))
	var dump struct {
		Configs []struct {
			Bootstrap testbed.Message `json:"bootstrap"`
		} `json:"configs"`
	}
	testbed.ReadObserved(t, "admin/config_dump.json", &dump)
	config := dump.Configs[0].Bootstrap
	config["node"] = testbed.Message{"id": "n1", "cluster": "c1"}
	p := subject.Start(t, ns, config).Ready()
	testbed.ConnectTo(t, ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort)).Say("hi").Hear("hi")
	testbed.Eventually(t, "the host without a listener fails its check", func() bool {
		return strings.Contains(p.Get("/clusters").Body, "web::127.0.0.1:20009::health_flags::/failed_active_hc\n")
	})
	return p
}

// otherPrograms are the paths that only Envoy has a use for: profilers and its own internals.
var otherPrograms = []string{"/tap", "/cpuprofiler", "/heapprofiler", "/contention", "/stats/recentlookups", "/init_dump"}

func TestObservedAdminMethods(t *testing.T) {
	t.Parallel()
	expect := testbed.Expecting(t, "admin/methods.json")
	p := startAdminSubject(t, expect.Subject)
	for _, row := range testbed.Rows(t, "admin/methods.json") {
		if row.Has("exit_code_after_quitquitquit") {
			expect.Expect(t, row, "exit_code_after_quitquitquit", p.Wait())
			continue
		}
		var method, path string
		row.Decode(t, "method", &method)
		row.Decode(t, "path", &path)
		if slices.Contains(otherPrograms, path) {
			continue
		}
		r := p.Do(method, path)
		// Not a subtest for each: they are one conversation, in which the later depend on the earlier.
		answer := testbed.Message{"status": r.Status, "type": r.Type, "ends_with_newline": strings.HasSuffix(r.Body, "\n")}
		want := testbed.Message{}
		for field := range answer {
			want[field] = expect.Want(t, row, field)
		}
		first, _, _ := strings.Cut(r.Body, "\n")
		if line, _ := expect.Want(t, row, "first_line").(string); line != "" || method == "HEAD" {
			if strings.HasPrefix(path, "/clusters") && slices.Contains(strings.Split(r.Body, "\n"), line) {
				first = line // clusters come in any order
			}
			answer["first_line"], want["first_line"] = first, line
		} // else the first line differs each time and was not recorded
		for _, d := range testbed.Compare(t, method+" "+path, want, answer) {
			t.Error(d)
		}
	}
}

// adminBodies are the recorded bodies and where they came from.
var adminBodies = map[string]string{
	"certs.json":                 "/certs",
	"clusters.json":              "/clusters?format=json",
	"config_dump.json":           "/config_dump",
	"config_dump_endpoints.json": "/config_dump?include_eds&resource=static_endpoint_configs",
	"listeners.json":             "/listeners?format=json",
	"runtime.json":               "/runtime",
	"server_info.json":           "/server_info",
	"stats_json_filtered.json":   `/stats?format=json&filter=^tcp\.ingress\.downstream_cx`,
}

func TestObservedAdminBodies(t *testing.T) {
	t.Parallel()
	expect := testbed.Expecting(t, "admin")
	p := startAdminSubject(t, expect.Subject)
	for _, row := range testbed.AdminShapes(t) {
		file := row.Case(t)
		t.Run(file, func(t *testing.T) {
			path, known := adminBodies[file]
			if !known {
				t.Fatal("no test asks for this body: add it to adminBodies")
			}
			r := p.Get(path)
			var body any
			if err := json.Unmarshal([]byte(r.Body), &body); err != nil {
				t.Fatalf("GET %s: %d %v: %s", path, r.Status, err, r.Body)
			}
			expect.Expect(t, row, "shape", testbed.AdminShape(body))
		})
	}
	t.Run("clusters.txt", func(t *testing.T) {
		want := hostStats(testbed.ObservedLines(t, "admin/clusters.txt"))
		got := hostStats(strings.Split(strings.TrimSuffix(p.Get("/clusters").Body, "\n"), "\n"))
		expect.Expect(t, testbed.TextRow(t, "clusters.txt", "lines", want), "lines", got)
	})
	t.Run("listeners.txt", func(t *testing.T) {
		want := testbed.ObservedLines(t, "admin/listeners.txt")
		got := strings.Split(strings.TrimSuffix(p.Get("/listeners").Body, "\n"), "\n")
		expect.Expect(t, testbed.TextRow(t, "listeners.txt", "lines", want), "lines", got)
	})
}

// hostStats gives the lines of /clusters as names and values; the values of connection counters, which depend on
// the host that the one connection came to, are left out.
func hostStats(lines []string) map[string]string {
	all := make(map[string]string)
	for _, line := range lines {
		i := strings.LastIndex(line, "::")
		if i < 0 {
			all[line] = "no line of /clusters"
			continue
		}
		name, value := line[:i], line[i+2:]
		if stat := name[strings.LastIndex(name, "::")+2:]; strings.HasPrefix(stat, "cx_") || strings.HasPrefix(stat, "rq_") {
			if _, err := strconv.ParseUint(value, 10, 64); err == nil {
				value = "<count>"
			}
		}
		all[name] = value
	}
	return all
}
