package xds

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// grpcServer is a management server as a cluster of the bootstrap describes it.
type grpcServer struct {
	client  *Client
	source  *corev3.ApiConfigSource
	node    *corev3.Node
	method  string
	delta   bool
	cluster *clusterv3.Cluster
	secrets secrets
	dialed  atomic.Uint32 // counts attempts, which go round the addresses
}

// Management servers are few, and a message is as large as the configuration: there is no bound but
// protobuf's own.
const maxMessage = math.MaxInt32

func (c *Client) grpcTransport(server Server) (Transport, error) {
	s := &grpcServer{client: c, source: server.Source, node: server.Node, delta: server.Source.GetApiType() == corev3.ApiConfigSource_DELTA_GRPC}
	s.method = methodOf(server.Type, server.Aggregated, s.delta)
	name := server.Source.GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName()
	s.cluster = staticCluster(c.boot, name)
	if s.cluster == nil {
		return nil, fmt.Errorf("cluster %q of the management server is not in static_resources.clusters", name)
	}
	if len(addresses(s.cluster)) == 0 {
		return nil, fmt.Errorf("cluster %q of the management server has no endpoint", name)
	}
	s.secrets = secrets{boot: c.boot}
	return s, nil
}

func staticCluster(boot *bootstrapv3.Bootstrap, name string) *clusterv3.Cluster {
	for _, c := range boot.GetStaticResources().GetClusters() {
		if c.GetName() == name {
			return c
		}
	}
	return nil
}

// addresses lists host:port of a cluster's endpoints; hosts may be names.
func addresses(c *clusterv3.Cluster) []string {
	var list []string
	for _, l := range c.GetLoadAssignment().GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if a := e.GetEndpoint().GetAddress().GetSocketAddress(); a != nil {
				list = append(list, net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue()))))
			}
		}
	}
	return list
}

// methodOf is the RPC for a type, or for all of them on an aggregated stream.
func methodOf(t Type, aggregated, delta bool) string {
	switch {
	case aggregated && delta:
		return discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName
	case aggregated:
		return discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName
	case delta:
		return [...]string{
			clusterservice.ClusterDiscoveryService_DeltaClusters_FullMethodName,
			endpointservice.EndpointDiscoveryService_DeltaEndpoints_FullMethodName,
			listenerservice.ListenerDiscoveryService_DeltaListeners_FullMethodName,
		}[t]
	}
	return [...]string{
		clusterservice.ClusterDiscoveryService_StreamClusters_FullMethodName,
		endpointservice.EndpointDiscoveryService_StreamEndpoints_FullMethodName,
		listenerservice.ListenerDiscoveryService_StreamListeners_FullMethodName,
	}[t]
}

// options are those of one connection. Certificates are read anew for each, so that rotated ones count.
func (s *grpcServer) options() ([]grpc.DialOption, error) {
	opts := []grpc.DialOption{
		grpc.WithContextDialer(s.dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.maxMessage()), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithUserAgent(s.client.Agent),
		grpc.WithDisableServiceConfig(),
		// A connection that grows idle in a stream that has nothing to say is no fault.
		grpc.WithIdleTimeout(0),
	}
	config, err := s.secrets.clientTLS(s.cluster.GetTransportSocket())
	if err != nil {
		return nil, err
	}
	if config == nil {
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	} else {
		opts = append(opts, grpc.WithTransportCredentials(serverName{credentials.NewTLS(config), config}))
	}
	if k := keepaliveOf(s.cluster); k != nil {
		opts = append(opts, grpc.WithKeepaliveParams(*k))
	}
	if a := s.source.GetGrpcServices()[0].GetEnvoyGrpc().GetAuthority(); a != "" {
		opts = append(opts, grpc.WithAuthority(a))
	} else {
		opts = append(opts, grpc.WithAuthority(s.cluster.GetName())) // as Envoy
	}
	return opts, nil
}

// serverName keeps the configured SNI: grpc would put the authority there.
type serverName struct {
	credentials.TransportCredentials
	config *tls.Config
}

