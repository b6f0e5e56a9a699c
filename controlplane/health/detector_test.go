package health

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// defaults are Envoy's for outlier_detection.
func defaults() model.Outlier {
	return model.Outlier{
		Interval: 10 * s, BaseEjectionTime: 30 * s, MaxEjectionTime: 300 * s, MaxEjectionPercent: 10,
		Consecutive5xx: 5, ConsecutiveGatewayFailure: 5, ConsecutiveLocalOrigin: 5,
		Enforcing5xx: 100, EnforcingLocalOrigin: 100, SuccessfulActiveCheckUneject: true,
	}
}

func TestEjectionTimes(t *testing.T) {
	start := time.Unix(1e9, 0)
	at := func(sec int) time.Time { return start.Add(time.Duration(sec) * s) }
	c := model.Outlier{Interval: 10 * s, BaseEjectionTime: 30 * s, MaxEjectionTime: 70 * s}
	var e ejection
	now := 0
	for i, lasts := range []int{30, 60, 70, 70, 70} { // grows with each ejection up to the cap
		e.eject(&c, 0, at(now))
		if e.over(&c, at(now+lasts).Add(-1)) || !e.over(&c, at(now+lasts)) {
			t.Errorf("ejection %d does not last %d s", i+1, lasts)
		}
		now += lasts
		e.uneject(at(now))
	}
	if e.count != 5 {
		t.Errorf("counts %d ejections", e.count)
	}
	e.forgive(&c, at(now+9))
	if e.backoff != 4 { // 4*30 s is the first above 70 s + 30 s
		t.Errorf("backoff %d, want 4: not forgiven before an interval is over", e.backoff)
	}
	for range 10 {
		now += 10
		e.forgive(&c, at(now))
	}
	if e.backoff != 0 {
		t.Errorf("backoff %d after ten intervals in peace", e.backoff)
	}
	e.eject(&c, 5*s, at(now))
	e.forgive(&c, at(now+1000))
	if e.over(&c, at(now+35).Add(-1)) || !e.over(&c, at(now+35)) {
		t.Error("after peace, an ejection with 5 s of jitter does not last 35 s")
	}
	var fresh ejection
	fresh.forgive(&c, at(0))
	if fresh.backoff != 0 {
		t.Errorf("backoff of a new host is %d", fresh.backoff)
	}
}

func TestMaxEjectionTime(t *testing.T) {
	for _, c := range []struct{ base, max, want time.Duration }{{30 * s, 0, 300 * s}, {400 * s, 0, 400 * s}, {30 * s, 60 * s, 60 * s}} {
		if got := maxEjectionTime(&model.Outlier{BaseEjectionTime: c.base, MaxEjectionTime: c.max}); got != c.want {
			t.Errorf("base %v, max %v: cap %v, want %v", c.base, c.max, got, c.want)
		}
	}
}

