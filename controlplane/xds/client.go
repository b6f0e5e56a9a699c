package xds

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane/envoy"
	"github.com/guideway/guideway/dataplane/stats"
)

// Deps is what a Client needs.
type Deps struct {
	// Context ends all that the client has begun.
	Context context.Context
	// Env checks and translates resources; its Config is the bootstrap's.
	Env   envoy.Env
	Stats *stats.Store
	Log   *slog.Logger
	// Post runs a function on the owner's goroutine. After each, or after several, the owner calls
	// Flush.
	Post func(func())
	// Node is what servers are told of this instance; Agent names the program in HTTP headers.
	Node  *corev3.Node
	Agent string
	// Clock is nil for the real one, Transport for gRPC.
	Clock     Clock
	Transport func(Server) (Transport, error)
}

// Server says which management server a stream goes to, and for what.
type Server struct {
	Source     *corev3.ApiConfigSource
	Node       *corev3.Node
	Aggregated bool
	// Type is meaningless for an aggregated stream.
	Type Type
}

// Client has all subscriptions of a process.
type Client struct {
	Deps
	parser *parser
	boot   *bootstrapv3.Bootstrap
	ads    *mux // nil unless it is in use
	alone  []*mux
	files  *fileWatcher // nil before the first file
	heard  bool
	closed bool
}

// New returns a client. It does nothing before the first subscription.
func New(d Deps) *Client {
	if d.Clock == nil {
		d.Clock = systemClock{}
	}
	c := &Client{Deps: d, parser: &parser{}}
	c.parser.env.Store(&d.Env)
	c.boot, _ = d.Env.Config.Source.(*bootstrapv3.Bootstrap)
	if c.Deps.Transport == nil {
		c.Deps.Transport = c.grpcTransport
	}
	return c
}

// SetEnv changes what later resources are checked against.
func (c *Client) SetEnv(env envoy.Env) { c.parser.env.Store(&env) }

// Parse checks and translates a resource that is at hand.
func (c *Client) Parse(m proto.Message) *Resource {
	r := &Resource{}
	c.parser.translate(r, m)
	return r
}

// after has the owner run f after d, unless stop is called before.
func (c *Client) after(d time.Duration, f func()) (stop func()) {
	stopped := false
	halt := c.Clock.AfterFunc(d, func() {
		c.Post(func() {
			if !stopped && !c.closed {
				f()
			}
		})
	})
	return func() {
		stopped = true
		halt()
	}
}

// Subscription is the wish for one resource, or for all of a type. Its methods belong to the owner's
// goroutine.
type Subscription struct {
	client  *Client
	typ     Type
	name    string // "" for a wildcard
	watcher Watcher
	stats   *subscriptionStats
	timeout func() // stops initial_fetch_timeout; nil once it is over
	home    *mux   // nil for a file
	file    *fileSource
	closed  bool
}

// defaultFetchTimeout is Envoy's default of initial_fetch_timeout.
const defaultFetchTimeout = 15 * time.Second

// Subscribe begins a subscription to all resources of a type, or to the endpoints of that name. scope
// takes its stats. The watcher hears of it later, never before Subscribe has returned.
func (c *Client) Subscribe(t Type, source *corev3.ConfigSource, name string, scope *stats.Scope, w Watcher) (*Subscription, error) {
	s := &Subscription{client: c, typ: t, name: name, watcher: w, stats: newSubscriptionStats(scope)}
	if path := source.GetPath(); path != "" {
		return s, c.watchFile(s, &corev3.PathConfigSource{Path: path})
	}
	if p := source.GetPathConfigSource(); p != nil {
		return s, c.watchFile(s, p)
	}
	s.stats.attempt.Inc()
	var err error
	switch {
	case source.GetAds() != nil:
		if c.ads == nil {
			c.ads, err = c.newMux(Server{Source: c.boot.GetDynamicResources().GetAdsConfig(), Aggregated: true}, c.Stats.Scope(""))
		}
		s.home = c.ads
	case source.GetApiConfigSource() != nil:
		if s.home, err = c.newMux(Server{Source: source.GetApiConfigSource(), Type: t}, scope); err == nil {
			c.alone = append(c.alone, s.home)
		}
	default:
		err = fmt.Errorf("%s: the source of resources is neither ads, api_config_source nor path_config_source", t)
	}
	if err != nil {
		return nil, err
	}
	wait := defaultFetchTimeout
	if d := source.GetInitialFetchTimeout(); d != nil {
		wait = d.AsDuration()
	}
	if wait > 0 {
		s.timeout = c.after(wait, s.timedOut)
	}
	s.home.subscribe(s)
	return s, nil
}

