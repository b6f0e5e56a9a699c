package health

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// fakeProbes is a prober whose probes wait for the test to end them. In a synctest bubble it makes
// the whole checker deterministic.
type fakeProbes struct {
	mu      sync.Mutex
	waiting map[*dataplane.HostState]chan outcome
	most    int       // probes at a time
	starts  []string  // "port at 1.5s"
	begin   time.Time // of the test
	auto    func(*Target) outcome
	open_   atomic.Int64
}

func newFakeProbes() *fakeProbes {
	return &fakeProbes{waiting: map[*dataplane.HostState]chan outcome{}, begin: time.Now()}
}

func (f *fakeProbes) open(t *Target) probe {
	f.open_.Add(1)
	return &fakeProbe{f, t}
}

type fakeProbe struct {
	f *fakeProbes
	t *Target
}

func (p *fakeProbe) close() { p.f.open_.Add(-1) }

func (p *fakeProbe) run(ctx context.Context) outcome {
	ch := make(chan outcome, 1)
	p.f.mu.Lock()
	p.f.waiting[p.t.State] = ch
	p.f.most = max(p.f.most, len(p.f.waiting))
	p.f.starts = append(p.f.starts, fmt.Sprintf("%d %v", p.t.Check.Port(), time.Since(p.f.begin)))
	auto := p.f.auto
	p.f.mu.Unlock()
	if auto != nil {
		time.Sleep(10 * time.Millisecond) // of fake time
		ch <- auto(p.t)
	}
	defer func() {
		p.f.mu.Lock()
		if p.f.waiting[p.t.State] == ch {
			delete(p.f.waiting, p.t.State)
		}
		p.f.mu.Unlock()
	}()
	select {
	case o := <-ch:
		return o
	case <-ctx.Done():
		return broken(ctx, ctx.Err())
	}
}

// end ends the probe of a target that is under way.
func (f *fakeProbes) end(t *testing.T, target *Target, o outcome) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	ch := f.waiting[target.State]
	f.mu.Unlock()
	if ch == nil {
		t.Fatalf("no probe of %s is under way", target.Check)
	}
	ch <- o
	synctest.Wait()
}

// isWaiting tells whether a probe of a host is under way.
func (f *fakeProbes) isWaiting(state *dataplane.HostState) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting[state] != nil
}

func (f *fakeProbes) takeStarts() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.starts
	f.starts = nil
	return s
}

// target makes one at a port of 10.0.0.1.
func target(port int) *Target {
	a := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(port))
	return &Target{State: new(dataplane.HostState), Address: a, Check: a}
}

// watched is a checker in a bubble, with what it told.
type watched struct {
	*Checker
	fake  *fakeProbes
	store *stats.Store

	mu    sync.Mutex
	flags map[*dataplane.HostState]dataplane.Health // as a control loop would keep them
	calls []string                                  // "port flags"
}

// watch starts a checker with fake probes; the bubble ends with it.
func watch(t *testing.T, cfg Config, deps Deps) *watched {
	t.Helper()
	w := &watched{fake: newFakeProbes(), store: stats.NewStore(), flags: map[*dataplane.HostState]dataplane.Health{}}
	if cfg.Check.TCP == nil && cfg.Check.HTTP == nil {
		cfg.Check.TCP = &model.TCPCheck{}
	}
	if cfg.Check.Timeout == 0 {
		cfg.Check.Timeout = time.Second
	}
	deps.Scope = w.store.Scope("cluster.c.")
	deps.probes = w.fake
	deps.OnChange = func(t *Target, h dataplane.Health) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.flags[t.State] = h
		w.calls = append(w.calls, fmt.Sprintf("%d %s", t.Check.Port(), h))
	}
	c, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	w.Checker = c
	return w
}

// stop ends the checker and looks whether it left anything behind.
func (w *watched) stop(t *testing.T) {
	t.Helper()
	w.Stop()
	<-w.Done()
	if n := w.fake.open_.Load(); n != 0 {
		t.Errorf("%d probes are not closed", n)
	}
	for _, g := range []string{"healthy", "degraded"} {
		if n := w.store.Gauge("cluster.c.health_check." + g).Value(); n != 0 {
			t.Errorf("gauge %s is %d after the end", g, n)
		}
	}
}

// set gives the hosts to the checker and takes the flags of new ones.
func (w *watched) set(targets ...*Target) {
	w.mu.Lock()
	for _, t := range targets {
		if _, ok := w.flags[t.State]; !ok {
			w.flags[t.State] = w.InitialFlags(t)
		}
	}
	w.mu.Unlock()
	w.SetHosts(targets)
	synctest.Wait()
}

// flag returns the flags a control loop would know.
func (w *watched) flag(state *dataplane.HostState) dataplane.Health {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flags[state]
}

// forgetAllBut drops the flags of hosts that are gone, as a control loop does.
func (w *watched) forgetAllBut(present map[*dataplane.HostState]*Target) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for state := range w.flags {
		if present[state] == nil {
			delete(w.flags, state)
		}
	}
}

func (w *watched) takeCalls() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.calls
	w.calls = nil
	return c
}

func (w *watched) counter(name string) uint64 {
	return w.store.Counter("cluster.c.health_check." + name).Value()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// common has thresholds 2 and 2 and an interval of 5 s.
func common() Config {
	return Config{Check: model.HealthCheck{Interval: 5 * time.Second, HealthyThreshold: 2, UnhealthyThreshold: 2}}
}
