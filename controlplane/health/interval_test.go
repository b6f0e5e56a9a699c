package health

import (
	"testing"
	"time"

	"github.com/guideway/guideway/controlplane/model"
)

const s = time.Second // for tables

func TestIntervals(t *testing.T) {
	all := model.HealthCheck{
		Interval: 1 * s, UnhealthyInterval: 2 * s, UnhealthyEdgeInterval: 3 * s, HealthyEdgeInterval: 4 * s,
		NoTrafficInterval: 5 * s, NoTrafficHealthyInterval: 6 * s,
	}
	least := model.HealthCheck{Interval: 1 * s}
	some := model.HealthCheck{Interval: 1 * s, UnhealthyInterval: 2 * s, NoTrafficInterval: 5 * s}
	for _, c := range []struct {
		name    string
		config  *model.HealthCheck
		ok      bool
		change  change
		traffic bool
		want    time.Duration
	}{
		{"healthy and stays so", &all, true, unchanged, true, 1 * s},
		{"becomes healthy", &all, true, changed, true, 1 * s},
		{"healthy soon", &all, true, changePending, true, 4 * s},
		{"failed and stays so", &all, false, unchanged, true, 2 * s},
		{"becomes failed", &all, false, changed, true, 2 * s},
		{"failed soon", &all, false, changePending, true, 3 * s},
		{"no traffic, healthy", &all, true, unchanged, false, 6 * s},
		{"no traffic, becomes healthy", &all, true, changed, false, 6 * s},
		{"no traffic, healthy soon", &all, true, changePending, false, 5 * s},
		{"no traffic, failed", &all, false, unchanged, false, 5 * s},
		{"no traffic, failed soon", &all, false, changePending, false, 5 * s},
		{"default healthy edge", &least, true, changePending, true, 1 * s},
		{"default unhealthy", &least, false, unchanged, true, 1 * s},
		{"default unhealthy edge", &least, false, changePending, true, 1 * s},
		{"unhealthy edge follows unhealthy", &some, false, changePending, true, 2 * s},
		{"default no traffic", &least, false, unchanged, false, 60 * s},
		{"default no traffic, healthy", &least, true, unchanged, false, 60 * s},
		{"no traffic healthy follows no traffic", &some, true, unchanged, false, 5 * s},
	} {
		i := newIntervals(c.config)
		if got := i.base(c.ok, c.change, c.traffic); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestJitter(t *testing.T) {
	most := func(n int64) int64 { return n - 1 }
	least := func(int64) int64 { return 0 }
	for _, c := range []struct {
		j      jitter
		random func(int64) int64
		want   time.Duration
	}{
		{jitter{}, func(int64) int64 { panic("no jitter needs no random number") }, 10 * s},
		{jitter{fixed: 2 * s}, least, 10 * s},
		{jitter{fixed: 2 * s}, most, 12*s - 1},
		{jitter{percent: 30}, most, 13*s - 1},
		{jitter{percent: 30, fixed: 2 * s}, most, 15*s - 2},
		{jitter{percent: 200}, most, 30*s - 1},
	} {
		if got := c.j.add(10*s, c.random); got != c.want {
			t.Errorf("%+v: %v, want %v", c.j, got, c.want)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		l       Limits
		d, want time.Duration
	}{
		{Limits{}, 5 * s, 5 * s},
		{Limits{}, 0, time.Millisecond},
		{Limits{Min: 10 * s}, 5 * s, 10 * s},
		{Limits{Max: 3 * s}, 5 * s, 3 * s},
		{Limits{Min: 2 * s, Max: 3 * s}, 1 * s, 2 * s},
		{Limits{Min: 4 * s, Max: 3 * s}, 5 * s, 4 * s},
		{Limits{Max: time.Nanosecond}, 5 * s, time.Millisecond},
	} {
		if got := c.l.clamp(c.d); got != c.want {
			t.Errorf("%+v of %v: %v, want %v", c.l, c.d, got, c.want)
		}
	}
}
