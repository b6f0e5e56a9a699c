package health

import (
	"time"

	"github.com/guideway/guideway/controlplane/model"
)

// intervals chooses the wait from the result of one check to the start of the next.
type intervals struct {
	interval, unhealthy, unhealthyEdge, healthyEdge time.Duration
	noTraffic, noTrafficHealthy                     time.Duration
}

func newIntervals(c *model.HealthCheck) intervals {
	or := func(d, other time.Duration) time.Duration {
		if d > 0 {
			return d
		}
		return other
	}
	i := intervals{interval: c.Interval}
	i.unhealthy = or(c.UnhealthyInterval, c.Interval)
	i.unhealthyEdge = or(c.UnhealthyEdgeInterval, i.unhealthy)
	i.healthyEdge = or(c.HealthyEdgeInterval, c.Interval)
	i.noTraffic = or(c.NoTrafficInterval, time.Minute)
	i.noTrafficHealthy = or(c.NoTrafficHealthyInterval, i.noTraffic)
	return i
}

// base is the wait without jitter after a result that was a success (ok) or not. traffic tells
// whether the cluster ever carried any.
func (i *intervals) base(ok bool, c change, traffic bool) time.Duration {
	switch {
	case !traffic && ok && c != changePending:
		return i.noTrafficHealthy
	case !traffic:
		return i.noTraffic
	case ok && c == changePending:
		return i.healthyEdge
	case ok:
		return i.interval
	case c == changePending:
		return i.unhealthyEdge
	}
	return i.unhealthy
}

// jitter lengthens waits by random amounts: up to percent of the wait, and up to fixed.
type jitter struct {
	fixed   time.Duration
	percent uint32
}

// add returns d with jitter. random returns a number in [0, n).
func (j jitter) add(d time.Duration, random func(n int64) int64) time.Duration {
	if p := d * time.Duration(j.percent) / 100; p > 0 {
		d += time.Duration(random(int64(p)))
	}
	if j.fixed > 0 {
		d += time.Duration(random(int64(j.fixed)))
	}
	return d
}

// Limits bound every wait between two checks, jitter included: the runtime keys
// health_check.min_interval and health_check.max_interval. Max 0 means no bound.
type Limits struct{ Min, Max time.Duration }

// clamp bounds d. The lower bound wins over the upper one; below 1 ms checks would follow each other
// without end.
func (l Limits) clamp(d time.Duration) time.Duration {
	if l.Max > 0 {
		d = min(d, l.Max)
	}
	return max(d, l.Min, time.Millisecond)
}
