package dns

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// envoyBinary finds an Envoy to compare with.
func envoyBinary(t *testing.T) string {
	t.Helper()
	if e := os.Getenv("GUIDEWAY_ENVOY"); e != "" {
		return e
	}
	if e, err := exec.LookPath("envoy"); err == nil {
		return e
	}
	if e, err := filepath.Abs("../../.venv/bin/envoy"); err == nil {
		if _, err := os.Stat(e); err == nil {
			return e
		}
	}
	t.Skip("no Envoy to compare with: set GUIDEWAY_ENVOY, or put envoy into PATH or .venv/bin")
	return ""
}

// TestEnvoyAgrees asks a running Envoy and our Watcher for the same names of the same server, in all
// families, and compares hosts and how the first lookup ended.
func TestEnvoyAgrees(t *testing.T) {
	binary := envoyBinary(t)
	s := newServer(t)
	testZone(s)
	families := []model.DNSFamily{model.AutoFamily, model.V4Only, model.V6Only, model.V4Preferred, model.AllFamilies}
	familyNames := []string{"AUTO", "V4_ONLY", "V6_ONLY", "V4_PREFERRED", "ALL"}
	names := []string{"both", "v4", "nodata", "missing", "servfail", "v6fail", "v4fail", "alias"}

	type subject struct {
		stat    string
		cluster *model.Cluster
	}
	var subjects []subject
	var clusters []any
	for _, kind := range []model.Discovery{model.StrictDNS, model.LogicalDNS} {
		for i, f := range families {
			for _, n := range names {
				if kind == model.LogicalDNS && f == model.AllFamilies && n == "both" {
					continue // which family comes first is a race there
				}
				stat := fmt.Sprintf("%s-%s-%s", kind, familyNames[i], n)
				c := cluster(kind, n+".test")
				c.DNS = model.DNS{Resolvers: []netip.AddrPort{s.addr}, Family: f, RefreshRate: time.Hour}
				subjects = append(subjects, subject{stat, c})
				address := func(h string, p uint16) any {
					return map[string]any{"socket_address": map[string]any{"address": h, "port_value": p}}
				}
				clusters = append(clusters, map[string]any{
					"name": stat, "type": kind.String(), "connect_timeout": "1s", "dns_lookup_family": familyNames[i], "dns_refresh_rate": "3600s",
					"typed_dns_resolver_config": map[string]any{"name": "envoy.network.dns_resolver.cares", "typed_config": map[string]any{
						"@type":     "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
						"resolvers": []any{address("127.0.0.1", s.addr.Port())},
					}},
					"load_assignment": map[string]any{"cluster_name": stat, "endpoints": []any{map[string]any{"lb_endpoints": []any{map[string]any{"endpoint": map[string]any{"address": address(n+".test", 80)}}}}}},
				})
			}
		}
	}
	admin := startEnvoy(t, binary, clusters)
	for _, sub := range subjects {
		theirs := envoyResult(t, admin, sub.stat)
		st := dataplane.NewClusterStats(stats.NewStore(), "c")
		ctx, cancel := context.WithCancel(t.Context())
		var ours string
		NewWatcher(sub.cluster, Deps{Stats: st, Log: slog.New(slog.DiscardHandler), OnUpdate: func(a model.Assignment) {
			var as []string
			for _, l := range a.Localities {
				for _, e := range l.Endpoints {
					as = append(as, e.Address.String())
				}
			}
			slices.Sort(as) // which family of two answers first is a race
			ours = fmt.Sprint(as, st.UpdateSuccess.Value(), st.UpdateFailure.Value())
			cancel()
		}}).Run(ctx)
		if ours != theirs {
			t.Errorf("%s: hosts, success, failure are %s, Envoy has %s", sub.stat, ours, theirs)
		}
	}
}

// startEnvoy runs Envoy with clusters until the test ends, and returns its admin URL once all
// clusters have had their first answer.
func startEnvoy(t *testing.T, binary string, clusters []any) string {
	t.Helper()
	dir := t.TempDir()
	config, err := json.Marshal(map[string]any{
		"admin":            map[string]any{"address": map[string]any{"socket_address": map[string]any{"address": "127.0.0.1", "port_value": 0}}},
		"static_resources": map[string]any{"clusters": clusters},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "envoy.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	addressFile := filepath.Join(dir, "admin")
	cmd := exec.Command(binary, "-c", file, "--disable-hot-restart", "--concurrency", "1", "-l", "error", "--admin-address-path", addressFile)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	poll := time.NewTicker(20 * time.Millisecond) // it is another process: nothing to wait on
	defer poll.Stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-poll.C {
		if a, err := os.ReadFile(addressFile); err == nil {
			if _, _, err := net.SplitHostPort(string(a)); err == nil {
				url := "http://" + string(a)
				if strings.HasPrefix(get(url+"/ready"), "LIVE") {
					return url
				}
			}
		}
	}
	t.Fatal("Envoy does not get ready")
	return ""
}

func get(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

// envoyResult is "[host host] success failure" of one cluster, hosts sorted.
func envoyResult(t *testing.T, admin, cluster string) string {
	t.Helper()
	var hosts []string
	for _, m := range regexp.MustCompile("(?m)^"+regexp.QuoteMeta(cluster)+"::(.*)::hostname::").FindAllStringSubmatch(get(admin+"/clusters"), -1) {
		hosts = append(hosts, m[1])
	}
	slices.Sort(hosts)
	counter := func(name string) string {
		_, v, _ := strings.Cut(strings.TrimSpace(get(admin+"/stats?filter=^cluster."+cluster+"."+name+"$")), ": ")
		return v
	}
	return fmt.Sprint(hosts, " ", counter("update_success"), " ", counter("update_failure"))
}
