package dataplane

import "github.com/guideway/guideway/dataplane/stats"

// ClusterStats are the stats below "cluster.<name>.". Fields are bound by their stat tags
// (see stats.Bind), every name exists from the start. Source of the names: Envoy, cluster statistics.
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
	return s
}
