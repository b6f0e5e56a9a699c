package health

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/guideway/guideway/dataplane/stats"
)

func TestCheckerTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := common()
		cfg.Check.UnhealthyInterval, cfg.Check.UnhealthyEdgeInterval, cfg.Check.HealthyEdgeInterval = 7*time.Second, 2*time.Second, 3*time.Second
		w := watch(t, cfg, Deps{})
		defer w.stop(t)
		a := target(1)
		w.set(a)
		for i, c := range []struct {
			o     outcome
			flags string
			next  time.Duration // from the result to the next probe
		}{
			{pass, "healthy", 5 * time.Second},
			{failed(failedNetwork), "healthy", 2 * time.Second},
			{failed(failedNetwork), "/failed_active_hc", 7 * time.Second},
			{failed(failedNetwork), "/failed_active_hc", 7 * time.Second},
			{pass, "/failed_active_hc", 3 * time.Second},
			{pass, "healthy", 5 * time.Second},
			{failed(failedActive), "/failed_active_hc", 7 * time.Second},
		} {
			time.Sleep(500 * time.Millisecond) // what the probe takes
			w.fake.takeStarts()
			w.fake.end(t, a, c.o)
			ended := time.Since(w.fake.begin)
			if got := w.flag(a.State).String(); got != c.flags {
				t.Errorf("result %d: %s, want %s", i, got, c.flags)
			}
			time.Sleep(c.next - 1)
			if early := w.fake.takeStarts(); len(early) > 0 {
				t.Errorf("result %d: next probe before its time: %q", i, early)
			}
			time.Sleep(1)
			if got, want := w.fake.takeStarts(), []string{fmt.Sprintf("1 %v", ended+c.next)}; !slices.Equal(got, want) {
				t.Errorf("result %d: next probe %q, want %q", i, got, want)
			}
		}
	})
}

func TestCheckerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, common(), Deps{})
		defer w.stop(t)
		a := target(1)
		w.set(a)
		time.Sleep(time.Second)
		if got := w.takeCalls(); !slices.Equal(got, []string{"1 /failed_active_hc/active_hc_timeout"}) {
			t.Errorf("told %q", got)
		}
		if got := [4]uint64{w.counter("attempt"), w.counter("success"), w.counter("failure"), w.counter("network_failure")}; got != [4]uint64{1, 0, 1, 1} {
			t.Errorf("attempt, success, failure, network_failure = %v", got)
		}
	})
}

func TestCheckerJitterAndLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := common()
		cfg.Check.InitialJitter, cfg.Check.IntervalJitter, cfg.Check.IntervalJitterPercent = 3*time.Second, 2*time.Second, 10
		limits := Limits{}
		w := watch(t, cfg, Deps{Random: func(n int64) int64 { return n / 2 }, Limits: func() Limits { return limits }})
		defer w.stop(t)
		a := target(1)
		w.set(a)
		time.Sleep(1500 * time.Millisecond)
		w.fake.end(t, a, pass)
		time.Sleep(6250 * time.Millisecond) // 5 s and a half of 10 % and of 2 s
		limits = Limits{Max: time.Second}
		w.fake.end(t, a, pass)
		time.Sleep(time.Second)
		limits = Limits{Min: time.Minute}
		w.fake.end(t, a, pass)
		time.Sleep(time.Minute)
		if got, want := w.fake.takeStarts(), []string{"1 1.5s", "1 7.75s", "1 8.75s", "1 1m8.75s"}; !slices.Equal(got, want) {
			t.Errorf("probes %q, want %q", got, want)
		}
	})
}

func TestCheckerNoTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := common()
		cfg.Check.NoTrafficInterval, cfg.Check.NoTrafficHealthyInterval = 60*time.Second, 90*time.Second
		var traffic atomic.Bool
		w := watch(t, cfg, Deps{HasTraffic: traffic.Load})
		defer w.stop(t)
		a := target(1)
		w.set(a)
		w.fake.end(t, a, failed(failedNetwork))
		time.Sleep(60 * time.Second)
		w.fake.end(t, a, pass) // pending: not yet the healthy interval
		time.Sleep(60 * time.Second)
		w.fake.end(t, a, pass)
		traffic.Store(true) // does not shorten a wait that runs
		time.Sleep(90 * time.Second)
		w.fake.end(t, a, pass)
		time.Sleep(5 * time.Second)
		if got, want := w.fake.takeStarts(), []string{"1 0s", "1 1m0s", "1 2m0s", "1 3m30s", "1 3m35s"}; !slices.Equal(got, want) {
			t.Errorf("probes %q, want %q", got, want)
		}
	})
}

func TestCheckerFirstRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, common(), Deps{})
		defer w.stop(t)
		a, b, c := target(1), target(2), target(3)
		c.Disabled = true
		w.set(a, b, c)
		w.fake.end(t, a, failed(failedActive))
		if isClosed(w.FirstRoundDone()) {
			t.Error("done with one result of two")
		}
		d := target(4)
		w.set(a, c, d) // b goes without a result, d is not of the first round
		if !isClosed(w.FirstRoundDone()) {
			t.Error("not done when the host awaited is gone")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, common(), Deps{})
		if isClosed(w.FirstRoundDone()) {
			t.Error("done before there were hosts")
		}
		w.set()
		if !isClosed(w.FirstRoundDone()) {
			t.Error("not done without hosts")
		}
		w.stop(t)
	})
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, common(), Deps{})
		w.set(target(1))
		w.stop(t)
		if !isClosed(w.FirstRoundDone()) {
			t.Error("not done when stopped")
		}
	})
}

func TestCheckerHostsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, common(), Deps{})
		defer w.stop(t)
		a, b := target(1), target(2)
		w.set(a, b)
		w.fake.end(t, a, pass)
		w.fake.end(t, b, pass)
		healthy := w.store.Gauge("cluster.c.health_check.healthy")
		if healthy.Value() != 2 {
			t.Errorf("healthy is %d, want 2", healthy.Value())
		}
		// A new object for the same host and the same probe keeps the state.
		same := *a
		same.Locality.Zone = "z"
		w.takeCalls()
		w.set(&same)
		if got := w.takeCalls(); len(got) != 0 || healthy.Value() != 1 {
			t.Errorf("told %q, healthy is %d", got, healthy.Value())
		}
		// Probes that go elsewhere begin anew.
		moved := same
		moved.Check = netip.MustParseAddrPort("10.0.0.1:9")
		w.set(&moved)
		if got := w.takeCalls(); !slices.Equal(got, []string{"9 /failed_active_hc"}) {
			t.Errorf("moved: told %q", got)
		}
		w.fake.end(t, &moved, pass) // the first result decides again
		if got := w.takeCalls(); !slices.Equal(got, []string{"9 healthy"}) {
			t.Errorf("moved: told %q", got)
		}
		// A host whose checks are switched off has no flags, and begins anew when they are on again.
		time.Sleep(5 * time.Second)
		w.fake.end(t, &moved, failed(failedActive))
		off := moved
		off.Disabled = true
		w.takeCalls()
		w.set(&off)
		if got := w.takeCalls(); !slices.Equal(got, []string{"9 healthy"}) {
			t.Errorf("disabled: told %q", got)
		}
		w.set(&moved)
		if got := w.takeCalls(); !slices.Equal(got, []string{"9 /failed_active_hc"}) {
			t.Errorf("enabled: told %q", got)
		}
		// A host that goes while its probe is under way is forgotten.
		w.set()
		if got := w.takeCalls(); len(got) != 0 {
			t.Errorf("gone: told %q", got)
		}
		if n := w.fake.open_.Load(); n != 0 {
			t.Errorf("%d probes are open without hosts", n)
		}
	})
}

func TestCheckerPendingHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := common()
		cfg.PendingNewHosts = true
		w := watch(t, cfg, Deps{})
		defer w.stop(t)
		a, b := target(1), target(2)
		b.Disabled = true
		w.set(a, b)
		if got := w.flag(a.State).String(); got != "/failed_active_hc/pending_active_hc" {
			t.Errorf("new host is %s", got)
		}
		if got := w.flag(b.State); got != 0 {
			t.Errorf("new host without checks is %s", got)
		}
		w.fake.end(t, a, pass)
		if got := w.takeCalls(); !slices.Equal(got, []string{"1 healthy"}) {
			t.Errorf("told %q", got)
		}
	})
}

func TestCheckerLostIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := common()
		cfg.Check.UnhealthyThreshold = 1
		w := watch(t, cfg, Deps{})
		defer w.stop(t)
		a := target(1)
		w.set(a)
		w.fake.end(t, a, pass)
		time.Sleep(5 * time.Second)
		w.fake.end(t, a, outcome{ok: true, lostIdle: true})
		if got := w.takeCalls(); !slices.Equal(got, []string{"1 healthy", "1 /failed_active_hc"}) {
			t.Errorf("told %q", got)
		}
		if got := [4]uint64{w.counter("attempt"), w.counter("success"), w.counter("failure"), w.counter("network_failure")}; got != [4]uint64{2, 2, 1, 1} {
			t.Errorf("attempt, success, failure, network_failure = %v", got)
		}
	})
}

func TestCheckerOnPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passed int
		w := watch(t, common(), Deps{OnPass: func(*Target) { passed++ }})
		defer w.stop(t)
		a := target(1)
		w.set(a)
		for i, c := range []struct {
			o    outcome
			want int
		}{{pass, 1}, {pass, 2}, {failed(failedActive), 2}, {pass, 2}, {pass, 3}} {
			w.fake.end(t, a, c.o)
			if passed != c.want {
				t.Errorf("result %d: %d calls, want %d", i, passed, c.want)
			}
			time.Sleep(5 * time.Second)
		}
	})
}

func TestCheckerNeedsAKind(t *testing.T) {
	if _, err := New(Config{Cluster: "c"}, Deps{Scope: stats.NewStore().Scope("cluster.c.")}); err == nil {
		t.Error("a check of no kind is no error")
	}
}

// TestCheckerScale: 10,000 hosts share a pool of 100 probes, all get their turns, and idle ones cost
// no goroutine.
func TestCheckerScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts, room = 10_000, 100
		before := runtime.NumGoroutine()
		w := watch(t, common(), Deps{Pool: NewPool(room)})
		defer w.stop(t)
		w.fake.auto = func(*Target) outcome { return pass }
		var targets []*Target
		for i := range hosts {
			targets = append(targets, target(i+1))
		}
		w.set(targets...)
		<-w.FirstRoundDone()
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > room {
			t.Errorf("%d goroutines for idle hosts", n)
		}
		if w.fake.most != room {
			t.Errorf("%d probes at a time, want %d", w.fake.most, room)
		}
		if got := w.counter("success"); got != hosts {
			t.Errorf("%d successes, want %d", got, hosts)
		}
		if got := time.Since(w.fake.begin); got != hosts/room*10*time.Millisecond {
			t.Errorf("the first round took %v", got)
		}
		if got := w.store.Gauge("cluster.c.health_check.healthy").Value(); got != hosts {
			t.Errorf("gauge healthy is %d", got)
		}
	})
}
