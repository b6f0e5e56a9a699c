package xds

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/guideway/guideway/dataplane/stats"
)

// subscriptionStats are what Envoy counts for each subscription, below "cluster_manager.cds.",
// "listener_manager.lds." or "cluster.<name>.".
type subscriptionStats struct {
	attempt, success, failure, rejected, timeout *stats.Counter
	version, time                                *stats.Gauge
	text                                         *stats.Text
	duration                                     *stats.Histogram
}

func newSubscriptionStats(s *stats.Scope) *subscriptionStats {
	return &subscriptionStats{
		attempt: s.Counter("update_attempt"), success: s.Counter("update_success"), failure: s.Counter("update_failure"),
		rejected: s.Counter("update_rejected"), timeout: s.Counter("init_fetch_timeout"),
		version: s.Gauge("version"), time: s.Gauge("update_time"),
		text: s.Text("version_text"), duration: s.Histogram("update_duration"),
	}
}

// updated counts the outcome of an update that took from began to now. An attempt is counted with
// each outcome, and one for the subscription itself, as Envoy does.
func (s *subscriptionStats) updated(err error, version string, began, now time.Time) {
	if err != nil {
		s.rejected.Inc()
		return
	}
	s.success.Inc()
	s.version.SetUnsigned(xxhash.Sum64String(version))
	s.text.Set(version)
	s.time.Set(now.UnixMilli())
	s.duration.Record(float64(now.Sub(began).Microseconds()) / 1000)
}

// serverStats are what Envoy counts for each stream, below "control_plane.".
type serverStats struct {
	connected, pending *stats.Gauge
	limited            *stats.Counter
	identifier         *stats.Text
}

func newServerStats(s *stats.Scope) *serverStats {
	return &serverStats{
		connected: s.Gauge("control_plane.connected_state"), pending: s.Gauge("control_plane.pending_requests"),
		limited: s.Counter("control_plane.rate_limit_enforced"), identifier: s.Text("control_plane.identifier"),
	}
}
