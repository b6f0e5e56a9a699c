package xds

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	sotwAPI  = corev3.ApiConfigSource_GRPC
	deltaAPI = corev3.ApiConfigSource_DELTA_GRPC
)

// TestRefusalsArePaced plays a server that answers each refusal at once with the same resources.
func TestRefusalsArePaced(t *testing.T) {
	for _, api := range []corev3.ApiConfigSource_ApiType{sotwAPI, deltaAPI} {
		t.Run(api.String(), func(t *testing.T) {
			b := newBed(t, api)
			w, _ := b.subscribe(Clusters, "", ads)
			w.refuse["b"] = true
			s := b.connect()
			s.take()
			refusals := 0
			var longest, silent time.Duration
			for range 600 { // a minute
				b.pass(100 * time.Millisecond)
				silent += 100 * time.Millisecond
				if refusals == 0 {
					b.receive(s, clustersOf("1", "n", "a", "b"))
				}
				for _, r := range s.take() {
					if r.Err == nil || !strings.Contains(r.Err.Error(), "b: bad") {
						t.Fatalf("sent %+v", r)
					}
					refusals++
					longest, silent = max(longest, silent), 0
					b.receive(s, clustersOf("1", "n", "a", "b"))
				}
			}
			if refusals < 10 || refusals > 25 {
				t.Errorf("%d refusals in a minute", refusals)
			}
			if longest > 5*time.Second {
				t.Errorf("a refusal was held back for %v, and the server with it", longest)
			}
			if !reflect.DeepEqual(w.names(), []string{"a"}) {
				t.Errorf("in force: %v", w.names())
			}
			// What is good again is acknowledged, at the latest behind a refusal that was held back.
			w.refuse["b"] = false
			b.receive(s, clustersOf("2", "m", "a", "b"))
			b.pass(lastGap)
			sent := s.take()
			if last := sent[len(sent)-1]; last.Err != nil || last.Nonce != "m" {
				t.Errorf("sent %+v", last)
			}
		})
	}
}

// TestEmptyAnswerIsDoubted has a server that answers before it has loaded anything.
func TestEmptyAnswerIsDoubted(t *testing.T) {
	for _, api := range []corev3.ApiConfigSource_ApiType{sotwAPI, deltaAPI} {
		t.Run(api.String(), func(t *testing.T) {
			start := func() (*bed, *taker, *fakeStream) {
				b := newBed(t, api)
				w, _ := b.subscribe(Clusters, "", ads)
				s := b.connect()
				b.receive(s, clustersOf("1", "1", "a", "b"))
				s = b.disconnect(s)
				s.take()
				empty := clustersOf("1", "1")
				if api == deltaAPI {
					empty.Removed = []string{"a", "b"}
				}
				b.receive(s, empty)
				if sent := s.take(); len(sent) != 1 || sent[0].Err != nil {
					t.Fatalf("an empty answer is acknowledged: %+v", sent)
				}
				if len(w.have) != 2 {
					t.Fatal("an empty first answer was believed at once")
				}
				return b, w, s
			}
			b, w, _ := start()
			b.pass(doubtful + time.Second)
			if len(w.have) != 0 {
				t.Error("it was never believed")
			}

			b, w, s := start()
			b.receive(s, clustersOf("2", "2", "a", "c"))
			b.pass(doubtful + time.Second)
			if want := []string{"a", "c"}; !slices.Equal(w.names(), want) {
				t.Errorf("after the next answer %v, want %v", w.names(), want)
			}
			if !slices.Equal(w.removed, []string{"b"}) {
				t.Errorf("removed %v, want b alone", w.removed)
			}
		})
	}
}

// TestEmptyAnswerOfARunningServer is believed.
func TestEmptyAnswerOfARunningServer(t *testing.T) {
	b := newBed(t, sotwAPI)
	w, _ := b.subscribe(Clusters, "", ads)
	s := b.connect()
	b.receive(s, clustersOf("1", "1", "a"))
	b.receive(s, clustersOf("2", "2"))
	if len(w.have) != 0 {
		t.Error("an empty answer did not empty")
	}
}

