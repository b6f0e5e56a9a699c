package dataplane

import "github.com/guideway/guideway/conntrack"

// State sorts health flags into the states of conntrack's rules. A host that fails while it drains
// has failed. Panic is not in it: in Envoy too it only decides where new sessions go, and a session that
// is picked for again stays unless that yields a fit host.
func (h Health) State() conntrack.State {
	switch failing := h &^ drainingFlags; {
	case failing&FailedActiveHC != 0:
		return conntrack.FailedCheck
	case failing.Failed():
		return conntrack.FailedOther
	case h.Draining():
		return conntrack.Draining
	case h.Degraded():
		return conntrack.Degraded
	}
	return conntrack.In
}

// KeepsSessions reports whether a host of that health keeps the UDP sessions it has.
func (c *Cluster) KeepsSessions(h Health) bool {
	return conntrack.CanServe(conntrack.UDP, h.State(), conntrack.Policy{MoveDraining: c.UDPDraining == MoveSessions})
}
