package admin

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/guideway/guideway/dataplane/stats"
)

// statQuery is what the parameters of /stats select.
type statQuery struct {
	keep     *regexp.Regexp
	invert   bool
	usedOnly bool
	kind     string // All, Counters, Gauges, Histograms or TextReadouts
	buckets  string // "", cumulative, disjoint, detailed or summary
	texts    bool
}

func parseStatQuery(r *http.Request) (q statQuery, err error) {
	if q.keep, err = filter(r); err != nil {
		return q, err
	}
	params := r.URL.Query()
	q.invert = params.Has("invert_filter")
	q.usedOnly = params.Has("usedonly")
	q.texts = params.Has("text_readouts")
	q.kind = params.Get("type")
	switch q.kind {
	case "":
		q.kind = "All"
	case "All", "Counters", "Gauges", "Histograms", "TextReadouts":
	default:
		return q, fmt.Errorf("invalid &type= param")
	}
	q.buckets = params.Get("histogram_buckets")
	switch q.buckets {
	case "", "cumulative", "disjoint", "detailed", "summary":
	default:
		return q, fmt.Errorf("usage: /stats?histogram_buckets=(cumulative|disjoint|detailed|summary|prometheusnative)\n")
	}
	return q, nil
}

// wants reports whether a kind of stat is asked for.
func (q *statQuery) wants(k stats.Kind) bool {
	switch q.kind {
	case "Counters":
		return k == stats.CounterKind
	case "Gauges":
		return k == stats.GaugeKind
	case "Histograms":
		return k == stats.HistogramKind
	case "TextReadouts":
		return k == stats.TextKind
	}
	return true
}

