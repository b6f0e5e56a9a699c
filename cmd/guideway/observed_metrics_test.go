package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// emitted are the names, of those Envoy has, that a layer 4 load balancer must have as well; <> stands for the name of
// a cluster, listener or prefix.
var emitted = map[string]string{
	"listener.<>.": `downstream_cx_(total|destroy|active|length_ms|overflow|overload_reject|transport_socket_connect_timeout)
		downstream_global_cx_overflow downstream_pre_cx_(active|timeout) no_filter_chain_match
		downstream_listener_filter_(error|remote_close) connections_accepted_per_socket_event
		extension_config_missing network_extension_config_missing udp.downstream_rx_datagram_dropped
		worker_\d+.downstream_cx_(total|active)`,
	"listener_manager.": `listener_(added|modified|removed|stopped|create_success|create_failure|in_place_updated)
		total_listeners_(warming|active|draining) total_filter_chains_draining workers_(started|pinned)`,
	"tcp.<>.": `downstream_cx_(total|no_route|tx_bytes_total|rx_bytes_total|tx_bytes_buffered|rx_bytes_buffered)
		downstream_flow_control_(paused|resumed)_reading_total early_data_received_count_total idle_timeout
		max_downstream_connection_duration upstream_flush_(total|active) downstream_cx_(drain|overload)_close route_delayed_total`,
	"udp.<>.": `downstream_sess_(total|no_route|active|rx_bytes|rx_datagrams|rx_errors|tx_bytes|tx_datagrams|tx_errors)
		idle_timeout session_filter_config_missing`,
	"cluster.<>.": `udp.sess_rx_(datagrams|datagrams_dropped|errors) udp.sess_tx_(datagrams|errors)
		upstream_cx_(total|active|connect_fail|connect_timeout|connect_attempts_exceeded|overflow|pool_overflow|none_healthy|idle_timeout)
		upstream_cx_destroy(_local|_remote)?(_with_active_rq)? upstream_cx_[rt]x_bytes_(total|buffered)
		upstream_cx_(connect|length)_ms upstream_rq_(total|active) upstream_rq_pending_(total|overflow|failure_eject|active)
		upstream_flow_control_.* membership_(change|healthy|degraded|excluded|total) max_host_weight
		update_(attempt|success|failure|empty|no_rebuild|rejected) version warming_state bind_errors
		assignment_(timeout_received|stale|use_cached) default.total_match_count lb_healthy_panic
		lb_recalculate_zone_structures lb_zone_.* lb_local_cluster_not_ok lb_subsets_.*
		maglev_lb.(min|max)_entries_per_host ring_hash_lb.(size|min_hashes_per_host|max_hashes_per_host)
		circuit_breakers.(default|high).(cx|cx_pool|rq_pending|rq|rq_retry)_open
		circuit_breakers.(default|high).remaining_(cx|pending|rq|retries)
		health_check.(attempt|success|failure|passive_failure|network_failure|verify_cluster|healthy|degraded)
		outlier_detection.ejections_(active|overflow|total|consecutive_5xx|success_rate|enforced_.*|detected_.*)`,
	"cluster_manager.": `cluster_(added|modified|removed|updated|updated_via_merge) update_merge_cancelled
		update_out_of_merge_window (active|warming)_clusters`,
	"server.": `uptime live state concurrency memory_(allocated|heap_size|physical_size) (total|parent)_connections version
		days_until_first_cert_expiring hot_restart_(epoch|generation) (static|dynamic)_unknown_fields
		debug_assertion_failures envoy_bug_failures initialization_time_ms`,
}

var emittedNames = func() *regexp.Regexp {
	var names []string
	for prefix, list := range emitted {
		prefix = strings.ReplaceAll(regexp.QuoteMeta(prefix), "<>", ".+")
		for name := range strings.FieldsSeq(list) {
			names = append(names, prefix+strings.ReplaceAll(strings.ReplaceAll(name, ".", `\.`), `\.*`, ".*"))
		}
	}
	return regexp.MustCompile(`^(` + strings.Join(names, "|") + `)$`)
}()

// adminListener are the counters of the admin address' own listener, which is not one of the configuration's.
var adminListener = regexp.MustCompile(`^listener\.admin\.`)

func TestObservedMetrics(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(testbed.Observed, "metrics", "*.tsv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded metrics: %v", err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".tsv")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playMetrics(t, name)
		})
	}
}

func playMetrics(t *testing.T, name string) {
	file := "metrics/" + name + ".tsv"
	expect := testbed.Expecting(t, file)
	config, err := os.ReadFile(filepath.Join("../../controlplane/envoy/testdata/configs", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p := expect.Subject.Start(t, testbed.Isolated(t), config).Ready()
	types := map[string]string{}
	for parameter, kind := range map[string]string{"Counters": "counter", "Gauges": "gauge", "Histograms": "histogram"} {
		for line := range strings.Lines(p.Get("/stats?type=" + parameter).Body) {
			if name, _, ok := strings.Cut(line, ": "); ok {
				types[name] = kind
			}
		}
	}
	exposed := map[string]bool{}
	for line := range strings.Lines(p.Get("/stats/prometheus").Body) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			exposed[line[:i]] = true
		}
	}
	compared := 0
	for _, row := range testbed.Metrics(t, file) {
		raw := row.Case(t)
		if adminListener.MatchString(raw) || !emittedNames.MatchString(raw) {
			continue
		}
		compared++
		var kind any
		if k, ok := types[raw]; ok {
			kind = k
		}
		for _, d := range testbed.Compare(t, raw, expect.Want(t, row, "type"), kind) {
			t.Error(d)
		}
		if want, _ := expect.Want(t, row, "prometheus").(string); want != "" && !exposed[want] {
			t.Errorf("/stats/prometheus has no %s", want)
		}
	}
	t.Logf("%d metrics compared", compared)
	if compared < 100 {
		t.Errorf("only %d metrics were compared", compared)
	}
}
