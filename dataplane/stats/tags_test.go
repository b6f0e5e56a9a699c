package stats

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// prometheus joins a name and its tags as Envoy's exporter does.
func prometheus(e *TagExtractor, name, kind string) string {
	clean := func(s string) string { return regexp.MustCompile(`[^a-zA-Z0-9_]`).ReplaceAllString(s, "_") }
	short, tags := e.Extract(name)
	var labels []string
	for _, t := range tags {
		labels = append(labels, clean(t.Name)+`="`+t.Value+`"`)
	}
	suffix := ""
	if kind == "histogram" {
		suffix = "_count"
	}
	return "envoy_" + clean(short) + suffix + "{" + strings.Join(labels, ",") + "}"
}

func checkNames(t *testing.T, path string, e *TagExtractor) (rows int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); rows++ {
		parts := strings.Split(lines.Text(), "\t")
		if got := prometheus(e, parts[0], parts[1]); got != parts[2] {
			t.Errorf("%s\n got %s\nwant %s", parts[0], got, parts[2])
		}
	}
	return rows
}

// TestDefaultTags holds every name that Envoy 1.40 has for three configurations against its Prometheus
// name, and those of a configuration whose prefixes are as odd as can be.
func TestDefaultTags(t *testing.T) {
	files, err := filepath.Glob("../../cmd/guideway/testdata/observed/metrics/*.tsv")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, f := range append(files, "testdata/tags.tsv") {
		if n := checkNames(t, f, defaultTags); n < 100 {
			t.Errorf("%s has only %d rows", f, n)
		}
	}
}

// TestCustomTags has what Envoy 1.40 made of the same tags.
func TestCustomTags(t *testing.T) {
	specs := []TagSpec{
		{Name: "fix", Fixed: "v"},
		{Name: "svc", Regex: `^cluster\.((.+?\..+?)\.)`},
		{Name: "my.tag", Regex: `downstream_(cx)_`},
		{Name: "w2", Regex: `(worker)_`},
		{Name: "zz", Regex: `listener\..*(total)$`},
	}
	e, err := NewTagExtractor(true, specs)
	if err != nil {
		t.Fatal(err)
	}
	if n := checkNames(t, "testdata/tags_custom.tsv", e); n < 100 {
		t.Errorf("only %d rows", n)
	}
}

func TestChosenTags(t *testing.T) {
	e, err := NewTagExtractor(false, []TagSpec{{Name: "fix", Fixed: "v"}, {Name: "envoy.cluster_name"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"cluster.a.b.upstream_cx_total":             `envoy_cluster_b_upstream_cx_total{fix="v",envoy_cluster_name="a"}`,
		"listener.foo.worker_0.downstream_cx_total": `envoy_listener_foo_worker_0_downstream_cx_total{fix="v"}`,
		"tcp.plain.downstream_cx_total":             `envoy_tcp_plain_downstream_cx_total{fix="v"}`,
	} {
		if got := prometheus(e, name, "counter"); got != want {
			t.Errorf("%s\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestTagErrors(t *testing.T) {
	for name, spec := range map[string]TagSpec{
		"no name":            {Regex: "(a)"},
		"bad regex":          {Name: "x", Regex: "(("},
		"regex with no tag":  {Name: "x", Regex: "a.b"},
		"no default by name": {Name: "x"},
	} {
		if _, err := NewTagExtractor(true, []TagSpec{spec}); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

func BenchmarkExtract(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		defaultTags.Extract("cluster.web.upstream_rq_pending_total")
	}
}
