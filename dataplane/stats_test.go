package dataplane

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/guideway/guideway/dataplane/stats"
)

// recorded returns the raw names that Envoy 1.40 had, and their types.
func recorded(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join("../cmd/guideway/testdata/observed/metrics", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		parts := strings.Split(lines.Text(), "\t")
		rows[parts[0]] = parts[1]
	}
	return rows
}

// elsewhere are names below cluster.<name>. that the load balancer and the health checks make.
func elsewhere(name string) bool {
	return strings.Contains(name, ".health_check.") || strings.Contains(name, ".outlier_detection.") ||
		strings.Contains(name, ".maglev_lb.")
}

// TestNames has the stats of clusters, listeners and filters be exactly those that Envoy shows for three
// configurations, by name and type.
func TestNames(t *testing.T) {
	tracked := CircuitBreakers{Default: Thresholds{1024, 1024, 1024, 3, true}}
	for _, c := range []struct {
		file              string
		cluster, listener string
		tcp, udp          string
		breakers          CircuitBreakers
	}{
		{file: "01-tcp-static-maglev.tsv", cluster: "redis", listener: "0.0.0.0_6379", tcp: "redis"},
		{file: "02-udp-dns-maglev.tsv", cluster: "dns", listener: "0.0.0.0_5353", udp: "dns"},
		{file: "06-strict-dns-outlier-breakers.tsv", cluster: "mqtt", listener: "[__]_1883", tcp: "mqtt", breakers: tracked},
	} {
		rows := recorded(t, c.file)
		for name := range rows { // the names of the configuration, whatever they are
			if rest, ok := strings.CutPrefix(name, "cluster."); ok {
				c.cluster, _, _ = strings.Cut(rest, ".")
			}
		}
		store := stats.NewStore()
		cluster := NewClusterStats(store, c.cluster)
		cluster.TrackRemaining(c.breakers, &ClusterLive{})
		protocol := TCP
		if c.udp != "" {
			protocol = UDP
			cluster.BindUDP()
			NewUDPStats(store, c.udp)
		} else {
			NewTCPStats(store, c.tcp)
		}
		NewListenerStats(store, c.listener, protocol, 1)

		have := map[string]string{}
		for _, s := range store.All() {
			if _, twice := have[s.Name]; twice {
				t.Errorf("%s: %s is there twice", c.file, s.Name)
			}
			have[s.Name] = map[stats.Kind]string{
				stats.CounterKind: "counter", stats.GaugeKind: "gauge", stats.HistogramKind: "histogram",
			}[s.Kind]
			if rows[s.Name] == "" {
				t.Errorf("%s: Envoy has no %s", c.file, s.Name)
			}
		}
		for name, kind := range rows {
			switch first, _, _ := strings.Cut(name, "."); first {
			case "cluster", "listener", "tcp", "udp":
				if !elsewhere(name) && !strings.HasPrefix(name, "listener.admin.") && have[name] != kind {
					t.Errorf("%s: %s is %q here, a %s in Envoy", c.file, name, have[name], kind)
				}
			}
		}
	}
}

func TestTrackRemaining(t *testing.T) {
	store := stats.NewStore()
	cluster := NewClusterStats(store, "c")
	live := &ClusterLive{}
	live.Connections.Set(3)
	live.Requests.Set(9)
	cluster.TrackRemaining(CircuitBreakers{Default: Thresholds{10, 20, 5, 3, true}, High: Thresholds{MaxConnections: 4}}, live)
	want := map[string]int64{"cx": 7, "pending": 20, "rq": 0, "retries": 3, "cx_pools": -1}
	for _, s := range store.All() {
		name, ok := strings.CutPrefix(s.Name, "cluster.c.circuit_breakers.default.remaining_")
		if strings.Contains(s.Name, "high.remaining") {
			t.Errorf("%s is not tracked", s.Name)
		}
		if !ok {
			continue
		}
		if got, _ := s.Number(); got != want[name] {
			t.Errorf("remaining_%s is %d, want %d", name, got, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// TestClusterStatsMemory bounds what a thousand clusters' stats take.
func TestClusterStatsMemory(t *testing.T) {
	store := stats.NewStore()
	const clusters = 1000
	keep := make([]*ClusterStats, clusters)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range keep {
		keep[i] = NewClusterStats(store, "cluster-"+strings.Repeat("x", i%20)+string(rune('a'+i%26))+strings.Repeat("y", i/26))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / clusters
	t.Logf("%d bytes for the stats of a cluster", each)
	if each > 6<<10 {
		t.Errorf("%d bytes for the stats of a cluster", each)
	}
	runtime.KeepAlive(keep)
	runtime.KeepAlive(store)
}
