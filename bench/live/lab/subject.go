package lab

import (
	"context"
	"net/netip"
	"slices"

	"github.com/guideway/guideway/bench/live"
)

// Member is a backend as a balancer is told of it.
type Member struct {
	ID       string
	Addr     netip.AddrPort
	Draining bool // gets no new flows
}

// Fleet are the backends of a balancer.
type Fleet []Member

// without returns the fleet without one member.
func (f Fleet) without(id string) Fleet {
	return slices.DeleteFunc(slices.Clone(f), func(m Member) bool { return m.ID == id })
}

// draining returns the fleet with one member draining.
func (f Fleet) draining(id string) Fleet {
	out := slices.Clone(f)
	for i := range out {
		out[i].Draining = out[i].Draining || out[i].ID == id
	}
	return out
}

// serving are the members that get new flows.
func (f Fleet) serving() Fleet {
	return slices.DeleteFunc(slices.Clone(f), func(m Member) bool { return m.Draining })
}

// Subject is a kind of balancer.
type Subject struct {
	Name string // as --subject takes it
	// About says how it balances, and how it is told of changes.
	About    string
	Networks []live.Network
	// XDP asks for interfaces on which XDP programs can send.
	XDP bool
	// Find looks for what the subject needs, and fails if that is not there, saying what is missing.
	// version is what the program says of itself.
	Find func(Options) (version string, err error)
	// Start starts it in the middle of the network, and waits until it serves the fleet.
	Start func(ctx context.Context, o Options, at Place, fleet Fleet) (Balancer, error)
}

// Balancer is a subject that runs.
type Balancer interface {
	// Apply changes the fleet, and returns when the change is in force.
	Apply(ctx context.Context, fleet Fleet) error
	// Stop ends it, waits for that, and removes what it left.
	Stop() error
}

// Options are what subjects want to know of the machine.
type Options struct {
	// Program is the path of Guideway.
	Program string
	// Envoy is the path of Envoy; empty: looked for in PATH and in .venv/bin.
	Envoy string
}

// Place is where a balancer runs.
type Place struct {
	VIP netip.AddrPort // TCP and UDP
	Dir string         // its own, for configuration and logs
	// Do runs a function in the balancer's network namespace.
	Do func(func() error) error
}

// Subjects are all there are, in the order of the report.
func Subjects() []Subject {
	return []Subject{
		guidewayXDP("changed"), guidewayXDP("all"), guidewayXDP("off"),
		guidewayProxy, envoyProxy, haproxyRuntime, haproxyReload, nginxStream, nftables,
	}
}
