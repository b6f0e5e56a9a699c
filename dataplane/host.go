package dataplane

import (
	"net/netip"
	"strings"
	"sync/atomic"
)

// Health is a set of reasons why a host does not get traffic, or less of it; 0 is healthy. The names
// are those of Envoy's health_flags.
type Health uint16

// Health flags.
const (
	FailedActiveHC         Health = 1 << iota // the active check failed
	FailedOutlierCheck                        // ejected by outlier detection
	FailedEDSHealth                           // UNHEALTHY or TIMEOUT by configuration or EDS
	DegradedActiveHC                          // the check answered "degraded"
	DegradedEDSHealth                         // DEGRADED by configuration or EDS
	PendingDynamicRemoval                     // gone from discovery, still passes its checks
	PendingActiveHC                           // new, first check not done (ignore_new_hosts_until_first_hc)
	ExcludedViaImmediateHC                    // x-envoy-immediate-health-check-fail
	ActiveHCTimeout                           // the active check failed by timeout
	EDSStatusDraining                         // DRAINING by configuration or EDS
	DegradedOutlier                           // degraded by outlier detection
	AdminDraining                             // taken out by `guideway drain`
)

var healthNames = [...]string{
	"/failed_active_hc", "/failed_outlier_check", "/failed_eds_health", "/degraded_active_hc",
	"/degraded_eds_health", "/pending_dynamic_removal", "/pending_active_hc",
	"/excluded_via_immediate_hc_fail", "/active_hc_timeout", "/eds_status_draining",
	"/degraded_outlier_detection", "/guideway_draining",
}

const (
	failedFlags   = FailedActiveHC | FailedOutlierCheck | FailedEDSHealth | EDSStatusDraining | AdminDraining
	degradedFlags = DegradedActiveHC | DegradedEDSHealth | DegradedOutlier
	excludedFlags = PendingActiveHC | ExcludedViaImmediateHC | EDSStatusDraining | AdminDraining
	drainingFlags = EDSStatusDraining | AdminDraining
)

// Healthy reports whether the host belongs into tables outside panic: neither failed, nor draining,
// nor degraded.
func (h Health) Healthy() bool { return h&(failedFlags|degradedFlags) == 0 }

// Degraded reports whether the host is degraded and not failed.
func (h Health) Degraded() bool { return h&failedFlags == 0 && h&degradedFlags != 0 }

// Failed reports whether the host is failed or draining ("unhealthy" in Envoy's sense).
func (h Health) Failed() bool { return h&failedFlags != 0 }

// Draining reports whether the host gets no new flows but keeps those it has.
func (h Health) Draining() bool { return h&drainingFlags != 0 }

// Excluded reports whether the host does not count in the percentages of panic and priorities.
func (h Health) Excluded() bool { return h&excludedFlags != 0 }

// String is Envoy's text form: "healthy", or the flags one after the other.
func (h Health) String() string {
	if h == 0 {
		return "healthy"
	}
	var b strings.Builder
	for i, name := range healthNames {
		if h&(1<<i) != 0 {
			b.WriteString(name)
		}
	}
	return b.String()
}

// Locality of a host. The zero value is "no locality".
type Locality struct{ Region, Zone, SubZone string }

// Host is one endpoint of a cluster as of one snapshot. Immutable; State is shared by all
// snapshots that hold the host, so that counters and connections outlive changes of weight or health.
type Host struct {
	// Address is where connections go. An IPv4-mapped IPv6 address stays what it is.
	Address netip.AddrPort
	// AdditionalAddresses are tried after Address within one connect attempt (happy eyeballs).
	AdditionalAddresses []netip.AddrPort
	// Hostname as configured, or the DNS name it was resolved from; may be empty.
	Hostname string
	// Key is what consistent hashing hashes for this host.
	Key string
	// Weight is at least 1.
	Weight   uint32
	Locality Locality
	// Priority 0 is the highest.
	Priority uint32
	Canary   bool
	Health   Health
	// Forwarding is the host's own forwarding mode (XDP), "" for its cluster's.
	Forwarding string
	State      *HostState
}

// HostState is the part of a host that lives as long as the cluster knows it. All fields are safe
// for concurrent use. About 100 bytes a host.
type HostState struct {
	CxTotal, CxActive, CxConnectFail       atomic.Int64
	RqTotal, RqSuccess, RqError, RqTimeout atomic.Int64
	RqActive, RqPendingActive              atomic.Int64
	// UDPSessions counts live UDP sessions, which CxActive does not.
	UDPSessions atomic.Int64
	// CurrentHealth is the Health of the newest snapshot; a data plane reads it where a decision
	// about an existing flow must not wait for the next look at the snapshot.
	CurrentHealth atomic.Uint32
	// Removed is set when the host left its cluster; existing TCP connections live on.
	Removed atomic.Bool
}

// Health returns CurrentHealth as a Health.
func (s *HostState) Health() Health { return Health(s.CurrentHealth.Load()) }
