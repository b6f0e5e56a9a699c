package model

import (
	"net/netip"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
	"google.golang.org/protobuf/proto"
)

// Listener is a listener as the data plane wants it, with its source message for config_dump.
type Listener struct {
	*dataplane.Listener
	Source proto.Message
}

// Discovery is how a cluster finds its hosts.
type Discovery uint8

// Kinds of discovery.
const (
	Static Discovery = iota
	StrictDNS
	LogicalDNS
	EDS
)

// String returns Envoy's spelling.
func (d Discovery) String() string {
	return [...]string{"STATIC", "STRICT_DNS", "LOGICAL_DNS", "EDS"}[d]
}

// Cluster is the desired state of one cluster.
type Cluster struct {
	Source    proto.Message // *clusterv3.Cluster
	Discovery Discovery
	// Settings are all that a data plane needs but hosts, balancer, stats and live counts.
	Settings dataplane.Cluster
	LB       LBPolicy
	// Assignment for all but EDS clusters.
	Assignment Assignment
	DNS        DNS
	// EDS source and resource name, for EDS clusters.
	EDS            *ConfigSource
	EDSServiceName string

	HealthChecks []HealthCheck
	Outlier      *Outlier // nil if none
	// IgnoreHealthOnHostRemoval, IgnoreNewHostsUntilFirstHC: as in Envoy.
	IgnoreHealthOnHostRemoval, IgnoreNewHostsUntilFirstHC bool
	WaitForWarmOnInit                                     bool
	// PanicThreshold in whole percent.
	PanicThreshold uint32
	// SettingsHash covers everything but Assignment; ContentHash covers all.
	SettingsHash, ContentHash uint64
	// HTTP2 is set when typed_extension_protocol_options ask for it (gRPC health checks, xDS).
	HTTP2 bool
	// Guideway are our own settings (metadata.filter_metadata.guideway).
	Guideway ClusterSettings
}

// ClusterSettings are Guideway's own settings of a cluster.
type ClusterSettings struct {
	// Forwarding of the XDP data plane: ipip, gue, l2 or nat; "" for the default.
	Forwarding string
	// Track is changed, all or off: which flows are remembered (see package conntrack).
	Track string
	// LearningWindow bounds how long a slot stays open after a change; 0 means the idle timeout.
	LearningWindow time.Duration
	UDPDraining    dataplane.UDPDraining
	// CloseAfter is the window over which flows of draining and removed hosts are closed; 0 for never.
	CloseAfter time.Duration
	// HoldDown keeps a host that failed its checks out for a while; off if Base is 0.
	HoldDown HoldDown
	// RandomHash makes the pick random where the proxy has no hash policy, as Envoy does.
	RandomHash bool
}

// HoldDown is guideway.hold_down: a failed host stays out for Base, doubled with each failure that follows
// soon, up to Max.
type HoldDown struct{ Base, Max time.Duration }

// Assignment is a ClusterLoadAssignment.
type Assignment struct {
	ClusterName string
	Localities  []LocalityEndpoints
	// OverprovisioningFactor in percent, default 140.
	OverprovisioningFactor uint32
	WeightedPriorityHealth bool
	StaleAfter             time.Duration
}

// LocalityEndpoints is one entry of endpoints[].
type LocalityEndpoints struct {
	Locality dataplane.Locality
	// HasLocality tells an empty locality message from none.
	HasLocality bool
	// Weight of the locality; HasWeight tells 0 from absent.
	Weight    uint32
	HasWeight bool
	Priority  uint32
	Endpoints []Endpoint
}

// Endpoint is one lb_endpoint.
type Endpoint struct {
	// Address is valid for IP endpoints; Host and Port are set for DNS names.
	Address    netip.AddrPort
	Host       string
	Port       uint16
	Additional []netip.AddrPort
	Hostname   string
	// HashKey is metadata envoy.lb hash_key, "" if none.
	HashKey string
	Canary  bool
	Weight  uint32
	// Health is 0 or one of FailedEDSHealth, EDSStatusDraining, DegradedEDSHealth.
	Health dataplane.Health
	// HealthStatus is the configured status by name (HEALTHY, UNHEALTHY, TIMEOUT, ...), for display.
	HealthStatus string
	// HealthCheck overrides, from health_check_config.
	HealthCheckPort    uint16
	HealthCheckAddress netip.Addr
	HealthCheckHost    string
	DisableActiveHC    bool
	// Forwarding is the endpoint's own metadata guideway.forwarding, "" if none.
	Forwarding string
}

// Policy is a load balancing policy, LBPolicy one with its settings; see package lb.
type (
	Policy   = lb.Policy
	LBPolicy = lb.Config
)

// Policies.
const (
	RoundRobin   = lb.RoundRobin
	LeastRequest = lb.LeastRequest
	Random       = lb.Random
	RingHash     = lb.RingHash
	Maglev       = lb.Maglev
)

// DNS settings of DNS clusters.
type DNS struct {
	RefreshRate, FailureRefreshBase, FailureRefreshMax, Jitter time.Duration
	RespectTTL                                                 bool
	Family                                                     DNSFamily
	Resolvers                                                  []netip.AddrPort // empty: the system's
	UseTCP                                                     bool
}

// DNSFamily is dns_lookup_family.
type DNSFamily uint8

// DNS families.
const (
	AutoFamily DNSFamily = iota
	V4Only
	V6Only
	V4Preferred
	AllFamilies
)

// HealthCheck is one active checker.
type HealthCheck struct {
	Timeout, Interval                                             time.Duration
	InitialJitter, IntervalJitter                                 time.Duration
	IntervalJitterPercent                                         uint32
	UnhealthyThreshold, HealthyThreshold                          uint32
	UnhealthyInterval, UnhealthyEdgeInterval, HealthyEdgeInterval time.Duration
	NoTrafficInterval, NoTrafficHealthyInterval                   time.Duration
	ReuseConnection, AlwaysLogFailures, AlwaysLogSuccess          bool
	EventLogPath                                                  string
	// Exactly one is set.
	TCP  *TCPCheck
	HTTP *HTTPCheck
	GRPC *GRPCCheck
}

// TCPCheck connects, and if Receive is not empty sends Send and looks for the blocks in order.
type TCPCheck struct {
	Send    []byte
	Receive [][]byte
	// ProxyProtocol is 0, 1 or 2.
	ProxyProtocol int
}

// HTTPCheck is a request whose status decides.
type HTTPCheck struct {
	Host, Path, Method  string
	Expected, Retriable []StatusRange
	AddHeaders          []Header
	RemoveHeaders       []string
	Receive             [][]byte
	HTTP2               bool
}

// StatusRange is half-open: [Start, End).
type StatusRange struct{ Start, End int64 }

// Header is one header to add; Append adds beside an existing one instead of replacing it.
type Header struct {
	Name, Value string
	Append      bool
}

// GRPCCheck is grpc.health.v1.Health/Check.
type GRPCCheck struct {
	Service, Authority string
	Metadata           []Header
}

// Outlier is outlier_detection.
type Outlier struct {
	Interval, BaseEjectionTime, MaxEjectionTime, MaxEjectionTimeJitter time.Duration
	MaxEjectionPercent                                                 uint32
	Consecutive5xx, ConsecutiveGatewayFailure, ConsecutiveLocalOrigin  uint32
	Enforcing5xx, EnforcingGateway, EnforcingLocalOrigin               uint32 // percent
	SplitLocalOrigin, AlwaysEjectOneHost                               bool
	SuccessfulActiveCheckUneject                                       bool
}
