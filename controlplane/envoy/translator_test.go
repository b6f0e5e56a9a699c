package envoy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/guideway/guideway/controlplane/model"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// message fills m from JSON.
func message[M proto.Message](t *testing.T, text string, m M) M {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func env(t *testing.T) Env { return Env{Config: loadCase(t, "tcp", "")} }

func TestTranslateCluster(t *testing.T) {
	m := message(t, `{"name":"x","type":"STATIC","load_assignment":{"cluster_name":"x","endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":80}}}}]}]}}`, &clusterv3.Cluster{})
	c, notes, err := env(t).TranslateCluster(m)
	if err != nil || len(notes.Warnings) != 0 {
		t.Fatalf("%v, %v", err, notes)
	}
	if !c.Settings.AddedViaAPI || c.Settings.Name != "x" {
		t.Errorf("cluster %+v", c.Settings)
	}

	// What a newer server sends is a warning, or an error on request.
	m.ProtoReflect().SetUnknown([]byte{0xf8, 0xf0, 0x04, 0x01})
	if _, notes, err = env(t).TranslateCluster(m); err != nil || notes.UnknownFields != 1 || len(notes.Warnings) != 1 {
		t.Errorf("unknown field: %v, %+v", err, notes)
	}
	strict := env(t)
	strict.RejectUnknown = true
	if _, _, err = strict.TranslateCluster(m); err == nil {
		t.Error("unknown field accepted")
	}

	m = message(t, `{"name":"x","lb_policy":"MAGLEV","maglev_lb_config":{"table_size":"9"},"lb_subset_config":{}}`, &clusterv3.Cluster{})
	_, _, err = env(t).TranslateCluster(m)
	var invalid *Invalid
	if !errors.As(err, &invalid) || len(invalid.Problems) != 2 {
		t.Fatalf("error %v", err)
	}
	for _, p := range invalid.Problems {
		if p.File != "" || p.Line != 0 || !strings.HasPrefix(p.Reason, `cluster "x": `) {
			t.Errorf("problem %+v", p)
		}
	}
}

func TestTranslateListener(t *testing.T) {
	l, _, err := env(t).TranslateListener(message(t, `{"name":"l","address":{"socket_address":{"address":"::","port_value":80}},"filter_chains":[{}]}`, &listenerv3.Listener{}))
	if err != nil || !l.AddedViaAPI {
		t.Fatalf("%v, %+v", err, l)
	}
	if _, _, err = env(t).TranslateListener(message(t, `{"address":{"socket_address":{"address":"::","port_value":80}},"filter_chains":[{}]}`, &listenerv3.Listener{})); err == nil {
		t.Error("a listener without a name was accepted")
	}
}

func TestTranslateAssignment(t *testing.T) {
	a, _, err := env(t).TranslateAssignment(message(t, `{"cluster_name":"x","endpoints":[{"priority":2,"lb_endpoints":[{"health_status":"DRAINING","endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":80}}}}]}]}`, &endpointv3.ClusterLoadAssignment{}))
	if err != nil || a.ClusterName != "x" || a.Localities[0].Priority != 2 || !a.Localities[0].Endpoints[0].Health.Draining() {
		t.Errorf("%v, %+v", err, a)
	}
	_, _, err = env(t).TranslateAssignment(message(t, `{"cluster_name":"x","endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"name","port_value":80}}}}]}]}`, &endpointv3.ClusterLoadAssignment{}))
	if err == nil || !strings.Contains(err.Error(), "is not an IP address") {
		t.Errorf("error %v", err)
	}
}

func TestReadMessage(t *testing.T) {
	file := write(t, "eds.json", `{"cluster_name":"x","new":1}`)
	m := &endpointv3.ClusterLoadAssignment{}
	notes, err := ReadMessage(file, m, false)
	if err != nil || m.ClusterName != "x" || notes.UnknownFields != 1 {
		t.Errorf("%v, %v, %+v", err, m, notes)
	}
	if _, err = ReadMessage(file, m, true); err == nil {
		t.Error("unknown field accepted")
	}
}

// TestHashes holds that hashes follow content, not encoding.
func TestHashes(t *testing.T) {
	fields := map[string]any{}
	for _, k := range strings.Split("abcdefghijklmnop", "") {
		fields[k] = k
	}
	s, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	listener := func() *listenerv3.Listener {
		b, err := proto.Marshal(s) // the order of a map varies from call to call
		if err != nil {
			t.Fatal(err)
		}
		return &listenerv3.Listener{Name: "l", ApiListener: &listenerv3.ApiListener{ApiListener: &anypb.Any{
			TypeUrl: "type.googleapis.com/google.protobuf.Struct", Value: b}}}
	}
	first := listener()
	varied := false
	for range 50 {
		l := listener()
		varied = varied || string(l.ApiListener.ApiListener.Value) != string(first.ApiListener.ApiListener.Value)
		if hashMessage(l) != hashMessage(first) {
			t.Fatal("equal messages have different hashes")
		}
	}
	if !varied {
		t.Log("the encoding never varied, so this run showed little")
	}
	load := func(lines string) *model.Config { return loadCase(t, "tcp", lines) }
	a, b := load(""), load("F.idle_timeout: 5s")
	if a.Listeners[0].Hash == b.Listeners[0].Hash || a.Listeners[0].SocketHash != b.Listeners[0].SocketHash ||
		a.Listeners[0].Chains[0].Hash == b.Listeners[0].Chains[0].Hash {
		t.Error("a change of a filter shows in the wrong hashes")
	}
	if b = load("L.freebind: true"); a.Listeners[0].SocketHash == b.Listeners[0].SocketHash || a.Listeners[0].Chains[0].Hash != b.Listeners[0].Chains[0].Hash {
		t.Error("a change of the socket shows in the wrong hashes")
	}
	if b = load("E.load_balancing_weight: 5"); a.Clusters[0].SettingsHash != b.Clusters[0].SettingsHash || a.Clusters[0].ContentHash == b.Clusters[0].ContentHash {
		t.Error("a change of an endpoint shows in the wrong hashes")
	}
	if b = load("C.connect_timeout: 9s"); a.Clusters[0].SettingsHash == b.Clusters[0].SettingsHash {
		t.Error("a change of a setting does not show")
	}
}

// TestDefaultsAgainstEnvoy compares the defaults that Envoy shows.
func TestDefaultsAgainstEnvoy(t *testing.T) {
	envoy := findEnvoy(t)
	dir := t.TempDir()
	config, address := filepath.Join(dir, "c.json"), filepath.Join(dir, "admin")
	if err := os.WriteFile(config, change(t, "tcp", "C.outlier_detection: {}\nL.address.socket_address.port_value: 0"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(envoy, "-c", config, "--admin-address-path", address, "--disable-hot-restart", "--concurrency", "1", "-l", "off")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var text string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		at, err := os.ReadFile(address)
		if err != nil || len(at) == 0 {
			continue
		}
		resp, err := http.Get("http://" + string(at) + "/clusters")
		if err != nil {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && strings.Contains(string(body), "max_connections") {
			text = string(body)
			break
		}
	}
	if text == "" {
		t.Fatal("Envoy did not start")
	}
	c := loadCase(t, "tcp", "C.outlier_detection: {}").Clusters[0]
	for name, v := range map[string]uint32{
		"default_priority::max_connections":      c.Settings.Breakers.Default.MaxConnections,
		"default_priority::max_pending_requests": c.Settings.Breakers.Default.MaxPendingRequests,
		"default_priority::max_requests":         c.Settings.Breakers.Default.MaxRequests,
		"default_priority::max_retries":          c.Settings.Breakers.Default.MaxRetries,
		"high_priority::max_connections":         c.Settings.Breakers.High.MaxConnections,
	} {
		if want := "c::" + name + "::" + strconv.Itoa(int(v)) + "\n"; !strings.Contains(text, want) {
			t.Errorf("Envoy shows no %q in\n%s", want, text)
		}
	}
}
