package admin

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/dataplane/stats"
)

// ownPrefix begins the raw names of Guideway's own stats. They are guideway_* in Prometheus, all others
// envoy_*.
const ownPrefix = "guideway."

// exporter turns the store into Prometheus metrics.
type exporter struct {
	store *stats.Store
	// process has the Go runtime's and the process's own metrics.
	process *prometheus.Registry
}

func newExporter(store *stats.Store) *exporter {
	e := &exporter{store: store, process: prometheus.NewRegistry()}
	e.process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return e
}

// Gather implements prometheus.Gatherer with all stats of the store, in Envoy's order: counters, gauges,
// histograms, each by the raw name without tags.
func (e *exporter) Gather() ([]*dto.MetricFamily, error) {
	return e.families(&statQuery{kind: "All"}), nil
}

// family is a metric family in the making; raw is the name it is sorted by.
type family struct {
	raw string
	*dto.MetricFamily
}

func (e *exporter) families(q *statQuery) []*dto.MetricFamily {
	texts, numbers, histograms := q.selected(e.store)
	var counters, gauges []stats.Stat
	for _, t := range numbers {
		if t.Kind == stats.CounterKind {
			counters = append(counters, t)
		} else {
			gauges = append(gauges, t)
		}
	}
	var out []*dto.MetricFamily
	add := func(list []stats.Stat, kind dto.MetricType, metric func(*dto.Metric, stats.Stat)) {
		byName := map[string]*family{}
		for _, t := range list {
			raw, tags := t.Tagged()
			f := byName[raw]
			if f == nil {
				f = &family{raw, &dto.MetricFamily{Name: proto.String(prometheusName(raw)), Type: kind.Enum()}}
				byName[raw] = f
			}
			m := &dto.Metric{Label: labels(tags)}
			metric(m, t)
			f.Metric = append(f.Metric, m)
		}
		sorted := make([]*family, 0, len(byName))
		for _, f := range byName {
			sorted = append(sorted, f)
		}
		slices.SortFunc(sorted, func(a, b *family) int { return strings.Compare(a.raw, b.raw) })
		for _, f := range sorted {
			out = append(out, f.MetricFamily)
		}
	}
	add(counters, dto.MetricType_COUNTER, func(m *dto.Metric, t stats.Stat) {
		m.Counter = &dto.Counter{Value: proto.Float64(float(t))}
	})
	add(gauges, dto.MetricType_GAUGE, func(m *dto.Metric, t stats.Stat) {
		m.Gauge = &dto.Gauge{Value: proto.Float64(float(t))}
	})
	if q.texts {
		add(texts, dto.MetricType_GAUGE, func(m *dto.Metric, t stats.Stat) {
			m.Label = append(m.Label, &dto.LabelPair{Name: proto.String("text_value"), Value: proto.String(t.Text())})
			m.Gauge = &dto.Gauge{Value: proto.Float64(0)}
		})
	}
	if q.buckets == "summary" {
		add(histograms, dto.MetricType_SUMMARY, func(m *dto.Metric, t stats.Stat) { m.Summary = summary(t) })
	} else {
		add(histograms, dto.MetricType_HISTOGRAM, func(m *dto.Metric, t stats.Stat) { m.Histogram = histogram(t) })
	}
	return out
}

func float(t stats.Stat) float64 {
	n, unsigned := t.Number()
	if unsigned {
		return float64(uint64(n))
	}
	return float64(n)
}

func histogram(t stats.Stat) *dto.Histogram {
	_, all := t.Distributions()
	bounds := t.Bounds()
	h := &dto.Histogram{SampleCount: proto.Uint64(all.Count()), SampleSum: proto.Float64(all.Sum())}
	for i, n := range all.CountsAtMost(bounds) {
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: proto.Float64(bounds[i]), CumulativeCount: proto.Uint64(n)})
	}
	return h
}

func summary(t stats.Stat) *dto.Summary {
	_, all := t.Distributions()
	s := &dto.Summary{SampleCount: proto.Uint64(all.Count()), SampleSum: proto.Float64(all.Sum())}
	for i, v := range all.Quantiles(stats.Quantiles) {
		s.Quantile = append(s.Quantile, &dto.Quantile{Quantile: proto.Float64(stats.Quantiles[i]), Value: proto.Float64(v)})
	}
	return s
}

func labels(tags []stats.Tag) []*dto.LabelPair {
	var out []*dto.LabelPair
	for _, t := range tags {
		out = append(out, &dto.LabelPair{Name: proto.String(cleanName(t.Name)), Value: proto.String(t.Value)})
	}
	return out
}

func prometheusName(raw string) string {
	if strings.HasPrefix(raw, ownPrefix) {
		return cleanName(raw)
	}
	return "envoy_" + cleanName(raw)
}

// cleanName replaces what a Prometheus name may not hold.
func cleanName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, s)
}

func (s *Server) prometheus(w http.ResponseWriter, r *http.Request) {
	q, err := parseStatQuery(r)
	if err != nil {
		write(w, http.StatusBadRequest, plainText, err.Error())
		return
	}
	s.flush()
	families := s.exporter.families(&q)
	if q.kind == "All" && q.keep == nil && !q.usedOnly {
		own, err := s.exporter.process.Gather()
		if err != nil {
			s.config.Log.Debug("some metrics of the process are missing", "reason", err)
		}
		for _, f := range own {
			f.Help = nil
		}
		families = append(families, own...)
	}
	w.Header().Set("Content-Type", plainText)
	w.WriteHeader(http.StatusOK)
	writeFamilies(w, families)
}

// writeFamilies prints in the text format with Envoy's empty braces after the names of metrics without
// labels, which expfmt leaves out and scripts made for Envoy look for.
func writeFamilies(w io.Writer, families []*dto.MetricFamily) {
	var text, out bytes.Buffer
	for _, f := range families {
		text.Reset()
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			continue // a family without metrics, or of names that Prometheus cannot have
		}
		for line := range bytes.Lines(text.Bytes()) {
			space := bytes.IndexByte(line, ' ')
			if line[0] != '#' && space > 0 && bytes.IndexByte(line[:space], '{') < 0 {
				out.Write(line[:space])
				out.WriteString("{}")
				line = line[space:]
			}
			out.Write(line)
		}
		if out.Len() > 64<<10 {
			w.Write(out.Bytes())
			out.Reset()
		}
	}
	w.Write(out.Bytes())
}
