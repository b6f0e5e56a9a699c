package dataplane

import (
	"net/netip"
	"time"

	"github.com/guideway/guideway/dataplane/accesslog"
)

// Listener is one configured listener. Immutable. Two Listeners with equal Hash are the same
// configuration; equal SocketHash means that only filter chains differ.
type Listener struct {
	Name string
	// StatName is what stands between "listener." and the counter: stat_prefix or the first address.
	StatName  string
	Protocol  Protocol
	Addresses []ListenAddress

	ReusePort, Freebind, Transparent bool
	// Backlog of listen(2); 0 means the system's maximum.
	Backlog       int
	SocketOptions []SocketOption
	Keepalive     *TCPKeepalive
	// BufferLimit is per_connection_buffer_limit_bytes, in bytes, downstream side.
	BufferLimit uint32
	// ConnectionLimit bounds live connections of this listener; nil means no bound
	// (runtime key envoy.resource_limits.listener.<name>.connection_limit).
	ConnectionLimit       *uint64
	IgnoreGlobalConnLimit bool
	// DrainModifyOnly is drain_type MODIFY_ONLY.
	DrainModifyOnly bool
	Inbound         bool
	AddedViaAPI     bool

	// Dataplane is the listener's own choice: auto, xdp, xdp-generic or proxy; "" for the instance's.
	Dataplane string

	// ListenerFilters run in order before a chain is chosen (TCP).
	ListenerFilters []ListenerFilter
	// FiltersTimeout bounds them; 0 means no bound.
	FiltersTimeout           time.Duration
	ContinueOnFiltersTimeout bool
	// AccessLog gets connections that no filter chain took.
	AccessLog []*accesslog.Log

	Chains       []*FilterChain
	DefaultChain *FilterChain // nil if none
	// Matcher chooses among Chains and DefaultChain; nil for UDP.
	Matcher *ChainMatcher

	// UDP is set for UDP listeners, and only for them.
	UDP *UDPProxy

	Hash, SocketHash uint64
}

// ListenAddress is one socket address of a listener.
type ListenAddress struct {
	Addr netip.AddrPort
	// IPv4Compat makes an IPv6 socket take IPv4 as well.
	IPv4Compat bool
}

// SocketOption is a raw setsockopt applied at a given state of the socket.
type SocketOption struct {
	Level, Name int
	Int         int
	Bytes       []byte // used if not nil
	State       SocketState
}

// SocketState tells when a socket option is set.
type SocketState uint8

// Socket states.
const (
	StatePrebind SocketState = iota
	StateBound
	StateListening
)

// ListenerFilter is one of ProxyProtocolFilter or TLSInspector.
type ListenerFilter interface{ listenerFilter() }

// ProxyProtocolFilter reads a PROXY protocol header from the client.
type ProxyProtocolFilter struct {
	// StatPrefix is "" or the configured one without dots at its ends.
	StatPrefix             string
	AllowWithoutHeader     bool
	DisallowV1, DisallowV2 bool
	// KeepAllTLVs and KeepTLVs say which TLVs are kept for the upstream header (pass_through_tlvs).
	KeepAllTLVs bool
	KeepTLVs    []byte
}

// TLSInspector reads SNI and ALPN from a ClientHello without terminating TLS.
type TLSInspector struct{}

func (*ProxyProtocolFilter) listenerFilter() {}
func (*TLSInspector) listenerFilter()        {}

// FilterChain is a terminal tcp_proxy with the filters before it.
type FilterChain struct {
	Name  string
	Match ChainMatch
	// Filters run in order before Proxy.
	Filters []NetworkFilter
	// Proxy is nil for a chain without filters: its connections are closed at once, and counted as
	// missing a network filter (as Envoy 1.40 does).
	Proxy *TCPProxy
	// Hash of the chain's configuration: equal chains keep their connections over updates.
	Hash uint64
}

// NetworkFilter is one of ConnectionLimit or RBAC.
type NetworkFilter interface{ networkFilter() }

// ConnectionLimit is envoy.filters.network.connection_limit: surplus connections are closed after Delay.
type ConnectionLimit struct {
	StatPrefix string
	Max        uint64
	Delay      time.Duration
}

