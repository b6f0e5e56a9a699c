package health

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// DetectorDeps are what outlier detection needs from around it.
type DetectorDeps struct {
	// Cluster names the cluster in the event log.
	Cluster string
	// Scope is the cluster's own ("cluster.<name>."). Required.
	Scope *stats.Scope
	// EventLog takes one line a Write; nil means no event log.
	EventLog io.Writer
	// OnChange tells that a host was ejected (FailedOutlierCheck) or came back (0); a host not seen
	// before has no flags. It comes from the detector's goroutine, one call at a time, and should
	// hand on and return. May be nil.
	OnChange func(*Target, dataplane.Health)
	// Random returns a number in [0, n); nil means math/rand/v2.
	Random func(n int64) int64
}

// Detector ejects hosts to which connects keep failing (outlier_detection: the consecutive counts; the
// algorithms by success rate and failure percentage are not there). Its methods never block and are
// safe for concurrent use. It is the dataplane.ConnectObserver of its cluster.
type Detector struct {
	cfg   model.Outlier
	deps  DetectorDeps
	stats outlierStats

	monitors atomic.Pointer[monitors] // for workers
	reports  atomic.Pointer[report]   // newest first

	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{}
	done   chan struct{}

	mu     sync.Mutex
	hosts  []*Target                     // to be taken over; nil if nothing is new
	passed map[*dataplane.HostState]bool // hosts that passed an active check

	active int // hosts ejected; owned by the goroutine of run
}

type monitors map[*dataplane.HostState]*monitor

// monitor counts failures of one host in a row. Workers write the counts; the rest is the detector's.
type monitor struct {
	target *Target
	counts [causes]atomic.Uint32
	record ejection
}

// cause is what a host is ejected for.
type cause uint8

const (
	cause5xx cause = iota
	causeGateway
	causeLocal
	causes
)

// String returns the name in event logs.
func (c cause) String() string {
	return [...]string{"CONSECUTIVE_5XX", "CONSECUTIVE_GATEWAY_FAILURE", "CONSECUTIVE_LOCAL_ORIGIN_FAILURE"}[c]
}

// report is a count that reached its threshold.
type report struct {
	m     *monitor
	cause cause
	next  *report
}

var _ dataplane.ConnectObserver = (*Detector)(nil)

// NewDetector starts outlier detection. It has no hosts until SetHosts, and runs until Stop.
func NewDetector(cfg model.Outlier, deps DetectorDeps) *Detector {
	if deps.Random == nil {
		deps.Random = rand.Int64N
	}
	d := &Detector{
		cfg: cfg, deps: deps,
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
		passed: map[*dataplane.HostState]bool{},
	}
	d.monitors.Store(&monitors{})
	stats.Bind(deps.Scope, &d.stats)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	go d.run()
	return d
}

// SetHosts makes targets the hosts under watch; those that stay keep their record.
func (d *Detector) SetHosts(targets []*Target) {
	d.mu.Lock()
	d.hosts = append([]*Target{}, targets...) // not nil, even if there are none
	d.mu.Unlock()
	d.poke()
}

// ActiveCheckPassed ends the ejection of a host that passed an active check
// (successful_active_health_check_uneject_host).
func (d *Detector) ActiveCheckPassed(t *Target) {
	if !d.cfg.SuccessfulActiveCheckUneject {
		return
	}
	d.mu.Lock()
	d.passed[t.State] = true
	d.mu.Unlock()
	d.poke()
}

// Stop ends the watch. It does not wait: a callback may be under way; Done tells when all is over.
func (d *Detector) Stop() { d.cancel() }

// Done is closed when a stopped detector will call back no more.
func (d *Detector) Done() <-chan struct{} { return d.done }

// ConnectSucceeded implements dataplane.ConnectObserver.
func (d *Detector) ConnectSucceeded(h *dataplane.Host) {
	m := (*d.monitors.Load())[h.State]
	if m == nil {
		return
	}
	for c := range m.counts {
		if m.counts[c].Load() != 0 { // keeps the line shared while all is well
			m.counts[c].Store(0)
		}
	}
}

// ConnectFailed implements dataplane.ConnectObserver. A timeout stands for 504 and any other failure
// for 503, so they count alike; with split_external_local_origin_errors both are of local origin.
func (d *Detector) ConnectFailed(h *dataplane.Host, timeout bool) {
	m := (*d.monitors.Load())[h.State]
	if m == nil {
		return
	}
	if d.cfg.SplitLocalOrigin {
		d.count(m, causeLocal, d.cfg.ConsecutiveLocalOrigin)
		return
	}
	d.count(m, causeGateway, d.cfg.ConsecutiveGatewayFailure)
	d.count(m, cause5xx, d.cfg.Consecutive5xx)
}

// count adds a failure, and reports the one that reaches the threshold.
func (d *Detector) count(m *monitor, c cause, threshold uint32) {
	if m.counts[c].Add(1) != threshold {
		return
	}
	r := &report{m: m, cause: c}
	for {
		r.next = d.reports.Load()
		if d.reports.CompareAndSwap(r.next, r) {
			break
		}
	}
	d.poke()
}

// poke wakes the detector's goroutine; a poke it has not yet seen is enough.
func (d *Detector) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *Detector) run() {
	defer close(d.done)
	interval := d.cfg.Interval
	if interval <= 0 {
		interval = 10 * time.Second
	}
	tick := time.NewTimer(interval)
	defer tick.Stop()
	for {
		select {
		case <-d.ctx.Done():
			d.stats.Active.Add(-int64(d.active))
			return
		case <-d.wake:
			d.update()
			for _, r := range d.takeReports() {
				d.onReport(r)
			}
			d.unejectPassed()
		case <-tick.C:
			d.onTick(time.Now())
			tick.Reset(interval) // from the end of the work, as Envoy does
		}
	}
}

