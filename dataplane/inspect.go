package dataplane

import (
	"context"
	"io"
	"net/netip"
	"time"
)

// Inspector tells what a data plane does, for people. Implementations are safe for concurrent use.
type Inspector interface {
	// Services lists the listeners in configuration order.
	Services() []ServiceStatus
	// Flows yields the flows that are remembered, in no order, until yield returns false.
	Flows(ctx context.Context, yield func(FlowStatus) bool) error
	// Capture writes the packets of a listener, before and after forwarding, as pcap-ng until ctx ends or limit
	// packets have been written (0: no limit). One packet in every is taken; 0 is 1.
	Capture(ctx context.Context, listener string, every uint32, limit int, w io.Writer) error
}

// ServiceStatus is one listener as it is served.
type ServiceStatus struct {
	Listener  string           `json:"listener"`
	Addresses []netip.AddrPort `json:"addresses"`
	Protocol  string           `json:"protocol"`
	// Dataplane is xdp, xdp-generic or proxy, and Reason why.
	Dataplane string `json:"dataplane"`
	Reason    string `json:"reason"`
	// What follows is known of listeners in XDP only.
	XDP *XDPService `json:"xdp,omitempty"`
}

// XDPService is a service in the XDP maps.
type XDPService struct {
	InSync bool   `json:"in_sync"`
	Error  string `json:"error,omitempty"`
	Track  string `json:"track"`
	Hash   string `json:"hash"`
	// Slots of all tables and classes; Open and Excepted ones make packets look their flow up.
	Slots    int `json:"slots"`
	Open     int `json:"open"`
	Excepted int `json:"excepted"`
	// Digest is the XXH64 of the slots of all arrays, in order.
	Digest   string        `json:"digest"`
	Packets  uint64        `json:"packets"`
	Bytes    uint64        `json:"bytes"`
	Flows    uint64        `json:"flows"`
	Lookups  uint64        `json:"flow_lookups"`
	Dropped  uint64        `json:"dropped"`
	Backends []BackendInfo `json:"backends"`
}

// BackendInfo is a backend of an XDP service.
type BackendInfo struct {
	Cluster    string         `json:"cluster"`
	Address    netip.AddrPort `json:"address"`
	Forwarding string         `json:"forwarding"`
	Health     string         `json:"health"`
	// Serves: it may keep the flows it has. Lingers: it left the cluster, and has flows still.
	Serves  bool `json:"serves"`
	Lingers bool `json:"lingers"`
	// Slots that it owns.
	Slots int `json:"slots"`
	// Interface, next hop and its state; Problem says why packets cannot be sent.
	Interface string     `json:"interface,omitempty"`
	NextHop   netip.Addr `json:"next_hop,omitzero"`
	MAC       string     `json:"mac,omitempty"`
	Neighbour string     `json:"neighbour,omitempty"`
	MTU       int        `json:"mtu,omitempty"`
	Problem   string     `json:"problem,omitempty"`
	Packets   uint64     `json:"packets"`
	Bytes     uint64     `json:"bytes"`
	Flows     uint64     `json:"flows"`
}

// FlowStatus is a remembered flow.
type FlowStatus struct {
	Listener string         `json:"listener"`
	Protocol string         `json:"protocol"`
	Client   netip.AddrPort `json:"client"`
	VIP      netip.AddrPort `json:"vip"`
	Backend  netip.AddrPort `json:"backend"`
	// Idle is how long ago its last packet came.
	Idle time.Duration `json:"idle_ns"`
	// Void flows are not with their backend any more: it has ceased to serve, or they were idle for too long.
	Void     bool `json:"void,omitempty"`
	HalfOpen bool `json:"half_open,omitempty"`
	NAT      bool `json:"nat,omitempty"`
}
