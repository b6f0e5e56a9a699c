package main_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// serving is a Guideway that serves connections through one listener, and a check that it still does.
type serving struct {
	*testing.T
	p    *testbed.Proxy
	ns   *testbed.Namespace
	dir  string
	held *testbed.Client
}

func startServing(t *testing.T) *serving {
	ns := testbed.Isolated(t)
	testbed.StartBackend(t, ns, backend.Config{ID: "A"}, netip.AddrPortFrom(testbed.Loopback, testbed.PortEcho))
	s := &serving{T: t, ns: ns, dir: t.TempDir()}
	s.p = testbed.Guideway(t).StartIn(t, ns, s.dir, goodConfig(), "--no-watch=false").Ready()
	s.held = testbed.ConnectTo(t, ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort)).Hear("A\n")
	return s
}

func goodConfig() testbed.Message {
	return testbed.Bootstrap([]any{testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c"))}, []any{testbed.Cluster("c", testbed.PortEcho)})
}

// change renames a configuration into place and waits until the counter of its end has moved.
func (s *serving) change(text, counter string) {
	s.Helper()
	before := s.p.Stats()[counter]
	tmp := filepath.Join(s.dir, "new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(s.dir, "boot.yaml")); err != nil {
		s.Fatal(err)
	}
	testbed.Eventually(s, counter+" moves", func() bool { return s.p.Stats()[counter] > before })
}

// unharmed checks that the connection from the start goes on and new ones are served.
func (s *serving) unharmed() {
	s.Helper()
	s.held.Say("ping").Hear("ping")
	testbed.ConnectTo(s, s.ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort)).Hear("A\n").Close()
}

func asText(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBadChangesAreRefusedAndHarmNothing(t *testing.T) {
	s := startServing(t)
	good := asText(t, goodConfig())
	r := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(r.IntN(256))
	}
	for _, bad := range []struct{ name, text, says string }{
		{"empty", "", "empty"},
		{"blank", "  \n\n", "empty"},
		{"truncated", good[:len(good)/2], "boot.yaml:"},
		{"noise", string(noise), "boot.yaml"},
		{"huge", "static_resources: {listeners: [" + strings.Repeat("{},", 300_000) + "{}]}", "boot.yaml"},
		{"deep", strings.Repeat("[", 100_000), "boot.yaml"},
		{"not a mapping", "- 1\n- 2\n", "boot.yaml"},
		{"unknown field", strings.Replace(good, `"name"`, `"nmae"`, 1), `did you mean "name"`},
		{"invalid", strings.Replace(good, testbed.Loopback.String(), "no-address", 1), "no-address"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			logged := len(s.p.Stderr())
			s.change(bad.text, "guideway.config.reload_rejected")
			testbed.Eventually(t, "the reason is logged", func() bool {
				return strings.Contains(s.p.Stderr()[logged:], bad.says) && strings.Contains(s.p.Stderr()[logged:], "last good one serves on")
			})
			s.unharmed()
		})
	}
	s.change(good+" ", "guideway.config.reload_unchanged")
	s.unharmed()
}

func TestPortInUseAfterAChange(t *testing.T) {
	s := startServing(t)
	c := goodConfig()
	static := c["static_resources"].(testbed.Message)
	static["listeners"] = append(static["listeners"].([]any),
		testbed.Listener("taken", testbed.PortEcho, testbed.TCPProxy("t", "c")),
		testbed.Listener("fine", testbed.ListenPort+1, testbed.TCPProxy("t", "c")))
	s.change(asText(t, c), "listener_manager.listener_create_failure")
	testbed.Eventually(t, "the reason is logged", func() bool {
		return strings.Contains(s.p.Stderr(), "127.0.0.1:20001") && strings.Contains(s.p.Stderr(), "Address already in use")
	})
	s.unharmed()
	// The neighbour that could be bound is.
	testbed.Eventually(t, "the other new listener serves", func() bool {
		c, err := testbed.TryConnect(t, s.ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort+1))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func TestNamesThatDoNotResolve(t *testing.T) {
	ns := testbed.Isolated(t)
	c := testbed.Message{
		"name": "c", "type": "STRICT_DNS", "connect_timeout": "1s",
		"load_assignment": testbed.Message{"cluster_name": "c", "endpoints": []any{testbed.Message{"lb_endpoints": []any{
			testbed.Message{"endpoint": testbed.Message{"address": testbed.SocketAddress("no.such.name.invalid", 80)}},
		}}}},
	}
	p := testbed.Guideway(t).Start(t, ns, testbed.Bootstrap([]any{testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c"))}, []any{c})).Ready()
	testbed.Eventually(t, "the failure is logged", func() bool { return strings.Contains(p.Stderr(), "no.such.name.invalid") })
	_, then, _ := testbed.ConnectTo(t, ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort)).HearOut()
	if then != testbed.EndOfStream {
		t.Errorf("a client of a cluster without hosts sees: %s", then)
	}
	if n := p.Stats()["cluster.c.upstream_cx_none_healthy"]; n != 1 {
		t.Errorf("upstream_cx_none_healthy is %d", n)
	}
}

// TestVerdictsThatDiffer holds what Envoy accepts and Guideway refuses, each with its reason in
// docs/envoy-differences.md.
func TestVerdictsThatDiffer(t *testing.T) {
	unbound := testbed.Listener("unbound", testbed.ListenPort, testbed.TCPProxy("t", "c"))
	unbound["bind_to_port"] = false
	path := testbed.WriteConfig(t, t.TempDir(), testbed.Bootstrap([]any{unbound}, []any{testbed.Cluster("c")}))
	p := testbed.Guideway(t).Exec(t, nil, t.TempDir(), "validate", "-c", path)
	if p.Wait() != 1 || !strings.Contains(p.Stderr(), "bind_to_port") {
		t.Errorf("bind_to_port: false gives %q", p.Stderr())
	}
}
