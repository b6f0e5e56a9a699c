package xdp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// Config of an XDP data plane.
type Config struct {
	// Interfaces that clients' packets come in by.
	Interfaces []string
	// Modes to try, in this order.
	Modes []Mode
	// Pins is a directory in a bpffs; "" is DefaultPins. What is in it is adopted.
	Pins string
	// Capacity of the maps, if they are not there yet; zero fields are defaults.
	Capacity bpf.Capacity
	// Sources are prefixes, at most one of each family, that outer source addresses are taken from, varying with
	// the flow, so that receivers spread packets over their queues. They must not be routed anywhere else, and
	// backends must not filter them (rp_filter). Without one the source is the address of the way out.
	Sources []netip.Prefix
	Stats   *stats.Store
	Log     *slog.Logger
}

// Plane is the XDP data plane. It implements dataplane.Dataplane, for listeners that Supports accepts.
type Plane struct {
	cfg     Config
	log     *slog.Logger
	program *program // nil in tests without a kernel
	sources sources
	now     func() time.Duration // CLOCK_MONOTONIC
	flows   flowMaps
	counts  counterMaps
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	pub      *publisher
	hops     *hops
	services map[string]*service
	order    []string
	adopted  map[serviceKey]*service // of a former agent, until a snapshot names them
	snap     *dataplane.Snapshot
	started  bool // a snapshot has been applied
	stats    *planeStats
	scan     scan

	capturing sync.Mutex
}

var _ dataplane.Dataplane = (*Plane)(nil)

var errClosed = errors.New("the XDP data plane is closed")

// monotonic is the clock that flows are stamped by.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // Linux always has it
	}
	return time.Duration(t.Nano())
}

// Open loads the program for the listeners of a snapshot and attaches it. What a former agent left goes on
// forwarding, unchanged, until the first Apply. The error says what XDP needs here.
func Open(c Config, listeners []*dataplane.Listener, clusters map[string]*dataplane.Cluster) (*Plane, error) {
	if c.Pins == "" {
		c.Pins = DefaultPins
	}
	if len(c.Modes) == 0 {
		c.Modes = []Mode{Native, Generic}
	}
	frags := false
	for _, name := range c.Interfaces {
		if d, err := findDevice(name); err == nil && d.mtu > oneBuffer {
			frags = true // what cannot be attached is told of by attachAll
		}
	}
	prog, err := openProgram(c.Pins, c.Capacity, switchesFor(listeners, clusters), frags, c.Log)
	if err != nil {
		return nil, err
	}
	if err := prog.attachAll(c.Interfaces, c.Modes); err != nil {
		prog.close()
		return nil, err
	}
	p, err := newPlane(c, prog.maps, kernelNetwork{}, prog.maps, prog.maps, monotonic)
	if err != nil {
		prog.close()
		return nil, err
	}
	p.program = prog
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	events, err := watchNetwork(ctx, func(err error) { p.log.Debug("netlink", "reason", err) })
	if err != nil {
		stop()
		prog.close()
		return nil, err
	}
	p.done.Go(func() { p.follow(ctx, events) })
	return p, nil
}

// newPlane returns a plane on some maps, and adopts what they hold.
func newPlane(c Config, m programMaps, n network, f flowMaps, k counterMaps, now func() time.Duration) (*Plane, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Stats == nil {
		c.Stats = stats.NewStore()
	}
	p := &Plane{
		cfg: c, log: c.Log, now: now, flows: f, counts: k, pub: newPublisher(m), hops: newHops(n),
		services: map[string]*service{}, stats: newPlaneStats(c.Stats), snap: &dataplane.Snapshot{},
	}
	for _, prefix := range c.Sources {
		if prefix.Addr().Is4() {
			p.sources.v4 = prefix
		} else {
			p.sources.v6 = prefix
		}
	}
	if err := p.adopt(); err != nil {
		return nil, err
	}
	return p, nil
}

// resolveWait is how long Apply waits for backends that it has not heard of before to answer, so that the first
// tables need not leave them out.
const resolveWait = time.Second