func TestMayEject(t *testing.T) {
	for _, c := range []struct {
		percent       uint32
		always        bool
		active, hosts int
		want          bool
	}{
		{10, false, 0, 10, true},
		{10, false, 1, 10, false},
		{10, false, 0, 5, false},
		{10, true, 0, 5, true},
		{10, true, 1, 5, false},
		{50, false, 0, 2, true},
		{50, false, 1, 3, false},
		{100, false, 9, 10, true},
		{250, false, 10, 10, false},
		{0, false, 0, 10, false},
		{0, true, 0, 10, true},
	} {
		if got := mayEject(&model.Outlier{MaxEjectionPercent: c.percent, AlwaysEjectOneHost: c.always}, c.active, c.hosts); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// outliers is a detector in a bubble, with hosts at ports 1 to n.
type outliers struct {
	*Detector
	targets []*Target
	store   *stats.Store
	log     bytes.Buffer
	mu      sync.Mutex
	flags   map[*dataplane.HostState]dataplane.Health
	calls   []string
}

func newOutliers(t *testing.T, cfg model.Outlier, n int, random func(int64) int64) *outliers {
	o := &outliers{store: stats.NewStore(), flags: map[*dataplane.HostState]dataplane.Health{}}
	for i := range n {
		o.targets = append(o.targets, target(i+1))
	}
	o.Detector = NewDetector(cfg, DetectorDeps{
		Cluster: "c", Scope: o.store.Scope("cluster.c."), EventLog: &o.log, Random: random,
		OnChange: func(t *Target, h dataplane.Health) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.flags[t.State] = h
			o.calls = append(o.calls, fmt.Sprintf("%d %s", t.Address.Port(), h))
		},
	})
	o.SetHosts(o.targets)
	synctest.Wait()
	return o
}

func (o *outliers) stop(t *testing.T) {
	t.Helper()
	o.Stop()
	<-o.Done()
	if n := o.store.Gauge("cluster.c.outlier_detection.ejections_active").Value(); n != 0 {
		t.Errorf("gauge ejections_active is %d after the end", n)
	}
}

// connect tells the detector of connects to the host at port i: 'S' success, 'R' refused, 'T' timeout.
func (o *outliers) connect(i int, letters string) {
	h := &dataplane.Host{State: o.targets[i-1].State}
	for _, l := range letters {
		if l == 'S' {
			o.ConnectSucceeded(h)
		} else {
			o.ConnectFailed(h, l == 'T')
		}
		synctest.Wait()
	}
}

// flag returns what was told of the host at port i.
func (o *outliers) flag(i int) dataplane.Health {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flags[o.targets[i-1].State]
}

func (o *outliers) takeCalls() []string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.calls
	o.calls = nil
	return c
}

// counts lists the counters and gauges that are not 0, without "ejections_".
func (o *outliers) counts() string {
	var b []string
	for _, n := range []string{"detected_consecutive_5xx", "enforced_consecutive_5xx", "detected_consecutive_gateway_failure", "enforced_consecutive_gateway_failure",
		"detected_consecutive_local_origin_failure", "enforced_consecutive_local_origin_failure", "enforced_total", "overflow", "total", "consecutive_5xx"} {
		if v := o.store.Counter("cluster.c.outlier_detection.ejections_" + n).Value(); v != 0 {
			b = append(b, fmt.Sprintf("%s=%d", n, v))
		}
	}
	if v := o.store.Gauge("cluster.c.outlier_detection.ejections_active").Value(); v != 0 {
		b = append(b, fmt.Sprintf("active=%d", v))
	}
	return strings.Join(b, " ")
}

func never(int64) int64 { return 99 } // enforces 100 % only

func TestDetector(t *testing.T) {
	half := func(change func(*model.Outlier)) model.Outlier {
		c := defaults()
		c.MaxEjectionPercent = 50
		c.Consecutive5xx, c.ConsecutiveGatewayFailure, c.ConsecutiveLocalOrigin = 3, 4, 3
		if change != nil {
			change(&c)
		}
		return c
	}
	for _, c := range []struct {
		name     string
		cfg      model.Outlier
		connects string // to host 1 of 2
		calls    []string
		counts   string
	}{
		{"not yet", half(nil), "RT", nil, ""},
		{"success begins anew", half(nil), "RRSRR", nil, ""},
		{"refusals and timeouts", half(nil), "RTR", []string{"1 /failed_outlier_check"},
			"detected_consecutive_5xx=1 enforced_consecutive_5xx=1 enforced_total=1 total=1 consecutive_5xx=1 active=1"},
		{"already out", half(nil), "RRRRRRR", []string{"1 /failed_outlier_check"},
			"detected_consecutive_5xx=1 enforced_consecutive_5xx=1 enforced_total=1 total=1 consecutive_5xx=1 active=1"},
		{"not enforced", half(func(c *model.Outlier) { c.Enforcing5xx = 99 }), "RRR", nil, "detected_consecutive_5xx=1 total=1 consecutive_5xx=1"},
		{"gateway failures, detected only", half(func(c *model.Outlier) { c.Consecutive5xx = 9 }), "RRRR", nil, "detected_consecutive_gateway_failure=1"},
		{"gateway failures, enforced", half(func(c *model.Outlier) { c.Consecutive5xx, c.EnforcingGateway = 9, 100 }), "RRRR", []string{"1 /failed_outlier_check"},
			"detected_consecutive_gateway_failure=1 enforced_consecutive_gateway_failure=1 enforced_total=1 active=1"},
		{"split", half(func(c *model.Outlier) { c.SplitLocalOrigin = true }), "RRR", []string{"1 /failed_outlier_check"},
			"detected_consecutive_local_origin_failure=1 enforced_consecutive_local_origin_failure=1 enforced_total=1 active=1"},
		{"too many", half(func(c *model.Outlier) { c.MaxEjectionPercent = 49 }), "RRR", nil, "detected_consecutive_5xx=1 overflow=1 consecutive_5xx=1"},
		{"too many, twice: the count begins anew", half(func(c *model.Outlier) { c.MaxEjectionPercent = 49 }), "RRRRRR", nil,
			"detected_consecutive_5xx=2 detected_consecutive_gateway_failure=1 overflow=3 consecutive_5xx=2"},
		{"at least one", half(func(c *model.Outlier) { c.MaxEjectionPercent, c.AlwaysEjectOneHost = 0, true }), "RRR", []string{"1 /failed_outlier_check"},
			"detected_consecutive_5xx=1 enforced_consecutive_5xx=1 enforced_total=1 total=1 consecutive_5xx=1 active=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOutliers(t, c.cfg, 2, never)
				defer o.stop(t)
				o.connect(1, c.connects)
				if got := o.takeCalls(); !slices.Equal(got, c.calls) {
					t.Errorf("told %q, want %q", got, c.calls)
				}
				if got := o.counts(); got != c.counts {
					t.Errorf("counts %s\nwant   %s", got, c.counts)
				}
			})
		})
	}
}

func TestDetectorReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.MaxEjectionPercent, cfg.Interval, cfg.BaseEjectionTime = 100, 4*s, 9*s
		o := newOutliers(t, cfg, 2, never)
		defer o.stop(t)
		begin := time.Now()
		o.connect(1, "RRRRR")
		o.connect(2, "RRRR")
		o.takeCalls()
		time.Sleep(12*s - 1)
		if got := o.takeCalls(); len(got) != 0 {
			t.Errorf("back after %v: %q", time.Since(begin), got)
		}
		time.Sleep(1) // the tick after the 9 s
		if got := o.takeCalls(); !slices.Equal(got, []string{"1 healthy"}) {
			t.Errorf("told %q at %v", got, time.Since(begin))
		}
		o.connect(1, "RRRR") // counts began anew
		if got := o.takeCalls(); len(got) != 0 {
			t.Errorf("told %q after four failures", got)
		}
		o.connect(1, "R")
		o.takeCalls()
		time.Sleep(20*s - 1) // 18 s this time
		if got := o.takeCalls(); len(got) != 0 {
			t.Errorf("second ejection: back too early: %q", got)
		}
		time.Sleep(1)
		if got := o.takeCalls(); !slices.Equal(got, []string{"1 healthy"}) {
			t.Errorf("second ejection: told %q", got)
		}
	})
}

func TestDetectorActiveCheck(t *testing.T) {
	for _, on := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			cfg := defaults()
			cfg.MaxEjectionPercent, cfg.SuccessfulActiveCheckUneject = 100, on
			o := newOutliers(t, cfg, 2, never)
			defer o.stop(t)
			o.ActiveCheckPassed(o.targets[0]) // nothing to return from
			o.connect(1, "RRRRR")
			o.ActiveCheckPassed(o.targets[0])
			want := []string{"1 /failed_outlier_check", "1 healthy"}[:1+map[bool]int{true: 1}[on]]
			if got := o.takeCalls(); !slices.Equal(got, want) {
				t.Errorf("uneject by active check %t: told %q, want %q", on, got, want)
			}
		})
	}
}

func TestDetectorHostsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.MaxEjectionPercent = 100
		o := newOutliers(t, cfg, 2, never)
		defer o.stop(t)
		o.connect(1, "RRRRR")
		o.connect(2, "RRRR")
		o.SetHosts(o.targets[1:]) // an ejected host goes
		synctest.Wait()
		if got := o.store.Gauge("cluster.c.outlier_detection.ejections_active").Value(); got != 0 {
			t.Errorf("ejections_active is %d", got)
		}
		o.connect(1, "RRRRRR") // connects to it may still end
		o.takeCalls()
		o.connect(2, "R") // the other one kept its count
		if got := o.takeCalls(); !slices.Equal(got, []string{"2 /failed_outlier_check"}) {
			t.Errorf("told %q", got)
		}
		o.SetHosts(nil)
		synctest.Wait()
		if got := o.store.Gauge("cluster.c.outlier_detection.ejections_active").Value(); got != 0 {
			t.Errorf("ejections_active is %d without hosts", got)
		}
	})
}

func TestDetectorLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.MaxEjectionPercent, cfg.Enforcing5xx = 100, 50
		dice := []int64{50, 49, 49}
		o := newOutliers(t, cfg, 2, func(int64) int64 { d := dice[0]; dice = dice[1:]; return d })
		o.targets[0].Address = netip.MustParseAddrPort("[::1]:80")
		o.cfg.ConsecutiveGatewayFailure = 1000
		o.connect(1, "RRRRR")
		o.connect(1, "RRRRR")
		time.Sleep(42 * s)
		o.connect(1, "RRRRR")
		o.stop(t)
		const head = `"cluster_name":"c","upstream_url":"[::1]:80",`
		want := `{"type":"CONSECUTIVE_5XX","timestamp":"2000-01-01T00:00:00Z",` + head + `"action":"EJECT","num_ejections":0,"enforced":false,"eject_consecutive_event":{}}
{"type":"CONSECUTIVE_5XX","timestamp":"2000-01-01T00:00:00Z",` + head + `"action":"EJECT","num_ejections":1,"enforced":true,"eject_consecutive_event":{}}
{"type":"CONSECUTIVE_5XX","timestamp":"2000-01-01T00:00:30Z","secs_since_last_action":"30",` + head + `"action":"UNEJECT","num_ejections":1,"enforced":false}
{"type":"CONSECUTIVE_5XX","timestamp":"2000-01-01T00:00:42Z","secs_since_last_action":"12",` + head + `"action":"EJECT","num_ejections":2,"enforced":true,"eject_consecutive_event":{}}
`
		if got := o.log.String(); got != want {
			t.Errorf("wrote\n%swant\n%s", got, want)
		}
	})
}

// TestDetectorFromManyWorkers: no ejection is lost when workers report at once.
func TestDetectorFromManyWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts = 200
		cfg := defaults()
		cfg.MaxEjectionPercent = 100
		o := newOutliers(t, cfg, hosts, never)
		defer o.stop(t)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for _, tg := range o.targets {
					h := &dataplane.Host{State: tg.State}
					o.ConnectFailed(h, false)
					o.ConnectFailed(h, true)
				}
			})
		}
		wg.Wait()
		if got := len(o.takeCalls()); got != hosts {
			t.Errorf("%d hosts were ejected, want %d", got, hosts)
		}
	})
}

// TestDetectorActiveChecksFromManyProbes is for the race detector.
func TestDetectorActiveChecksFromManyProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.MaxEjectionPercent = 100
		o := newOutliers(t, cfg, 20, never)
		defer o.stop(t)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 200 {
					for _, tg := range o.targets {
						o.ActiveCheckPassed(tg)
					}
				}
			})
		}
		wg.Go(func() {
			for range 200 {
				o.ConnectFailed(&dataplane.Host{State: o.targets[0].State}, false)
			}
		})
		wg.Wait()
		o.ActiveCheckPassed(o.targets[0])
		if calls := o.takeCalls(); len(calls) == 0 || !strings.HasSuffix(calls[len(calls)-1], "healthy") {
			t.Errorf("told %q: the last check passed", calls)
		}
	})
}

func BenchmarkConnectSucceeded(b *testing.B) {
	tg := target(1)
	d := NewDetector(defaults(), DetectorDeps{Scope: stats.NewStore().Scope("cluster.c.")})
	defer d.Stop()
	d.monitors.Store(&monitors{tg.State: {target: tg}})
	h := &dataplane.Host{State: tg.State}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			d.ConnectSucceeded(h)
		}
	})
}
