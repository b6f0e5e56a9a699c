package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// do sends a request and returns status, content type and body.
func do(t *testing.T, method, url string) (status int, contentType, body string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, a.Header.Get("Content-Type"), string(b)
}

// TestMethods sends what was recorded, in its order, and wants Envoy's status, content type and first line.
func TestMethods(t *testing.T) {
	state := newFakeState(t)
	url, _ := start(t, state, nil)
	var rows []struct {
		Method, Path, Type string
		Status             int
		FirstLine          string `json:"first_line"`
		Newline            bool   `json:"ends_with_newline"`
	}
	if err := json.Unmarshal(observed(t, "methods.json"), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) < 60 {
		t.Fatalf("%d rows", len(rows))
	}
	envoysOwn := []string{"/cpuprofiler", "/contention", "/stats/recentlookups"}
	for _, row := range rows {
		if row.Path == "" {
			continue // the exit code
		}
		status, contentType, body := do(t, row.Method, url+strings.NewReplacer("^", "%5E", "$", "%24").Replace(row.Path))
		if status != row.Status || contentType != row.Type {
			t.Errorf("%s %s: %d %s, want %d %s", row.Method, row.Path, status, contentType, row.Status, row.Type)
		}
		if slices.Contains(envoysOwn, row.Path) {
			continue
		}
		if row.Method != "HEAD" && strings.HasSuffix(body, "\n") != row.Newline {
			t.Errorf("%s %s ends with %q", row.Method, row.Path, body[max(len(body)-10, 0):])
		}
		if first, _, _ := strings.Cut(body, "\n"); row.FirstLine != "" && first != row.FirstLine {
			t.Errorf("%s %s begins %q, want %q", row.Method, row.Path, first, row.FirstLine)
		}
	}
	want := []string{
		"reopen",
		`drain {"InboundOnly":false,"Graceful":false,"SkipExit":true}`,
		`drain {"InboundOnly":false,"Graceful":true,"SkipExit":false}`,
		"quit",
	}
	if !slices.Equal(state.done, want) {
		t.Errorf("done: %q", state.done)
	}
	if state.runtime["x.y"] != "7" {
		t.Errorf("runtime %v", state.runtime)
	}
}

// TestBodies compares whole bodies with the recorded ones.
func TestBodies(t *testing.T) {
	url, _ := start(t, newFakeState(t), nil)
	for path, file := range map[string]string{
		"/clusters":              "clusters.txt",
		"/clusters?format=json":  "clusters.json",
		"/listeners":             "listeners.txt",
		"/listeners?format=json": "listeners.json",
		"/certs":                 "certs.json",
		"/runtime":               "runtime.json",
		"/server_info":           "server_info.json",
		"/config_dump":           "config_dump.json",
		"/config_dump?include_eds&resource=static_endpoint_configs": "config_dump_endpoints.json",
	} {
		status, _, body := do(t, "GET", url+path)
		want := string(observed(t, file))
		if status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
			continue
		}
		if strings.HasSuffix(file, ".txt") {
			if body != want {
				t.Errorf("%s:\n%s\nwant\n%s", path, body, want)
			}
			continue
		}
		var a, b any
		if err := json.Unmarshal([]byte(body), &a); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := json.Unmarshal([]byte(want), &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s:\n%s\nwant\n%s", path, body, want)
		}
		if strings.Contains(body, "\n  \"") != strings.Contains(want, "\n  \"") || !strings.HasPrefix(body, "{\n \"") {
			t.Errorf("%s is not laid out with one blank a level:\n%s", path, body)
		}
	}
}

func TestAllowPaths(t *testing.T) {
	url, _ := start(t, newFakeState(t), func(c *Config) { c.AllowPaths = []string{"/stats", "/ready*"} })
	for path, want := range map[string]int{
		"/ready": 200, "/stats": 200, "/stats/prometheus": 403, "/": 403, "/nope": 403, "/readyx": 404, "/debug/pprof/": 403,
	} {
		status, _, body := do(t, "GET", url+path)
		if status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
		if status == 403 && body != "request to path "+path+" not allowed" {
			t.Errorf("%s: %q", path, body)
		}
	}
}

func TestPortInUse(t *testing.T) {
	_, first := start(t, newFakeState(t), nil)
	_, err := New(Config{Address: addr(first.Addr().String()), Stats: stats.NewStore(), Log: first.config.Log}, newFakeState(t))
	if err == nil || !strings.Contains(err.Error(), "cannot bind admin address '127.0.0.1:") || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}

// TestConfigDumpQueries has what Envoy 1.40 answers to resource, mask and name_regex.
func TestConfigDumpQueries(t *testing.T) {
	state := newFakeState(t)
	url, _ := start(t, state, nil)
	before := proto.Clone(state.config.Clusters)
	for _, c := range []struct {
		query  string
		status int
		body   string
	}{
		{"resource=bootstrap", 400, "bootstrap is not a repeated field. Use ?mask=bootstrap to get only this field"},
		{"resource=static_clusters&mask=nope", 400, "FieldMask nope could not be successfully used."},
		{"resource=static_clusters&mask=cluster.name", 200, `{
 "configs": [
  {
   "@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump.StaticCluster",
   "cluster": {
    "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "name": "dns"
   }
  },
  {
   "@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump.StaticCluster",
   "cluster": {
    "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "name": "web"
   }
  }
 ]
}
`},
		{"resource=static_listeners&name_regex=%5Eudp&mask=listener.name,last_updated", 200, `{
 "configs": [
  {
   "@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump.StaticListener",
   "listener": {
    "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
    "name": "udp_in"
   },
   "last_updated": "2026-01-02T03:04:05.678Z"
  }
 ]
}
`},
		{"mask=bootstrap.node.id", 200, `{
 "configs": [
  {
   "@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump",
   "bootstrap": {
    "node": {
     "id": "n1"
    }
   }
  }
 ]
}
`},
	} {
		if status, _, body := do(t, "GET", url+"/config_dump?"+c.query); status != c.status || body != c.body {
			t.Errorf("%s: %d\n%s\nwant %d\n%s", c.query, status, body, c.status, c.body)
		}
	}
	if _, _, body := do(t, "GET", url+"/config_dump?name_regex=%5Eweb%24"); strings.Contains(body, `"name": "tcp_in",
      "address"`) || strings.Contains(body, "static_listeners\": [\n    {\n     \"listener") || !strings.Contains(body, `     "name": "web",`) {
		t.Errorf("name_regex: %s", body)
	}
	if _, _, body := do(t, "GET", url+"/config_dump?include_eds"); strings.Index(body, "EndpointsConfigDump") > strings.Index(body, "ListenersConfigDump") {
		t.Error("endpoints are not before the listeners")
	}
	if !proto.Equal(before, state.config.Clusters) {
		t.Error("a mask changed the state itself")
	}
}

