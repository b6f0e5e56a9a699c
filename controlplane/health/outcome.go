package health

// failureKind says how a check failed. The names are those of Envoy's HealthCheckFailureType.
type failureKind uint8

const (
	failedActive  failureKind = iota // the host answered, and the answer says no
	failedNetwork                    // no connection, or it broke, or what came was not the protocol
	failedTimeout                    // no answer in time
)

func (k failureKind) String() string {
	return [...]string{"ACTIVE", "NETWORK", "NETWORK_TIMEOUT"}[k]
}

// network reports whether the failure says nothing about the host's own opinion of itself; such
// failures count up to the unhealthy threshold.
func (k failureKind) network() bool { return k == failedNetwork || k == failedTimeout }

// outcome is how one probe ended.
type outcome struct {
	ok       bool
	degraded bool        // ok, but the host asks for less traffic
	kind     failureKind // if not ok
	// retriable makes a failedActive count to the threshold instead of deciding alone.
	retriable bool
	// excluded is set when the host asked to be left out (x-envoy-immediate-health-check-fail).
	excluded bool
	// status is the HTTP status of a failedActive answer, 0 if there was none.
	status int
	// lostIdle tells that the connection kept from the last check was closed by the host meanwhile,
	// which for TCP is a failure of its own, before what the probe then found on a new connection.
	lostIdle bool
}

func failed(kind failureKind) outcome { return outcome{kind: kind} }
