package proxy

import (
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
)

func TestDeparted(t *testing.T) {
	const window = time.Minute
	last, largest := 0, 0
	for passed := time.Duration(0); passed <= window; passed += 100 * time.Millisecond {
		n := departed(6000, passed, window)
		if n < last {
			t.Fatalf("after %v fewer are closed than before", passed)
		}
		largest = max(largest, n-last)
		last = n
	}
	if last != 6000 || largest > 11 {
		t.Errorf("%d of 6000 closed in the end, up to %d in 0.1 s", last, largest)
	}
	for _, test := range []struct {
		total          int
		passed, window time.Duration
		want           int
	}{{1, window - 1, window, 0}, {1, window, window, 1}, {5, 2 * window, window, 5}, {0, 0, window, 0}} {
		if got := departed(test.total, test.passed, test.window); got != test.want {
			t.Errorf("%+v: got %d", test, got)
		}
	}
}

// TestCloseAfter: flows of a host that drains or is removed are closed over the window, and no others; if
// the host is back before, those it still has stay.
func TestCloseAfter(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Workers = 2 })
	one, two := startHost(t, echo), startHost(t, echo)
	b.setHosts(one.addr())
	b.cluster.CloseAfter = time.Hour
	b.apply()
	var leaving []*client
	for range 20 {
		leaving = append(leaving, b.dial().say("x").hear("x"))
	}
	first := b.cluster.Hosts[0]
	other := host(two.addr())
	put := func(over time.Duration, health dataplane.Health, hosts ...*dataplane.Host) {
		t.Helper()
		next := *b.cluster
		next.CloseAfter, next.Hosts = over, nil
		for _, h := range hosts {
			v := *h
			if h.State == first.State {
				v.Health = health
			}
			next.Hosts = append(next.Hosts, &v)
		}
		next.Balancer = &anyHost{[]*dataplane.Host{other}}
		b.cluster = &next
		b.apply()
	}
	ends := func() map[dataplane.FlowEnd]int {
		m := map[dataplane.FlowEnd]int{}
		for _, f := range b.srv.LiveFlows() {
			m[f.Ends]++
		}
		return m
	}
	put(time.Hour, dataplane.AdminDraining, first, other)
	stays := b.dial().say("x").hear("x")
	if got := ends(); got[dataplane.EndCloseAfter] != 20 || got[""] != 1 {
		t.Fatalf("while the host drains: %v", got)
	}
	for _, c := range leaving {
		c.say("y").hear("y")
	}
	put(time.Hour, 0, first, other) // back in
	if got := ends(); got[""] != 21 {
		t.Fatalf("when the host is back: %v", got)
	}
	put(50*time.Millisecond, dataplane.EDSStatusDraining, first, other)
	for _, c := range leaving {
		if _, then := c.hearOut(); then != "end of stream" {
			t.Errorf("a connection to the draining host: %s", then)
		}
	}
	if n := first.State.CxActive.Load(); n != 0 {
		t.Errorf("%d connections left on the draining host", n)
	}
	stays.say("z").hear("z")

	put(50*time.Millisecond, 0, other)
	stays.say("z").hear("z")
	put(50*time.Millisecond, 0) // removed
	if _, then := stays.hearOut(); then != "end of stream" {
		t.Errorf("a connection to the removed host: %s", then)
	}
}