// TestReconnect looks at the first requests of a new stream, and at the wait before it.
func TestReconnect(t *testing.T) {
	b := newBed(t, sotwAPI)
	b.subscribe(Clusters, "", ads)
	b.subscribe(Endpoints, "c", ads)
	s := b.connect()
	b.receive(s, clustersOf("7", "1", "c"))
	b.receive(s, endpointsOf("8", "2", "c"))
	s = b.disconnect(s)
	sent := s.take()
	want := []*Request{{Type: Clusters, Version: "7"}, {Type: Endpoints, Version: "8", Names: []string{"c"}}}
	if !reflect.DeepEqual(sent, want) {
		t.Errorf("sent %+v %+v", sent[0], sent[1])
	}
	// A server that takes us to be up to date is asked as if nothing was known.
	b.receive(s, endpointsOf("8", "1", "c"))
	s.take()
	b.pass(resyncAfter)
	if sent := s.take(); len(sent) != 1 || sent[0].Type != Clusters || sent[0].Version != "" {
		t.Errorf("silence is answered with %+v", sent)
	}

	d := newBed(t, deltaAPI)
	d.subscribe(Clusters, "", ads)
	d.subscribe(Endpoints, "c", ads)
	s = d.connect()
	d.receive(s, clustersOf("7", "1", "c"))
	d.receive(s, endpointsOf("8", "2", "c"))
	s = d.disconnect(s)
	want = []*Request{
		{Type: Clusters, InitialVersions: map[string]string{"c": "7"}},
		{Type: Endpoints, Subscribe: []string{"c"}, InitialVersions: map[string]string{"c": "8"}},
	}
	if sent := s.take(); !reflect.DeepEqual(sent, want) {
		t.Errorf("sent %+v %+v", sent[0], sent[1])
	}
	if n := d.counter("cluster_manager.cds.update_failure"); n != 1 {
		t.Errorf("%d failures", n)
	}
}

// TestBackoffIsBounded: waits are below the bound, which doubles, and start anew after a message.
func TestBackoffIsBounded(t *testing.T) {
	b := defaultBackoff()
	bound := b.base
	for range 12 {
		if w := b.wait(); w < 0 || w >= bound {
			t.Fatalf("%v is not in [0, %v)", w, bound)
		}
		bound = min(2*bound, b.max)
	}
	b.reset()
	if w := b.wait(); w >= b.base {
		t.Errorf("%v after a reset", w)
	}
}

// TestNameThatComesBack unsubscribes a name and subscribes it again: the server is made to send it.
func TestNameThatComesBack(t *testing.T) {
	b := newBed(t, sotwAPI)
	b.subscribe(Endpoints, "a", ads)
	_, c := b.subscribe(Endpoints, "c", ads)
	s := b.connect()
	b.receive(s, endpointsOf("1", "1", "a", "c"))
	c.Close()
	b.settle()
	s.take()
	b.subscribe(Endpoints, "c", ads)
	b.settle()
	if sent := s.take(); len(sent) != 1 || sent[0].Version != "" || !slices.Equal(sent[0].Names, []string{"a", "c"}) {
		t.Errorf("sent %+v", sent[0])
	}

	d := newBed(t, deltaAPI)
	_, x := d.subscribe(Endpoints, "c", ads)
	s = d.connect()
	d.receive(s, endpointsOf("1", "1", "c"))
	x.Close()
	d.settle()
	s.take()
	d.subscribe(Endpoints, "c", ads)
	d.settle()
	if sent := s.take(); len(sent) != 1 || !slices.Equal(sent[0].Subscribe, []string{"c"}) {
		t.Errorf("sent %+v", sent)
	}
}

// TestHold keeps the acknowledgement back until it is let go; other types go on.
func TestHold(t *testing.T) {
	b := newBed(t, sotwAPI)
	b.subscribe(Clusters, "", ads)
	s := b.connect()
	b.subscribe(Endpoints, "c", ads)
	b.settle()
	s.take()
	b.Hold(Clusters, true)
	b.receive(s, clustersOf("1", "1", "c"))
	b.receive(s, endpointsOf("1", "2", "c"))
	if sent := s.take(); len(sent) != 1 || sent[0].Type != Endpoints {
		t.Fatalf("sent %+v", sent)
	}
	b.Hold(Clusters, false)
	b.settle()
	if sent := s.take(); len(sent) != 1 || sent[0].Type != Clusters || sent[0].Nonce != "1" {
		t.Errorf("sent %+v", sent)
	}
}

