package envoy

import (
	"fmt"
	"math"
	"strings"
	"time"

	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/guideway/guideway/dataplane"
)

// maxEarlyData is the schema's bound of max_early_data_bytes, in bytes.
const maxEarlyData = 1 << 20

// tcpProxy translates envoy.filters.network.tcp_proxy.
func (t *translator) tcpProxy(m *tcpproxyv3.TcpProxy, at cursor) *dataplane.TCPProxy {
	p := &dataplane.TCPProxy{
		StatPrefix:         statName(m.GetStatPrefix()),
		Hash:               t.tcpHash(m.GetHashPolicy(), at.field("hash_policy")),
		IdleTimeout:        duration(m.GetIdleTimeout(), time.Hour),
		MaxConnectAttempts: 1,
		MaxDuration:        duration(m.GetMaxDownstreamConnectionDuration(), 0),
		DurationJitter:     m.GetMaxDownstreamConnectionDurationJitterPercentage().GetValue(),
		AccessLog:          t.accessLogs(m.GetAccessLog(), at.field("access_log")),
		CheckDrainClose:    m.GetCheckDrainClose().GetValue(),
		TLVs:               tlvs(m.GetProxyProtocolTlvs(), at.field("proxy_protocol_tlvs")),
	}
	dotted(m.GetStatPrefix(), at)
	if n := m.GetMaxConnectAttempts(); n != nil {
		p.MaxConnectAttempts = n.GetValue()
	}
	switch c := m.GetClusterSpecifier().(type) {
	case *tcpproxyv3.TcpProxy_Cluster:
		p.Clusters = []dataplane.WeightedCluster{{Name: c.Cluster, Weight: 1}}
		p.TotalWeight = 1
	case *tcpproxyv3.TcpProxy_WeightedClusters:
		for _, w := range c.WeightedClusters.GetClusters() {
			p.Clusters = append(p.Clusters, dataplane.WeightedCluster{Name: w.GetName(), Weight: w.GetWeight()})
			p.TotalWeight += uint64(w.GetWeight())
		}
		if p.TotalWeight > math.MaxUint32 {
			at.field("weighted_clusters").fail("the weights add up to more than 4294967295")
		}
	}
	if b := m.GetBackoffOptions(); b != nil {
		base := duration(b.GetBaseInterval(), 0)
		p.Backoff = &dataplane.Backoff{Base: base, Max: duration(b.GetMaxInterval(), 10*base)}
		if p.Backoff.Max < base {
			at.field("backoff_options").field("max_interval").failAs("max_backoff_interval must be greater or equal to base_backoff_interval",
				"max_interval %s is below base_interval %s", p.Backoff.Max, base)
		}
	}
	switch m.GetProxyProtocolTlvMergePolicy() {
	case tcpproxyv3.ProxyProtocolTlvMergePolicy_OVERWRITE_BY_TYPE_IF_EXISTS_OR_ADD:
		p.TLVMerge = dataplane.OverwriteByType
	case tcpproxyv3.ProxyProtocolTlvMergePolicy_APPEND_IF_EXISTS_OR_ADD:
		p.TLVMerge = dataplane.AppendIfExists
	}
	t.connectMode(m, p, at)
	t.tcpLogOptions(m, p, at)
	return p
}

// connectMode reads when the upstream connection is made.
func (t *translator) connectMode(m *tcpproxyv3.TcpProxy, p *dataplane.TCPProxy, at cursor) {
	early := m.GetMaxEarlyDataBytes()
	p.MaxEarlyData = min(early.GetValue(), maxEarlyData)
	switch m.GetUpstreamConnectMode() {
	case tcpproxyv3.UpstreamConnectMode_IMMEDIATE:
	case tcpproxyv3.UpstreamConnectMode_ON_DOWNSTREAM_DATA:
		p.OnDownstreamData = true
		if early == nil {
			at.field("upstream_connect_mode").failAs("max_early_data_bytes must be set when upstream_connect_mode is not IMMEDIATE",
				"ON_DOWNSTREAM_DATA needs max_early_data_bytes: how much is read before the upstream is connected")
		}
	default:
		at.field("upstream_connect_mode").fail("%s needs TLS, which Guideway does not terminate; use IMMEDIATE or ON_DOWNSTREAM_DATA", m.GetUpstreamConnectMode())
	}
}

// tcpLogOptions reads when lines are written, in the new form or the old one.
func (t *translator) tcpLogOptions(m *tcpproxyv3.TcpProxy, p *dataplane.TCPProxy, at cursor) {
	o := m.GetAccessLogOptions()
	if o == nil {
		p.LogInterval = duration(m.GetAccessLogFlushInterval(), 0)
		p.LogOnConnected = m.GetFlushAccessLogOnConnected()
		return
	}
	if m.GetFlushAccessLogOnConnected() {
		at.field("flush_access_log_on_connected").failAs("Only one of flush_access_log_on_connected or access_log_options can be specified.",
			"give it in access_log_options only")
	}
	if m.GetAccessLogFlushInterval() != nil {
		at.field("access_log_flush_interval").failAs("Only one of access_log_flush_interval or access_log_options can be specified.",
			"give it in access_log_options only")
	}
	p.LogInterval = duration(o.GetAccessLogFlushInterval(), 0)
	p.LogOnConnected = o.GetFlushAccessLogOnConnected()
	p.LogOnStart = o.GetFlushAccessLogOnStart()
}

// tcpHash reads the hash policy; at most one is allowed. Without one Guideway hashes the 5-tuple.
func (t *translator) tcpHash(ps []*typev3.HashPolicy, at cursor) dataplane.HashPolicy {
	out := dataplane.HashPolicy{Kind: dataplane.HashFiveTuple, Seed: t.seed}
	for i, p := range ps {
		switch p.GetPolicySpecifier().(type) {
		case *typev3.HashPolicy_SourceIp_:
			out = dataplane.HashPolicy{Kind: dataplane.HashSourceIP}
		case *typev3.HashPolicy_FilterState_:
			at.at(i).field("filter_state").fail("tcp_proxy.hash_policy.filter_state needs L7/extension filters; use source_ip")
		}
	}
	return out
}

// dotted warns of a stat_prefix that Prometheus labels would cut.
func dotted(prefix string, at cursor) {
	if strings.Contains(prefix, ".") {
		at.field("stat_prefix").warn("%s", fmt.Sprintf("stat_prefix %q has a dot, so Prometheus labels hold only the part before it, as in Envoy", prefix))
	}
}
