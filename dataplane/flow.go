package dataplane

import "net/netip"

// Flow is one live TCP connection or UDP session with the host it is on, about 200 bytes.
type Flow struct {
	ID       FlowID
	Protocol Protocol
	// Listener and Cluster are names; Chain is the filter chain of a TCP connection, nil for UDP.
	Listener, Cluster string
	Chain             *FilterChain
	// Src is the client, Dst where it connected to.
	Src, Dst netip.AddrPort
	// Host is the identity of the host, Address where it is.
	Host    *HostState
	Address netip.AddrPort
	// Hash is what the flow was picked by; Hashed is false where the pick was random.
	Hash   uint64
	Hashed bool
	// Ends says why the flow is about to end, "" if it is not.
	Ends FlowEnd
}

// FlowID tells the flows of a process apart.
type FlowID struct{ Owner, Number uint64 }

// FlowEnd is why a change ends a flow, or takes it to another host.
type FlowEnd string

// Reasons.
const (
	EndHostRemoved     FlowEnd = "host_removed"     // UDP: its host left the cluster
	EndHostFailed      FlowEnd = "host_failed"      // UDP: its host cannot serve, the next datagram moves it
	EndHostDraining    FlowEnd = "host_draining"    // UDP with udp_draining: move
	EndCloseAfter      FlowEnd = "close_after"      // its host drains or is gone, and the cluster closes such flows
	EndHealthFailure   FlowEnd = "health_failure"   // TCP with close_connections_on_host_health_failure
	EndListenerRemoved FlowEnd = "listener_removed" // TCP goes on for the drain time
	EndListenerChanged FlowEnd = "listener_changed" // its address or socket; TCP goes on for the drain time
	EndChainRemoved    FlowEnd = "chain_removed"    // its filter chain; goes on for the drain time
	EndRouteChanged    FlowEnd = "route_changed"    // UDP: the listener sends it elsewhere
)

// FlowLister is a data plane that knows flows by themselves. LiveFlows looks at each of them, some 0.1 µs a
// flow on the worker that has it.
type FlowLister interface{ LiveFlows() []Flow }
