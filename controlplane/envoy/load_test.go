package envoy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"github.com/guideway/guideway/controlplane/model"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// problems loads and returns what is wrong, as "line path: reason" without the file.
func problems(t *testing.T, o Options) []model.Problem {
	t.Helper()
	_, err := Load(o)
	if err == nil {
		return nil
	}
	var invalid *Invalid
	if !errors.As(err, &invalid) {
		t.Fatalf("error %v of type %T", err, err)
	}
	return invalid.Problems
}

func TestTextProblems(t *testing.T) {
	for _, tc := range []struct {
		name, file, text string
		line             int
		says             string
	}{
		{"empty", "c.yaml", "", 0, "the configuration is empty"},
		{"only a comment", "c.yaml", "# nothing\n", 0, "the configuration is empty"},
		{"null", "c.yaml", "~", 0, "the configuration is empty"},
		{"empty JSON", "c.json", " \n", 0, "the configuration is empty"},
		{"truncated JSON", "c.json", "{\"node\":\n{\"id\": \"a\"", 2, "ends too early"},
		{"JSON after the end", "c.json", "{}\n{}", 2, "after the end"},
		{"JSON key twice", "c.json", "{\"node\": {\"id\": \"a\",\n\"id\": \"b\"}}", 2, `key "id" is given twice (first at line 1)`},
		{"YAML key twice", "c.yaml", "node:\n  id: a\n  id: b\n", 3, `key "id" is given twice (first at line 2)`},
		{"bad YAML", "c.yaml", "node: {id: a\nadmin: [", 2, "not valid YAML: "},
		{"tab", "c.yaml", "node:\n\tid: a\n", 2, "not valid YAML: "},
		{"merge key", "c.yaml", "a: &a {id: b}\nnode:\n  <<: *a\n", 3, "merge keys"},
		{"list as key", "c.yaml", "? [a]\n: b\n", 1, "a key must be a word"},
		{"list", "c.yaml", "- a\n", 1, "must be a map"},
		{"text", "c.yaml", "hello\n", 1, "must be a map"},
		{"bare n", "c.yaml", "node:\n  id: n\n", 2, `put it in quotes: "n"`},
		{"bare yes", "c.yaml", "node:\n  cluster: Yes\n", 2, `put it in quotes: "Yes"`},
		{"anchor in itself", "c.yaml", "node: &a {id: b, metadata: *a}\n", 1, "contains itself"},
		{"deep", "c.yaml", "node: " + strings.Repeat("{a: ", 200) + strings.Repeat("}", 200), 1, "nested deeper than 100 levels"},
		{"deep JSON", "c.json", strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200), 1, "nested deeper than 100 levels"},
		{"not protobuf", "c.pb", "\xff\xff\xff", 0, "not a binary Bootstrap"},
		{"not text protobuf", "c.pb_text", "node { id: }", 0, "line 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := write(t, tc.file, tc.text)
			ps := problems(t, Options{Path: path})
			if len(ps) == 0 {
				t.Fatal("accepted")
			}
			if p := ps[0]; p.Line != tc.line || p.File != path || !strings.Contains(p.Reason, tc.says) {
				t.Errorf("problem %+v, want line %d and %q", p, tc.line, tc.says)
			}
		})
	}
	if ps := problems(t, Options{}); len(ps) != 1 || !strings.Contains(ps[0].Envoy, "At least one of --config-path") {
		t.Errorf("nothing given: %+v", ps)
	}
	if ps := problems(t, Options{Path: "/no/such/file.yaml"}); len(ps) != 1 || !strings.Contains(ps[0].Reason, "no such file") {
		t.Errorf("no file: %+v", ps)
	}
}

// TestAliasBomb holds that aliases cannot blow up time or memory.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("node:\n  metadata:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 20; i++ {
		fmt.Fprintf(&b, "    a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	ps := problems(t, Options{Path: write(t, "c.yaml", b.String())})
	if len(ps) != 1 || !strings.Contains(ps[0].Reason, "aliases blow the configuration up") {
		t.Errorf("problems %+v", ps)
	}
}

