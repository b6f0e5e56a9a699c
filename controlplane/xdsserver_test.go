package controlplane_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	server "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// managed is go-control-plane's own server with a SnapshotCache, which can be stopped and started again.
type managed struct {
	*testing.T
	cache cache.SnapshotCache
	port  uint32
	stop  func()

	mu       sync.Mutex
	messages []message
	ads      bool
}

// newManaged starts a server; ads makes its cache wait until a client asks for everything that is named.
func newManaged(t *testing.T, ads bool, options ...grpc.ServerOption) *managed {
	m := &managed{T: t, ads: ads}
	m.renew()
	m.serve(options...)
	t.Cleanup(func() { m.stop() })
	return m
}

// renew forgets everything, as a server does that restarts.
func (m *managed) renew() { m.cache = cache.NewSnapshotCache(m.ads, anyNode{}, nil) }

// anyNode finds all nodes under one name, but for an Envoy beside.
type anyNode struct{}

func (anyNode) ID(n *corev3.Node) string {
	if n.GetId() == besideID {
		return besideID
	}
	return "n"
}

// besideID is the node of a real Envoy, which has listeners of its own.
const besideID = "beside"

func (m *managed) serve(options ...grpc.ServerOption) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", m.port))
	if err != nil {
		m.Fatal(err)
	}
	m.port = uint32(l.Addr().(*net.TCPAddr).Port)
	ctx, cancel := context.WithCancel(context.Background())
	s := server.NewServer(ctx, m.cache, m.callbacks())
	g := grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	clusterservice.RegisterClusterDiscoveryServiceServer(g, s)
	endpointservice.RegisterEndpointDiscoveryServiceServer(g, s)
	listenerservice.RegisterListenerDiscoveryServiceServer(g, s)
	go func() { _ = g.Serve(l) }() // ends with Stop
	m.stop = func() {
		cancel()
		g.Stop()
	}
}

func (m *managed) note(x message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.messages = append(m.messages, x)
}

func (m *managed) callbacks() server.Callbacks {
	return server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error { m.note(sotwMessage(r)); return nil },
		StreamResponseFunc: func(_ context.Context, _ int64, _ *discoveryv3.DiscoveryRequest, r *discoveryv3.DiscoveryResponse) {
			m.note(message{Event: "response", Type: shortType(r.TypeUrl), Nonce: r.Nonce, Version: r.VersionInfo})
		},
		StreamDeltaRequestFunc: func(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error { m.note(deltaMessage(r)); return nil },
		StreamDeltaResponseFunc: func(_ int64, _ *discoveryv3.DeltaDiscoveryRequest, r *discoveryv3.DeltaDiscoveryResponse) {
			m.note(message{Event: "delta_response", Type: shortType(r.TypeUrl), Nonce: r.Nonce, Version: r.SystemVersionInfo})
		},
	}
}

// taken returns the messages since the last call, with nonces that count by type, since the order between
// types may vary.
func (m *managed) taken() []message {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.messages
	m.messages = nil
	return got
}

// publish makes resources the state of the world.
func (m *managed) publish(version string, clusters, endpoints, listeners []proto.Message) {
	m.Helper()
	m.publishVersions([3]string{version, version, version}, clusters, endpoints, listeners)
}

// publishVersions has a version for clusters, endpoints and listeners each.
func (m *managed) publishVersions(versions [3]string, clusters, endpoints, listeners []proto.Message) {
	m.Helper()
	m.publishTo("n", versions, clusters, endpoints, listeners)
}

// publishTo makes resources the state of the world of one node.
func (m *managed) publishTo(node string, versions [3]string, clusters, endpoints, listeners []proto.Message) {
	m.Helper()
	snap := &cache.Snapshot{}
	for i, part := range []struct {
		kind types.ResponseType
		list []proto.Message
	}{{types.Cluster, clusters}, {types.Endpoint, endpoints}, {types.Listener, listeners}} {
		var list []types.Resource
		for _, r := range part.list {
			list = append(list, r)
		}
		snap.Resources[part.kind] = cache.NewResources(versions[i], list)
	}
	if err := m.cache.SetSnapshot(context.Background(), node, snap); err != nil {
		m.Fatal(err)
	}
}

// seen returns the messages since the last call of taken.
func (m *managed) seen() []message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]message(nil), m.messages...)
}
