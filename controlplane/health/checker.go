package health

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// Config is what one checker does.
type Config struct {
	// Cluster names the cluster in Host headers and event logs.
	Cluster string
	Check   model.HealthCheck
	// PendingNewHosts flags new hosts PendingActiveHC until their first result
	// (ignore_new_hosts_until_first_hc; Envoy does so in EDS and STRICT_DNS clusters only).
	PendingNewHosts bool
	// BindAddress is the source address of probes; invalid means the kernel's choice.
	BindAddress netip.AddrPort
	// ProxyProtocol is the version of the PROXY header the cluster's transport socket writes to
	// hosts, 0 for none. A check that sends nothing sends no header either.
	ProxyProtocol int
	HoldDown      HoldDown
}

// Deps are what a checker needs from around it. Callbacks come one at a time from the checker's
// goroutine and hold up its checks, so they should hand on and return.
type Deps struct {
	// Scope is the cluster's own ("cluster.<name>."). Required.
	Scope *stats.Scope
	// Pool bounds probes; nil means a pool of the checker's own.
	Pool *Pool
	// EventLog takes one line a Write; nil means no event log.
	EventLog io.Writer
	// HasTraffic reports whether the cluster ever carried traffic; nil means always.
	HasTraffic func() bool
	// Limits are the runtime's bounds of intervals, asked for each time; nil means none.
	Limits func() Limits
	// OnChange tells the flags of a target when they differ from those last told; a target not seen
	// before starts from InitialFlags. A call may still come for a target that SetHosts took away a
	// moment ago. May be nil.
	OnChange func(*Target, dataplane.Health)
	// OnPass is called for each success of a host that is not failed (outlier detection returns such
	// hosts). May be nil.
	OnPass func(*Target)
	// Random returns a number in [0, n); nil means math/rand/v2.
	Random func(n int64) int64

	probes prober // nil means real ones
}

// Checker checks the hosts of one cluster. Its methods never block and are safe for concurrent use.
type Checker struct {
	cfg       Config
	deps      Deps
	rules     rules
	intervals intervals
	jitter    jitter
	stats     checkStats
	log       checkLog
	probes    prober

	ctx        context.Context
	cancel     context.CancelFunc
	wake       chan struct{} // hosts is new
	results    chan result
	firstRound chan struct{}
	done       chan struct{}

	mu    sync.Mutex
	hosts []*Target // as last set

	// What follows belongs to the goroutine of run.
	sessions map[*dataplane.HostState]*session
	disabled map[*dataplane.HostState]bool // hosts that are not to be checked
	queue    schedule
	running  int // probes in flight, sessions that are gone included
	began    bool
	awaited  int // sessions of the first SetHosts without a result
}

// session is a host under check. About 250 bytes, and no goroutine but while a probe runs.
type session struct {
	target  *Target
	verdict verdict
	told    dataplane.Health
	probe   probe

	due     time.Time
	index   int  // in the schedule, -1 if not waiting
	probing bool // cancel ends the probe
	gone    bool // removed while probing
	awaited bool
	cancel  context.CancelFunc
}

type result struct {
	s *session
	o outcome
}

// New starts a checker. It has no hosts until SetHosts, and runs until Stop.
func New(cfg Config, deps Deps) (*Checker, error) {
	c := &Checker{
		cfg: cfg, deps: deps,
		rules: rules{
			healthy: cfg.Check.HealthyThreshold, unhealthy: cfg.Check.UnhealthyThreshold,
			logFailures: cfg.Check.AlwaysLogFailures, logSuccess: cfg.Check.AlwaysLogSuccess,
			hold: cfg.HoldDown,
		},
		intervals:  newIntervals(&cfg.Check),
		jitter:     jitter{cfg.Check.IntervalJitter, cfg.Check.IntervalJitterPercent},
		log:        checkLog{w: deps.EventLog, cluster: cfg.Cluster},
		wake:       make(chan struct{}, 1),
		results:    make(chan result),
		firstRound: make(chan struct{}),
		done:       make(chan struct{}),
		sessions:   map[*dataplane.HostState]*session{},
	}
	var err error
	if c.probes, c.log.checker, err = newProber(&cfg); err != nil {
		return nil, err
	}
	if deps.probes != nil {
		c.probes = deps.probes
	}
	if c.deps.Pool == nil {
		c.deps.Pool = NewPool(0)
	}
	if c.deps.Random == nil {
		c.deps.Random = rand.Int64N
	}
	stats.Bind(deps.Scope, &c.stats)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	return c, nil
}

