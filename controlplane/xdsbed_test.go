package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/guideway/guideway/controlplane"
	"github.com/guideway/guideway/controlplane/envoy"
	"github.com/guideway/guideway/controlplane/logging"
	"github.com/guideway/guideway/dataplane/accesslog"
	"github.com/guideway/guideway/dataplane/proxy"
	"github.com/guideway/guideway/dataplane/stats"
)

// patience bounds how long a test waits for what must come.
const patience = 20 * time.Second

// instance is a control loop with a proxy, as cmd/guideway runs it.
type instance struct {
	*testing.T
	control *controlplane.Control
	store   *stats.Store
	log     string // file
	stop    func()
}

// logged is what the process has logged.
func (i *instance) logged() string {
	b, err := os.ReadFile(i.log)
	if err != nil {
		i.Fatal(err)
	}
	return string(b)
}

// start runs a bootstrap (YAML).
func start(t *testing.T, bootstrap string, options ...func(*controlplane.Options)) *instance {
	t.Helper()
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(path, []byte(bootstrap), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := envoy.Load(envoy.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{T: t, store: stats.NewStore(), log: filepath.Join(t.TempDir(), "log")}
	log, err := logging.New(logging.Options{Level: slog.LevelInfo, Format: "[%l] %v", Path: i.log})
	if err != nil {
		t.Fatal(err)
	}
	plane, err := proxy.New(proxy.Config{Workers: 1, Stats: i.store, DrainTime: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	files := accesslog.NewFiles(i.store, time.Second)
	o := controlplane.Options{
		Config: config, Stats: i.store, Log: log, Files: files, Dataplane: plane, DrainTime: 2 * time.Second, Workers: 1,
		Dynamic: controlplane.DynamicOptions{Version: "0/1.2.3/Clean/RELEASE/none"},
	}
	for _, f := range options {
		f(&o)
	}
	i.control = controlplane.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- i.control.Run(ctx) }()
	i.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the loop ended: %v", err)
		}
		plane.Close()
		files.Close()
	})
	t.Cleanup(func() {
		i.stop()
		if t.Failed() {
			t.Log(i.logged())
		}
	})
	return i
}

// reload puts another bootstrap in force.
func (i *instance) reload(bootstrap string) {
	i.Helper()
	path := filepath.Join(i.TempDir(), "envoy.yaml")
	if err := os.WriteFile(path, []byte(bootstrap), 0o600); err != nil {
		i.Fatal(err)
	}
	config, err := envoy.Load(envoy.Options{Path: path})
	if err != nil {
		i.Fatal(err)
	}
	if _, err := i.control.Reload(context.Background(), config); err != nil {
		i.Fatal(err)
	}
}

// stat reads a counter or gauge, 0 if there is none.
func (i *instance) stat(name string) int64 {
	for _, s := range i.store.Select(func(n string) bool { return n == name }) {
		v, _ := s.Number()
		return v
	}
	return 0
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about in %v", what, patience)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// clusters names the clusters in force.
func (i *instance) clusters() []string {
	var names []string
	for _, c := range i.control.State().Clusters {
		names = append(names, c.Desired.Settings.Name)
	}
	return names
}

// hosts lists the hosts of a cluster in force, sorted.
func (i *instance) hosts(name string) []string {
	list := []string{}
	for _, c := range i.control.State().Clusters {
		if c.Desired.Settings.Name == name {
			for _, h := range c.Active.Hosts {
				list = append(list, h.Address.String())
			}
		}
	}
	slices.Sort(list)
	return list
}

// letter runs a backend that says its name to each client and then echoes.
func letter(t *testing.T, name string) uint32 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.WriteString(c, name); err == nil {
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
	return uint32(l.Addr().(*net.TCPAddr).Port)
}

// freePort is one that nobody listens on.
func freePort(t *testing.T) uint32 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint32(l.Addr().(*net.TCPAddr).Port)
}

// gets tells what a client gets: a backend's letter, "" if it is closed, or refused.
func gets(port uint32) string {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return "refused"
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	b := make([]byte, 1)
	n, _ := c.Read(b)
	return string(b[:n])
}

// resource reads a message from YAML-like JSON, with a name put in place of %s verbs.
func resource[M proto.Message](t testing.TB, m M, format string, args ...any) M {
	t.Helper()
	if err := protojson.Unmarshal(fmt.Appendf(nil, format, args...), m); err != nil {
		t.Fatalf("%v in %s", err, fmt.Sprintf(format, args...))
	}
	return m
}

// Resources of the recorded steps.
func edsCluster(t testing.TB, name, extra string) proto.Message {
	return resource(t, &clusterv3.Cluster{}, `{"name": %q, "type": "EDS", "connect_timeout": "1s", %s
		"eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "1s"}}}`, name, extra)
}

func staticCluster(t testing.TB, name, host string, port uint32) proto.Message {
	return resource(t, &clusterv3.Cluster{}, `{"name": %q, "type": "STATIC", "connect_timeout": "1s", "load_assignment": {"cluster_name": %q,
		"endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": %q, "port_value": %d}}}}]}]}}`, name, name, host, port)
}

func assignmentOf(t testing.TB, name, host string, ports ...uint32) proto.Message {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	for _, p := range ports {
		a.Endpoints = append(a.Endpoints, resource(t, &endpointv3.LocalityLbEndpoints{}, `{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": %q, "port_value": %d}}}}]}`, host, p))
	}
	return a
}

func tcpListener(t testing.TB, name string, port uint32, cluster, prefix string) proto.Message {
	return resource(t, &listenerv3.Listener{}, `{"name": %q, "address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}},
		"filter_chains": [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": %q, "cluster": %q}}]}]}`, name, port, prefix, cluster)
}

