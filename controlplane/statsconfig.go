package controlplane

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane/stats"
)

// StatsConfig turns stats_config into the store's own settings. fixed are tags of the command line, as
// "name:value".
func StatsConfig(m model.StatsConfig, fixed []string) (stats.Config, error) {
	var specs []stats.TagSpec
	for _, t := range m.Tags {
		specs = append(specs, stats.TagSpec{Name: t.Name, Regex: t.Regex, Fixed: t.Fixed})
	}
	for _, t := range fixed {
		name, value, _ := strings.Cut(t, ":")
		specs = append(specs, stats.TagSpec{Name: name, Fixed: value})
	}
	tags, err := stats.NewTagExtractor(m.UseAllDefaultTags, specs)
	if err != nil {
		return stats.Config{}, fmt.Errorf("stats_config: %w", err)
	}
	c := stats.Config{Reject: m.Reject, Tags: tags}
	if len(m.Buckets) > 0 {
		c.Bounds = func(name string) []float64 {
			for _, b := range m.Buckets {
				if b.Match(name) {
					return b.Bounds
				}
			}
			return nil
		}
	}
	return c, nil
}

// serverStats are the stats of the process as a whole, brought up to date at each flush.
type serverStats struct {
	store                           *stats.Store
	uptime, allocated, heap, rss, n *stats.Gauge
}

func newServerStats(store *stats.Store, workers int) *serverStats {
	s := store.Scope("server.")
	s.Gauge("concurrency").Set(int64(workers))
	for _, name := range []string{"parent_connections", "hot_restart_epoch", "hot_restart_generation", "version",
		"stats_recent_lookups", "seconds_until_first_ocsp_response_expiring", "compilation_settings.fips_mode"} {
		s.Gauge(name)
	}
	s.Gauge("days_until_first_cert_expiring").Set(1<<32 - 1) // no certificate: as Envoy's
	for _, name := range []string{"debug_assertion_failures", "envoy_bug_failures", "envoy_notifications", "dropped_stat_flushes", "wip_protos"} {
		s.Counter(name)
	}
	return &serverStats{
		store: store, uptime: s.Gauge("uptime"), n: s.Gauge("total_connections"),
		allocated: s.Gauge("memory_allocated"), heap: s.Gauge("memory_heap_size"), rss: s.Gauge("memory_physical_size"),
	}
}

func (s *serverStats) update(started time.Time) {
	s.uptime.Set(int64(time.Since(started).Seconds()))
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.allocated.Set(int64(m.HeapAlloc))
	s.heap.Set(int64(m.HeapSys))
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		s.rss.Set(usage.Maxrss * 1024)
	}
	var connections int64
	for _, t := range s.store.Select(func(name string) bool {
		return strings.HasPrefix(name, "listener.") && strings.HasSuffix(name, ".downstream_cx_active") && !strings.Contains(name, ".worker_")
	}) {
		n, _ := t.Number()
		connections += n
	}
	s.n.Set(connections)
}