// RBAC is envoy.filters.network.rbac: decided at the client's first byte.
type RBAC struct {
	StatPrefix string
	// Allowed decides; policy is the name of the policy that matched, or "". shadow rules are not kept.
	Allowed func(ConnAddrs) (ok bool, policy string)
}

func (*ConnectionLimit) networkFilter() {}
func (*RBAC) networkFilter()            {}

// ConnAddrs are the addresses of a downstream connection. Remote and Local follow a PROXY header,
// Direct is the socket's peer. IPv4 peers of dual-stack sockets are unmapped.
type ConnAddrs struct {
	Remote, Local, Direct netip.AddrPort
	ServerName            string
}

// TCPProxy is envoy.filters.network.tcp_proxy.
type TCPProxy struct {
	StatPrefix string
	// Clusters with weights; one entry for a plain cluster. Picked at random anew for each attempt.
	Clusters []WeightedCluster
	// TotalWeight is the sum of weights.
	TotalWeight uint64
	Hash        HashPolicy
	// IdleTimeout 0 means off.
	IdleTimeout        time.Duration
	MaxConnectAttempts uint32
	// Backoff between attempts; nil means at once.
	Backoff *Backoff
	// MaxDuration of a downstream connection, 0 means off; DurationJitter is in percent of it, added.
	MaxDuration    time.Duration
	DurationJitter float64

	AccessLog      []*accesslog.Log
	LogOnStart     bool
	LogOnConnected bool
	// LogInterval writes a line periodically; 0 means never.
	LogInterval time.Duration

	// OnDownstreamData delays the connect until the client has sent a byte; up to MaxEarlyData bytes
	// are read before the upstream is connected.
	OnDownstreamData bool
	MaxEarlyData     uint32
	CheckDrainClose  bool
	// TLVs are added to the upstream PROXY v2 header; TLVMerge says how they meet those of the client.
	TLVs     []TLV
	TLVMerge TLVMerge
}

// TLVMerge is proxy_protocol_tlv_merge_policy.
type TLVMerge uint8

// Merge policies.
const (
	AddIfAbsent TLVMerge = iota
	OverwriteByType
	AppendIfExists
)

// WeightedCluster names a cluster and its share.
type WeightedCluster struct {
	Name   string
	Weight uint32
}

// Backoff between connect attempts: uniform in [0, min(Max, Base*2^n - 1)] as Envoy's jittered backoff.
type Backoff struct{ Base, Max time.Duration }

// HashPolicy says what a flow's hash is made of.
type HashPolicy struct {
	Kind HashKind
	// Key is hashed for HashKey.
	Key string
	// Seed of the 5-tuple hash.
	Seed uint64
}

// HashKind enumerates hash policies.
type HashKind uint8

const (
	// HashFiveTuple is Guideway's own: XXH64 of the 5-tuple (conntrack.Hash5Tuple); used when the
	// configuration has no policy.
	HashFiveTuple HashKind = iota
	// HashSourceIP is XXH64 of the client address as text, as Envoy's source_ip.
	HashSourceIP
	// HashKey is XXH64 of a constant.
	HashKey
	// HashNone is Envoy's behaviour without a policy: a random number for each flow.
	HashNone
)

// UDPProxy is envoy.filters.udp_listener.udp_proxy.
type UDPProxy struct {
	StatPrefix string
	// Route names the cluster for a client; "" means none.
	Route func(src, dst netip.AddrPort) string
	// Clusters lists every cluster that Route may name.
	Clusters []string
	// Only is the cluster of every client, "" if Route looks at addresses.
	Only        string
	Hash        HashPolicy
	IdleTimeout time.Duration
	// PerPacket picks a host for each datagram; sessions are then keyed by addresses and host.
	PerPacket bool
	// MaxRxDownstream and MaxRxUpstream bound datagrams, in bytes; longer ones are dropped and
	// counted. UpstreamGRO lifts the upstream bound as in Envoy.
	MaxRxDownstream, MaxRxUpstream uint32
	DownstreamGRO, UpstreamGRO     bool
	UseOriginalSrcIP               bool
	// AccessLog gets a line per session, ProxyAccessLog one when the listener ends.
	AccessLog, ProxyAccessLog  []*accesslog.Log
	LogOnStart, LogOnConnected bool
	LogInterval                time.Duration
}
