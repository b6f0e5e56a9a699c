package controlplane_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane"
)

// fileStep is a row of file-xds.json.
type fileStep struct {
	recordedStep
	Lines      []string `json:"new_log_lines"`
	OldGets    *string  `json:"old_connection_gets"`
	Old        string   `json:"old_connection"`
	NewPort    *string  `json:"new_port"`
	GoodNewOne *string  `json:"good_new_one"`
	M          *string  `json:"m"`
	Port10001  *string  `json:"port_10001"`
}

// fileBed is an instance fed by files.
type fileBed struct {
	*instance
	dir              string
	a, b, busy       uint32
	port, second, m  uint32
	bad              uint32
	old              net.Conn // a connection of an earlier step
	logged           int      // bytes of the log that were looked at
	clusters, lds    int
	endpointsVersion int
}

// TestObservedFiles replays what a running Envoy was seen to do with resources in files.
func TestObservedFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../cmd/guideway/testdata/observed/file-xds.json")
	if err != nil {
		t.Fatal(err)
	}
	var steps []fileStep
	if err := json.Unmarshal(text, &steps); err != nil {
		t.Fatal(err)
	}
	bed := &fileBed{dir: t.TempDir(), a: letter(t, "A"), b: letter(t, "B"), port: freePort(t), second: freePort(t), m: freePort(t), bad: freePort(t)}
	bed.busy = bed.a
	bed.writeCDS(t, bed.c(t))
	bed.writeLDS(t, bed.l(t, bed.port, "c", ""))
	bed.writeEDS(t, assignmentOf(t, "c", "127.0.0.1", bed.a))
	bed.instance = start(t, fmt.Sprintf(`
node: {id: n1, cluster: c1}
dynamic_resources:
  cds_config: {path_config_source: {path: %[1]s/cds.json}, resource_api_version: V3}
  lds_config: {path_config_source: {path: %[1]s/lds.json}, resource_api_version: V3}
`, bed.dir))
	do := bed.steps()
	if len(do) != len(steps) {
		t.Fatalf("%d steps are recorded, the test knows %d", len(steps), len(do))
	}
	for n, step := range steps {
		do[n]()
		bed.check(n, &step)
	}
}

func (b *fileBed) c(t testing.TB) proto.Message {
	return resource(t, &clusterv3.Cluster{}, `{"name": "c", "type": "EDS", "connect_timeout": "1s",
		"eds_cluster_config": {"eds_config": {"path_config_source": {"path": %q}, "resource_api_version": "V3"}}}`, b.dir+"/eds.json")
}

func (b *fileBed) l(t testing.TB, port uint32, cluster, extra string) proto.Message {
	l := tcpListener(t, "l", port, cluster, "t").(*listenerv3.Listener)
	if extra != "" {
		proto.Merge(l, resource(t, &listenerv3.Listener{}, "%s", extra))
	}
	return l
}

