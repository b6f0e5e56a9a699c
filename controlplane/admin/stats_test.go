package admin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// someStats has one of each kind; the histogram holds 1, 1, 1, 1 in all and nothing in the last interval.
func someStats() *stats.Store {
	s := stats.NewStore()
	s.Counter("cluster.web.upstream_cx_total").Add(1234567)
	s.Counter("guideway.config.reload_success").Inc()
	s.Counter("cluster.web.idle")
	s.Gauge("server.live").Set(1)
	s.Gauge("cluster.web.version").SetUnsigned(1 << 63)
	s.Text("control_plane.identifier").Set(`a "b" <c>`)
	h := s.Histogram("cluster.web.upstream_cx_length_ms")
	for range 4 {
		h.Record(1)
	}
	s.Flush()
	s.Flush()
	s.Histogram("cluster.web.upstream_cx_connect_ms")
	return s
}

func TestStatsText(t *testing.T) {
	store := someStats()
	for _, c := range []struct{ query, want string }{
		{"filter=^(cluster|server|control|guideway)", `control_plane.identifier: "a &#34;b&#34; &lt;c&gt;"
cluster.web.idle: 0
cluster.web.upstream_cx_total: 1234567
cluster.web.version: 9223372036854775808
guideway.config.reload_success: 1
server.live: 1
cluster.web.upstream_cx_connect_ms: No recorded values
cluster.web.upstream_cx_length_ms: P0(nan,1.02) P25(nan,1.02) P50(nan,1.04) P75(nan,1.06) P90(nan,1.08) P95(nan,1.08) P99(nan,1.08) P99.5(nan,1.08) P99.9(nan,1.08) P100(nan,1.08)
`},
		{"usedonly&filter=web&type=Counters", "cluster.web.upstream_cx_total: 1234567\n"},
		{"invert_filter&filter=web&type=Gauges", "server.live: 1\n"},
		{"type=Histograms&histogram_buckets=disjoint&filter=length", "cluster.web.upstream_cx_length_ms: B0.5(0,0) B1(0,4) B5(0,0) B10(0,0) B25(0,0) B50(0,0) B100(0,0) B250(0,0) B500(0,0) B1000(0,0) B2500(0,0) B5000(0,0) B10000(0,0) B30000(0,0) B60000(0,0) B300000(0,0) B600000(0,0) B1.8e+06(0,0) B3.6e+06(0,0)\n"},
		{"type=Histograms&histogram_buckets=detailed&filter=web.*length", "cluster.web.upstream_cx_length_ms:\n  totals=1,0.1:4\n  intervals=\n  summary=P0(nan,1.02) P25(nan,1.02) P50(nan,1.04) P75(nan,1.06) P90(nan,1.08) P95(nan,1.08) P99(nan,1.08) P99.5(nan,1.08) P99.9(nan,1.08) P100(nan,1.08)\n"},
		{"format=json&filter=(live|identifier|idle)", `{"stats":[{"name":"control_plane.identifier","value":"a \"b\" <c>"},{"name":"cluster.web.idle","value":0},{"name":"server.live","value":1}]}`},
		{"format=json&filter=length", `{"stats":[{"histograms":{"supported_quantiles":[0,25,50,75,90,95,99,99.5,99.9,100],"computed_quantiles":[{"name":"cluster.web.upstream_cx_length_ms","values":[{"cumulative":1.02,"interval":null},{"cumulative":1.02,"interval":null},{"cumulative":1.04,"interval":null},{"cumulative":1.06,"interval":null},{"cumulative":1.08,"interval":null},{"cumulative":1.08,"interval":null},{"cumulative":1.08,"interval":null},{"cumulative":1.08,"interval":null},{"cumulative":1.08,"interval":null},{"cumulative":1.08,"interval":null}]}]}}]}`},
	} {
		q := parseQuery(t, c.query)
		got := statsText(q, store)
		if strings.HasPrefix(c.query, "format=json") {
			got = statsJSON(q, store)
		}
		if got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.query, got, c.want)
		}
	}
	for _, query := range []string{"format=json", "format=json&histogram_buckets=cumulative", "format=json&histogram_buckets=disjoint", "format=json&histogram_buckets=detailed"} {
		if got := statsJSON(parseQuery(t, query), store); !json.Valid([]byte(got)) {
			t.Errorf("%s is no JSON: %s", query, got)
		}
	}
}

// TestFlushOnAdmin has a histogram's values show at the next request.
func TestFlushOnAdmin(t *testing.T) {
	for _, on := range []bool{false, true} {
		var store *stats.Store
		url, _ := start(t, newFakeState(t), func(c *Config) { c.FlushOnAdmin = on; store = c.Stats })
		store.Histogram("h").Record(5)
		if _, _, body := do(t, "GET", url+"/stats?filter=%5Eh%24"); strings.Contains(body, "P0(") != on {
			t.Errorf("flush on admin %v: %s", on, body)
		}
	}
}

