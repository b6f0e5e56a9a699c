package dataplane

import (
	"context"
	"time"
)

// Snapshot is everything a data plane needs to serve, as of one moment. It is immutable once it has
// been given to Apply; snapshots share unchanged Listeners and Clusters by pointer, so a data plane
// may compare pointers to find what changed.
type Snapshot struct {
	// Generation counts snapshots of this process, from 1.
	Generation uint64
	// Listeners are in configuration order.
	Listeners []*Listener
	// Clusters by name. Only active clusters are in it: a warming one is absent or still the old one.
	Clusters map[string]*Cluster
	// MaxConnections bounds live downstream TCP connections over all listeners; 0 means no bound
	// (overload manager, envoy.resource_monitors.global_downstream_max_connections).
	MaxConnections uint64
}

// Dataplane applies snapshots. Implementations are safe for concurrent use.
type Dataplane interface {
	// Apply makes s the state in force. When it returns nil every new connection, datagram or packet
	// follows s, and no host that s calls unable to serve gets another packet. When it fails, the
	// former state serves on, but for listeners named in a *ListenerError, whose
	// neighbours are applied.
	Apply(ctx context.Context, s *Snapshot) error

	// Listening reports the addresses in force, with real ports where the configuration said 0.
	Listening() []ListenerStatus

	// DrainListeners stops the named listeners (all if names is nil): at once, or when grace is
	// above 0 after that time, during which they accept as before. Established TCP connections go on;
	// UDP sockets close. Stopped listeners stay stopped.
	DrainListeners(names []string, grace time.Duration)

	// SetDraining tells the data plane that the process is being drained (healthcheck/fail), for
	// listeners whose filters close connections then.
	SetDraining(draining bool)

	// Close stops everything: listening sockets close, peers of live connections see an orderly end.
	Close() error
}

// ListenerStatus is one listener as it stands in the data plane.
type ListenerStatus struct {
	Name      string
	Addresses []ListenAddress
	Protocol  Protocol
	Draining  bool
	// Dataplane is where it runs (xdp, xdp-generic or proxy), and Reason why; "" if there is only one.
	Dataplane, Reason string
}
