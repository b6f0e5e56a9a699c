package admin

import (
	"bytes"
	"io"
	"iter"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
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

// Gather implements prometheus.Gatherer with all stats of the store, in Envoy's order.
func (e *exporter) Gather() ([]*dto.MetricFamily, error) {
	return slices.Collect(e.families(&statQuery{kind: "All"})), nil
}

// families yields the metric families of a query in Envoy's order: counters, gauges, texts, histograms,
// each by the raw name without tags. One family at a time exists, since a thousand clusters have a hundred
// thousand metrics.
func (e *exporter) families(q *statQuery) iter.Seq[*dto.MetricFamily] {
	return func(yield func(*dto.MetricFamily) bool) {
		texts, numbers, histograms := q.selected(e.store)
		labels := labelCache{}
		ofKind := func(k stats.Kind) func(stats.Stat) bool { return func(t stats.Stat) bool { return t.Kind == k } }
		if !yieldFamilies(numbers, ofKind(stats.CounterKind), func(raw string, list []stats.Stat) bool {
			return yield(counterFamily(raw, list, labels))
		}) || !yieldFamilies(numbers, ofKind(stats.GaugeKind), func(raw string, list []stats.Stat) bool {
			return yield(gaugeFamily(raw, list, labels))
		}) {
			return
		}
		if q.texts && !yieldFamilies(texts, ofKind(stats.TextKind), func(raw string, list []stats.Stat) bool {
			return yield(textFamily(raw, list, labels))
		}) {
			return
		}
		yieldFamilies(histograms, ofKind(stats.HistogramKind), func(raw string, list []stats.Stat) bool {
			return yield(histogramFamily(raw, list, labels, q.buckets == "summary"))
		})
	}
}

// yieldFamilies groups the stats that want accepts by their names without tags, and calls f for each group,
// sorted, until it returns false.
func yieldFamilies(all []stats.Stat, want func(stats.Stat) bool, f func(raw string, list []stats.Stat) bool) bool {
	count := map[string]int{}
	for _, t := range all {
		if want(t) {
			raw, _ := t.Tagged()
			count[raw]++
		}
	}
	byName := make(map[string][]stats.Stat, len(count))
	for _, t := range all {
		if want(t) {
			raw, _ := t.Tagged()
			if byName[raw] == nil {
				byName[raw] = make([]stats.Stat, 0, count[raw])
			}
			byName[raw] = append(byName[raw], t)
		}
	}
	for _, raw := range slices.Sorted(maps.Keys(byName)) {
		if !f(raw, byName[raw]) {
			return false
		}
		delete(byName, raw)
	}
	return true
}

// newFamily makes a family with a metric for each stat, which are to be given their values.
func newFamily(raw string, kind dto.MetricType, list []stats.Stat, labels labelCache) (*dto.MetricFamily, []dto.Metric) {
	metrics := make([]dto.Metric, len(list))
	family := &dto.MetricFamily{Name: proto.String(prometheusName(raw)), Type: kind.Enum(), Metric: make([]*dto.Metric, len(list))}
	for i, t := range list {
		_, tags := t.Tagged()
		metrics[i].Label = labels.of(tags)
		family.Metric[i] = &metrics[i]
	}
	return family, metrics
}

func counterFamily(raw string, list []stats.Stat, labels labelCache) *dto.MetricFamily {
	family, metrics := newFamily(raw, dto.MetricType_COUNTER, list, labels)
	values, counters := make([]float64, len(list)), make([]dto.Counter, len(list))
	for i, t := range list {
		values[i] = float(t)
		counters[i].Value = &values[i]
		metrics[i].Counter = &counters[i]
	}
	return family
}

func gaugeFamily(raw string, list []stats.Stat, labels labelCache) *dto.MetricFamily {
	family, metrics := newFamily(raw, dto.MetricType_GAUGE, list, labels)
	values, gauges := make([]float64, len(list)), make([]dto.Gauge, len(list))
	for i, t := range list {
		values[i] = float(t)
		gauges[i].Value = &values[i]
		metrics[i].Gauge = &gauges[i]
	}
	return family
}

func textFamily(raw string, list []stats.Stat, labels labelCache) *dto.MetricFamily {
	family, metrics := newFamily(raw, dto.MetricType_GAUGE, list, labels)
	for i, t := range list {
		metrics[i].Label = append(slices.Clip(metrics[i].Label), &dto.LabelPair{Name: proto.String("text_value"), Value: proto.String(t.Text())})
		metrics[i].Gauge = &dto.Gauge{Value: proto.Float64(0)}
	}
	return family
}

func histogramFamily(raw string, list []stats.Stat, labels labelCache, summaries bool) *dto.MetricFamily {
	kind := dto.MetricType_HISTOGRAM
	if summaries {
		kind = dto.MetricType_SUMMARY
	}
	family, metrics := newFamily(raw, kind, list, labels)
	for i, t := range list {
		if summaries {
			metrics[i].Summary = summary(t)
		} else {
			metrics[i].Histogram = histogram(t)
		}
	}
	return family
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

// labelCache holds the labels of lists of tags, which most stats of a cluster share, by the first tag.
type labelCache map[*stats.Tag][]*dto.LabelPair

func (c labelCache) of(tags []stats.Tag) []*dto.LabelPair {
	if len(tags) == 0 {
		return nil
	}
	if have := c[&tags[0]]; have != nil {
		return have
	}
	pairs := make([]*dto.LabelPair, len(tags))
	for i, t := range tags {
		pairs[i] = &dto.LabelPair{Name: proto.String(cleanName(t.Name)), Value: proto.String(t.Value)}
	}
	c[&tags[0]] = pairs
	return pairs
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
	w.Header().Set("Content-Type", plainText)
	w.WriteHeader(http.StatusOK)
	writeFamilies(w, s.exporter.families(&q))
	if q.kind == "All" && q.keep == nil && !q.usedOnly {
		own, err := s.exporter.process.Gather()
		if err != nil {
			s.config.Log.Debug("some metrics of the process are missing", "reason", err)
		}
		for _, f := range own {
			f.Help = nil
		}
		writeFamilies(w, slices.Values(own))
	}
}

// writeFamilies prints in the text format with Envoy's empty braces after the names of metrics without
// labels, which expfmt leaves out and scripts made for Envoy look for, and with numbers written out:
// le="1800000" is another series than le="1.8e+06".
func writeFamilies(w io.Writer, families iter.Seq[*dto.MetricFamily]) {
	var text, out bytes.Buffer
	for f := range families {
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
			out.Write(writtenOut(line))
		}
		if out.Len() > 64<<10 {
			w.Write(out.Bytes())
			out.Reset()
		}
	}
	w.Write(out.Bytes())
}

// writtenOut replaces whole numbers with an exponent in a line, its value and its le label, by all their
// digits.
func writtenOut(line []byte) []byte {
	if line[0] == '#' || !bytes.Contains(line, []byte("e+")) {
		return line
	}
	end := len(bytes.TrimRight(line, "\n"))
	line = replaceNumber(line, bytes.LastIndexByte(line[:end], ' ')+1, end)
	if label := bytes.Index(line, []byte(`le="`)); label >= 0 {
		start := label + len(`le="`)
		line = replaceNumber(line, start, start+bytes.IndexByte(line[start:], '"'))
	}
	return line
}

func replaceNumber(line []byte, start, end int) []byte {
	v, err := strconv.ParseFloat(string(line[start:end]), 64)
	if err != nil || v != math.Trunc(v) || math.IsInf(v, 0) {
		return line
	}
	out := strconv.AppendFloat(bytes.Clone(line[:start]), v, 'f', -1, 64)
	return append(out, line[end:]...)
}