// selected returns the stats of a query in Envoy's three sorted runs: texts, counters and gauges,
// histograms.
func (q *statQuery) selected(store *stats.Store) (texts, numbers, histograms []stats.Stat) {
	var keep func(string) bool
	if q.keep != nil {
		keep = func(name string) bool { return q.keep.MatchString(name) != q.invert }
	}
	all := slices.DeleteFunc(store.Select(keep), func(t stats.Stat) bool {
		return !q.wants(t.Kind) || q.usedOnly && !t.Used()
	})
	// One sort brings the runs one after the other.
	slices.SortFunc(all, func(a, b stats.Stat) int {
		if c := cmp.Compare(run(a.Kind), run(b.Kind)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	start := func(r int) int {
		i, _ := slices.BinarySearchFunc(all, r, func(t stats.Stat, r int) int { return cmp.Compare(run(t.Kind), r) })
		return i
	}
	return all[:start(1)], all[start(1):start(2)], all[start(2):]
}

// run is the place of a kind in Envoy's order.
func run(k stats.Kind) int {
	switch k {
	case stats.TextKind:
		return 0
	case stats.HistogramKind:
		return 2
	}
	return 1
}

func (s *Server) stats(w http.ResponseWriter, r *http.Request) {
	format := r.URL.Query().Get("format")
	if format == "prometheus" {
		s.prometheus(w, r)
		return
	}
	q, err := parseStatQuery(r)
	if err != nil {
		write(w, http.StatusBadRequest, plainText, err.Error())
		return
	}
	s.flush()
	switch format {
	case "", "text":
		write(w, http.StatusOK, plainText, statsText(&q, s.config.Stats))
	case "json":
		write(w, http.StatusOK, jsonText, statsJSON(&q, s.config.Stats))
	case "html", "active-html":
		write(w, http.StatusOK, htmlText, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Guideway stats</title>"+
			"<style>:root{color-scheme:light dark}body{font:14px/1.5 ui-monospace,monospace;margin:1.5rem}</style></head>\n<body><pre>"+
			html.EscapeString(statsText(&q, s.config.Stats))+"</pre></body></html>\n")
	default:
		write(w, http.StatusBadRequest, plainText, "usage: /stats?format=(html|active-html|json|prometheus|text)\n\n")
	}
}

// flush makes what histograms have recorded visible, if every request is to do that.
func (s *Server) flush() {
	if s.config.FlushOnAdmin {
		s.config.Stats.Flush()
	}
}

// number formats the value of a counter or gauge.
func number(t stats.Stat) string {
	n, unsigned := t.Number()
	if unsigned {
		return strconv.FormatUint(uint64(n), 10)
	}
	return strconv.FormatInt(n, 10)
}

func statsText(q *statQuery, store *stats.Store) string {
	texts, numbers, histograms := q.selected(store)
	var b strings.Builder
	for _, t := range texts {
		fmt.Fprintf(&b, "%s: \"%s\"\n", t.Name, html.EscapeString(t.Text()))
	}
	for _, t := range numbers {
		b.WriteString(t.Name + ": " + number(t) + "\n")
	}
	for _, t := range histograms {
		b.WriteString(t.Name + ":" + histogramText(q, t) + "\n")
	}
	return b.String()
}

// histogramText is what follows "name:".
func histogramText(q *statQuery, t stats.Stat) string {
	interval, all := t.Distributions()
	if all.Count() == 0 {
		return " No recorded values"
	}
	switch q.buckets {
	case "cumulative", "disjoint":
		bounds := t.Bounds()
		in, cn := interval.CountsAtMost(bounds), all.CountsAtMost(bounds)
		if q.buckets == "disjoint" {
			in, cn = differences(in), differences(cn)
		}
		var b strings.Builder
		for i, bound := range bounds {
			fmt.Fprintf(&b, " B%s(%d,%d)", strconv.FormatFloat(bound, 'g', 6, 64), in[i], cn[i])
		}
		return b.String()
	case "detailed":
		return "\n  totals=" + binsText(all) + "\n  intervals=" + binsText(interval) + "\n  summary=" + summaryText(interval, all)
	}
	return " " + summaryText(interval, all)
}

func binsText(d stats.Distribution) string {
	var parts []string
	for bin, n := range d.Bins() {
		parts = append(parts, fmt.Sprintf("%s,%s:%d", strconv.FormatFloat(bin[0], 'g', 6, 64), strconv.FormatFloat(bin[1], 'g', 6, 64), n))
	}
	return strings.Join(parts, ", ")
}

func summaryText(interval, all stats.Distribution) string {
	in, cn := interval.Quantiles(stats.Quantiles), all.Quantiles(stats.Quantiles)
	var parts []string
	for i, q := range stats.Quantiles {
		parts = append(parts, fmt.Sprintf("P%s(%s,%s)", percent(q), value(in[i]), value(cn[i])))
	}
	return strings.Join(parts, " ")
}

// percent prints 0.995 as 99.5.
func percent(q float64) string { return strconv.FormatFloat(math.Round(q*1e6)/1e4, 'g', -1, 64) }

// value prints a quantile in the shortest form that reads back the same.
func value(v float64) string {
	if math.IsNaN(v) {
		return "nan"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// differences turns counts up to a bound into counts between bounds.
func differences(counts []uint64) []uint64 {
	out := slices.Clone(counts)
	for i := len(out) - 1; i > 0; i-- {
		out[i] -= out[i-1]
	}
	return out
}

// statsJSON is one line, as Envoy's.
func statsJSON(q *statQuery, store *stats.Store) string {
	texts, numbers, histograms := q.selected(store)
	b := []byte(`{"stats":[`)
	first := true
	next := func() {
		if !first {
			b = append(b, ',')
		}
		first = false
	}
	for _, t := range texts {
		next()
		b = fmt.Appendf(b, `{"name":%s,"value":%s}`, quote(t.Name), quote(t.Text()))
	}
	for _, t := range numbers {
		next()
		b = fmt.Appendf(b, `{"name":%s,"value":%s}`, quote(t.Name), number(t))
	}
	if len(histograms) > 0 {
		next()
		b = append(b, `{"histograms":`...)
		b = appendHistogramsJSON(b, q, histograms)
		b = append(b, '}')
	}
	return string(append(b, "]}"...))
}

func appendHistogramsJSON(b []byte, q *statQuery, histograms []stats.Stat) []byte {
	each := func(f func(t stats.Stat, interval, all stats.Distribution)) {
		for i, t := range histograms {
			if i > 0 {
				b = append(b, ',')
			}
			b = fmt.Appendf(b, `{"name":%s,`, quote(t.Name))
			interval, all := t.Distributions()
			f(t, interval, all)
			b = append(b, '}')
		}
	}
	quantiles := func(interval, all stats.Distribution) {
		in, cn := interval.Quantiles(stats.Quantiles), all.Quantiles(stats.Quantiles)
		for i := range in {
			if i > 0 {
				b = append(b, ',')
			}
			b = fmt.Appendf(b, `{"cumulative":%s,"interval":%s}`, jsonValue(cn[i]), jsonValue(in[i]))
		}
	}
	var percents []string
	for _, p := range stats.Quantiles {
		percents = append(percents, percent(p))
	}
	switch q.buckets {
	case "cumulative", "disjoint":
		b = append(b, '[')
		each(func(t stats.Stat, interval, all stats.Distribution) {
			bounds := t.Bounds()
			in, cn := interval.CountsAtMost(bounds), all.CountsAtMost(bounds)
			if q.buckets == "disjoint" {
				in, cn = differences(in), differences(cn)
			}
			b = append(b, `"buckets":[`...)
			for i, bound := range bounds {
				if i > 0 {
					b = append(b, ',')
				}
				b = fmt.Appendf(b, `{"upper_bound":%s,"interval":%d,"cumulative":%d}`, jsonValue(bound), in[i], cn[i])
			}
			b = append(b, ']')
		})
		return append(b, ']')
	case "detailed":
		b = fmt.Appendf(b, `{"supported_percentiles":[%s],"details":[`, strings.Join(percents, ","))
		each(func(_ stats.Stat, interval, all stats.Distribution) {
			for i, d := range []stats.Distribution{all, interval} {
				b = fmt.Appendf(b, `"%s":[`, [...]string{"totals", "intervals"}[i])
				first := true
				for bin, n := range d.Bins() {
					if !first {
						b = append(b, ',')
					}
					first = false
					b = fmt.Appendf(b, `{"lower_bound":%s,"width":%s,"count":%d}`, jsonValue(bin[0]), jsonValue(bin[1]), n)
				}
				b = append(b, "],"...)
			}
			b = append(b, `"percentiles":[`...)
			quantiles(interval, all)
			b = append(b, ']')
		})
		return append(b, "]}"...)
	}
	b = fmt.Appendf(b, `{"supported_quantiles":[%s],"computed_quantiles":[`, strings.Join(percents, ","))
	each(func(_ stats.Stat, interval, all stats.Distribution) {
		b = append(b, `"values":[`...)
		quantiles(interval, all)
		b = append(b, ']')
	})
	return append(b, "]}"...)
}

func jsonValue(v float64) string {
	if math.IsNaN(v) {
		return "null"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