// TestPrometheusNames makes every stat that Envoy 1.40 has for three configurations and wants each exposed
// under Envoy's name, braces included.
func TestPrometheusNames(t *testing.T) {
	files, err := filepath.Glob("../../cmd/guideway/testdata/observed/metrics/*.tsv")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		store := stats.NewStore()
		want := map[string]string{}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			parts := strings.Split(lines.Text(), "\t")
			want[parts[2]] = parts[1]
			switch parts[1] {
			case "counter":
				store.Counter(parts[0])
			case "gauge":
				store.Gauge(parts[0])
			default:
				store.Histogram(parts[0])
			}
		}
		f.Close()
		var text bytes.Buffer
		writeFamilies(&text, newExporter(store).families(parseQuery(t, "")))
		var kind string
		order := map[string]int{"counter": 0, "gauge": 1, "histogram": 2}
		last := 0
		for line := range strings.Lines(text.String()) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "# HELP") {
				t.Fatalf("%s: %s", file, line)
			}
			if strings.HasPrefix(line, "# TYPE ") {
				kind = line[strings.LastIndexByte(line, ' ')+1:]
				if order[kind] < last {
					t.Errorf("%s: a %s after others", file, kind)
				}
				last = order[kind]
				continue
			}
			name := line[:strings.LastIndexByte(line, ' ')]
			if want[name] == kind {
				delete(want, name)
			}
		}
		for name, kind := range want {
			t.Errorf("%s: no %s %s", file, kind, name)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		if _, err := parser.TextToMetricFamilies(&text); err != nil {
			t.Errorf("%s: Prometheus cannot read it: %v", file, err)
		}
	}
}

func TestPrometheusText(t *testing.T) {
	store := someStats()
	var text bytes.Buffer
	writeFamilies(&text, newExporter(store).families(parseQuery(t, "text_readouts")))
	for _, want := range []string{
		"# TYPE envoy_cluster_upstream_cx_total counter\nenvoy_cluster_upstream_cx_total{envoy_cluster_name=\"web\"} 1234567\n",
		"# TYPE guideway_config_reload_success counter\nguideway_config_reload_success{} 1\n",
		"envoy_server_live{} 1\n",
		"envoy_control_plane_identifier{text_value=\"a \\\"b\\\" <c>\"} 0\n",
		"envoy_cluster_upstream_cx_length_ms_bucket{envoy_cluster_name=\"web\",le=\"0.5\"} 0\n",
		"envoy_cluster_upstream_cx_length_ms_bucket{envoy_cluster_name=\"web\",le=\"1\"} 4\n",
		"envoy_cluster_upstream_cx_length_ms_bucket{envoy_cluster_name=\"web\",le=\"+Inf\"} 4\n",
		"envoy_cluster_upstream_cx_length_ms_sum{envoy_cluster_name=\"web\"} 4\n",
		"envoy_cluster_upstream_cx_length_ms_count{envoy_cluster_name=\"web\"} 4\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s in\n%s", want, text.String())
		}
	}
	text.Reset()
	writeFamilies(&text, newExporter(store).families(parseQuery(t, "histogram_buckets=summary&filter=length")))
	if got := text.String(); !strings.Contains(got, "envoy_cluster_upstream_cx_length_ms{envoy_cluster_name=\"web\",quantile=\"0.5\"} 1.04\n") {
		t.Errorf("summary:\n%s", got)
	}
	families, err := newExporter(store).Gather()
	if err != nil || len(families) == 0 {
		t.Errorf("%d families, %v", len(families), err)
	}
}

// TestPrometheusEndpoint has the process's own metrics beside the store's, and none of them with a filter.
func TestPrometheusEndpoint(t *testing.T) {
	url, _ := start(t, newFakeState(t), nil)
	_, _, all := do(t, "GET", url+"/stats/prometheus")
	for _, want := range []string{"\ngo_goroutines{} ", "\nprocess_open_fds{} ", "envoy_listener_admin_downstream_cx_total{} 1\n"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if _, _, some := do(t, "GET", url+"/stats/prometheus?filter=server.live"); strings.Contains(some, "go_goroutines") {
		t.Error("a filter does not leave out the process")
	}
}

// BenchmarkPrometheus is a scrape of a thousand clusters.
func BenchmarkPrometheus(b *testing.B) {
	store := stats.NewStore()
	for i := range 1000 {
		dataplane.NewClusterStats(store, "cluster-"+strconv.Itoa(i))
	}
	e := newExporter(store)
	b.ReportAllocs()
	for b.Loop() {
		writeFamilies(io.Discard, e.families(&statQuery{kind: "All"}))
	}
}
