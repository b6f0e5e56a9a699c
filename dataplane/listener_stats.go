package dataplane

import (
	"strconv"

	"github.com/guideway/guideway/dataplane/stats"
)

// ListenerStats are the stats below "listener.<address or stat_prefix>.".
type ListenerStats struct {
	Scope *stats.Scope

	CxTotal          *stats.Counter   `stat:"downstream_cx_total"`
	CxDestroy        *stats.Counter   `stat:"downstream_cx_destroy"`
	CxActive         *stats.Gauge     `stat:"downstream_cx_active"`
	CxLengthMs       *stats.Histogram `stat:"downstream_cx_length_ms"`
	CxOverflow       *stats.Counter   `stat:"downstream_cx_overflow"`
	CxOverloadReject *stats.Counter   `stat:"downstream_cx_overload_reject"`
	GlobalCxOverflow *stats.Counter   `stat:"downstream_global_cx_overflow"`
	PreCxActive      *stats.Gauge     `stat:"downstream_pre_cx_active"`
	PreCxTimeout     *stats.Counter   `stat:"downstream_pre_cx_timeout"`
	NoChainMatch     *stats.Counter   `stat:"no_filter_chain_match"`
	FilterError      *stats.Counter   `stat:"downstream_listener_filter_error"`
	FilterClosed     *stats.Counter   `stat:"downstream_listener_filter_remote_close"`
	AcceptedPerEvent *stats.Histogram `stat:"connections_accepted_per_socket_event"`
	TLSTimeout       *stats.Counter   `stat:"downstream_cx_transport_socket_connect_timeout"`
	ExtMissing       *stats.Counter   `stat:"extension_config_missing"`
	NetExtMissing    *stats.Counter   `stat:"network_extension_config_missing"`

	// RxDatagramDropped is bound for UDP listeners only.
	RxDatagramDropped *stats.Counter `stat:"udp.downstream_rx_datagram_dropped,lazy"`

	// Workers, by index.
	Workers []*ListenerWorkerStats
}

// ListenerWorkerStats are the stats of one worker of a listener.
type ListenerWorkerStats struct {
	CxTotal  *stats.Counter `stat:"downstream_cx_total"`
	CxActive *stats.Gauge   `stat:"downstream_cx_active"`
}

// TCPStats are the stats below "tcp.<stat_prefix>.".
type TCPStats struct {
	Scope *stats.Scope

	CxTotal           *stats.Counter `stat:"downstream_cx_total"`
	CxNoRoute         *stats.Counter `stat:"downstream_cx_no_route"`
	TxBytesTotal      *stats.Counter `stat:"downstream_cx_tx_bytes_total"`
	RxBytesTotal      *stats.Counter `stat:"downstream_cx_rx_bytes_total"`
	TxBytesBuffered   *stats.Gauge   `stat:"downstream_cx_tx_bytes_buffered"`
	RxBytesBuffered   *stats.Gauge   `stat:"downstream_cx_rx_bytes_buffered"`
	FlowPaused        *stats.Counter `stat:"downstream_flow_control_paused_reading_total"`
	FlowResumed       *stats.Counter `stat:"downstream_flow_control_resumed_reading_total"`
	EarlyData         *stats.Counter `stat:"early_data_received_count_total"`
	IdleTimeout       *stats.Counter `stat:"idle_timeout"`
	MaxDuration       *stats.Counter `stat:"max_downstream_connection_duration"`
	UpstreamFlush     *stats.Counter `stat:"upstream_flush_total"`
	UpstreamFlushing  *stats.Gauge   `stat:"upstream_flush_active"`
	DrainClose        *stats.Counter `stat:"downstream_cx_drain_close"`
	OverloadClose     *stats.Counter `stat:"downstream_cx_overload_close"`
	RouteDelayedTotal *stats.Counter `stat:"route_delayed_total"`
}

// UDPStats are the stats below "udp.<stat_prefix>.".
type UDPStats struct {
	Scope *stats.Scope

	SessTotal       *stats.Counter `stat:"downstream_sess_total"`
	SessNoRoute     *stats.Counter `stat:"downstream_sess_no_route"`
	SessRxBytes     *stats.Counter `stat:"downstream_sess_rx_bytes"`
	SessRxDatagrams *stats.Counter `stat:"downstream_sess_rx_datagrams"`
	SessRxErrors    *stats.Counter `stat:"downstream_sess_rx_errors"`
	SessTxBytes     *stats.Counter `stat:"downstream_sess_tx_bytes"`
	SessTxDatagrams *stats.Counter `stat:"downstream_sess_tx_datagrams"`
	SessTxErrors    *stats.Counter `stat:"downstream_sess_tx_errors"`
	IdleTimeout     *stats.Counter `stat:"idle_timeout"`
	FilterMissing   *stats.Counter `stat:"session_filter_config_missing"`
	SessActive      *stats.Gauge   `stat:"downstream_sess_active"`
}

// NewListenerStats binds the stats of a listener, and of each worker below it.
func NewListenerStats(store *stats.Store, statName string, protocol Protocol, workers int) *ListenerStats {
	s := &ListenerStats{Scope: store.Scope("listener." + statName + ".")}
	stats.Bind(s.Scope, s)
	if protocol == UDP {
		stats.BindLazy(s.Scope, s)
	}
	for i := range workers {
		prefix := "worker_" + strconv.Itoa(i) + "."
		s.Workers = append(s.Workers, &ListenerWorkerStats{
			CxTotal:  s.Scope.Counter(prefix + "downstream_cx_total"),
			CxActive: s.Scope.Gauge(prefix + "downstream_cx_active"),
		})
	}
	return s
}

// NewTCPStats binds the stats of one tcp_proxy stat_prefix; equal prefixes share their counters.
func NewTCPStats(store *stats.Store, prefix string) *TCPStats {
	s := &TCPStats{Scope: store.Scope("tcp." + prefix + ".")}
	stats.Bind(s.Scope, s)
	return s
}

// NewUDPStats binds the stats of one udp_proxy stat_prefix; equal prefixes share their counters.
func NewUDPStats(store *stats.Store, prefix string) *UDPStats {
	s := &UDPStats{Scope: store.Scope("udp." + prefix + ".")}
	stats.Bind(s.Scope, s)
	return s
}
