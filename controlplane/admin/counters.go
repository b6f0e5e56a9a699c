package admin

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/guideway/guideway/dataplane/stats"
)

// counters are the stats of the admin server itself.
type counters struct {
	listener struct {
		Total    *stats.Counter   `stat:"downstream_cx_total"`
		Destroy  *stats.Counter   `stat:"downstream_cx_destroy"`
		Active   *stats.Gauge     `stat:"downstream_cx_active"`
		LengthMs *stats.Histogram `stat:"downstream_cx_length_ms"`
		Main     *stats.Counter   `stat:"main_thread.downstream_cx_total"`
		MainNow  *stats.Gauge     `stat:"main_thread.downstream_cx_active"`
	}
	http struct {
		CxTotal   *stats.Counter   `stat:"downstream_cx_total"`
		CxHTTP1   *stats.Counter   `stat:"downstream_cx_http1_total"`
		CxDestroy *stats.Counter   `stat:"downstream_cx_destroy"`
		CxActive  *stats.Gauge     `stat:"downstream_cx_active"`
		CxNow1    *stats.Gauge     `stat:"downstream_cx_http1_active"`
		RqTotal   *stats.Counter   `stat:"downstream_rq_total"`
		RqHTTP1   *stats.Counter   `stat:"downstream_rq_http1_total"`
		RqDone    *stats.Counter   `stat:"downstream_rq_completed"`
		RqTime    *stats.Histogram `stat:"downstream_rq_time"`
		Rq1xx     *stats.Counter   `stat:"downstream_rq_1xx"`
		Rq2xx     *stats.Counter   `stat:"downstream_rq_2xx"`
		Rq3xx     *stats.Counter   `stat:"downstream_rq_3xx"`
		Rq4xx     *stats.Counter   `stat:"downstream_rq_4xx"`
		Rq5xx     *stats.Counter   `stat:"downstream_rq_5xx"`
	}
	mu    sync.Mutex
	since map[net.Conn]time.Time
}

var (
	listenerZeros = stats.Names{
		Counters: []string{
			"downstream_cx_overflow", "downstream_cx_overload_reject",
			"downstream_cx_transport_socket_connect_timeout", "downstream_global_cx_overflow",
			"downstream_listener_filter_error", "downstream_listener_filter_remote_close",
			"downstream_pre_cx_timeout", "no_filter_chain_match",
		},
		Gauges:     []string{"downstream_pre_cx_active"},
		Histograms: []string{"connections_accepted_per_socket_event"},
	}
	// watchdogZeros are for the watchdogs that Envoy has over its threads.
	watchdogZeros = stats.Names{Counters: []string{"watchdog_mega_miss", "watchdog_miss"}}
)

func newCounters(store *stats.Store) *counters {
	c := &counters{since: map[net.Conn]time.Time{}}
	listener := store.Scope("listener.admin.")
	stats.Bind(listener, &c.listener)
	listener.Zero(&listenerZeros)
	stats.Bind(store.Scope("http.admin."), &c.http)

	for _, prefix := range []string{"main_thread.", "workers.", "server.main_thread."} {
		store.Scope(prefix).Zero(&watchdogZeros)
	}
	return c
}

// connections adds up the live connections of all listeners.
func connections(store *stats.Store) (sum int64) {
	for _, t := range store.Select(func(name string) bool {
		return strings.HasPrefix(name, "listener.") && strings.HasSuffix(name, ".downstream_cx_active") &&
			!strings.Contains(name, ".worker_") && !strings.HasPrefix(name, "listener.admin.")
	}) {
		n, _ := t.Number()
		sum += n
	}
	return sum
}

// connState counts connections of the admin listener.
func (c *counters) connState(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.mu.Lock()
		c.since[conn] = time.Now()
		c.mu.Unlock()
		for _, n := range []*stats.Counter{c.listener.Total, c.listener.Main, c.http.CxTotal, c.http.CxHTTP1} {
			n.Inc()
		}
		for _, g := range []*stats.Gauge{c.listener.Active, c.listener.MainNow, c.http.CxActive, c.http.CxNow1} {
			g.Inc()
		}
	case http.StateClosed, http.StateHijacked:
		c.mu.Lock()
		since, known := c.since[conn]
		delete(c.since, conn)
		c.mu.Unlock()
		if !known {
			return
		}
		c.listener.Destroy.Inc()
		c.http.CxDestroy.Inc()
		c.listener.LengthMs.Record(float64(time.Since(since).Milliseconds()))
		for _, g := range []*stats.Gauge{c.listener.Active, c.listener.MainNow, c.http.CxActive, c.http.CxNow1} {
			g.Dec()
		}
	}
}

func (c *counters) request(status int, took time.Duration) {
	c.http.RqTotal.Inc()
	c.http.RqHTTP1.Inc()
	c.http.RqDone.Inc()
	c.http.RqTime.Record(float64(took.Milliseconds()))
	if class := status/100 - 1; class >= 0 && class < 5 {
		[...]*stats.Counter{c.http.Rq1xx, c.http.Rq2xx, c.http.Rq3xx, c.http.Rq4xx, c.http.Rq5xx}[class].Inc()
	}
}
