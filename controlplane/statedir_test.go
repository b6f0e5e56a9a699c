package controlplane_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/guideway/guideway/controlplane"
)

// TestStateDirectory starts without the server, from what a former run has stored.
func TestStateDirectory(t *testing.T) {
	t.Parallel()
	for _, way := range ways[:2] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			a, b, port := letter(t, "A"), letter(t, "B"), freePort(t)
			dir := filepath.Join(t.TempDir(), "state")
			kept := func(o *controlplane.Options) { o.Dynamic.StateDir = dir }
			m := newManaged(t, true)
			c := []proto.Message{way.cluster(t, "c", 1009)}
			l := []proto.Message{tcpListener(t, "l", port, "c", "t")}
			m.publish("1", c, []proto.Message{assignmentOf(t, "c", "127.0.0.1", a)}, l)

			i := start(t, way.bootstrap(m.port), kept)
			until(t, "the first state", func() bool { return gets(port) == "A" })
			until(t, "the first state is stored", func() bool { return storedState(dir) != "" })
			i.stop()
			m.stop()

			i = start(t, way.bootstrap(m.port), kept)
			until(t, "the stored state", func() bool { return gets(port) == "A" })
			if !strings.Contains(i.logged(), "stored in the state directory") {
				t.Error("the log does not say so")
			}
			former := storedState(dir)
			m.renew()
			m.publish("1", c, []proto.Message{assignmentOf(t, "c", "127.0.0.1", b)}, l)
			m.serve()
			until(t, "the server's state", func() bool { return gets(port) == "B" })
			// It is stored once every kind of resource has been heard of.
			until(t, "the server's state is stored", func() bool { return storedState(dir) != former })
			i.stop()
			m.stop()

			i = start(t, way.bootstrap(m.port), kept)
			until(t, "the newer stored state", func() bool { return gets(port) == "B" })
			i.stop()

			// A damaged file is reported, and is no reason not to start.
			if err := os.WriteFile(filepath.Join(dir, "xds-state.pb"), []byte{200, 1, 2}, 0o600); err != nil {
				t.Fatal(err)
			}
			i = start(t, way.bootstrap(m.port), kept)
			until(t, "live", func() bool { return i.control.State().Phase == controlplane.Live })
			if !strings.Contains(i.logged(), "damaged") {
				t.Error("the log does not tell of the damaged file")
			}
		})
	}
}

// storedState is the content of the state file, "" if there is none.
func storedState(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, "xds-state.pb"))
	return string(b)
}

// TestClusterThatComesBack removes an EDS cluster and adds it again while the version of the endpoints
// stays: it is active again at once, also where the server thinks that its endpoints are known.
func TestClusterThatComesBack(t *testing.T) {
	t.Parallel()
	for _, way := range ways[:2] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			a, port := letter(t, "A"), freePort(t)
			m := newManaged(t, false)
			one, two := way.cluster(t, "one", 1009), way.cluster(t, "two", 1009)
			e := []proto.Message{assignmentOf(t, "one", "127.0.0.1", a), assignmentOf(t, "two", "127.0.0.1", a)}
			l := []proto.Message{tcpListener(t, "l", port, "two", "t")}
			m.publishVersions([3]string{"1", "1", "1"}, []proto.Message{one, two}, e, l)
			i := start(t, way.bootstrap(m.port))
			until(t, "the first state", func() bool { return gets(port) == "A" })
			m.publishVersions([3]string{"2", "1", "1"}, []proto.Message{one}, e, l)
			until(t, "cluster two goes", func() bool { return slices.Equal(i.clusters(), []string{"one", "xds"}) })
			timeouts := i.stat("cluster.two.init_fetch_timeout")
			m.publishVersions([3]string{"3", "1", "1"}, []proto.Message{one, two}, e, l)
			until(t, "it is back", func() bool { return gets(port) == "A" })
			if n := i.stat("cluster.two.init_fetch_timeout") - timeouts; n != 0 {
				t.Errorf("it came back after a fetch timeout")
			}
		})
	}
}

// TestNodeOnFirstMessageOnly looks at which requests have a node.
func TestNodeOnFirstMessageOnly(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprint(once), func(t *testing.T) {
			t.Parallel()
			s, server := newScripted(t)
			text := adsBootstrap(server, "GRPC")
			if once {
				text = strings.ReplaceAll(text, "api_type: GRPC,", "api_type: GRPC, set_node_on_first_message_only: true,")
			}
			start(t, text)
			s.answer(false, "cds", "1", nil)
			s.take(3)
			s.mu.Lock()
			defer s.mu.Unlock()
			for n, has := range s.node {
				if want := n == 0 || !once; has != want {
					t.Errorf("request %d has a node: %v, want %v", n, has, want)
				}
			}
		})
	}
}

