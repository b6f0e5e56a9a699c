package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	// The types that the recorded configuration wraps.
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/udp/udp_proxy/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/guideway/guideway/controlplane/logging"
	"github.com/guideway/guideway/controlplane/plan"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
	"github.com/guideway/guideway/dataplane/stats"
)

// fakeState is the process as it was when the admin answers were recorded: two clusters, three hosts of
// which one fails its check, two listeners, and a runtime of two layers.
type fakeState struct {
	t        *testing.T
	log      *logging.Log
	clusters []Cluster
	config   ConfigDump
	layers   []string

	mu      sync.Mutex
	phase   adminv3.ServerInfo_State
	done    []string // what was asked of the process
	runtime map[string]string
	drained []string
	changed []*plan.Change
}

func newFakeState(t *testing.T) *fakeState {
	t.Helper()
	log, err := logging.New(logging.Options{Level: slog.LevelInfo, Path: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeState{t: t, log: log, phase: adminv3.ServerInfo_LIVE, layers: []string{"static", "admin"}, runtime: map[string]string{}}
	zone := dataplane.Locality{Region: "r1", Zone: "z1"}
	busy := &dataplane.HostState{}
	for _, n := range []interface{ Store(int64) }{&busy.CxTotal, &busy.CxActive, &busy.RqTotal, &busy.RqActive} {
		n.Store(1)
	}
	s.clusters = []Cluster{
		s.cluster("web", true, lb.Maglev,
			&dataplane.Host{Address: addr("127.0.0.1:20001"), Weight: 1, Locality: zone, State: &dataplane.HostState{}},
			&dataplane.Host{Address: addr("127.0.0.1:20002"), Weight: 3, Locality: zone, State: busy},
			&dataplane.Host{Address: addr("127.0.0.1:20009"), Weight: 1, Locality: zone, Health: dataplane.FailedActiveHC, State: &dataplane.HostState{}},
		),
		s.cluster("dns", false, lb.RoundRobin,
			&dataplane.Host{Address: addr("127.0.0.1:20003"), Weight: 1, State: &dataplane.HostState{}}),
	}
	s.config = recordedConfig(t)
	return s
}

func addr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func (s *fakeState) cluster(name string, outlier bool, policy lb.Policy, hosts ...*dataplane.Host) Cluster {
	s.t.Helper()
	usual := dataplane.Thresholds{MaxConnections: 1024, MaxPendingRequests: 1024, MaxRequests: 1024, MaxRetries: 3}
	set := lb.HostSet{Hosts: hosts}
	for _, h := range hosts {
		h.Key = h.Address.String()
	}
	balancer, err := lb.New(lb.Config{Policy: policy, TableSize: 1009},
		lb.Input{Priorities: []lb.HostSet{set}, PanicThreshold: 50, Overprovisioning: 140, Stats: dataplane.NewClusterStats(stats.NewStore(), name), Live: &dataplane.ClusterLive{}}, lb.NewCache())
	if err != nil {
		s.t.Fatal(err)
	}
	return Cluster{
		Cluster: &dataplane.Cluster{
			Name: name, StatName: name, Hosts: hosts, Balancer: balancer,
			Breakers: dataplane.CircuitBreakers{Default: usual, High: usual},
		},
		Policy: policy.String(), Discovery: "STATIC", Outlier: outlier, OverprovisioningFactor: 140,
	}
}

// observed reads a recorded file with its masks made valid.
func observed(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../cmd/guideway/testdata/observed/admin", name))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.NewReplacer("<time>", "2026-01-02T03:04:05.678Z", "<seconds>s", "7s").Replace(string(b)))
}

// recordedConfig reads the configuration dump back into messages.
func recordedConfig(t *testing.T) ConfigDump {
	t.Helper()
	var raw adminv3.ConfigDump
	if err := protojson.Unmarshal(observed(t, "config_dump.json"), &raw); err != nil {
		t.Fatal(err)
	}
	var c ConfigDump
	for _, part := range raw.Configs {
		switch m := unwrap(t, part).(type) {
		case *adminv3.BootstrapConfigDump:
			c.Bootstrap = m
		case *adminv3.ClustersConfigDump:
			c.Clusters = m
		case *adminv3.ListenersConfigDump:
			c.Listeners = m
		}
	}
	return c
}

func unwrap(t *testing.T, a *anypb.Any) proto.Message {
	t.Helper()
	m, err := a.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (s *fakeState) did(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, what)
}

func (s *fakeState) Phase() adminv3.ServerInfo_State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

func (s *fakeState) ServerInfo() *adminv3.ServerInfo {
	info := &adminv3.ServerInfo{}
	if err := protojson.Unmarshal(observed(s.t, "server_info.json"), info); err != nil {
		s.t.Error(err)
	}
	return info
}

func (s *fakeState) Clusters() []Cluster { return s.clusters }

func (s *fakeState) Listeners() []dataplane.ListenerStatus {
	return []dataplane.ListenerStatus{
		{Name: "tcp_in", Protocol: dataplane.TCP, Addresses: []dataplane.ListenAddress{{Addr: addr("127.0.0.1:10000")}}},
		{Name: "udp_in", Protocol: dataplane.UDP, Addresses: []dataplane.ListenAddress{{Addr: addr("127.0.0.1:10001")}}},
	}
}

func (s *fakeState) ConfigDump() ConfigDump { return s.config }

func (s *fakeState) Runtime() Runtime {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Runtime{Layers: s.layers, Entries: map[string][]string{"a.b": {"1", ""}}}
	for k, v := range s.runtime {
		r.Entries[k] = []string{"", v}
	}
	return r
}

func (s *fakeState) Logging() *logging.Log { return s.log }
func (s *fakeState) ReopenLogs()           { s.did("reopen") }
func (s *fakeState) Quit()                 { s.did("quit") }

func (s *fakeState) Drain(d Drain) {
	b, err := json.Marshal(d)
	if err != nil {
		s.t.Error(err)
	}
	s.did("drain " + string(b))
}

func (s *fakeState) FailHealthCheck(fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = adminv3.ServerInfo_LIVE
	if fail {
		s.phase = adminv3.ServerInfo_DRAINING
	}
}

func (s *fakeState) ModifyRuntime(changes map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.layers) < 2 {
		return ErrNoAdminLayer
	}
	for k, v := range changes {
		s.runtime[k] = v
	}
	return nil
}

// start serves a fake process on a free port and returns its address as a URL.
func start(t *testing.T, state State, change func(*Config)) (url string, server *Server) {
	t.Helper()
	c := Config{Address: addr("127.0.0.1:0"), Stats: stats.NewStore(), Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c)
	}
	server, err := New(c, state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + server.Addr().String(), server
}

var _ State = (*fakeState)(nil)

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (s *fakeState) DrainHost(cluster string, address netip.AddrPort, drain bool) ([]Host, error) {
	var found []Host
	for _, c := range s.clusters {
		for _, h := range c.Hosts {
			if h.Address == address && (cluster == "" || cluster == c.Name) {
				s.drained = append(s.drained, fmt.Sprint(c.Name, " ", address, " ", drain))
				found = append(found, Host{Cluster: c.Name, Address: address, Health: dataplane.AdminDraining, State: h.State})
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoHost, address)
	}
	return found, nil
}

func (s *fakeState) Plan(_ context.Context, text string) (*plan.Change, error) {
	if text == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrInvalid)
	}
	return &plan.Change{Slots: plan.Slots{Size: uint64(len(text))}}, nil
}

func (s *fakeState) Changes() []*plan.Change { return s.changed }
