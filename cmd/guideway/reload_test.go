package main_test

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// A cluster's first health check holds the start up; what is written meanwhile comes in force after it.
func TestChangeDuringTheStartIsNotLost(t *testing.T) {
	ns := testbed.Isolated(t)
	testbed.StartBackend(t, ns, backend.Config{ID: "A"}, netip.AddrPortFrom(testbed.Loopback, testbed.PortEcho))
	hangs := testbed.Cluster("c", testbed.PortEcho)
	hangs["health_checks"] = []any{testbed.Message{
		"timeout": "2s", "interval": "60s", "healthy_threshold": 1, "unhealthy_threshold": 1,
		"tcp_health_check": testbed.Message{"send": testbed.Message{"text": "00"}, "receive": []any{testbed.Message{"text": "FFFF"}}},
	}}
	dir := t.TempDir()
	p := testbed.Guideway(t).StartIn(t, ns, dir, testbed.Bootstrap(nil, []any{hangs}), "--no-watch=false")
	testbed.Eventually(t, "the admin server is there", func() bool { return reachable(t, ns, p.Admin().String()) })
	if status := p.Get("/ready").Status; status != http.StatusServiceUnavailable {
		t.Fatalf("/ready answers %d while the first health check hangs", status)
	}
	tmp := filepath.Join(dir, "new")
	if err := os.WriteFile(tmp, []byte(asText(t, goodConfig())), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, "boot.yaml")); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, "the new listener serves", func() bool { return reachable(t, ns, testbed.ListenAddress(testbed.ListenPort)) })
}

func reachable(t *testing.T, ns *testbed.Namespace, address string) bool {
	c, err := testbed.TryConnect(t, ns, netip.Addr{}, address)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// The active checks of a cluster outlive a change of its other settings; the outlier detection does not.
func TestPassedChecksEndEjectionsAlsoAfterAChange(t *testing.T) {
	const closed = 1
	ns := testbed.Isolated(t)
	testbed.StartBackend(t, ns, backend.Config{ID: "A"}, netip.AddrPortFrom(testbed.Loopback, testbed.PortEcho))
	config := func(connectTimeout string) testbed.Message {
		c := testbed.Cluster("c", closed)
		c["connect_timeout"] = connectTimeout
		c["health_checks"] = []any{testbed.Message{
			"timeout": "1s", "interval": "0.1s", "no_traffic_interval": "0.1s", "healthy_threshold": 1, "unhealthy_threshold": 1, "tcp_health_check": testbed.Message{},
		}}
		c["outlier_detection"] = testbed.Message{"consecutive_5xx": 1, "base_ejection_time": "3600s", "max_ejection_time": "3600s", "max_ejection_percent": 100}
		endpoint := c["load_assignment"].(testbed.Message)["endpoints"].([]any)[0].(testbed.Message)["lb_endpoints"].([]any)[0].(testbed.Message)["endpoint"].(testbed.Message)
		endpoint["health_check_config"] = testbed.Message{"port_value": testbed.PortEcho}
		return testbed.Bootstrap([]any{testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c"))}, []any{c})
	}
	s := &serving{T: t, ns: ns, dir: t.TempDir()}
	s.p = testbed.Guideway(t).StartIn(t, ns, s.dir, config("1s"), "--no-watch=false").Ready()
	s.change(asText(t, config("2s")), "guideway.config.reload_success")
	testbed.ConnectTo(t, ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort)).HearOut()
	testbed.Eventually(t, "the host is ejected, and returns with a passed check", func() bool {
		stats := s.p.Stats()
		return stats["cluster.c.outlier_detection.ejections_enforced_total"] > 0 && stats["cluster.c.outlier_detection.ejections_active"] == 0
	})
}