// Apply implements dataplane.Dataplane.
func (p *Plane) Apply(ctx context.Context, snap *dataplane.Snapshot) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.useProgram(snap.Listeners, snap.Clusters); err != nil {
		return err
	}
	p.snap = snap
	wanted := map[string]bool{}
	var failed []dataplane.ListenerFailure
	p.order = p.order[:0]
	var fresh []netip.Addr
	for _, l := range snap.Listeners {
		if wanted[l.Name] {
			continue // a second listener of one name; only the first is used
		}
		wanted[l.Name] = true
		p.order = append(p.order, l.Name)
		s := p.services[l.Name]
		if s == nil {
			s = p.claim(l)
			p.services[l.Name] = s
		}
		s.listener = l
		fresh = append(fresh, p.find(s)...)
	}
	p.awaitHops(ctx, fresh)
	for _, name := range p.order {
		if err := p.update(p.services[name]); err != nil {
			failed = append(failed, dataplane.ListenerFailure{Name: name, Err: err})
		}
	}
	for name, s := range p.services {
		if wanted[name] {
			continue
		}
		if err := p.pub.remove(&s.placed); err != nil {
			p.log.Error("a service that is gone is still in the maps; it is tried again", "listener", name, "reason", err)
			continue
		}
		p.stats.drop(s)
		delete(p.services, name)
	}
	if !p.started {
		p.started = true
		p.reconcile()
	}
	p.forgetHops()
	p.stats.update(p)
	if len(failed) > 0 {
		return &dataplane.ListenerError{Failed: failed}
	}
	return nil
}

// useProgram sees to it that the program in force has what the listeners need.
func (p *Plane) useProgram(listeners []*dataplane.Listener, clusters map[string]*dataplane.Cluster) error {
	if p.program == nil {
		return nil
	}
	want := both(p.program.switches, switchesFor(listeners, clusters))
	if len(p.cfg.Interfaces) > 1 {
		want.Redirect = 1
	}
	if want != p.program.switches {
		if err := p.program.reload(want, p.program.frags); err != nil {
			return err
		}
		p.program.adopted = false // it has been replaced
		return nil
	}
	return p.program.takeOver()
}

// redirects makes the program redirect packets if a backend is behind another interface than the one that
// packets come in by.
func (p *Plane) redirects(s *service) error {
	if p.program == nil || p.program.switches.Redirect == 1 {
		return nil
	}
	for _, m := range s.members {
		if m != nil && m.hop.ifindex != 0 && int(m.hop.ifindex) != p.program.attached[0].device.ifindex {
			want := p.program.switches
			want.Redirect = 1
			return p.program.reload(want, p.program.frags)
		}
	}
	return nil
}

// find enlists a service's hosts, and returns the addresses among theirs that nobody has asked the way to yet.
func (p *Plane) find(s *service) (fresh []netip.Addr) {
	_, clusters, _ := clustersOf(s.listener, p.snap.Clusters)
	s.enlist(clusters)
	var all []netip.Addr
	for _, m := range s.members {
		if m != nil {
			all = append(all, m.id.addr.Addr().Unmap())
		}
	}
	return p.hops.learn(all, p.now())
}

// awaitHops waits a little for neighbours that have been asked for just now.
func (p *Plane) awaitHops(ctx context.Context, fresh []netip.Addr) {
	waiting := func() bool {
		return slices.ContainsFunc(fresh, func(a netip.Addr) bool {
			x := p.hops.of[a]
			return x != nil && !x.resolved && x.ifindex != 0
		})
	}
	if p.program == nil || !waiting() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWait)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for waiting() {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			p.hops.refresh(p.now())
		}
	}
}

// update makes a service what the snapshot and the next hops say, in conntrack and in the maps.
func (p *Plane) update(s *service) error {
	names, clusters, weights := clustersOf(s.listener, p.snap.Clusters)
	in := inputs{listener: s.listener, clusters: clusters}
	for _, m := range s.members {
		if m != nil {
			m.hop = p.hops.get(m.id.addr.Addr().Unmap(), p.now())
			if m.forwarding == "l2" && !m.hop.onLink && m.hop.ifindex != 0 {
				m.hop.resolved, m.hop.reason = false, fmt.Sprintf("%s is behind %s, and l2 reaches the same segment only", m.id.addr.Addr(), m.hop.gateway)
			}
			in.hops = append(in.hops, m.hop.version)
		}
	}
	if s.failed == nil && s.inputs.equal(in) && !s.placed.unsure {
		return nil
	}
	s.inputs = in
	index := s.enlist(clusters)
	s.failed = p.apply(s, names, clusters, weights, index)
	return s.failed
}

func (p *Plane) apply(s *service, names []string, clusters []*dataplane.Cluster, weights []uint32, index map[*dataplane.Host]uint16) error {
	d, err := s.desire(names, clusters, weights, index)
	if err != nil {
		return fmt.Errorf("listener %q: %w", s.name, err)
	}
	change, err := s.steering.Apply(d, p.now())
	if err != nil {
		return fmt.Errorf("listener %q: %w", s.name, err)
	}
	s.last = d
	if change.Moved > 0 {
		p.log.Debug("slots moved", "listener", s.name, "moved", change.Moved, "opened", change.Opened)
	}
	p.stats.moved.Add(uint64(change.Moved))
	return p.publish(s)
}