func TestRuntimeWithoutAdminLayer(t *testing.T) {
	state := newFakeState(t)
	state.layers = []string{"static"}
	url, _ := start(t, state, nil)
	if status, _, body := do(t, "POST", url+"/runtime_modify?a=b"); status != 503 || body != "No admin layer specified" {
		t.Errorf("%d %q", status, body)
	}
}

func TestLogging(t *testing.T) {
	state := newFakeState(t)
	url, _ := start(t, state, nil)
	level := func(component string) string {
		for _, l := range state.log.Levels() {
			if l[0] == component {
				return l[1]
			}
		}
		return "none"
	}
	for _, c := range []struct {
		query, upstream, config string
		status                  int
	}{
		{"?upstream=debug", "debug", "info", 200},
		{"?paths=upstream:error,config:trace", "error", "trace", 200},
		{"?paths=upstream:info,nope:trace", "error", "trace", 400}, // all or nothing
		{"?paths=upstream", "error", "trace", 400},
		{"?level=off", "off", "off", 200},
		{"", "off", "off", 200},
	} {
		status, _, body := do(t, "POST", url+"/logging"+c.query)
		if status != c.status || level("upstream") != c.upstream || level("config") != c.config {
			t.Errorf("%s: %d, upstream %s, config %s", c.query, status, level("upstream"), level("config"))
		}
		if !strings.Contains(body, "active loggers:\n  admin: ") {
			t.Errorf("%s: %s", c.query, body)
		}
	}
}

func TestMaglev(t *testing.T) {
	url, _ := start(t, newFakeState(t), nil)
	status, contentType, body := do(t, "GET", url+"/maglev/web")
	var got struct {
		Cluster string
		Tables  []struct {
			Priority, Size int
			Digest, SHA256 string
			Hosts          []struct {
				Address string
				Slots   int
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || contentType != jsonText {
		t.Fatalf("%d %s %v: %s", status, contentType, err, body)
	}
	table := got.Tables[0]
	sum := 0
	for _, h := range table.Hosts {
		sum += h.Slots
	}
	if got.Cluster != "web" || table.Size != 1009 || sum != 1009 || len(table.Digest) != 64 || len(table.SHA256) != 64 {
		t.Errorf("got %+v", got)
	}
	if status, _, body := do(t, "GET", url+"/maglev/dns"); status != 404 || !strings.Contains(body, "ROUND_ROBIN") {
		t.Errorf("%d %s", status, body)
	}
	if status, _, body := do(t, "GET", url+"/maglev/nope"); status != 404 || !strings.Contains(body, `"nope"`) {
		t.Errorf("%d %s", status, body)
	}
}

// TestHealth has the flags of a host in JSON.
func TestHealth(t *testing.T) {
	for h, want := range map[dataplane.Health]string{
		0:                               `{"eds_health_status":"HEALTHY"}`,
		dataplane.FailedEDSHealth:       `{"eds_health_status":"UNHEALTHY"}`,
		dataplane.EDSStatusDraining:     `{"eds_health_status":"DRAINING"}`,
		dataplane.DegradedEDSHealth:     `{"eds_health_status":"DEGRADED"}`,
		dataplane.DegradedActiveHC:      `{"failed_active_degraded_check":true,"eds_health_status":"HEALTHY"}`,
		dataplane.PendingDynamicRemoval: `{"pending_dynamic_removal":true,"eds_health_status":"HEALTHY"}`,
		dataplane.FailedActiveHC | dataplane.ActiveHCTimeout | dataplane.FailedOutlierCheck: `{"failed_active_health_check":true,"failed_outlier_check":true,"active_hc_timeout":true,"eds_health_status":"HEALTHY"}`,
	} {
		raw, err := messageJSON(healthStatus(h), false)
		if err != nil {
			t.Fatal(err)
		}
		var a, b map[string]any
		if json.Unmarshal(raw, &a) != nil || json.Unmarshal([]byte(want), &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%v: %s, want %s", h, raw, want)
		}
	}
}

func TestHelpNamesEveryEndpoint(t *testing.T) {
	url, server := start(t, newFakeState(t), nil)
	_, _, help := do(t, "GET", url+"/help")
	for path, e := range server.endpoints {
		want := "\n  " + path + ": "
		if e.mutates {
			want = "\n  " + path + " (POST): "
		}
		if !strings.Contains(help, want) {
			t.Errorf("no %q in the help", want)
		}
	}
	if status, _, body := do(t, "GET", url+"/debug/pprof/goroutine?debug=1"); status != 200 || !strings.Contains(body, "goroutine profile:") {
		t.Errorf("pprof: %d", status)
	}
}
