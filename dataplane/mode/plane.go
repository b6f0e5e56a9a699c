package mode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
	"github.com/guideway/guideway/dataplane/xdp"
)

// The choices of an instance, and of a listener.
const (
	Auto       = "auto"        // XDP where it can be, else the proxy
	XDP        = "xdp"         // XDP, native or generic, or not at all
	XDPGeneric = "xdp-generic" // generic XDP, or not at all
	Proxy      = "proxy"
)

// XDPPlane is what is needed of package xdp.
type XDPPlane interface {
	dataplane.Dataplane
	Mode() (xdp.Mode, []string)
}

// Config of a Plane.
type Config struct {
	// Mode of listeners that do not choose themselves; "" is Auto.
	Mode string
	// Interfaces that XDP may be used on. Without one nothing runs in XDP by itself: it changes how backends have
	// to be set up, so somebody has to ask for it.
	Interfaces []string
	// RequireNative makes it an error if XDP does not run in the driver.
	RequireNative bool
	Proxy         dataplane.Dataplane
	// OpenXDP starts XDP in the first mode that works, for these listeners.
	OpenXDP func(modes []xdp.Mode, listeners []*dataplane.Listener, clusters map[string]*dataplane.Cluster) (XDPPlane, error)
	Stats   *stats.Store
	Log     *slog.Logger
}

// Plane implements dataplane.Dataplane.
type Plane struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex
	xdp     XDPPlane // nil until a listener needs it
	openErr error    // why it could not be started
	chosen  map[string]choice
	order   []string
	closed  bool

	gauges map[string]*stats.Gauge // listeners by mode
	inUse  *stats.Text
}

// choice is where a listener runs, and why. It stands until the listener or one of its clusters is configured
// anew: hosts come and go, and a listener does not move for it.
type choice struct {
	listener     uint64 // hash
	incarnations []uint64
	Mode, Reason string
	err          error
}

var _ dataplane.Dataplane = (*Plane)(nil)

// New returns a plane that runs nothing yet.
func New(c Config) *Plane {
	if c.Mode == "" {
		c.Mode = Auto
	}
	scope := c.Stats.Scope("guideway.dataplane.")
	p := &Plane{cfg: c, log: c.Log, chosen: map[string]choice{}, gauges: map[string]*stats.Gauge{}, inUse: scope.Text("mode")}
	for _, m := range []string{"xdp_native", "xdp_generic", "proxy"} {
		p.gauges[m] = scope.Gauge("listeners." + m)
	}
	return p
}

// XDP returns the XDP data plane, nil while no listener runs there.
func (p *Plane) XDP() XDPPlane {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.xdp
}

// Apply implements dataplane.Dataplane.
func (p *Plane) Apply(ctx context.Context, snap *dataplane.Snapshot) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("the data plane is closed")
	}
	before := p.chosen
	next, err := p.choose(snap)
	if err != nil {
		return err
	}
	var failed []dataplane.ListenerFailure
	var inXDP, inProxy, leaving []*dataplane.Listener
	p.order = p.order[:0]
	for _, l := range snap.Listeners {
		c := next[l.Name]
		p.order = append(p.order, l.Name)
		switch {
		case c.err != nil:
			failed = append(failed, dataplane.ListenerFailure{Name: l.Name, Err: c.err})
		case c.Mode == Proxy:
			inProxy = append(inProxy, l)
		default:
			inXDP = append(inXDP, l)
			if b, was := before[l.Name]; was && b.err == nil && b.Mode == Proxy {
				leaving = append(leaving, l)
			}
		}
	}
	p.chosen = next
	part := func(listeners ...*dataplane.Listener) *dataplane.Snapshot {
		s := *snap
		s.Listeners = listeners
		return &s
	}
	// What moves is served by one or the other at any time: the proxy binds before XDP lets go, and lets go
	// once XDP forwards.
	collect := func(err error) error {
		var some *dataplane.ListenerError
		if errors.As(err, &some) {
			failed = append(failed, some.Failed...)
			return nil
		}
		return err
	}
	if err := collect(p.cfg.Proxy.Apply(ctx, part(slices.Concat(inProxy, leaving)...))); err != nil {
		return err
	}
	if p.xdp != nil {
		if err := collect(p.xdp.Apply(ctx, part(inXDP...))); err != nil {
			return err
		}
	}
	if len(leaving) > 0 {
		if err := collect(p.cfg.Proxy.Apply(ctx, part(inProxy...))); err != nil {
			return err
		}
	}
	p.report(before)
	if len(failed) > 0 {
		return &dataplane.ListenerError{Failed: failed}
	}
	return nil
}