// newProber returns the prober a check asks for and the name of its kind in event logs.
func newProber(cfg *Config) (prober, string, error) {
	d := newDialer(cfg)
	switch h := &cfg.Check; {
	case h.TCP != nil:
		return &tcpProber{check: h.TCP, dial: d, reuse: h.ReuseConnection}, "TCP", nil
	case h.HTTP != nil && h.HTTP.HTTP2:
		return newHTTP2Prober(cfg, d), "HTTP", nil
	case h.HTTP != nil:
		return newHTTPProber(cfg, d), "HTTP", nil
	case h.GRPC != nil:
		return newGRPCProber(cfg, d), "GRPC", nil
	}
	return nil, "", fmt.Errorf("health check of cluster %q has no kind: set tcp_health_check, http_health_check or grpc_health_check", cfg.Cluster)
}

// InitialFlags are those of t before its first result.
func (c *Checker) InitialFlags(t *Target) dataplane.Health {
	if t.Disabled {
		return 0
	}
	return newVerdict(c.cfg.PendingNewHosts).flags
}

// SetHosts makes targets the hosts under check. A host that was there before keeps its state, unless
// its probes now go elsewhere: then it starts anew, as a new one does.
func (c *Checker) SetHosts(targets []*Target) {
	c.mu.Lock()
	c.hosts = targets
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default: // the goroutine has yet to look at hosts anyway
	}
}

// FirstRoundDone is closed when every host of the first SetHosts has a result or is gone, or the
// checker was stopped.
func (c *Checker) FirstRoundDone() <-chan struct{} { return c.firstRound }

// Stop ends all checks. It does not wait: a callback may be under way; Done tells when all is over.
func (c *Checker) Stop() { c.cancel() }

// Done is closed when a stopped checker has closed its connections and will call back no more.
func (c *Checker) Done() <-chan struct{} { return c.done }

func (c *Checker) run() {
	defer close(c.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			c.end()
			return
		case <-c.wake:
			c.update()
		case r := <-c.results:
			c.finish(r)
		case <-timer.C:
		}
		now := time.Now()
		for s := c.queue.pop(now); s != nil; s = c.queue.pop(now) {
			c.start(s)
		}
		if due, ok := c.queue.next(); ok {
			timer.Reset(due.Sub(now))
		} else {
			timer.Stop()
		}
	}
}

// update makes the sessions fit the hosts as last set.
func (c *Checker) update() {
	c.mu.Lock()
	hosts := c.hosts
	c.mu.Unlock()
	want := make(map[*dataplane.HostState]*Target, len(hosts))
	for _, t := range hosts {
		want[t.State] = t
	}
	for state, s := range c.sessions {
		t := want[state]
		switch {
		case t == nil:
			c.drop(s)
		case t.Disabled:
			c.drop(s)
			if s.told != 0 && c.deps.OnChange != nil {
				c.deps.OnChange(t, 0)
			}
		case !t.sameProbe(s.target):
			c.drop(s)
			fresh := c.open(t, !c.began)
			fresh.told = s.told
			c.tell(fresh)
		default:
			s.target = t
		}
	}
	disabled := map[*dataplane.HostState]bool{}
	for _, t := range hosts {
		switch {
		case t.Disabled:
			disabled[t.State] = true
		case c.sessions[t.State] == nil:
			s := c.open(t, !c.began)
			if c.disabled[t.State] {
				s.told = 0
				c.tell(s)
			}
		}
	}
	c.disabled = disabled
	c.began = true
	c.checkFirstRound()
}

// open starts a session, at once or after the initial jitter.
func (c *Checker) open(t *Target, awaited bool) *session {
	s := &session{target: t, verdict: newVerdict(c.cfg.PendingNewHosts), probe: c.probes.open(t), index: -1, awaited: awaited}
	s.told = s.verdict.flags
	c.sessions[t.State] = s
	if awaited {
		c.awaited++
	}
	var wait time.Duration
	if j := c.cfg.Check.InitialJitter; j > 0 {
		wait = c.limits().clamp(jitter{fixed: j}.add(0, c.deps.Random))
	}
	c.queue.add(s, time.Now().Add(wait))
	return s
}

