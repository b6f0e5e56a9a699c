package health

import (
	"net/netip"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
)

// Target is one host as this package sees it. Immutable once given to SetHosts.
type Target struct {
	// State is the identity of the host: targets with equal State are the same host.
	State *dataplane.HostState
	// Address is the host's own address, as the event logs name it.
	Address netip.AddrPort
	// Check is where probes go.
	Check netip.AddrPort
	// Hostname is sent as Host or authority; "" means the checker's own, else the cluster's name.
	Hostname string
	Locality dataplane.Locality
	// Disabled is disable_active_health_check: the host is never probed and has no flags.
	Disabled bool
}

// NewTarget makes the target of a host at addr that ep describes: the health_check_config of the
// endpoint may send the probes elsewhere.
func NewTarget(state *dataplane.HostState, addr netip.AddrPort, locality dataplane.Locality, ep *model.Endpoint) *Target {
	t := &Target{State: state, Address: addr, Check: addr, Hostname: ep.HealthCheckHost, Locality: locality, Disabled: ep.DisableActiveHC}
	if ep.HealthCheckAddress.IsValid() {
		t.Check = netip.AddrPortFrom(ep.HealthCheckAddress, t.Check.Port())
	}
	if ep.HealthCheckPort != 0 {
		t.Check = netip.AddrPortFrom(t.Check.Addr(), ep.HealthCheckPort)
	}
	return t
}

// sameProbe reports whether probes of t and o go to the same place with the same words.
func (t *Target) sameProbe(o *Target) bool { return t.Check == o.Check && t.Hostname == o.Hostname }