// adsBootstrap is a bootstrap that gets everything from one server.
func adsBootstrap(port uint32, api string) string {
	return fmt.Sprintf(`
node: {id: n1, cluster: c1}
dynamic_resources:
  ads_config: {api_type: %s, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}
  cds_config: {ads: {}, resource_api_version: V3, initial_fetch_timeout: 1s}
  lds_config: {ads: {}, resource_api_version: V3, initial_fetch_timeout: 1s}
static_resources:
  clusters:
  - name: xds
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: xds
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]
`, api, port)
}

// message is one message between client and server, as the recordings have them.
type message struct {
	Event       string            `json:"ev"`
	Type        string            `json:"type"`
	Names       []string          `json:"names"`
	Nonce       string            `json:"nonce"`
	Version     string            `json:"version"`
	Error       string            `json:"error"`
	Code        int32             `json:"error_code"`
	Subscribe   []string          `json:"subscribe"`
	Unsubscribe []string          `json:"unsubscribe"`
	Initial     map[string]string `json:"initial_versions"`
	Resources   any               `json:"resources"`
	Removed     []string          `json:"removed"`
}

// recordedStep is a row of a recording.
type recordedStep struct {
	Step       string           `json:"step"`
	ClientGets *string          `json:"client_gets"`
	Messages   []message        `json:"messages"`
	Clusters   []string         `json:"clusters"`
	Stats      map[string]int64 `json:"stats"`
	ReadyTimes [][]any          `json:"ready over time"`
}

func recording(t *testing.T, name string) []recordedStep {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../cmd/guideway/testdata/observed", name))
	if err != nil {
		t.Fatal(err)
	}
	var steps []recordedStep
	if err := json.Unmarshal(text, &steps); err != nil {
		t.Fatal(err)
	}
	return steps
}

// shortType is cds, eds or lds.
func shortType(url string) string {
	switch {
	case strings.HasSuffix(url, ".Cluster"):
		return "cds"
	case strings.HasSuffix(url, ".Listener"):
		return "lds"
	}
	return "eds"
}

var typeURLs = map[string]string{
	"cds": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	"eds": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	"lds": "type.googleapis.com/envoy.config.listener.v3.Listener",
}

// scripted is a management server that answers only when it is told to.
type scripted struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	*testing.T

	mu       sync.Mutex
	requests []message
	node     []bool // whether each request had a node
	sotw     chan *discoveryv3.DiscoveryResponse
	delta    chan *discoveryv3.DeltaDiscoveryResponse
	nonce    int
}

func newScripted(t *testing.T) (*scripted, uint32) {
	s := &scripted{T: t, sotw: make(chan *discoveryv3.DiscoveryResponse, 16), delta: make(chan *discoveryv3.DeltaDiscoveryResponse, 16)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	go func() { _ = g.Serve(l) }() // ends with Stop
	t.Cleanup(g.Stop)
	return s, uint32(l.Addr().(*net.TCPAddr).Port)
}

func (s *scripted) note(m message, node bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, m)
	s.node = append(s.node, node)
}

func sotwMessage(r *discoveryv3.DiscoveryRequest) message {
	return message{
		Event: "request", Type: shortType(r.TypeUrl), Names: r.ResourceNames, Nonce: r.ResponseNonce, Version: r.VersionInfo,
		Error: r.ErrorDetail.GetMessage(), Code: r.ErrorDetail.GetCode(),
	}
}

func deltaMessage(r *discoveryv3.DeltaDiscoveryRequest) message {
	m := message{
		Event: "delta_request", Type: shortType(r.TypeUrl), Nonce: r.ResponseNonce, Error: r.ErrorDetail.GetMessage(), Code: r.ErrorDetail.GetCode(),
		Subscribe: r.ResourceNamesSubscribe, Unsubscribe: r.ResourceNamesUnsubscribe,
	}
	for name := range r.InitialResourceVersions {
		if m.Initial == nil {
			m.Initial = map[string]string{}
		}
		m.Initial[name] = "<version>"
	}
	return m
}

func (s *scripted) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			s.note(sotwMessage(r), r.Node != nil)
		}
	}()
	for {
		select {
		case r := <-s.sotw:
			if err := stream.Send(r); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return errors.New("gone")
		}
	}
}

func (s *scripted) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			s.note(deltaMessage(r), r.Node != nil)
		}
	}()
	for {
		select {
		case r := <-s.delta:
			if err := stream.Send(r); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return errors.New("gone")
		}
	}
}

// answer sends resources in both forms; one of them has a stream.
func (s *scripted) answer(delta bool, kind, version string, resources []proto.Message, removed ...string) {
	s.Helper()
	s.nonce++
	nonce := fmt.Sprint(s.nonce)
	if !delta {
		r := &discoveryv3.DiscoveryResponse{TypeUrl: typeURLs[kind], VersionInfo: version, Nonce: nonce}
		for _, m := range resources {
			r.Resources = append(r.Resources, packedAny(s.T, m))
		}
		s.sotw <- r
		return
	}
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURLs[kind], SystemVersionInfo: version, Nonce: nonce, RemovedResources: removed}
	for _, m := range resources {
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: nameOf(m), Version: version, Resource: packedAny(s.T, m)})
	}
	s.delta <- r
}

func nameOf(m proto.Message) string {
	if a, ok := m.(*endpointv3.ClusterLoadAssignment); ok {
		return a.GetClusterName()
	}
	return m.(interface{ GetName() string }).GetName()
}

func packedAny(t testing.TB, m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// take returns the requests since the last call, once there are n.
func (s *scripted) take(n int) []message {
	s.Helper()
	until(s, fmt.Sprintf("%d requests", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.requests) >= n
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.requests
	s.requests = nil
	return got
}