// write puts a file in place, by rename unless inPlace is set.
func (b *fileBed) write(t testing.TB, name string, inPlace bool, resources ...proto.Message) {
	t.Helper()
	r := &discoveryv3.DiscoveryResponse{VersionInfo: fmt.Sprint(time.Now().UnixNano())}
	for _, m := range resources {
		a := packedAny(t, m)
		r.Resources = append(r.Resources, a)
	}
	text, err := protojson.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(b.dir, name)
	if !inPlace {
		path += ".new"
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if !inPlace {
		if err := os.Rename(path, filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *fileBed) writeCDS(t testing.TB, r ...proto.Message) { b.write(t, "cds.json", false, r...) }
func (b *fileBed) writeLDS(t testing.TB, r ...proto.Message) { b.write(t, "lds.json", false, r...) }
func (b *fileBed) writeEDS(t testing.TB, r ...proto.Message) { b.write(t, "eds.json", false, r...) }

// keep opens a connection that a later step looks at.
func (b *fileBed) keep(port uint32) {
	b.Helper()
	var err error
	until(b, "a connection", func() bool {
		b.old, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		b.old.SetDeadline(time.Now().Add(patience))
		one := make([]byte, 1)
		if n, _ := b.old.Read(one); n != 1 {
			b.old.Close()
			return false
		}
		return true
	})
}

func (b *fileBed) steps() []func() {
	t := b.T
	g := staticCluster(t, "g", "127.0.0.1", b.b)
	wait := func(name string, n int64) {
		t.Helper()
		until(t, fmt.Sprintf("%s is %d", name, n), func() bool { return b.stat(name) >= n })
	}
	m := tcpListener(t, "m", b.m, "g", "m")
	return []func(){
		func() { until(t, "live", func() bool { return b.control.State().Phase == controlplane.Live }) },
		func() {
			b.write(t, "eds.json", true, assignmentOf(t, "c", "127.0.0.1", b.b))
		},
		func() { b.writeEDS(t, assignmentOf(t, "c", "127.0.0.1", b.b)) },
		func() { b.writeEDS(t, assignmentOf(t, "x", "127.0.0.1", b.b)) },
		func() { b.writeEDS(t) },
		func() { b.writeEDS(t, assignmentOf(t, "c", "127.0.0.1")) },
		func() { b.writeEDS(t, assignmentOf(t, "c", "127.0.0.1", b.a)) },
		func() { b.writeCDS(t, b.c(t), g, staticCluster(t, "g", "127.0.0.1", b.a)) },
		func() {
			b.keep(b.port)
			b.writeCDS(t, g)
		},
		func() { b.writeLDS(t, b.l(t, b.port, "g", "")) },
		func() { wait("listener_manager.lds.update_success", 2) },
		func() {
			b.keep(b.port)
			b.writeLDS(t, b.l(t, b.port, "g", `{"per_connection_buffer_limit_bytes": 4096}`))
		},
		func() {},
		func() { b.writeLDS(t, b.l(t, b.second, "g", `{"per_connection_buffer_limit_bytes": 4096}`)) },
		func() {
			bad := resource(t, &listenerv3.Listener{}, `{"name": "bad", "address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}}`, b.bad)
			b.writeLDS(t, b.l(t, b.second, "g", `{"per_connection_buffer_limit_bytes": 4096}`), bad, m)
		},
		func() {
			busy := tcpListener(t, "busy", b.busy, "g", "x").(*listenerv3.Listener)
			b.writeLDS(t, b.l(t, b.second, "g", `{"per_connection_buffer_limit_bytes": 4096}`), busy)
		},
		func() {
			b.keep(b.second)
			b.writeLDS(t)
		},
		func() {},
	}
}

// check compares what is seen with a row.
func (b *fileBed) check(n int, step *fileStep) {
	t := b.T
	t.Helper()
	place := fmt.Sprintf("step %d (%s)", n, step.Step)
	// How much drains at once depends on the time between the steps: what is to be seen is that something
	// does, and later that nothing does.
	for _, name := range []string{"listener_manager.total_filter_chains_draining", "listener_manager.total_listeners_draining"} {
		want := step.Stats[name]
		until(t, fmt.Sprintf("%s: %s is %d", place, name, want), func() bool { return (b.stat(name) > 0) == (want > 0) })
		delete(step.Stats, name)
	}
	compareStats(t, n, step.recordedStep, b.instance)
	for _, look := range []struct {
		want *string
		port uint32
	}{{step.ClientGets, b.port}, {step.NewPort, b.second}, {step.GoodNewOne, b.m}, {step.M, b.m}, {step.Port10001, b.second}} {
		if look.want != nil {
			until(t, fmt.Sprintf("%s: a client of port %d gets %q", place, look.port, *look.want), func() bool { return gets(look.port) == *look.want })
		}
	}
	one := make([]byte, 1)
	switch {
	case step.OldGets != nil:
		if _, err := b.old.Write([]byte(*step.OldGets)); err != nil {
			t.Errorf("%s: the old connection: %v", place, err)
		}
		if _, err := b.old.Read(one); err != nil || string(one) != *step.OldGets {
			t.Errorf("%s: the old connection got %q, %v; want %q", place, one, err, *step.OldGets)
		}
	case step.Old == "end of stream":
		if k, err := b.old.Read(one); k != 0 || err == nil || err.Error() != "EOF" {
			t.Errorf("%s: the old connection read %d bytes, %v; want its end", place, k, err)
		}
	case step.Old == "stays open":
		if _, err := b.old.Write([]byte("q")); err != nil {
			t.Errorf("%s: the old connection: %v", place, err)
		}
		if _, err := b.old.Read(one); err != nil {
			t.Errorf("%s: the old connection: %v", place, err)
		}
	}
	b.lines(place, step.Lines)
}

// lines looks for recorded log lines, with our ports in place of the recorded ones.
func (b *fileBed) lines(place string, want []string) {
	b.Helper()
	all := b.instance.logged()
	fresh := all[b.logged:]
	b.logged = len(all)
	for _, w := range want {
		w = strings.NewReplacer("127.0.0.1:10003", fmt.Sprintf("127.0.0.1:%d", b.bad), "127.0.0.1:20001", fmt.Sprintf("127.0.0.1:%d", b.busy)).Replace(w)
		if !strings.Contains(fresh, w) {
			b.Errorf("%s: no log line %q in:\n%s", place, w, fresh)
		}
	}
	if len(want) == 0 && strings.Contains(fresh, "reject") {
		b.Errorf("%s: log lines that Envoy does not have:\n%s", place, fresh)
	}
}
