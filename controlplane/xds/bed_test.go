package xds

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/guideway/guideway/controlplane/envoy"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane/stats"
)

// fakeClock moves only when it is told to.
type fakeClock struct {
	now    time.Time
	timers []*fakeTimer
}

type fakeTimer struct {
	at   time.Time
	f    func()
	done bool
}

func (c *fakeClock) Now() time.Time { return c.now }

func (c *fakeClock) AfterFunc(d time.Duration, f func()) func() {
	t := &fakeTimer{at: c.now.Add(d), f: f}
	c.timers = append(c.timers, t)
	return func() { t.done = true }
}

// fakeStream records requests.
type fakeStream struct {
	handler Handler
	sent    []*Request
	closed  bool
}

func (s *fakeStream) Send(r *Request) { s.sent = append(s.sent, r) }
func (s *fakeStream) Close()          { s.closed = true }

// bed is a client with a transport and a clock of the test's.
type bed struct {
	*testing.T
	*Client
	clock   *fakeClock
	posted  []func()
	streams []*fakeStream
	store   *stats.Store
}

// Open implements Transport.
func (b *bed) Open(h Handler) Stream {
	s := &fakeStream{handler: h}
	b.streams = append(b.streams, s)
	return s
}

func newBed(t *testing.T, api corev3.ApiConfigSource_ApiType, change ...func(*corev3.ApiConfigSource)) *bed {
	source := &corev3.ApiConfigSource{ApiType: api, TransportApiVersion: corev3.ApiVersion_V3}
	for _, f := range change {
		f(source)
	}
	boot := &bootstrapv3.Bootstrap{DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: source}}
	b := &bed{T: t, clock: &fakeClock{now: time.Unix(1000, 0)}, store: stats.NewStore()}
	b.Client = New(Deps{
		Context: context.Background(), Env: envoy.Env{Config: &model.Config{Source: boot}}, Stats: b.store, Log: slog.New(slog.DiscardHandler),
		Post: func(f func()) { b.posted = append(b.posted, f) }, Clock: b.clock,
		Transport: func(Server) (Transport, error) { return b, nil },
	})
	return b
}

// settle runs what was posted and sends what is due, until nothing is left.
func (b *bed) settle() {
	for len(b.posted) > 0 {
		f := b.posted[0]
		b.posted = b.posted[1:]
		f()
		b.Flush()
	}
	b.Flush()
}

// pass lets time go by.
func (b *bed) pass(d time.Duration) {
	end := b.clock.now.Add(d)
	for {
		b.settle()
		var next *fakeTimer
		for _, t := range b.clock.timers {
			if !t.done && !t.at.After(end) && (next == nil || t.at.Before(next.at)) {
				next = t
			}
		}
		if next == nil {
			break
		}
		next.done = true
		b.clock.now = next.at
		next.f()
	}
	b.clock.now = end
	b.settle()
}

// connect makes the newest stream ready.
func (b *bed) connect() *fakeStream {
	b.Helper()
	b.settle()
	s := b.streams[len(b.streams)-1]
	s.handler.Connected()
	b.settle()
	return s
}

// disconnect ends a stream and waits for the next.
func (b *bed) disconnect(s *fakeStream) *fakeStream {
	b.Helper()
	n := len(b.streams)
	s.handler.Closed(fmt.Errorf("gone"))
	b.pass(31 * time.Second)
	if len(b.streams) == n {
		b.Fatal("no new stream")
	}
	return b.connect()
}

func (b *bed) receive(s *fakeStream, r *Response) {
	s.handler.Received(r)
	b.settle()
}

// take returns the requests sent since the last call.
func (s *fakeStream) take() []*Request {
	sent := s.sent
	s.sent = nil
	return sent
}

var ads = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

func adsWithin(d time.Duration) *corev3.ConfigSource {
	s := proto.Clone(ads).(*corev3.ConfigSource)
	s.InitialFetchTimeout = durationpb.New(d)
	return s
}

// taker is a watcher that keeps what it got, and refuses what it is told to.
type taker struct {
	have    map[string]string // name to version
	refuse  map[string]bool
	updates int
	missing int
	removed []string
}

func newTaker() *taker { return &taker{have: map[string]string{}, refuse: map[string]bool{}} }

func (w *taker) Holds() int { return len(w.have) }
func (w *taker) Missing()   { w.missing++ }

func (w *taker) Update(u Update) error {
	w.updates++
	refusal := &Refusal{Prefix: "Error adding/updating cluster(s)"}
	seen := map[string]bool{}
	for _, r := range u.Resources {
		seen[r.Name] = true
		if w.refuse[r.Name] {
			refusal.Refused = append(refusal.Refused, Refused{r.Name, fmt.Errorf("bad")})
			continue
		}
		if !r.Heartbeat {
			w.have[r.Name] = u.Version
		}
	}
	for name := range w.have {
		if u.Full && !seen[name] || slices.Contains(u.Removed, name) {
			delete(w.have, name)
			w.removed = append(w.removed, name)
		}
	}
	if len(refusal.Refused) > 0 {
		return refusal
	}
	return nil
}

func (w *taker) names() []string {
	list := []string{}
	for name := range w.have {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func (b *bed) subscribe(t Type, name string, source *corev3.ConfigSource) (*taker, *Subscription) {
	b.Helper()
	w := newTaker()
	prefix := map[Type]string{Clusters: "cluster_manager.cds.", Endpoints: "cluster." + name + ".", Listeners: "listener_manager.lds."}[t]
	s, err := b.Subscribe(t, source, name, b.store.Scope(prefix), w)
	if err != nil {
		b.Fatal(err)
	}
	return w, s
}

func (b *bed) counter(name string) uint64 { return b.store.Counter(name).Value() }

func clustersOf(version, nonce string, names ...string) *Response {
	r := &Response{URL: Clusters.URL(), Version: version, Nonce: nonce}
	for _, n := range names {
		r.Resources = append(r.Resources, &Resource{Name: n, Version: version, Message: &clusterv3.Cluster{Name: n}})
	}
	return r
}

func endpointsOf(version, nonce string, names ...string) *Response {
	r := &Response{URL: Endpoints.URL(), Version: version, Nonce: nonce}
	for _, n := range names {
		r.Resources = append(r.Resources, &Resource{Name: n, Version: version, Message: &endpointv3.ClusterLoadAssignment{ClusterName: n}})
	}
	return r
}