// update makes the monitors fit the hosts as last set.
func (d *Detector) update() {
	d.mu.Lock()
	hosts := d.hosts
	d.hosts = nil
	d.mu.Unlock()
	if hosts == nil {
		return
	}
	old := *d.monitors.Load()
	now := make(monitors, len(hosts))
	for _, t := range hosts {
		m := old[t.State]
		if m == nil {
			m = &monitor{}
		}
		m.target = t
		now[t.State] = m
	}
	for state, m := range old {
		if now[state] == nil && m.record.ejected {
			d.active--
			d.stats.Active.Dec()
		}
	}
	d.monitors.Store(&now)
}

// takeReports returns the reports so far in their order.
func (d *Detector) takeReports() []*report {
	var rs []*report
	for r := d.reports.Swap(nil); r != nil; r = r.next {
		rs = append(rs, r)
	}
	for i, j := 0, len(rs)-1; i < j; i, j = i+1, j-1 {
		rs[i], rs[j] = rs[j], rs[i]
	}
	return rs
}

// onReport ejects a host if the limits allow it and the dice enforce it.
func (d *Detector) onReport(r *report) {
	m := r.m
	all := *d.monitors.Load()
	if m.record.ejected || m.target == nil || all[m.target.State] != m {
		return
	}
	now := time.Now()
	d.detected(r.cause).Inc()
	if !mayEject(&d.cfg, d.active, len(all)) {
		d.stats.Overflow.Inc()
	} else {
		if r.cause == cause5xx {
			d.stats.OldTotal.Inc()
		}
		percent, enforced := d.enforcing(r.cause)
		enforce := d.deps.Random(100) < int64(percent)
		if enforce {
			d.active++
			d.stats.Active.Inc()
			d.stats.EnforcedTotal.Inc()
			enforced.Inc()
			var j time.Duration
			if d.cfg.MaxEjectionTimeJitter > 0 {
				j = time.Duration(d.deps.Random(int64(d.cfg.MaxEjectionTimeJitter) + 1))
			}
			m.record.eject(&d.cfg, j, now)
			d.tell(m, dataplane.FailedOutlierCheck)
		}
		d.logEject(m, r.cause, enforce, now)
	}
	if r.cause == cause5xx {
		d.stats.OldConsecutive5xx.Inc()
	}
	m.counts[r.cause].Store(0)
}

func (d *Detector) detected(c cause) *stats.Counter {
	return [causes]*stats.Counter{d.stats.Detected5xx, d.stats.DetectedGateway, d.stats.DetectedLocal}[c]
}

func (d *Detector) enforcing(c cause) (percent uint32, counter *stats.Counter) {
	switch c {
	case cause5xx:
		return d.cfg.Enforcing5xx, d.stats.Enforced5xx
	case causeGateway:
		return d.cfg.EnforcingGateway, d.stats.EnforcedGateway
	}
	return d.cfg.EnforcingLocalOrigin, d.stats.EnforcedLocal
}

// onTick returns hosts whose time is up, and forgives those that stayed in.
func (d *Detector) onTick(now time.Time) {
	all := *d.monitors.Load()
	for _, m := range all {
		if m.record.ejected && m.record.over(&d.cfg, now) {
			d.uneject(m, now)
		}
	}
	for _, m := range all {
		m.record.forgive(&d.cfg, now)
	}
}

// unejectPassed returns hosts that passed an active check meanwhile.
func (d *Detector) unejectPassed() {
	d.mu.Lock()
	passed := d.passed
	if len(passed) == 0 { // the map stays the callers'
		d.mu.Unlock()
		return
	}
	d.passed = map[*dataplane.HostState]bool{}
	d.mu.Unlock()
	all := *d.monitors.Load()
	for state := range passed {
		if m := all[state]; m != nil && m.record.ejected {
			d.uneject(m, time.Now())
		}
	}
}

// uneject lets a host back. All its counts begin anew, so that one that is nearly full does not
// eject it again at once.
func (d *Detector) uneject(m *monitor, now time.Time) {
	d.active--
	d.stats.Active.Dec()
	for c := range m.counts {
		m.counts[c].Store(0)
	}
	m.record.uneject(now)
	d.tell(m, 0)
	d.logEvent(m, outlierEvent{Type: cause5xx.String(), Action: "UNEJECT"}, m.record.at, now)
}

func (d *Detector) tell(m *monitor, h dataplane.Health) {
	if d.deps.OnChange != nil {
		d.deps.OnChange(m.target, h)
	}
}

func (d *Detector) logEject(m *monitor, c cause, enforced bool, now time.Time) {
	d.logEvent(m, outlierEvent{Type: c.String(), Action: "EJECT", Enforced: enforced, Consecutive: &struct{}{}}, m.record.until, now)
}

// logEvent writes one line; last is when the opposite happened, zero if never.
func (d *Detector) logEvent(m *monitor, e outlierEvent, last, now time.Time) {
	if d.deps.EventLog == nil {
		return
	}
	if !last.IsZero() {
		s := int64(now.Sub(last) / time.Second)
		e.SecsSince = &s
	}
	e.Time, e.Cluster, e.URL, e.Ejections = eventTime(now), d.deps.Cluster, m.target.Address.String(), m.record.count
	writeLine(d.deps.EventLog, e)
}
