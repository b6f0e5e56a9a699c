package envoy

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filesinkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_check/event_sinks/file/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/guideway/guideway/controlplane/model"
)

// healthChecks translates the active checkers of a cluster; one is supported.
func (t *translator) healthChecks(c *clusterv3.Cluster, m *model.Cluster, at cursor) {
	for i, h := range c.GetHealthChecks() {
		if i > 0 {
			at.at(i).fail("one health check a cluster is supported; remove the others")
			return
		}
		m.HealthChecks = append(m.HealthChecks, t.healthCheck(h, m, at.at(i)))
	}
}

func (t *translator) healthCheck(h *corev3.HealthCheck, m *model.Cluster, at cursor) model.HealthCheck {
	out := model.HealthCheck{
		Timeout:               duration(h.GetTimeout(), 0),
		Interval:              duration(h.GetInterval(), 0),
		InitialJitter:         duration(h.GetInitialJitter(), 0),
		IntervalJitter:        duration(h.GetIntervalJitter(), 0),
		IntervalJitterPercent: h.GetIntervalJitterPercent(),
		UnhealthyThreshold:    h.GetUnhealthyThreshold().GetValue(),
		HealthyThreshold:      h.GetHealthyThreshold().GetValue(),
		NoTrafficInterval:     duration(h.GetNoTrafficInterval(), time.Minute),
		ReuseConnection:       h.GetReuseConnection() == nil || h.GetReuseConnection().GetValue(),
		AlwaysLogFailures:     h.GetAlwaysLogHealthCheckFailures(),
		AlwaysLogSuccess:      h.GetAlwaysLogHealthCheckSuccess(),
		EventLogPath:          h.GetEventLogPath(),
	}
	out.UnhealthyInterval = duration(h.GetUnhealthyInterval(), out.Interval)
	out.UnhealthyEdgeInterval = duration(h.GetUnhealthyEdgeInterval(), out.UnhealthyInterval)
	out.HealthyEdgeInterval = duration(h.GetHealthyEdgeInterval(), out.Interval)
	out.NoTrafficHealthyInterval = duration(h.GetNoTrafficHealthyInterval(), out.NoTrafficInterval)
	for i, sink := range h.GetEventLogger() {
		where := at.field("event_logger").at(i)
		file, ok := unpack(sink.GetTypedConfig()).(*filesinkv3.HealthCheckEventFileSink)
		switch {
		case !ok:
			where.fail("only the file sink (envoy.health_check.event_sinks.file) is supported")
		case out.EventLogPath != "" && out.EventLogPath != file.GetEventLogPath():
			where.fail("one event log a health check is supported")
		default:
			out.EventLogPath = file.GetEventLogPath()
		}
	}
	switch c := h.GetHealthChecker().(type) {
	case *corev3.HealthCheck_TcpHealthCheck_:
		out.TCP = tcpCheck(c.TcpHealthCheck, at.field("tcp_health_check"))
	case *corev3.HealthCheck_HttpHealthCheck_:
		out.HTTP = httpCheck(c.HttpHealthCheck, at.field("http_health_check"))
	case *corev3.HealthCheck_GrpcHealthCheck_:
		if !m.HTTP2 {
			at.field("grpc_health_check").failAs(fmt.Sprintf("%s cluster must support HTTP/2 for gRPC healthchecking", m.Settings.Name),
				"a gRPC health check needs HTTP/2: set http2_protocol_options in typed_extension_protocol_options")
		}
		out.GRPC = &model.GRPCCheck{
			Service: c.GrpcHealthCheck.GetServiceName(), Authority: c.GrpcHealthCheck.GetAuthority(),
			Metadata: headers(c.GrpcHealthCheck.GetInitialMetadata()),
		}
	}
	return out
}

func tcpCheck(c *corev3.HealthCheck_TcpHealthCheck, at cursor) *model.TCPCheck {
	out := &model.TCPCheck{}
	out.Send = payload(c.GetSend(), at.field("send"))
	for i, p := range c.GetReceive() {
		out.Receive = append(out.Receive, payload(p, at.field("receive").at(i)))
	}
	if p := c.GetProxyProtocolConfig(); p != nil {
		out.ProxyProtocol = 1
		if p.GetVersion() == corev3.ProxyProtocolConfig_V2 {
			out.ProxyProtocol = 2
		}
		where := at.field("proxy_protocol_config")
		if p.GetPassThroughTlvs() != nil || len(p.GetAddedTlvs()) > 0 {
			where.fail("a health check's PROXY header has no TLVs")
		}
	}
	return out
}

// payload reads bytes: text is hexadecimal.
func payload(p *corev3.HealthCheck_Payload, at cursor) []byte {
	if text, ok := p.GetPayload().(*corev3.HealthCheck_Payload_Text); ok {
		b, err := hex.DecodeString(text.Text)
		if err != nil {
			at.field("text").failAs(fmt.Sprintf("invalid hex string '%s'", text.Text),
				"text %q is not hexadecimal; for plain text use binary, in base64", text.Text)
		}
		return b
	}
	return p.GetBinary()
}

