package health

import (
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// The event logs are lines of JSON as Envoy writes HealthCheckEvent (envoy.data.core.v3) and
// OutlierDetectionEvent (envoy.data.cluster.v3): fields in order of their numbers, scalars always
// there, messages only if set. encoding/json keeps the order of struct fields.

type checkEvent struct {
	Type           string        `json:"health_checker_type"`
	Host           eventHost     `json:"host"`
	Cluster        string        `json:"cluster_name"`
	Eject          *ejectEvent   `json:"eject_unhealthy_event,omitempty"`
	AddHealthy     *firstEvent   `json:"add_healthy_event,omitempty"`
	Time           string        `json:"timestamp"`
	Failure        *failureEvent `json:"health_check_failure_event,omitempty"`
	Degraded       *struct{}     `json:"degraded_healthy_host,omitempty"`
	NotDegraded    *struct{}     `json:"no_longer_degraded_host,omitempty"`
	Locality       eventLocality `json:"locality"`
	SuccessfulAsIs *struct{}     `json:"successful_health_check_event,omitempty"`
}

type eventHost struct {
	Socket eventSocket `json:"socket_address"`
}

type eventSocket struct {
	Protocol   string `json:"protocol"`
	Address    string `json:"address"`
	Port       uint16 `json:"port_value"`
	Resolver   string `json:"resolver_name"`
	IPv4Compat bool   `json:"ipv4_compat"`
	Namespace  string `json:"network_namespace_filepath"`
}

type eventLocality struct {
	Region  string `json:"region"`
	Zone    string `json:"zone"`
	SubZone string `json:"sub_zone"`
}

type ejectEvent struct {
	Type   string `json:"failure_type"`
	Status int    `json:"http_status_code"`
}

type firstEvent struct {
	First bool `json:"first_check"`
}

type failureEvent struct {
	Type   string `json:"failure_type"`
	First  bool   `json:"first_check"`
	Status int    `json:"http_status_code"`
}

type outlierEvent struct {
	Type        string    `json:"type"`
	Time        string    `json:"timestamp"`
	SecsSince   *int64    `json:"secs_since_last_action,string,omitempty"`
	Cluster     string    `json:"cluster_name"`
	URL         string    `json:"upstream_url"`
	Action      string    `json:"action"`
	Ejections   uint32    `json:"num_ejections"`
	Enforced    bool      `json:"enforced"`
	Consecutive *struct{} `json:"eject_consecutive_event,omitempty"`
}

// eventTime is a protobuf timestamp in milliseconds.
func eventTime(t time.Time) string {
	t = t.UTC().Truncate(time.Millisecond)
	if t.Nanosecond() == 0 {
		return t.Format("2006-01-02T15:04:05Z")
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}

// checkLog writes the event log of one checker; a nil writer drops all.
type checkLog struct {
	w       io.Writer
	checker string // TCP, HTTP or GRPC
	cluster string
}

// write writes the lines of one step. A line that cannot be written is lost: the log must not stop
// the checks.
func (l *checkLog) write(t *Target, st step, o outcome, now time.Time) {
	if l.w == nil {
		return
	}
	for e := eventSet(1); e <= eventNoLongerDegraded; e <<= 1 {
		if st.events&e == 0 {
			continue
		}
		ev := checkEvent{Type: l.checker, Host: newEventHost(t.Address), Cluster: l.cluster, Time: eventTime(now), Locality: newEventLocality(t.Locality)}
		switch e {
		case eventEject:
			ev.Eject = &ejectEvent{Type: o.kind.String(), Status: o.status}
		case eventFailure:
			ev.Failure = &failureEvent{Type: o.kind.String(), First: st.first, Status: o.status}
		case eventAddHealthy:
			ev.AddHealthy = &firstEvent{First: st.first}
		case eventSuccess:
			ev.SuccessfulAsIs = &struct{}{}
		case eventDegraded:
			ev.Degraded = &struct{}{}
		case eventNoLongerDegraded:
			ev.NotDegraded = &struct{}{}
		}
		writeLine(l.w, ev)
	}
}

func newEventHost(a netip.AddrPort) eventHost {
	return eventHost{eventSocket{Protocol: "TCP", Address: a.Addr().String(), Port: a.Port()}}
}

func newEventLocality(l dataplane.Locality) eventLocality {
	return eventLocality{l.Region, l.Zone, l.SubZone}
}

// writeLine writes v as one line in one Write, so that lines of several writers to one file stay whole.
func writeLine(w io.Writer, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) == nil {
		w.Write(b.Bytes())
	}
}
