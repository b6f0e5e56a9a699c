package dataplane

import (
	"net/netip"
	"time"

	"github.com/guideway/guideway/dataplane/stats"
)

// Cluster is a set of hosts with the settings that act on connections to them. Immutable; Stats and
// the HostStates are shared between the versions of one cluster.
type Cluster struct {
	Name string
	// StatName is alt_stat_name or Name, with ':' replaced by '_'.
	StatName       string
	EDSServiceName string
	AddedViaAPI    bool

	ConnectTimeout time.Duration
	// BufferLimit is per_connection_buffer_limit_bytes, in bytes, upstream side.
	BufferLimit uint32
	Breakers    CircuitBreakers
	// ProxyProtocol asks for a PROXY header to the upstream; nil means none.
	ProxyProtocol *UpstreamProxyProtocol
	// BindAddress is the source address of upstream sockets; invalid means the kernel's choice.
	// A port of 0 means any.
	BindAddress netip.AddrPort
	Keepalive   *TCPKeepalive
	// CloseOnHealthFailure is close_connections_on_host_health_failure.
	CloseOnHealthFailure bool
	// UDPDraining says whether sessions of a draining host stay.
	UDPDraining UDPDraining
	// CloseAfter is the time over which the flows of a host that drains or was removed are closed, evenly
	// spread, so that their clients do not all come back at once; 0 leaves them alone.
	CloseAfter time.Duration
	// RandomHash makes picks random for proxies whose hash policy is HashFiveTuple, that is which have
	// none configured (guideway.hash: random; Envoy's behaviour).
	RandomHash bool
	// HashSourceIP is set when the cluster's policy hashes the client's address itself, whatever the
	// proxy's policy says (consistent_hashing_lb_config.hash_policy; TCP only).
	HashSourceIP bool

	// Forwarding (XDP) is ipip, gue, l2 or nat; "" for the default, ipip.
	Forwarding string
	// Track (XDP) is changed, all or off: which flows are remembered; "" is changed.
	Track string
	// LearningWindow (XDP) bounds how long a slot stays open after a change; 0 is the idle timeout.
	LearningWindow time.Duration

	// Hosts in host-set order: by priority, then locality by locality, as the balancers walk them.
	Hosts []*Host
	// Balancer picks among Hosts. Never nil.
	Balancer Balancer
	// Observer hears the outcome of connects (outlier detection); nil if nobody listens.
	Observer ConnectObserver
	Stats    *ClusterStats

	// Incarnation changes when the cluster was replaced by one with other settings (as CDS does),
	// not when only hosts, weights or health changed.
	Incarnation uint64
	// Live holds counts shared by all workers and versions.
	Live *ClusterLive
}

// HashPolicy returns the hash policy for flows to this cluster of a proxy that has policy p.
func (c *Cluster) HashPolicy(p HashPolicy) HashPolicy {
	switch {
	case c.HashSourceIP:
		return HashPolicy{Kind: HashSourceIP}
	case c.RandomHash && p.Kind == HashFiveTuple:
		return HashPolicy{Kind: HashNone}
	}
	return p
}

// UDPDraining is the policy for UDP sessions whose host is draining.
type UDPDraining uint8

const (
	// KeepSessions lets a draining host keep the sessions it has (Guideway's default).
	KeepSessions UDPDraining = iota
	// MoveSessions is Envoy's rule: the next datagram picks again.
	MoveSessions
)

// Balancer picks hosts. Implementations are safe for concurrent use and do not allocate.
type Balancer interface {
	// Pick returns a host for a new connection or session, or nil if there is none. hash is used if
	// hashed is true, else the pick is random where the policy wants a hash.
	Pick(hash uint64, hashed bool) *Host
}

// ConnectObserver is told how connects to hosts end. Calls come from data plane workers and must
// not block.
type ConnectObserver interface {
	ConnectSucceeded(*Host)
	// ConnectFailed: timeout tells a timeout from a refusal or other error.
	ConnectFailed(h *Host, timeout bool)
}

// CircuitBreakers are the thresholds of the DEFAULT priority, and those of HIGH which are only shown.
type CircuitBreakers struct {
	Default, High Thresholds
	// PerHostMaxConnections bounds connections to one host; nil means no bound.
	PerHostMaxConnections *uint32
}

// Thresholds of one routing priority. Envoy's defaults: 1024, 1024, 1024, 3.
type Thresholds struct {
	MaxConnections, MaxPendingRequests, MaxRequests, MaxRetries uint32
	TrackRemaining                                              bool
}

// UpstreamProxyProtocol is the header sent to a host after connect, before any byte of the client.
type UpstreamProxyProtocol struct {
	// Version is 1 or 2.
	Version int
	// PassAllTLVs and PassTLVs say which TLVs of the downstream header go on (version 2).
	PassAllTLVs bool
	PassTLVs    []byte
	Added       []TLV
}

// TLV is a type-length-value element of a PROXY protocol version 2 header.
type TLV struct {
	Type  byte
	Value []byte
}

// TCPKeepalive holds the socket options; a zero field keeps the kernel's value.
type TCPKeepalive struct {
	Time, Interval time.Duration
	Probes         int
}

// ClusterLive counts what is open now, over all workers.
type ClusterLive struct {
	Connections, Pending, Requests stats.Gauge
}