func (c *Client) newMux(server Server, scope *stats.Scope) (*mux, error) {
	server.Node = c.Node
	source, kind := server.Source, server.Type.String()
	if server.Aggregated {
		kind = "ads"
	}
	transport, err := c.Transport(server)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	m := &mux{
		client: c, log: c.Log.With("stream", kind), transport: transport,
		delta: source.GetApiType() == corev3.ApiConfigSource_DELTA_GRPC,
		stats: newServerStats(scope), backoff: backoffOf(source),
	}
	if l := source.GetRateLimitSettings(); l != nil {
		size, rate := 100.0, 10.0
		if t := l.GetMaxTokens(); t != nil {
			size = float64(t.GetValue())
		}
		if r := l.GetFillRate(); r != nil {
			rate = r.GetValue()
		}
		m.limit = newBucket(size, rate, c.Clock.Now())
	}
	return m, nil
}

// backoffOf is how attempts to reach a server are spaced.
func backoffOf(source *corev3.ApiConfigSource) backoff {
	b := defaultBackoff()
	for _, s := range source.GetGrpcServices() {
		p := s.GetEnvoyGrpc().GetRetryPolicy().GetRetryBackOff()
		if p == nil {
			p = s.GetRetryPolicy().GetRetryBackOff()
		}
		if d := p.GetBaseInterval(); d != nil {
			b.base = max(d.AsDuration(), time.Millisecond)
			b.max = 10 * b.base // Envoy's default of max_interval
		}
		if d := p.GetMaxInterval(); d != nil {
			b.max = d.AsDuration()
		}
		b.max = max(b.max, b.base)
	}
	return b
}

// Hold keeps requests of a type back, acknowledgements too, on the aggregated stream: a server goes on
// only after its last response has been acknowledged.
func (c *Client) Hold(t Type, hold bool) {
	if c.ads == nil || c.ads.channels[t] == nil {
		return
	}
	c.ads.channels[t].held = hold
}

// Flush sends what has become due.
func (c *Client) Flush() {
	if c.ads != nil {
		c.ads.flush()
	}
	for _, m := range c.alone {
		m.flush()
	}
}

// Close ends all subscriptions; what was fetched stays with its watchers.
func (c *Client) Close() {
	c.closed = true
	if c.ads != nil {
		c.ads.close()
	}
	for _, m := range c.alone {
		m.close()
	}
	if c.files != nil {
		c.files.close()
	}
}

// Close ends the subscription; its watcher hears nothing any more. Closing twice does nothing.
func (s *Subscription) Close() {
	if s == nil || s.closed {
		return
	}
	s.closed = true
	s.stopTimeout()
	if s.file != nil {
		s.file.close()
		return
	}
	s.home.unsubscribe(s)
	if s.home == s.client.ads {
		return
	}
	s.home.close()
	for i, m := range s.client.alone {
		if m == s.home {
			s.client.alone = append(s.client.alone[:i], s.client.alone[i+1:]...)
			return
		}
	}
}

func (s *Subscription) stopTimeout() {
	if s.timeout != nil {
		s.timeout()
		s.timeout = nil
	}
}

// timedOut: nothing has come within initial_fetch_timeout.
func (s *Subscription) timedOut() {
	if s.closed {
		return
	}
	s.timeout = nil
	s.stats.timeout.Inc()
	s.stats.attempt.Inc()
	s.watcher.Missing()
}

// unreachable tells a watcher that asks for it that the server cannot be reached.
func (s *Subscription) unreachable() {
	if w, ok := s.watcher.(interface{ Unreachable() }); ok && !s.closed {
		w.Unreachable()
	}
}

// take hands an update to the watcher and counts what became of it.
func (s *Subscription) take(u Update, began time.Time) error {
	var err error
	if len(u.Resources) == 1 && !s.typ.wildcard() {
		err = u.Resources[0].Err
	}
	if err == nil {
		err = s.watcher.Update(u)
	}
	s.outcome(err, u.Version, began)
	return err
}

// outcome counts an update.
func (s *Subscription) outcome(err error, version string, began time.Time) {
	s.client.heard = true
	s.stopTimeout()
	s.stats.attempt.Inc()
	s.stats.updated(err, version, began, s.client.Clock.Now())
}

// Heard reports whether a server or a file has said anything yet.
func (c *Client) Heard() bool { return c.heard }