// publish makes the maps hold a service as its Steering has it.
func (p *Plane) publish(s *service) error {
	if err := p.redirects(s); err != nil {
		return err
	}
	if err := p.pub.publish(&s.placed, s.target(p.sources)); err != nil {
		p.stats.pushFailed.Inc()
		return fmt.Errorf("listener %q: the maps could not be changed, it is tried again: %w", s.name, err)
	}
	return nil
}

// forgetHops stops following the ways to backends that no service has.
func (p *Plane) forgetHops() {
	wanted := map[netip.Addr]bool{}
	for _, s := range p.services {
		for _, m := range s.members {
			if m != nil {
				wanted[m.id.addr.Addr().Unmap()] = true
			}
		}
	}
	p.hops.keep(wanted)
}

// follow reacts to the kernel's changes and to time, until ctx ends.
func (p *Plane) follow(ctx context.Context, events <-chan netEvent) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	ticks := 0
	for {
		var refresh, tick bool
		var heard []neighbour
		take := func(e netEvent) {
			if e.neighbour != nil {
				heard = append(heard, *e.neighbour)
			} else {
				refresh = true
			}
		}
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			take(e)
		case <-second.C:
			tick = true
			ticks++
		}
		for more := true; more; {
			select {
			case e := <-events:
				take(e)
			default:
				more = false
			}
		}
		p.mu.Lock()
		if !p.started || p.closed {
			p.mu.Unlock()
			continue
		}
		now := p.now()
		for _, n := range heard {
			p.hops.heard(n, now)
		}
		if refresh {
			p.followInterfaces()
			p.hops.refresh(now)
		}
		if tick {
			p.hops.tick(now)
			p.readCounters()
			if ticks%60 == 0 {
				p.reconcile()
			}
		}
		p.updateAll()
		p.mu.Unlock()
		if tick && ticks%5 == 0 {
			p.sweep(ctx)
		}
	}
}

// updateAll updates the services whose next hops have changed, or whose last push failed.
func (p *Plane) updateAll() {
	for _, name := range p.order {
		s := p.services[name]
		before := s.failed
		if err := p.update(s); err != nil && before == nil {
			p.log.Error("the maps are not what they should be", "listener", name, "reason", err)
		} else if err == nil && before != nil {
			p.log.Info("the maps are in order again", "listener", name)
		}
	}
	p.stats.update(p)
}

// Listening implements dataplane.Dataplane.
func (p *Plane) Listening() []dataplane.ListenerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]dataplane.ListenerStatus, 0, len(p.order))
	for _, name := range p.order {
		s := p.services[name]
		list = append(list, dataplane.ListenerStatus{
			Name: name, Addresses: s.listener.Addresses, Protocol: s.listener.Protocol, Draining: s.draining,
		})
	}
	return list
}

// DrainListeners implements dataplane.Dataplane. XDP has no connections of its own to refuse or to end:
// drained listeners are shown as such and forward on, while whoever announces the VIP takes it elsewhere.
func (p *Plane) DrainListeners(names []string, _ time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, s := range p.services {
		if names == nil || slices.Contains(names, name) {
			s.draining = true
		}
	}
}

// SetDraining implements dataplane.Dataplane. It says nothing to flows.
func (p *Plane) SetDraining(bool) {}

// Close implements dataplane.Dataplane. The program stays on its interfaces and forwards on by the maps as they
// are, so that a restart loses nothing; Detach ends that.
func (p *Plane) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
	p.done.Wait()
	if p.program != nil {
		p.program.close()
	}
	return nil
}

// Mode tells where the program runs, and on which interfaces.
func (p *Plane) Mode() (Mode, []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.program == nil || len(p.program.attached) == 0 {
		return Native, nil
	}
	var names []string
	for _, a := range p.program.attached {
		names = append(names, a.device.name)
	}
	return p.program.attached[0].mode, names
}

// followInterfaces attaches the program again where an interface was replaced by one of its name.
func (p *Plane) followInterfaces() {
	if p.program == nil {
		return
	}
	for _, a := range p.program.attached {
		d, err := findDevice(a.device.name)
		if err != nil || d.ifindex == a.device.ifindex {
			continue // it is there, or not yet again
		}
		if err := p.program.attachAgain(a, d); err != nil {
			p.log.Error("packets are not taken on an interface that has come back", "interface", d.name, "reason", err)
			continue
		}
		p.log.Warn("an interface has come back, and has the program again", "interface", d.name, "mode", a.mode)
		if err := p.addDevices(); err != nil {
			p.log.Error("device map", "reason", err)
		}
	}
}
