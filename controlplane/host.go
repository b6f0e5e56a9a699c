package controlplane

import (
	"net/netip"
	"slices"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/maglev"
)

// hostKey tells the hosts of a cluster apart. STATIC clusters may name an address twice, and two
// DNS names may resolve to one address; all of these are hosts of their own.
type hostKey struct {
	name    string // the DNS name an address came from, "" otherwise
	address netip.AddrPort
	copy    int // counts equal ones
}

// host is what the control loop knows of one host over all its updates.
type host struct {
	key      hostKey
	endpoint model.Endpoint // as discovered last, with its address resolved
	locality dataplane.Locality
	priority uint32

	// Reasons for not being healthy, by who gave them.
	checked, ejected, drained dataplane.Health
	// leaving is set while the host is gone from discovery but passes its checks.
	leaving bool

	state *dataplane.HostState
	// changed is set when endpoint, locality or priority did since current was made.
	changed bool
	// current is the Host of the newest snapshot, reused while nothing of it changed.
	current *dataplane.Host
}

func (h *host) health() dataplane.Health {
	flags := h.endpoint.Health | h.checked | h.ejected | h.drained
	if h.leaving {
		flags |= dataplane.PendingDynamicRemoval
	}
	return flags
}

// view returns the host for the next snapshot.
func (h *host) view(useHostname bool) *dataplane.Host {
	health := h.health()
	if h.current != nil && !h.changed && h.current.Health == health {
		return h.current
	}
	h.changed = false
	e := &h.endpoint
	v := dataplane.Host{
		Address:             e.Address,
		AdditionalAddresses: e.Additional,
		Hostname:            e.Hostname,
		Key:                 hashKey(e, useHostname),
		Weight:              e.Weight,
		Locality:            h.locality,
		Priority:            h.priority,
		Canary:              e.Canary,
		Forwarding:          e.Forwarding,
		Health:              health,
		State:               h.state,
	}
	if c := h.current; c == nil || !sameHost(c, &v) {
		h.current = &v
	}
	return h.current
}

func sameHost(a, b *dataplane.Host) bool {
	return a.Address == b.Address && a.Hostname == b.Hostname && a.Key == b.Key && a.Weight == b.Weight &&
		a.Locality == b.Locality && a.Priority == b.Priority && a.Canary == b.Canary && a.Health == b.Health &&
		a.Forwarding == b.Forwarding && slices.Equal(a.AdditionalAddresses, b.AdditionalAddresses)
}

// hashKey is the string that is hashed for an endpoint: its hash_key, its host name if the policy
// says so (even an empty one), else its address.
func hashKey(e *model.Endpoint, useHostname bool) string {
	switch {
	case e.HashKey != "":
		return e.HashKey
	case useHostname:
		return e.Hostname
	}
	return maglev.HostKey(e.Address)
}