func (c serverName) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.TransportCredentials.ClientHandshake(ctx, c.config.ServerName, conn)
}

func (c serverName) Clone() credentials.TransportCredentials {
	return serverName{c.TransportCredentials.Clone(), c.config}
}

func (s *grpcServer) maxMessage() int {
	if n := s.source.GetGrpcServices()[0].GetEnvoyGrpc().GetMaxReceiveMessageLength(); n != nil {
		return int(min(n.GetValue(), maxMessage))
	}
	return maxMessage
}

// keepaliveOf reads connection_keepalive; nil for none. grpc-go pings every 10 s at most.
func keepaliveOf(c *clusterv3.Cluster) *keepalive.ClientParameters {
	h2 := c.GetHttp2ProtocolOptions()
	for _, packed := range c.GetTypedExtensionProtocolOptions() {
		o := &httpv3.HttpProtocolOptions{}
		if packed.UnmarshalTo(o) == nil && o.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil {
			h2 = o.GetExplicitHttpConfig().GetHttp2ProtocolOptions()
		}
	}
	k := h2.GetConnectionKeepalive()
	if k.GetInterval() == nil {
		return nil
	}
	return &keepalive.ClientParameters{Time: k.GetInterval().AsDuration(), Timeout: k.GetTimeout().AsDuration(), PermitWithoutStream: true}
}

// dial connects to the next address of the cluster.
func (s *grpcServer) dial(ctx context.Context, _ string) (net.Conn, error) {
	list := addresses(s.cluster)
	d := net.Dialer{Timeout: 5 * time.Second}
	if t := s.cluster.GetConnectTimeout(); t != nil {
		d.Timeout = t.AsDuration()
	}
	if a := s.cluster.GetUpstreamBindConfig().GetSourceAddress(); a != nil {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(a.GetAddress()), Port: int(a.GetPortValue())}
	}
	return d.DialContext(ctx, "tcp", list[int(s.dialed.Add(1)-1)%len(list)])
}

// Open implements Transport.
func (s *grpcServer) Open(h Handler) Stream {
	ctx, cancel := context.WithCancel(s.client.Context)
	st := &grpcStream{server: s, handler: h, cancel: cancel, more: make(chan struct{}, 1)}
	go st.run(ctx)
	return st
}

// grpcStream is one stream with its connection. Requests wait in a list of their own, so that the owner
// never waits for the network.
type grpcStream struct {
	server  *grpcServer
	handler Handler
	cancel  context.CancelFunc

	memo memo

	mu   sync.Mutex
	out  []*Request
	more chan struct{}
}

// Send implements Stream.
func (s *grpcStream) Send(r *Request) {
	s.mu.Lock()
	s.out = append(s.out, r)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Close implements Stream.
func (s *grpcStream) Close() { s.cancel() }

func (s *grpcStream) run(ctx context.Context) {
	err := s.serve(ctx)
	if ctx.Err() == nil {
		s.handler.Closed(err)
	}
	s.cancel()
}

func (s *grpcStream) serve(ctx context.Context) error {
	opts, err := s.server.options()
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+s.server.cluster.GetName(), opts...)
	if err != nil {
		return err
	}
	defer conn.Close()
	if md := s.server.source.GetGrpcServices()[0].GetInitialMetadata(); len(md) > 0 {
		for _, h := range md {
			ctx = metadata.AppendToOutgoingContext(ctx, h.GetKey(), h.GetValue())
		}
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, s.server.method)
	if err != nil {
		return err
	}
	s.handler.Connected()
	go s.write(ctx, stream)
	for {
		r, err := s.read(stream)
		if errors.Is(err, io.EOF) {
			return errors.New("the server ended the stream")
		}
		if err != nil {
			return err
		}
		s.handler.Received(r)
	}
}

