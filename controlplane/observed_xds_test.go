package controlplane_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane"
)

// TestObservedOddAnswers replays what a running Envoy was seen to do with a server that answers only by
// command: messages, clients, clusters and counters after each step.
func TestObservedOddAnswers(t *testing.T) {
	t.Parallel()
	for _, form := range []struct {
		file, api string
		delta     bool
	}{{"xds-odd-sotw.json", "GRPC", false}, {"xds-odd-delta.json", "DELTA_GRPC", true}} {
		t.Run(form.api, func(t *testing.T) {
			t.Parallel()
			playOdd(t, recording(t, form.file), form.api, form.delta)
		})
	}
}

func playOdd(t *testing.T, steps []recordedStep, api string, delta bool) {
	s, server := newScripted(t)
	a, b, port := letter(t, "A"), letter(t, "B"), freePort(t)
	began := time.Now()
	i := start(t, adsBootstrap(server, api))

	c, changed := edsCluster(t, "c", ""), edsCluster(t, "c", `"per_connection_buffer_limit_bytes": 4096,`)
	g, h := staticCluster(t, "g", "127.0.0.1", b), staticCluster(t, "h", "127.0.0.1", b)
	bad := staticCluster(t, "b", "host.example", 80)
	listener := tcpListener(t, "l", port, "c", "t")
	eds := func(host string, ports ...uint32) proto.Message { return assignmentOf(t, "c", host, ports...) }
	do := []func(){
		func() { until(t, "live", func() bool { return i.control.State().Phase == controlplane.Live }) },
		func() { s.answer(delta, "cds", "1", []proto.Message{c, g}) },
		func() { s.answer(delta, "lds", "1", []proto.Message{listener}) },
		func() {},
		func() { s.answer(delta, "eds", "1", []proto.Message{eds("127.0.0.1", a)}) },
		func() { s.answer(delta, "cds", "2", []proto.Message{changed, g}) },
		func() { s.answer(delta, "eds", "2", []proto.Message{assignmentOf(t, "x", "127.0.0.1", b)}) },
		func() { s.answer(delta, "eds", "3", []proto.Message{eds("host.example", 80)}) },
		func() { s.answer(delta, "eds", "4", []proto.Message{eds("127.0.0.1", b), eds("127.0.0.1", a)}) },
		func() {
			if delta {
				s.answer(delta, "eds", "5", nil, "c")
			} else {
				s.answer(delta, "eds", "5", nil)
			}
		},
		func() { s.answer(delta, "cds", "3", []proto.Message{changed, g, bad, h}) },
		func() { s.answer(delta, "lds", "2", []proto.Message{tcpListener(t, "l", port, "g", "")}) },
		func() { s.answer(delta, "lds", "3", []proto.Message{g}) },
		func() {
			s.answer(delta, "cds", "4", []proto.Message{staticCluster(t, "xds", "127.0.0.1", 1), g, changed})
		},
	}
	if len(do) != len(steps) {
		t.Fatalf("%d steps are recorded, the test knows %d", len(steps), len(do))
	}
	for n, step := range steps {
		want := requestsOf(step.Messages)
		do[n]()
		got := s.take(len(want))
		compareRequests(t, n, step.Step, want, got)
		if step.ClientGets != nil {
			until(t, fmt.Sprintf("step %d (%s): a client gets %q", n, step.Step, *step.ClientGets), func() bool { return gets(port) == *step.ClientGets })
		}
		if step.Clusters != nil {
			if got := i.clusters(); !slices.Equal(got, step.Clusters) {
				t.Errorf("step %d (%s): clusters %v, want %v", n, step.Step, got, step.Clusters)
			}
		}
		compareStats(t, n, step, i)
		if n == 0 {
			if took := time.Since(began); took < 1900*time.Millisecond {
				t.Errorf("live after %v: the two fetch timeouts of 1 s were not waited for", took)
			}
		}
	}
}

// requestsOf keeps the client's messages of a row. One that says the same as the one before is left out:
// Envoy repeats a subscription when the former incarnation of a cluster goes.
func requestsOf(all []message) []message {
	var out []message
	for _, m := range all {
		if !strings.HasSuffix(m.Event, "request") {
			continue
		}
		m.Resources = nil
		if len(out) > 0 && reflect.DeepEqual(out[len(out)-1], m) {
			continue
		}
		out = append(out, m)
	}
	return out
}

// compareRequests compares requests type by type.
func compareRequests(t *testing.T, n int, step string, want, got []message) {
	t.Helper()
	for _, kind := range []string{"cds", "eds", "lds"} {
		only := func(all []message) (out []message) {
			for _, m := range all {
				if m.Type == kind {
					out = append(out, m)
				}
			}
			return out
		}
		w, g := only(want), only(got)
		if len(w) != len(g) {
			t.Errorf("step %d (%s): %d requests of %s, want %d:\n got %+v\nwant %+v", n, step, len(g), kind, len(w), g, w)
			continue
		}
		for i := range w {
			if !sameReason(w[i].Error, g[i].Error) {
				t.Errorf("step %d (%s): refused with %q, want %q", n, step, g[i].Error, w[i].Error)
			}
			w[i].Error, g[i].Error = "", ""
			slices.Sort(w[i].Names)
			if !reflect.DeepEqual(w[i], g[i]) {
				t.Errorf("step %d (%s): got %+v, want %+v", n, step, g[i], w[i])
			}
		}
	}
}

// sameReason compares two reasons by what they say: Envoy quotes whole messages in some, with blanks that
// vary.
func sameReason(want, got string) bool {
	if (want == "") != (got == "") {
		return false
	}
	for _, part := range []string{"Error adding/updating cluster(s) b", "Error adding/updating listener(s) l", "malformed IP address: host.example",
		"duplicate name c found among added/updated resources", "Proto constraint validation failed (TcpProxyValidationError.StatPrefix: value length must be at least 1 characters)",
		"the message-wide type URL type.googleapis.com/envoy.config.listener.v3.Listener"} {
		if strings.Contains(want, part) && !strings.Contains(got, part) {
			return false
		}
	}
	return true
}

func compareStats(t *testing.T, n int, step recordedStep, i *instance) {
	t.Helper()
	for name, want := range step.Stats {
		deadline := time.Now().Add(patience)
		for i.stat(name) != want && time.Now().Before(deadline) {
			time.Sleep(2 * time.Millisecond)
		}
		if got := i.stat(name); got != want {
			t.Errorf("step %d (%s): %s is %d, want %d", n, step.Step, name, got, want)
		}
	}
}