func TestAliasesAndScalars(t *testing.T) {
	cfg, err := Load(Options{Path: write(t, "c.yaml", `
node: {id: &name "n", cluster: *name, locality: {zone: 'on', region: "0x10"}}
admin: {address: {socket_address: {address: 127.0.0.1, portValue: 010}}}
static_resources: ~
`)})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Node.ID != "n" || cfg.Node.Cluster != "n" || cfg.Node.Locality.Zone != "on" || cfg.Node.Locality.Region != "0x10" {
		t.Errorf("node %+v", cfg.Node)
	}
	if cfg.Admin.Address.Port() != 8 { // octal, as in YAML 1.1
		t.Errorf("admin %v", cfg.Admin.Address)
	}
}

// TestProblemsTogether holds that problems of several kinds come together, in the order of lines, and
// none twice.
func TestProblemsTogether(t *testing.T) {
	ps := problems(t, Options{Path: "testdata/problems.yaml"})
	var got []string
	for _, p := range ps {
		got = append(got, fmt.Sprintf("%d %s", p.Line, p.Path))
	}
	want := []string{
		"3 node.metadata.guideway.dataplane",
		"8 static_resources.listeners[0].address.socket_address.address",
		"17 static_resources.listeners[1].filter_chains[0].filters[0].typed_config.max_connect_attempts",
		"18 static_resources.listeners[1].filter_chains[0].filters[0].typed_config.tunneling_config",
		"22 static_resources.clusters[0].connect_timeout",
		"23 static_resources.clusters[0].lb_subset_config",
		"24 static_resources.clusters[1].name",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestParseProblemsTogether: names and values that do not fit are found in one go.
func TestParseProblemsTogether(t *testing.T) {
	ps := problems(t, Options{Path: write(t, "c.yaml", `static_resources:
  clusters:
  - name: a
    typ: STATIC
    connect_timeout: 5
  - name: b
    lb_policy: MAGLEF
    connect_timeout: 1s
    load_assignment: {cluster_name: b, endpoint: []}
`)})
	var got []string
	for _, p := range ps {
		got = append(got, fmt.Sprintf("%d %s", p.Line, p.Path))
	}
	want := "4 static_resources.clusters[0].typ\n5 static_resources.clusters[0].connect_timeout\n" +
		"7 static_resources.clusters[1].lb_policy\n9 static_resources.clusters[1].load_assignment.endpoint"
	if strings.Join(got, "\n") != want {
		t.Errorf("problems\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// TestMerge holds that --config-yaml is merged as protobufs merge, and that places stay right.
func TestMerge(t *testing.T) {
	file := write(t, "c.yaml", `node: {id: a, cluster: b}
static_resources:
  clusters:
  - {name: one}
`)
	cfg, err := Load(Options{Path: file, YAML: "node: {id: z}\nstatic_resources: {clusters: [{name: two}]}"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Node.ID != "z" || cfg.Node.Cluster != "b" || len(cfg.Clusters) != 2 || cfg.Clusters[1].Settings.Name != "two" {
		t.Errorf("node %+v, %d clusters", cfg.Node, len(cfg.Clusters))
	}
	ps := problems(t, Options{Path: file, YAML: "static_resources:\n  clusters:\n  - name: two\n    connect_timeout: 0s\n"})
	if len(ps) != 1 || ps[0].File != "--config-yaml" || ps[0].Line != 4 || ps[0].Path != "static_resources.clusters[1].connect_timeout" {
		t.Errorf("semantic problem %+v", ps)
	}
	ps = problems(t, Options{Path: file, YAML: "static_resources:\n  clusters:\n  - nam: two\n"})
	if len(ps) != 1 || ps[0].File != "--config-yaml" || ps[0].Line != 3 || ps[0].Path != "static_resources.clusters[1].nam" {
		t.Errorf("parse problem %+v", ps)
	}
	ps = problems(t, Options{Path: file, YAML: "static_resources: {clusters: [{name: one}]}"})
	if len(ps) != 1 || !strings.Contains(ps[0].Reason, "defined twice") || ps[0].File != "--config-yaml" {
		t.Errorf("duplicate %+v", ps)
	}
	if _, err := Load(Options{YAML: "{}"}); err != nil {
		t.Errorf("YAML alone: %v", err)
	}
}

func TestUnknownFieldsAllowed(t *testing.T) {
	text := "nodes: {}\nstatic_resources:\n  clusters:\n  - name: a\n    new_field: 1\n"
	cfg, err := Load(Options{Path: write(t, "c.yaml", text), AllowUnknownStatic: true})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.UnknownFields != 2 || len(cfg.Warnings) != 2 || cfg.Warnings[1].Line != 5 {
		t.Errorf("%d unknown fields, warnings %v", cfg.UnknownFields, cfg.Warnings)
	}
}

func TestBinaryAndTextForms(t *testing.T) {
	boot, err := Load(Options{Path: "testdata/configs/01-tcp-static-maglev.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	source := boot.Source.(*bootstrapv3.Bootstrap)
	binary, err := proto.Marshal(source)
	if err != nil {
		t.Fatal(err)
	}
	text, err := prototext.Marshal(source)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"c.pb": binary, "c.pb_text": text} {
		cfg, err := Load(Options{Path: write(t, name, string(content))})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(cfg.Clusters) != 1 || cfg.Clusters[0].ContentHash != boot.Clusters[0].ContentHash {
			t.Errorf("%s: another configuration", name)
		}
	}
	// A field from the future: number 9999, a varint.
	future := append(binary, 0xf8, 0xf0, 0x04, 0x01)
	if ps := problems(t, Options{Path: write(t, "c.pb", string(future))}); len(ps) != 1 || !strings.Contains(ps[0].Reason, "unknown") {
		t.Errorf("unknown binary field: %+v", ps)
	}
	cfg, err := Load(Options{Path: write(t, "c.pb", string(future)), AllowUnknownStatic: true})
	if err != nil || cfg.UnknownFields != 1 {
		t.Errorf("unknown binary field allowed: %v", err)
	}
}

func TestServiceNode(t *testing.T) {
	file := write(t, "c.yaml", "dynamic_resources: {cds_config: {path_config_source: {path: /dev/null}}}\n")
	if ps := problems(t, Options{Path: file}); len(ps) != 1 || !strings.Contains(ps[0].Envoy, "node 'id' and 'cluster' are required") {
		t.Errorf("problems %+v", ps)
	}
	cfg, err := Load(Options{Path: file, ServiceNode: "a", ServiceCluster: "b", ServiceZone: "z"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Node.ID != "a" || cfg.Node.Cluster != "b" || cfg.Node.Locality.Zone != "z" {
		t.Errorf("node %+v", cfg.Node)
	}
}

func TestIgnoreFilters(t *testing.T) {
	const text = `static_resources:
  listeners:
  - name: l
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: istio.stats
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit, stat_prefix: a}
      - name: t
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: a, cluster: c}
`
	file := write(t, "c.yaml", text)
	if ps := problems(t, Options{Path: file}); len(ps) != 1 || !strings.Contains(ps[0].Reason, "--ignore-network-filters=istio.stats") || ps[0].Line != 8 {
		t.Errorf("problems %+v", ps)
	}
	cfg, err := Load(Options{Path: file, IgnoreFilters: []string{"istio.stats"}})
	if err != nil {
		t.Fatal(err)
	}
	if c := cfg.Listeners[0].Chains[0]; c.Proxy == nil || len(c.Filters) != 0 {
		t.Errorf("chain %+v", c)
	}
	if len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].Reason, "is left out") {
		t.Errorf("warnings %v", cfg.Warnings)
	}
}

// TestUnnamedListener: the name is made of the address, so that it stays over a reload.
func TestUnnamedListener(t *testing.T) {
	name := func(port string) string {
		cfg, err := Load(Options{YAML: "static_resources: {listeners: [{address: {socket_address: {address: 127.0.0.1, port_value: " + port + "}}, filter_chains: [{}]}]}"})
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Listeners[0].Name
	}
	if a, b, c := name("1"), name("1"), name("2"); a != b || a == c || len(a) != 36 {
		t.Errorf("names %q, %q, %q", a, b, c)
	}
}
