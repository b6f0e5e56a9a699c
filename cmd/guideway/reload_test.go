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
