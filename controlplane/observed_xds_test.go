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

// TestObservedServer replays what a running Envoy was seen to do with go-control-plane's own server: start,
// changes, the server away and back, the end of everything.
func TestObservedServer(t *testing.T) {
	t.Parallel()
	for _, form := range []struct{ file, api string }{{"xds-sotw.json", "GRPC"}, {"xds-delta.json", "DELTA_GRPC"}} {
		t.Run(form.api, func(t *testing.T) {
			t.Parallel()
			playServer(t, recording(t, form.file)[1:], form.api)
		})
	}
}

func playServer(t *testing.T, steps []recordedStep, api string) {
	a, b, port := letter(t, "A"), letter(t, "B"), freePort(t)
	m := newManaged(t, true)
	c, d := edsCluster(t, "c", ""), edsCluster(t, "d", "")
	g := staticCluster(t, "g", "127.0.0.1", b)
	listeners := []proto.Message{tcpListener(t, "l", port, "c", "t")}
	inA, inB := assignmentOf(t, "c", "127.0.0.1", a), assignmentOf(t, "c", "127.0.0.1", b)
	ofD := assignmentOf(t, "d", "127.0.0.1", b)
	last := func() {
		m.publishVersions([3]string{"2", "3", "1"}, []proto.Message{c, g}, []proto.Message{inB}, listeners)
	}
	m.publish("1", []proto.Message{c, d}, []proto.Message{inA, ofD}, listeners)
	i := start(t, adsBootstrap(m.port, api))
	do := []func(){
		func() { until(t, "live", func() bool { return i.control.State().Phase == controlplane.Live }) },
		func() {
			m.publishVersions([3]string{"1", "2", "1"}, []proto.Message{c, d}, []proto.Message{inB, ofD}, listeners)
		},
		last,
		func() {
			m.stop()
			until(t, "three failures", func() bool { return i.stat("cluster_manager.cds.update_failure") >= 3 })
		},
		func() {
			m.renew()
			last()
			m.serve()
		},
		func() { m.publishVersions([3]string{"3", "4", "2"}, nil, nil, nil) },
	}
	if len(do) != len(steps) {
		t.Fatalf("%d steps are recorded, the test knows %d", len(steps), len(do))
	}
	failures := map[string]int64{}
	for n, step := range steps {
		do[n]()
		until(t, fmt.Sprintf("step %d (%s): a client gets %q", n, step.Step, *step.ClientGets), func() bool { return gets(port) == *step.ClientGets })
		until(t, fmt.Sprintf("step %d (%s): clusters %v", n, step.Step, step.Clusters), func() bool { return slices.Equal(i.clusters(), step.Clusters) })
		want := requestsOf(byType(step.Messages))
		var got []message
		until(t, fmt.Sprintf("step %d (%s): the requests %+v", n, step.Step, want), func() bool {
			got = append(got, m.taken()...)
			return follows(requestsOf(byType(got)), want)
		})
		// How often the server could not be reached depends on chance: an attempt and a failure each.
		for name := range step.Stats {
			if service, ok := strings.CutSuffix(name, "update_failure"); ok {
				more := i.stat(name) - step.Stats[name]
				failures[service] = more
				step.Stats[name] += more
			}
		}
		for name := range step.Stats {
			if service, ok := strings.CutSuffix(name, "update_attempt"); ok {
				if strings.HasPrefix(service, "cluster.c.") {
					failures[service] = failures["cluster_manager.cds."]
				}
				step.Stats[name] += failures[service]
			}
		}
		if n != 3 {
			compareStats(t, n, step, i)
		}
	}
}

// follows reports whether requests are, type by type, those wanted. One that the next of its type contains
// may be missing: answers that come together are answered together.
func follows(got, want []message) bool {
	for _, kind := range []string{"cds", "eds", "lds"} {
		var w, g []message
		for _, m := range want {
			if m.Type == kind {
				w = append(w, m)
			}
		}
		for _, m := range got {
			if m.Type == kind {
				g = append(g, m)
			}
		}
		for len(w) > len(g) && len(w) > 1 && slices.Equal(w[0].Names, w[1].Names) && w[0].Event == "request" {
			w = w[1:]
		}
		if kind == "eds" && len(w) == 1 && len(g) == 1 && w[0].Event == "request" && len(w[0].Names) == 0 {
			// An end of the subscription may know the server's own word of it already.
			g[0].Nonce, g[0].Version = w[0].Nonce, w[0].Version
		}
		if !reflect.DeepEqual(w, g) {
			return false
		}
	}
	return true
}

// byType writes nonces as the number of the response among those of its type since the row's begin, or
// as "former" for one of an earlier row: between types the order may vary.
func byType(all []message) []message {
	count := map[string]int{}
	number := map[string]string{}
	var out []message
	for _, m := range all {
		if strings.HasSuffix(m.Event, "response") {
			count[m.Type]++
			number[m.Nonce] = fmt.Sprint(m.Type, " ", count[m.Type])
		} else if m.Nonce != "" {
			if number[m.Nonce] == "" {
				number[m.Nonce] = "former"
			}
			m.Nonce = number[m.Nonce]
		}
		out = append(out, m)
	}
	return out
}
