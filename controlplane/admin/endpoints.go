package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// endpoint is one path of the admin server.
type endpoint struct {
	path    string
	help    string
	params  []param
	mutates bool // needs POST
	serve   func(http.ResponseWriter, *http.Request)
}

// Path, Help, Mutates and Pattern are for the page.
func (e *endpoint) Path() string  { return e.path }
func (e *endpoint) Help() string  { return e.help }
func (e *endpoint) Mutates() bool { return e.mutates }

// Pattern reports whether the path is one of many.
func (e *endpoint) Pattern() bool { return strings.Contains(e.path, "<") }

type param struct{ name, help string }

var (
	usedOnly   = param{"usedonly", "only stats that have been written since the start"}
	statFilter = param{"filter", "regular expression (RE2) for the names of stats"}
	invert     = param{"invert_filter", "show what the filter does not match"}
)

var hostParams = []param{
	{"host", "address and port of the backend"},
	{"cluster", "the cluster to look in; all, if it is not given"},
}

// table lists the endpoints, sorted by path.
func (s *Server) table() []*endpoint {
	t := []*endpoint{
		{path: "/", help: "overview of clusters and backends, and this list", serve: s.page},
		{path: "/certs", help: "certificates in use (none: TLS passes through)", serve: s.certs},
		{path: "/clusters", help: "clusters and their hosts", serve: s.clusters, params: []param{
			{"filter", "regular expression (RE2) for the names of clusters"},
			{"format", "one of (text, json)"},
		}},
		{path: "/config_dump", help: "the configuration in force", serve: s.configDump, params: []param{
			{"resource", "a repeated field to dump, such as static_clusters or dynamic_listeners"},
			{"mask", "fields to keep, separated by commas; with resource they are those of each element"},
			{"name_regex", "regular expression (RE2) for the names of resources"},
			{"include_eds", "dump the endpoints of clusters as well"},
		}},
		{path: "/contention", help: "Envoy's mutex contention (not available)", serve: static(http.StatusOK, "Mutex contention tracing is not enabled. Go's mutex profile is at /debug/pprof/mutex.")},
		{path: "/cpuprofiler", help: "Envoy's CPU profiler (use /debug/pprof/profile)", mutates: true, serve: static(http.StatusNotImplemented, "not available: use /debug/pprof/profile\n")},
		{path: "/debug/pprof/", help: "Go's profiles", serve: profile},
		{path: "/drain_listeners", help: "stop listeners", mutates: true, serve: s.drainListeners, params: []param{
			{"graceful", "go on accepting for the drain time before stopping"},
			{"skip_exit", "drain without stopping the listeners"},
			{"inboundonly", "only listeners whose traffic direction is inbound"},
		}},
		{path: "/guideway/capture", help: "packets of a listener in XDP, before and after forwarding, as pcap-ng", mutates: true, serve: s.capture, params: []param{
			{"listener", "name of the listener"},
			{"seconds", "how long; 10 unless given"},
			{"packets", "end after so many; 0 for no bound"},
			{"every", "take one packet in so many"},
		}},
		{path: "/guideway/flows", help: "flows that XDP remembers, one JSON object a line", serve: s.flows, params: []param{
			{"listener", "only those of a listener"},
			{"limit", "at most so many"},
		}},
		{path: "/guideway/services", help: "listeners: the data plane of each and why, backends, next hops, slots", serve: s.services},
		{path: "/guideway/changes", help: "what the last changes moved, newest first", serve: s.changes},
		{path: "/guideway/drain", help: "take a backend out for new flows; those it has stay", mutates: true, serve: s.drainHost(true), params: hostParams},
		{path: "/guideway/hosts", help: "hosts with their weight, health, slots and live flows, and the identity of tables", serve: s.hosts, params: hostParams},
		{path: "/guideway/plan", help: "what the configuration in the request's body would change", mutates: true, serve: s.plan},
		{path: "/guideway/undrain", help: "take a drained backend back in", mutates: true, serve: s.drainHost(false), params: hostParams},
		{path: "/healthcheck/fail", help: "make /ready fail, so that traffic is taken elsewhere", mutates: true, serve: s.healthcheck(true)},
		{path: "/healthcheck/ok", help: "make /ready succeed again", mutates: true, serve: s.healthcheck(false)},
		{path: "/heapprofiler", help: "Envoy's heap profiler (use /debug/pprof/heap)", mutates: true, serve: static(http.StatusNotImplemented, "not available: use /debug/pprof/heap\n")},
		{path: "/help", help: "this list", serve: func(w http.ResponseWriter, _ *http.Request) {
			write(w, http.StatusOK, plainText, s.help())
		}},
		{path: "/hot_restart_version", help: "hot restart compatibility version", serve: s.hotRestartVersion},
		{path: "/init_dump", help: "what the start still waits for", serve: s.initDump},
		{path: "/listeners", help: "listeners and their addresses", serve: s.listeners, params: []param{
			{"format", "one of (text, json)"},
		}},
		{path: "/logging", help: "show and set log levels", mutates: true, serve: s.logging, params: []param{
			{"paths", "several levels at once: <logger1>:<level1>,<logger2>:<level2>"},
			{"level", "level of all loggers; one of (trace, debug, info, warning, error, critical, off)"},
			{"<logger>", "level of one logger"},
		}},
		{path: "/maglev/<cluster>", help: "the Maglev tables of a cluster: size, digest, slots of each host", serve: s.maglev},
		{path: "/memory", help: "memory of the process", serve: s.memory},
		{path: "/quitquitquit", help: "end the process", mutates: true, serve: s.quit},
		{path: "/ready", help: "the state; status 200 if it is LIVE, else 503", serve: s.ready},
		{path: "/reopen_logs", help: "open log files anew", mutates: true, serve: s.reopenLogs},
		{path: "/reset_counters", help: "set all counters to 0", mutates: true, serve: s.resetCounters},
		{path: "/runtime", help: "runtime values", serve: s.runtime},
		{path: "/runtime_modify", help: "set runtime values of the admin layer: ?key1=value1&key2=value2; an empty value takes an override away", mutates: true, serve: s.runtimeModify},
		{path: "/server_info", help: "version, state, command line and node", serve: s.serverInfo},
		{path: "/stats", help: "stats", serve: s.stats, params: []param{
			usedOnly, statFilter, invert,
			{"format", "one of (html, json, prometheus, text)"},
			{"type", "one of (All, Counters, Histograms, Gauges, TextReadouts)"},
			{"histogram_buckets", "one of (cumulative, disjoint, detailed, summary)"},
		}},
		{path: "/stats/prometheus", help: "stats for Prometheus", serve: s.prometheus, params: []param{
			usedOnly, statFilter, invert,
			{"text_readouts", "texts as gauges of value 0 with the text as a label"},
		}},
		{path: "/stats/recentlookups", help: "Envoy's symbol table lookups (not available)", serve: static(http.StatusOK, "Lookup tracking is not enabled.\n")},
	}
	slices.SortFunc(t, func(a, b *endpoint) int { return strings.Compare(a.path, b.path) })
	return t
}

// sorted returns the endpoints by path.
func (s *Server) sorted() []*endpoint {
	var all []*endpoint
	for _, e := range s.endpoints {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *endpoint) int { return strings.Compare(a.path, b.path) })
	return all
}

// help is the list of commands in Envoy's layout.
func (s *Server) help() string {
	var b strings.Builder
	b.WriteString("admin commands are:\n")
	for _, e := range s.sorted() {
		post := ""
		if e.mutates {
			post = " (POST)"
		}
		fmt.Fprintf(&b, "  %s%s: %s\n", e.path, post, e.help)
		for _, p := range e.params {
			fmt.Fprintf(&b, "      %s: %s\n", p.name, p.help)
		}
	}
	return b.String()
}

func static(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { write(w, status, plainText, body) }
}
