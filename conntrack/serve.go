package conntrack

// State is what has become of a backend, as far as its flows are concerned.
type State uint8

// The states of a backend.
const (
	// In the table, or fit for it.
	In State = iota
	// Degraded backends are fit; they get new flows when the others are few.
	Degraded
	// Draining backends get no new flows. By request or by EDS.
	Draining
	// FailedCheck: an active health check has found it unfit.
	FailedCheck
	// FailedOther: outlier detection ejected it, or EDS calls it UNHEALTHY or TIMEOUT.
	FailedOther
	// Panicking: failed in whatever way, but so many have that its priority
	// uses all of them (Envoy's panic threshold).
	Panicking
	// Removed from the cluster while it was fit or draining.
	Removed
	// RemovedFailing: removed from the cluster and failing.
	RemovedFailing
)

// Policy is what a cluster's configuration says about the flows of backends
// that get no new ones. Its zero value is the default.
type Policy struct {
	// CloseOnFailure is Envoy's close_connections_on_host_health_failure: a
	// backend that fails an active check loses its TCP flows.
	CloseOnFailure bool
	// MoveDraining is Guideway's udp_draining: move, and Envoy's behaviour: a
	// draining backend loses its UDP flows at their next datagram. The default
	// keeps them, as QUIC and games need.
	MoveDraining bool
}

// CanServe reports whether a backend may keep the flows it has.
//
// TCP is as in Envoy, where a connection outlives its host's health and
// membership; UDP leaves a host that does not answer, since nothing else would
// tell the client.
func CanServe(proto Proto, state State, policy Policy) bool {
	switch state {
	case In, Degraded, Panicking:
		return true
	case Draining:
		return proto == TCP || !policy.MoveDraining
	case FailedCheck:
		return proto == TCP && !policy.CloseOnFailure
	case FailedOther, Removed:
		return proto == TCP
	}
	return false // RemovedFailing, and what is no state
}