// choose decides where each listener runs. It starts XDP if need be, and fails only if that is required.
func (p *Plane) choose(snap *dataplane.Snapshot) (map[string]choice, error) {
	next := map[string]choice{}
	var candidates []*dataplane.Listener
	for _, l := range snap.Listeners {
		c := choice{listener: l.Hash, incarnations: incarnationsOf(l, snap.Clusters)}
		if old, ok := p.chosen[l.Name]; ok && old.listener == c.listener && slices.Equal(old.incarnations, c.incarnations) {
			next[l.Name] = old
			continue
		}
		want := l.Dataplane
		if want == "" {
			want = p.cfg.Mode
		}
		c.Mode = Proxy
		switch unfit := xdp.Supports(l, snap.Clusters); {
		case want == Proxy:
			c.Reason = "asked for"
		case len(p.cfg.Interfaces) == 0:
			c.Reason = "no interface is named for XDP (node.metadata.guideway.interfaces)"
		case unfit != nil:
			c.Reason = unfit.Error()
		default:
			c.Mode, c.Reason = want, ""
			candidates = append(candidates, l)
		}
		if c.Mode == Proxy && want != Proxy && want != Auto {
			c.err = fmt.Errorf("listener %q is to run in %s and cannot: %s", l.Name, want, c.Reason)
		}
		next[l.Name] = c
	}
	if len(candidates) > 0 && p.xdp == nil && p.openErr == nil {
		p.open(candidates, snap.Clusters)
	}
	if p.openErr != nil && p.cfg.RequireNative {
		return nil, fmt.Errorf("native XDP is required: %w", p.openErr)
	}
	for _, l := range candidates {
		c := next[l.Name]
		want := c.Mode
		switch {
		case p.openErr == nil:
			mode, on := p.xdp.Mode()
			c.Mode = XDP
			if mode == xdp.Generic {
				c.Mode = XDPGeneric
			}
			c.Reason = fmt.Sprintf("%s XDP on %v", mode, on)
		case want == Auto:
			c.Mode, c.Reason = Proxy, p.openErr.Error()
		default:
			c.err = fmt.Errorf("listener %q is to run in %s and cannot: %w", l.Name, want, p.openErr)
		}
		next[l.Name] = c
	}
	return next, nil
}

func (p *Plane) open(listeners []*dataplane.Listener, clusters map[string]*dataplane.Cluster) {
	modes := []xdp.Mode{xdp.Native, xdp.Generic}
	generic := p.cfg.Mode == XDPGeneric
	for _, l := range listeners {
		generic = generic || l.Dataplane == XDPGeneric
	}
	switch {
	case p.cfg.RequireNative:
		modes = modes[:1]
	case generic:
		modes = modes[1:]
	}
	p.xdp, p.openErr = p.cfg.OpenXDP(modes, listeners, clusters)
	if p.openErr != nil {
		p.xdp = nil
	}
}

// incarnationsOf tells the versions of a listener's clusters' settings.
func incarnationsOf(l *dataplane.Listener, clusters map[string]*dataplane.Cluster) []uint64 {
	var names []string
	if l.UDP != nil {
		names = l.UDP.Clusters
	}
	chains := l.Chains
	if l.DefaultChain != nil {
		chains = append(slices.Clone(chains), l.DefaultChain)
	}
	for _, c := range chains {
		if c.Proxy != nil {
			for _, w := range c.Proxy.Clusters {
				names = append(names, w.Name)
			}
		}
	}
	out := make([]uint64, len(names))
	for i, name := range names {
		if c := clusters[name]; c != nil {
			out[i] = c.Incarnation
		}
	}
	return out
}

// report logs what has been chosen anew, and sets the gauges.
func (p *Plane) report(before map[string]choice) {
	count := map[string]int64{}
	for _, name := range p.order {
		c := p.chosen[name]
		if c.err != nil {
			continue
		}
		key := "proxy"
		if c.Mode == XDP {
			key = "xdp_native"
		} else if c.Mode == XDPGeneric {
			key = "xdp_generic"
		}
		count[key]++
		if b, ok := before[name]; !ok || b.Mode != c.Mode || b.Reason != c.Reason {
			p.log.Info("listener runs in "+c.Mode, "listener", name, "reason", c.Reason)
			if c.Mode == XDPGeneric {
				p.log.Warn("generic XDP is several times slower than native; --require-native makes it an error", "listener", name)
			}
		}
	}
	for key, g := range p.gauges {
		g.Set(count[key])
	}
	switch {
	case count["xdp_native"] > 0:
		p.inUse.Set("xdp-native")
	case count["xdp_generic"] > 0:
		p.inUse.Set(XDPGeneric)
	default:
		p.inUse.Set(Proxy)
	}
}

// Listening implements dataplane.Dataplane.
func (p *Plane) Listening() []dataplane.ListenerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := map[string]dataplane.ListenerStatus{}
	for _, s := range p.cfg.Proxy.Listening() {
		of[s.Name] = s
	}
	if p.xdp != nil {
		for _, s := range p.xdp.Listening() {
			of[s.Name] = s
		}
	}
	var list []dataplane.ListenerStatus
	for _, name := range p.order {
		if s, ok := of[name]; ok {
			s.Dataplane, s.Reason = p.chosen[name].Mode, p.chosen[name].Reason
			list = append(list, s)
			delete(of, name)
		}
	}
	return list
}

// DrainListeners implements dataplane.Dataplane.
func (p *Plane) DrainListeners(names []string, grace time.Duration) {
	p.each(func(d dataplane.Dataplane) { d.DrainListeners(names, grace) })
}

// SetDraining implements dataplane.Dataplane.
func (p *Plane) SetDraining(draining bool) {
	p.each(func(d dataplane.Dataplane) { d.SetDraining(draining) })
}

// Close implements dataplane.Dataplane.
func (p *Plane) Close() error {
	var errs []error
	p.each(func(d dataplane.Dataplane) { errs = append(errs, d.Close()) })
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return errors.Join(errs...)
}

func (p *Plane) each(f func(dataplane.Dataplane)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.cfg.Proxy)
	if p.xdp != nil {
		f(p.xdp)
	}
}