// TestWatchedDirectory swaps what a link points to, as Kubernetes mounts do.
func TestWatchedDirectory(t *testing.T) {
	t.Parallel()
	a, b, port := letter(t, "A"), letter(t, "B"), freePort(t)
	dir := t.TempDir()
	version := func(name string, backend uint32) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		text, err := protojson.Marshal(&discoveryv3.DiscoveryResponse{VersionInfo: name, Resources: packedAll(t, assignmentOf(t, "c", "127.0.0.1", backend))})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "eds.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, "next")
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
	}
	version("one", a)
	i := start(t, fmt.Sprintf(`
node: {id: n1, cluster: c1}
static_resources:
  listeners:
  - name: l
    address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains: [{filters: [{name: t, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: t, cluster: c}}]}]
  clusters:
  - name: c
    type: EDS
    eds_cluster_config: {eds_config: {path_config_source: {path: %s/data/eds.json, watched_directory: {path: %s}}, resource_api_version: V3}}
`, port, dir, dir))
	until(t, "the first version", func() bool { return gets(port) == "A" })
	version("two", b)
	until(t, "the second version", func() bool { return gets(port) == "B" })
	// A file that is created is not read; nothing but the link's move has been.
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	version("three", a)
	until(t, "the third version", func() bool { return gets(port) == "A" })
	if n := i.stat("cluster.c.update_attempt"); n > 3 {
		t.Errorf("the file was read %d times for 3 versions", n)
	}
}

// TestLastUpdateIsNeverLost writes files as fast as it can: the last one is in force in the end, whatever
// was skipped before.
func TestLastUpdateIsNeverLost(t *testing.T) {
	t.Parallel()
	b := &fileBed{dir: t.TempDir(), a: letter(t, "A"), b: letter(t, "B"), port: freePort(t)}
	b.writeCDS(t, b.c(t))
	b.writeLDS(t, b.l(t, b.port, "c", ""))
	b.writeEDS(t, assignmentOf(t, "c", "127.0.0.1", b.a))
	b.instance = start(t, fmt.Sprintf(`
node: {id: n1, cluster: c1}
dynamic_resources:
  cds_config: {path_config_source: {path: %[1]s/cds.json}, resource_api_version: V3}
  lds_config: {path_config_source: {path: %[1]s/lds.json}, resource_api_version: V3}
`, b.dir))
	until(t, "the first state", func() bool { return gets(b.port) == "A" })
	for round := range 20 {
		for n := range 50 {
			b.writeEDS(t, assignmentOf(t, "c", "127.0.0.1", uint32(20000+n)))
		}
		last := b.a
		want := "A"
		if round%2 == 0 {
			last, want = b.b, "B"
		}
		b.writeEDS(t, assignmentOf(t, "c", "127.0.0.1", last))
		until(t, "the last update", func() bool { return gets(b.port) == want })
	}
}

// TestReloadBesideDynamic changes the bootstrap under resources that came by xDS: they stay.
func TestReloadBesideDynamic(t *testing.T) {
	t.Parallel()
	a, b, port, other := letter(t, "A"), letter(t, "B"), freePort(t), freePort(t)
	way := ways[0]
	m := newManaged(t, true)
	m.publish("1", []proto.Message{way.cluster(t, "c", 1009)}, []proto.Message{assignmentOf(t, "c", "127.0.0.1", a)}, []proto.Message{tcpListener(t, "l", port, "c", "t")})
	i := start(t, way.bootstrap(m.port))
	until(t, "the first state", func() bool { return gets(port) == "A" })
	static := fmt.Sprintf(`
  - name: s
    type: STATIC
    load_assignment: {cluster_name: s, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}
  listeners:
  - name: sl
    address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains: [{filters: [{name: t, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: t, cluster: s}}]}]
`, b, other)
	i.reload(way.bootstrap(m.port) + static[1:])
	until(t, "the new static listener", func() bool { return gets(other) == "B" })
	if got := gets(port); got != "A" {
		t.Errorf("the listener that came by LDS gives %q", got)
	}
	if want := []string{"c", "s", "xds"}; !slices.Equal(i.clusters(), want) {
		t.Errorf("clusters %v, want %v", i.clusters(), want)
	}
	// Another server: what came from the first stays until the second has spoken.
	second := newManaged(t, true)
	second.publish("1", []proto.Message{way.cluster(t, "c", 1009)}, []proto.Message{assignmentOf(t, "c", "127.0.0.1", b)}, []proto.Message{tcpListener(t, "l", port, "c", "t")})
	i.reload(way.bootstrap(second.port))
	until(t, "the second server's state", func() bool { return gets(port) == "B" })
	until(t, "the static listener goes", func() bool { return gets(other) == "refused" })
}

func packedAll(t testing.TB, list ...proto.Message) (out []*anypb.Any) {
	for _, m := range list {
		out = append(out, packedAny(t, m))
	}
	return out
}
