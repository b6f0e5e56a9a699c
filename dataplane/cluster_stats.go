package dataplane

import (
	"math"

	"github.com/guideway/guideway/dataplane/stats"
)

// ClusterStats are the stats below "cluster.<name>.". Fields are bound by their stat tags
// (see stats.Bind); every name exists from the start, but the lazy ones, which BindUDP makes. Names that
// are 0 in any L4 proxy are in clusterZeros instead. Source of the names: Envoy, cluster statistics.
type ClusterStats struct {
	Scope *stats.Scope

	UpstreamCxTotal                   *stats.Counter   `stat:"upstream_cx_total"`
	UpstreamCxActive                  *stats.Gauge     `stat:"upstream_cx_active"`
	UpstreamCxConnectFail             *stats.Counter   `stat:"upstream_cx_connect_fail"`
	UpstreamCxConnectTimeout          *stats.Counter   `stat:"upstream_cx_connect_timeout"`
	UpstreamCxConnectAttemptsExceeded *stats.Counter   `stat:"upstream_cx_connect_attempts_exceeded"`
	UpstreamCxOverflow                *stats.Counter   `stat:"upstream_cx_overflow"`
	UpstreamCxPoolOverflow            *stats.Counter   `stat:"upstream_cx_pool_overflow"`
	UpstreamCxNoneHealthy             *stats.Counter   `stat:"upstream_cx_none_healthy"`
	UpstreamCxDestroy                 *stats.Counter   `stat:"upstream_cx_destroy"`
	UpstreamCxDestroyLocal            *stats.Counter   `stat:"upstream_cx_destroy_local"`
	UpstreamCxDestroyRemote           *stats.Counter   `stat:"upstream_cx_destroy_remote"`
	UpstreamCxDestroyWithRq           *stats.Counter   `stat:"upstream_cx_destroy_with_active_rq"`
	UpstreamCxDestroyLocalWithRq      *stats.Counter   `stat:"upstream_cx_destroy_local_with_active_rq"`
	UpstreamCxDestroyRemoteWithRq     *stats.Counter   `stat:"upstream_cx_destroy_remote_with_active_rq"`
	UpstreamCxIdleTimeout             *stats.Counter   `stat:"upstream_cx_idle_timeout"`
	UpstreamCxRxBytesTotal            *stats.Counter   `stat:"upstream_cx_rx_bytes_total"`
	UpstreamCxTxBytesTotal            *stats.Counter   `stat:"upstream_cx_tx_bytes_total"`
	UpstreamCxRxBytesBuffered         *stats.Gauge     `stat:"upstream_cx_rx_bytes_buffered"`
	UpstreamCxTxBytesBuffered         *stats.Gauge     `stat:"upstream_cx_tx_bytes_buffered"`
	UpstreamCxConnectMs               *stats.Histogram `stat:"upstream_cx_connect_ms"`
	UpstreamCxLengthMs                *stats.Histogram `stat:"upstream_cx_length_ms"`

	UpstreamRqTotal               *stats.Counter `stat:"upstream_rq_total"`
	UpstreamRqActive              *stats.Gauge   `stat:"upstream_rq_active"`
	UpstreamRqPendingTotal        *stats.Counter `stat:"upstream_rq_pending_total"`
	UpstreamRqPendingOverflow     *stats.Counter `stat:"upstream_rq_pending_overflow"`
	UpstreamRqPendingFailureEject *stats.Counter `stat:"upstream_rq_pending_failure_eject"`
	UpstreamRqCancelled           *stats.Counter `stat:"upstream_rq_cancelled"`
	UpstreamRqPendingActive       *stats.Gauge   `stat:"upstream_rq_pending_active"`

	FlowControlPaused   *stats.Counter `stat:"upstream_flow_control_paused_reading_total"`
	FlowControlResumed  *stats.Counter `stat:"upstream_flow_control_resumed_reading_total"`
	FlowControlBackedUp *stats.Counter `stat:"upstream_flow_control_backed_up_total"`
	FlowControlDrained  *stats.Counter `stat:"upstream_flow_control_drained_total"`

	BindErrors      *stats.Counter `stat:"bind_errors"`
	LBHealthyPanic  *stats.Counter `stat:"lb_healthy_panic"`
	TotalMatchCount *stats.Counter `stat:"default.total_match_count"`

	MembershipChange   *stats.Counter `stat:"membership_change"`
	MembershipHealthy  *stats.Gauge   `stat:"membership_healthy"`
	MembershipDegraded *stats.Gauge   `stat:"membership_degraded"`
	MembershipExcluded *stats.Gauge   `stat:"membership_excluded"`
	MembershipTotal    *stats.Gauge   `stat:"membership_total"`
	MaxHostWeight      *stats.Gauge   `stat:"max_host_weight"`

	UpdateAttempt   *stats.Counter `stat:"update_attempt"`
	UpdateSuccess   *stats.Counter `stat:"update_success"`
	UpdateFailure   *stats.Counter `stat:"update_failure"`
	UpdateEmpty     *stats.Counter `stat:"update_empty"`
	UpdateNoRebuild *stats.Counter `stat:"update_no_rebuild"`

	AssignmentTimeoutReceived *stats.Counter `stat:"assignment_timeout_received"`
	AssignmentStale           *stats.Counter `stat:"assignment_stale"`
	AssignmentUseCached       *stats.Counter `stat:"assignment_use_cached"`
	Version                   *stats.Gauge   `stat:"version"`
	WarmingState              *stats.Gauge   `stat:"warming_state"`

	CxOpen        *stats.Gauge `stat:"circuit_breakers.default.cx_open"`
	CxPoolOpen    *stats.Gauge `stat:"circuit_breakers.default.cx_pool_open"`
	RqPendingOpen *stats.Gauge `stat:"circuit_breakers.default.rq_pending_open"`
	RqOpen        *stats.Gauge `stat:"circuit_breakers.default.rq_open"`
	RqRetryOpen   *stats.Gauge `stat:"circuit_breakers.default.rq_retry_open"`

	UDPSessRxDatagrams        *stats.Counter `stat:"udp.sess_rx_datagrams,lazy"`
	UDPSessRxDatagramsDropped *stats.Counter `stat:"udp.sess_rx_datagrams_dropped,lazy"`
	UDPSessRxErrors           *stats.Counter `stat:"udp.sess_rx_errors,lazy"`
	UDPSessTxDatagrams        *stats.Counter `stat:"udp.sess_tx_datagrams,lazy"`
	UDPSessTxErrors           *stats.Counter `stat:"udp.sess_tx_errors,lazy"`
}