// write sends requests until the stream ends; read then tells why.
func (s *grpcStream) write(ctx context.Context, stream grpc.ClientStream) {
	first := true
	for {
		s.mu.Lock()
		out := s.out
		s.out = nil
		s.mu.Unlock()
		for _, r := range out {
			node := s.server.node
			if !first && s.server.source.GetSetNodeOnFirstMessageOnly() {
				node = nil
			}
			first = false
			var err error
			if s.server.delta {
				err = stream.SendMsg(deltaRequest(r, node))
			} else {
				err = stream.SendMsg(sotwRequest(r, node))
			}
			if err != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.more:
		}
	}
}

func (s *grpcStream) read(stream grpc.ClientStream) (*Response, error) {
	if s.server.delta {
		m := &discoveryv3.DeltaDiscoveryResponse{}
		if err := stream.RecvMsg(m); err != nil {
			return nil, err
		}
		return s.server.client.parser.delta(m), nil
	}
	m := &discoveryv3.DiscoveryResponse{}
	if err := stream.RecvMsg(m); err != nil {
		return nil, err
	}
	return s.server.client.parser.sotw(m, &s.memo), nil
}

// detail is how a refusal goes over the wire. Envoy sends code INTERNAL; servers look at the message.
func detail(err error) *statuspb.Status {
	if err == nil {
		return nil
	}
	const most = 4 << 10 // bytes; a header-sized bound, for servers that log the text
	text := err.Error()
	if len(text) > most {
		text = text[:most] + "..."
	}
	return &statuspb.Status{Code: int32(codes.Internal), Message: text}
}

func sotwRequest(r *Request, node *corev3.Node) *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{
		Node: node, TypeUrl: r.Type.URL(), VersionInfo: r.Version, ResponseNonce: r.Nonce,
		ResourceNames: r.Names, ErrorDetail: detail(r.Err),
	}
}

func deltaRequest(r *Request, node *corev3.Node) *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{
		Node: node, TypeUrl: r.Type.URL(), ResponseNonce: r.Nonce, ErrorDetail: detail(r.Err),
		ResourceNamesSubscribe: r.Subscribe, ResourceNamesUnsubscribe: r.Unsubscribe, InitialResourceVersions: r.InitialVersions,
	}
}

// sotw reads a state-of-the-world response.
func (p *parser) sotw(m *discoveryv3.DiscoveryResponse, before *memo) *Response {
	r := &Response{URL: m.GetTypeUrl(), Version: m.GetVersionInfo(), Nonce: m.GetNonce(), ControlPlane: m.GetControlPlane().GetIdentifier()}
	t, ok := typeOf(r.URL)
	if !ok {
		return r
	}
	if env := p.env.Load(); before.env != env {
		*before = memo{env: env}
	}
	parsed := make(map[uint64]known, len(m.GetResources()))
	defer func() { before.last[t] = parsed }()
	for _, a := range m.GetResources() {
		key, x := before.recall(t, a)
		if x == nil {
			var err error
			if x, err = p.unpack(t, a); err != nil {
				r.Err = fmt.Errorf("%w in DiscoveryResponse of version %q", err, r.Version)
				return r
			}
		}
		parsed[key] = known{a, x}
		r.Resources = append(r.Resources, x)
	}
	return r
}

// delta reads an incremental response. A name that comes twice makes it unclear what the server means.
func (p *parser) delta(m *discoveryv3.DeltaDiscoveryResponse) *Response {
	r := &Response{
		URL: m.GetTypeUrl(), Version: m.GetSystemVersionInfo(), Nonce: m.GetNonce(), Removed: m.GetRemovedResources(),
		ControlPlane: m.GetControlPlane().GetIdentifier(),
	}
	t, ok := typeOf(r.URL)
	if !ok {
		return r
	}
	seen := map[string]bool{}
	for _, w := range m.GetResources() {
		x, err := p.unwrap(t, w)
		if err != nil {
			r.Err = fmt.Errorf("%w in DeltaDiscoveryResponse of version %q", err, r.Version)
			return r
		}
		if seen[x.Name] {
			r.Err = fmt.Errorf("duplicate name %s found among added/updated resources", x.Name)
			return r
		}
		seen[x.Name] = true
		r.Resources = append(r.Resources, x)
	}
	return r
}