// drop ends a session; its probe, if one runs, is told to stop.
func (c *Checker) drop(s *session) {
	delete(c.sessions, s.target.State)
	c.queue.remove(s)
	c.count(s.verdict.flags, dataplane.FailedActiveHC)
	if s.awaited {
		s.awaited = false
		c.awaited--
	}
	s.gone = true
	if s.probing {
		s.cancel()
	} else {
		s.probe.close()
	}
}

// start runs one probe.
func (c *Checker) start(s *session) {
	ctx, cancel := context.WithCancel(c.ctx)
	s.probing, s.cancel = true, cancel
	c.running++
	c.deps.Pool.run(func() {
		defer cancel()
		r := result{s: s}
		if ctx.Err() == nil { // it may have waited long for its turn
			c.stats.Attempt.Inc()
			timed, stop := context.WithTimeout(ctx, c.cfg.Check.Timeout)
			r.o = s.probe.run(timed)
			stop()
		}
		c.results <- r
	})
}

// finish takes the result of a probe and plans the next one.
func (c *Checker) finish(r result) {
	s := r.s
	s.probing = false
	c.running--
	if s.gone {
		s.probe.close()
		return
	}
	if c.ctx.Err() != nil {
		return // cancelled with the rest, which is no result; end drops the session
	}
	if r.o.lostIdle {
		c.apply(s, failed(failedNetwork))
	}
	st := c.apply(s, r.o)
	if s.awaited {
		s.awaited = false
		c.awaited--
		c.checkFirstRound()
	}
	traffic := c.deps.HasTraffic == nil || c.deps.HasTraffic()
	wait := c.jitter.add(c.intervals.base(r.o.ok, st.change, traffic), c.deps.Random)
	c.queue.add(s, time.Now().Add(c.limits().clamp(wait)))
}

// apply moves the verdict of a session by one outcome, and tells what came of it.
func (c *Checker) apply(s *session, o outcome) step {
	now := time.Now()
	before := s.verdict.flags
	var st step
	if o.ok {
		st = s.verdict.succeed(&c.rules, o.degraded, now)
		c.stats.Success.Inc()
	} else {
		st = s.verdict.fail(&c.rules, o, now)
		c.stats.Failure.Inc()
		if o.kind.network() {
			c.stats.NetworkFailure.Inc()
		}
	}
	c.count(before, s.verdict.flags)
	c.log.write(s.target, st, o, now)
	c.tell(s)
	if o.ok && s.verdict.flags&dataplane.FailedActiveHC == 0 && c.deps.OnPass != nil {
		c.deps.OnPass(s.target)
	}
	return st
}

// tell reports the flags of a session if they are news.
func (c *Checker) tell(s *session) {
	if s.told != s.verdict.flags {
		s.told = s.verdict.flags
		if c.deps.OnChange != nil {
			c.deps.OnChange(s.target, s.told)
		}
	}
}

// count keeps the gauges over a change of flags; a session that is gone counts as failed.
func (c *Checker) count(before, after dataplane.Health) {
	if gone := after&dataplane.FailedActiveHC != 0; gone != (before&dataplane.FailedActiveHC != 0) {
		if gone {
			c.stats.Healthy.Dec()
		} else {
			c.stats.Healthy.Inc()
		}
	}
	if degraded := after&dataplane.DegradedActiveHC != 0; degraded != (before&dataplane.DegradedActiveHC != 0) {
		if degraded {
			c.stats.Degraded.Inc()
		} else {
			c.stats.Degraded.Dec()
		}
	}
}

func (c *Checker) limits() Limits {
	if c.deps.Limits == nil {
		return Limits{}
	}
	return c.deps.Limits()
}

// checkFirstRound closes firstRound when nothing is awaited any more.
func (c *Checker) checkFirstRound() {
	if c.began && c.awaited == 0 {
		select {
		case <-c.firstRound:
		default:
			close(c.firstRound)
		}
	}
}

// end drops all sessions and takes the last results.
func (c *Checker) end() {
	for _, s := range c.sessions {
		c.drop(s)
	}
	for c.running > 0 {
		c.finish(<-c.results)
	}
	c.began = true
	c.checkFirstRound()
}