func httpCheck(c *corev3.HealthCheck_HttpHealthCheck, at cursor) *model.HTTPCheck {
	out := &model.HTTPCheck{
		Host: c.GetHost(), Path: c.GetPath(), Method: "GET",
		Expected:      statuses(c.GetExpectedStatuses(), "expected", at.field("expected_statuses")),
		Retriable:     statuses(c.GetRetriableStatuses(), "retriable", at.field("retriable_statuses")),
		AddHeaders:    headers(c.GetRequestHeadersToAdd()),
		RemoveHeaders: c.GetRequestHeadersToRemove(),
	}
	if len(out.Expected) == 0 {
		out.Expected = []model.StatusRange{{Start: 200, End: 201}}
	}
	if c.GetMethod() != corev3.RequestMethod_METHOD_UNSPECIFIED {
		out.Method = c.GetMethod().String()
	}
	switch c.GetCodecClientType() {
	case typev3.CodecClientType_HTTP2:
		out.HTTP2 = true
	case typev3.CodecClientType_HTTP3:
		at.field("codec_client_type").fail("HTTP3 checks are not supported; use HTTP1 or HTTP2")
	}
	for i, p := range c.GetReceive() {
		out.Receive = append(out.Receive, payload(p, at.field("receive").at(i)))
	}
	return out
}

// statuses reads half-open ranges of a kind: expected or retriable.
func statuses(rs []*typev3.Int64Range, kind string, at cursor) []model.StatusRange {
	var out []model.StatusRange
	for i, r := range rs {
		where := at.at(i)
		switch {
		case r.GetStart() >= r.GetEnd():
			where.failAs(fmt.Sprintf("Invalid http %s status range: expecting start < end, but found start=%d and end=%d", kind, r.GetStart(), r.GetEnd()),
				"the range [%d, %d) is empty; end is not part of it", r.GetStart(), r.GetEnd())
		case r.GetStart() < 100:
			where.failAs(fmt.Sprintf("Invalid http %s status range: expecting start >= 100, but found start=%d", kind, r.GetStart()),
				"there are no statuses below 100")
		case r.GetEnd() > 600:
			where.failAs(fmt.Sprintf("Invalid http %s status range: expecting end <= 600, but found end=%d", kind, r.GetEnd()),
				"there are no statuses above 599")
		default:
			out = append(out, model.StatusRange{Start: r.GetStart(), End: r.GetEnd()})
		}
	}
	return out
}

// headers reads headers to add.
func headers(hs []*corev3.HeaderValueOption) []model.Header {
	var out []model.Header
	for _, h := range hs {
		value := h.GetHeader().GetValue()
		if value == "" {
			value = string(h.GetHeader().GetRawValue())
		}
		appends := h.GetAppendAction() == corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		if h.GetAppend() != nil {
			appends = h.GetAppend().GetValue()
		}
		out = append(out, model.Header{Name: strings.ToLower(h.GetHeader().GetKey()), Value: value, Append: appends})
	}
	return out
}

// outlier reads outlier detection; nil if there is none.
func (t *translator) outlier(o *clusterv3.OutlierDetection) *model.Outlier {
	if o == nil {
		return nil
	}
	number := func(v interface{ GetValue() uint32 }, set bool, absent uint32) uint32 {
		if set {
			return v.GetValue()
		}
		return absent
	}
	out := &model.Outlier{
		Interval:                     duration(o.GetInterval(), 10*time.Second),
		BaseEjectionTime:             duration(o.GetBaseEjectionTime(), 30*time.Second),
		MaxEjectionTimeJitter:        duration(o.GetMaxEjectionTimeJitter(), 0),
		MaxEjectionPercent:           number(o.GetMaxEjectionPercent(), o.MaxEjectionPercent != nil, 10),
		Consecutive5xx:               number(o.GetConsecutive_5Xx(), o.Consecutive_5Xx != nil, 5),
		ConsecutiveGatewayFailure:    number(o.GetConsecutiveGatewayFailure(), o.ConsecutiveGatewayFailure != nil, 5),
		ConsecutiveLocalOrigin:       number(o.GetConsecutiveLocalOriginFailure(), o.ConsecutiveLocalOriginFailure != nil, 5),
		Enforcing5xx:                 number(o.GetEnforcingConsecutive_5Xx(), o.EnforcingConsecutive_5Xx != nil, 100),
		EnforcingGateway:             number(o.GetEnforcingConsecutiveGatewayFailure(), o.EnforcingConsecutiveGatewayFailure != nil, 0),
		EnforcingLocalOrigin:         number(o.GetEnforcingConsecutiveLocalOriginFailure(), o.EnforcingConsecutiveLocalOriginFailure != nil, 100),
		SplitLocalOrigin:             o.GetSplitExternalLocalOriginErrors(),
		AlwaysEjectOneHost:           o.GetAlwaysEjectOneHost().GetValue(),
		SuccessfulActiveCheckUneject: o.GetSuccessfulActiveHealthCheckUnejectHost() == nil || o.GetSuccessfulActiveHealthCheckUnejectHost().GetValue(),
	}
	// The maximum is never below the base (Envoy: outlier_detection_impl.cc).
	out.MaxEjectionTime = duration(o.GetMaxEjectionTime(), max(300*time.Second, out.BaseEjectionTime))
	return out
}