// NewClusterStats binds the stats of one cluster below "cluster.<statName>.".
func NewClusterStats(store *stats.Store, statName string) *ClusterStats {
	s := &ClusterStats{Scope: store.Scope("cluster." + statName + ".")}
	stats.Bind(s.Scope, s)
	s.Scope.Zero(&clusterZeros)
	return s
}

// BindUDP makes the stats of a cluster that serves UDP sessions.
func (s *ClusterStats) BindUDP() {
	stats.BindLazy(s.Scope, s)
	s.Scope.Zero(&clusterUDPZeros)
}

// TrackRemaining makes the gauges that show how much each circuit breaker would still let through
// (track_remaining), for the thresholds of one cluster version. Connection pools have no bound.
func (s *ClusterStats) TrackRemaining(b CircuitBreakers, live *ClusterLive) {
	left := func(max uint32, used *stats.Gauge) func() int64 {
		return func() int64 {
			if used == nil {
				return int64(max)
			}
			return int64(max) - min(used.Value(), int64(max))
		}
	}
	for _, p := range []struct {
		name       string
		thresholds Thresholds
		live       *ClusterLive
	}{{"default", b.Default, live}, {"high", b.High, &ClusterLive{}}} {
		if !p.thresholds.TrackRemaining {
			continue
		}
		prefix := "circuit_breakers." + p.name + ".remaining_"
		s.Scope.GaugeFunc(prefix+"cx", left(p.thresholds.MaxConnections, &p.live.Connections))
		s.Scope.GaugeFunc(prefix+"pending", left(p.thresholds.MaxPendingRequests, &p.live.Pending))
		s.Scope.GaugeFunc(prefix+"rq", left(p.thresholds.MaxRequests, &p.live.Requests))
		s.Scope.GaugeFunc(prefix+"retries", left(p.thresholds.MaxRetries, nil))
		s.Scope.Gauge(prefix + "cx_pools").SetUnsigned(math.MaxUint64)
	}
}

// clusterZeros are names of every Envoy cluster that belong to HTTP, subsets, zones, or the HIGH priority.
var clusterZeros = stats.Names{
	Counters: []string{
		"lb_local_cluster_not_ok", "lb_recalculate_zone_structures", "lb_subsets_created",
		"lb_subsets_fallback", "lb_subsets_fallback_panic", "lb_subsets_removed", "lb_subsets_selected",
		"lb_zone_cluster_too_small", "lb_zone_no_capacity_left", "lb_zone_routing_all_directly",
		"lb_zone_routing_cross_zone", "lb_zone_routing_sampled", "original_dst_host_invalid",
		"retry_or_shadow_abandoned", "upstream_cx_close_notify", "upstream_cx_connect_with_0_rtt",
		"upstream_cx_http1_total", "upstream_cx_http2_total", "upstream_cx_http3_total",
		"upstream_cx_max_duration_reached", "upstream_cx_max_requests", "upstream_cx_preconnect_skipped",
		"upstream_cx_protocol_error", "upstream_http3_broken", "upstream_internal_redirect_failed_total",
		"upstream_internal_redirect_succeeded_total", "upstream_rq_0rtt", "upstream_rq_active_overflow",
		"upstream_rq_cancelled", "upstream_rq_completed", "upstream_rq_maintenance_mode",
		"upstream_rq_max_duration_reached", "upstream_rq_per_try_idle_timeout",
		"upstream_rq_per_try_timeout", "upstream_rq_retry", "upstream_rq_retry_backoff_exponential",
		"upstream_rq_retry_backoff_ratelimited", "upstream_rq_retry_limit_exceeded",
		"upstream_rq_retry_overflow", "upstream_rq_retry_success", "upstream_rq_rx_reset",
		"upstream_rq_rx_reset_no_error", "upstream_rq_timeout", "upstream_rq_tx_reset",
	},
	Gauges: []string{
		"circuit_breakers.high.cx_open", "circuit_breakers.high.cx_pool_open",
		"circuit_breakers.high.rq_open", "circuit_breakers.high.rq_pending_open",
		"circuit_breakers.high.rq_retry_open", "lb_subsets_active", "upstream_queue_overloaded",
	},
	Histograms: []string{"upstream_rq_per_cx"},
}

var clusterUDPZeros = stats.Names{
	Counters: []string{
		"udp.sess_tunnel_buffer_overflow", "udp.sess_tunnel_failure", "udp.sess_tunnel_success",
	},
}
