package health

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// TestCheckLog compares with lines written by Envoy 1.40 (the first two, byte by byte) and with the
// field order of HealthCheckEvent.
func TestCheckLog(t *testing.T) {
	now := time.Date(2026, 11, 30, 19, 0, 1, 978_456_789, time.UTC)
	const head = `"host":{"socket_address":{"protocol":"TCP","address":"127.0.0.1","port_value":23101,"resolver_name":"","ipv4_compat":false,"network_namespace_filepath":""}},"cluster_name":"c",`
	const stamp = `"timestamp":"2026-11-30T19:00:01.978Z",`
	const tail = `"locality":{"region":"","zone":"","sub_zone":""}`
	for _, c := range []struct {
		checker string
		st      step
		o       outcome
		want    string
	}{
		{"TCP", step{events: eventAddHealthy, first: true}, outcome{ok: true},
			`{"health_checker_type":"TCP",` + head + `"add_healthy_event":{"first_check":true},` + stamp + tail + "}\n"},
		{"HTTP", step{events: eventFailure, first: true}, outcome{kind: failedActive, status: 503},
			`{"health_checker_type":"HTTP",` + head + stamp + `"health_check_failure_event":{"failure_type":"ACTIVE","first_check":true,"http_status_code":503},` + tail + "}\n"},
		{"GRPC", step{events: eventEject | eventFailure}, failed(failedTimeout),
			`{"health_checker_type":"GRPC",` + head + `"eject_unhealthy_event":{"failure_type":"NETWORK_TIMEOUT","http_status_code":0},` + stamp + tail + "}\n" +
				`{"health_checker_type":"GRPC",` + head + stamp + `"health_check_failure_event":{"failure_type":"NETWORK_TIMEOUT","first_check":false,"http_status_code":0},` + tail + "}\n"},
		{"HTTP", step{events: eventDegraded}, outcome{ok: true},
			`{"health_checker_type":"HTTP",` + head + stamp + `"degraded_healthy_host":{},` + tail + "}\n"},
		{"HTTP", step{events: eventNoLongerDegraded}, outcome{ok: true},
			`{"health_checker_type":"HTTP",` + head + stamp + `"no_longer_degraded_host":{},` + tail + "}\n"},
		{"HTTP", step{events: eventSuccess}, outcome{ok: true},
			`{"health_checker_type":"HTTP",` + head + stamp + tail + `,"successful_health_check_event":{}}` + "\n"},
	} {
		var b bytes.Buffer
		l := checkLog{w: &b, checker: c.checker, cluster: "c"}
		l.write(&Target{Address: netip.MustParseAddrPort("127.0.0.1:23101")}, c.st, c.o, now)
		if b.String() != c.want {
			t.Errorf("wrote\n%swant\n%s", &b, c.want)
		}
	}
	var b bytes.Buffer
	l := checkLog{w: &b, checker: "TCP", cluster: "<c>"}
	l.write(&Target{Locality: dataplane.Locality{Region: "r", Zone: "z", SubZone: "s"}}, step{events: eventEject}, outcome{}, now)
	for _, want := range []string{`"cluster_name":"<c>"`, `"locality":{"region":"r","zone":"z","sub_zone":"s"}`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %s", &b, want)
		}
	}
	if got := eventTime(now.Truncate(time.Second)); got != "2026-11-30T19:00:01Z" {
		t.Errorf("a full second is %s", got)
	}
}