// TestTimeToLive takes a resource away that is not renewed; a heartbeat renews it.
func TestTimeToLive(t *testing.T) {
	b := newBed(t, deltaAPI)
	w, _ := b.subscribe(Clusters, "", ads)
	s := b.connect()
	r := clustersOf("1", "1", "a", "b")
	r.Resources[0].TTL = 10 * time.Second
	b.receive(s, r)
	b.pass(9 * time.Second)
	beat := &Response{URL: Clusters.URL(), Version: "1", Nonce: "2", Resources: []*Resource{{Name: "a", Version: "1", TTL: 10 * time.Second, Heartbeat: true}}}
	b.receive(s, beat)
	b.pass(9 * time.Second)
	if len(w.have) != 2 {
		t.Fatalf("a renewed resource is gone: %v", w.names())
	}
	b.pass(2 * time.Second)
	if !slices.Equal(w.names(), []string{"b"}) {
		t.Errorf("in force: %v", w.names())
	}
}

// TestFetchTimeout counts and tells once; 0 waits for ever.
func TestFetchTimeout(t *testing.T) {
	b := newBed(t, sotwAPI)
	w, _ := b.subscribe(Clusters, "", adsWithin(2*time.Second))
	ever, _ := b.subscribe(Listeners, "", adsWithin(0))
	b.pass(2*time.Second - 1)
	if w.missing != 0 {
		t.Error("too early")
	}
	b.pass(time.Hour)
	if w.missing != 1 || b.counter("cluster_manager.cds.init_fetch_timeout") != 1 {
		t.Errorf("told %d times", w.missing)
	}
	if ever.missing != 0 {
		t.Error("0 means for ever")
	}
}

// TestRateLimit lets requests wait for tokens, and sends all in the end.
func TestRateLimit(t *testing.T) {
	b := newBed(t, sotwAPI, func(s *corev3.ApiConfigSource) {
		s.RateLimitSettings = &corev3.RateLimitSettings{MaxTokens: wrapperspb.UInt32(2), FillRate: wrapperspb.Double(1)}
	})
	b.subscribe(Clusters, "", ads)
	b.subscribe(Endpoints, "c", ads)
	b.subscribe(Listeners, "", ads)
	s := b.connect()
	if n := len(s.take()); n != 2 {
		t.Errorf("%d requests at once, want 2", n)
	}
	if b.counter("control_plane.rate_limit_enforced") == 0 || b.store.Gauge("control_plane.pending_requests").Value() != 1 {
		t.Error("the wait is not counted")
	}
	b.pass(1100 * time.Millisecond)
	if n := len(s.take()); n != 1 {
		t.Errorf("%d requests after a second, want 1", n)
	}
}

// TestOneBadAssignment refuses one of two; the other is in force.
func TestOneBadAssignment(t *testing.T) {
	b := newBed(t, sotwAPI)
	good, _ := b.subscribe(Endpoints, "a", ads)
	bad, _ := b.subscribe(Endpoints, "b", ads)
	bad.refuse["b"] = true
	s := b.connect()
	s.take()
	b.receive(s, endpointsOf("1", "1", "b", "a"))
	sent := s.take()
	if len(sent) != 1 || sent[0].Err == nil || sent[0].Version != "" || !strings.Contains(sent[0].Err.Error(), "'b'") {
		t.Errorf("sent %+v", sent[0])
	}
	if len(good.have) != 1 {
		t.Error("the good one is held back by the bad one")
	}
	if b.counter("cluster.a.update_success") != 1 || b.counter("cluster.b.update_rejected") != 1 || b.counter("cluster.a.update_rejected") != 0 {
		t.Error("counted at the wrong cluster")
	}
}
