package xdp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
)

// Supports reports why XDP cannot serve a listener as it is configured, nil if it can. Hosts count only as
// they are now: those that come later and cannot be reached are left out of the tables.
func Supports(l *dataplane.Listener, clusters map[string]*dataplane.Cluster) error {
	for _, a := range l.Addresses {
		switch addr := a.Addr.Addr(); {
		case addr.IsUnspecified():
			return errors.New("it listens on every address, and XDP takes packets for addresses that it is told")
		case addr.IsLoopback():
			return fmt.Errorf("it listens on %s, which no interface sees packets for", addr)
		case addr.Is4In6() || addr.Zone() != "" || addr.IsMulticast():
			return fmt.Errorf("packets do not carry the address %s", addr)
		case a.Addr.Port() == 0:
			return errors.New("it listens on any free port")
		}
	}
	if l.ConnectionLimit != nil {
		return errors.New("it has a connection limit")
	}
	if l.Transparent {
		return errors.New("it is transparent")
	}
	var (
		names []string
		hash  dataplane.HashPolicy
	)
	if l.Protocol == dataplane.UDP {
		u := l.UDP
		switch {
		case u.Only == "":
			return errors.New("its route looks at the client's address")
		case u.PerPacket:
			return errors.New("it picks a host for each datagram")
		case len(u.AccessLog)+len(u.ProxyAccessLog) > 0:
			return errors.New("it has an access log")
		}
		names, hash = []string{u.Only}, u.Hash
	} else {
		p, err := onlyProxy(l)
		if err != nil {
			return err
		}
		for _, w := range p.Clusters {
			names = append(names, w.Name)
		}
		hash = p.Hash
	}
	var policy *dataplane.HashPolicy
	for _, name := range names {
		c := clusters[name]
		if c == nil {
			continue // it has no hosts yet, or never
		}
		if err := supportsCluster(l, c); err != nil {
			return fmt.Errorf("cluster %q: %w", name, err)
		}
		h := c.HashPolicy(hash)
		if h.Kind == dataplane.HashNone {
			return fmt.Errorf("cluster %q: it picks at random (guideway.hash: random)", name)
		}
		if policy != nil && *policy != h {
			return errors.New("its clusters hash in different ways")
		}
		policy = &h
	}
	return nil
}

// onlyProxy returns the tcp_proxy that every connection of a listener gets.
func onlyProxy(l *dataplane.Listener) (*dataplane.TCPProxy, error) {
	if len(l.ListenerFilters) > 0 {
		return nil, errors.New("it has listener filters (PROXY protocol, TLS inspection), which look into connections")
	}
	var chain *dataplane.FilterChain
	switch {
	case len(l.Chains) == 0 && l.DefaultChain != nil:
		chain = l.DefaultChain
	case len(l.Chains) == 1 && l.Chains[0].Match.IsEmpty():
		chain = l.Chains[0]
	default:
		return nil, errors.New("its filter chains are chosen by what matches a connection")
	}
	switch p := chain.Proxy; {
	case len(chain.Filters) > 0:
		return nil, errors.New("it has filters before tcp_proxy")
	case p == nil:
		return nil, errors.New("it has no tcp_proxy")
	case len(p.AccessLog)+len(l.AccessLog) > 0:
		return nil, errors.New("it has an access log")
	case p.OnDownstreamData:
		return nil, errors.New("it connects once the client has sent something")
	case p.MaxDuration > 0:
		return nil, errors.New("it bounds how long connections last")
	default:
		return p, nil
	}
}

func supportsCluster(l *dataplane.Listener, c *dataplane.Cluster) error {
	if c.ProxyProtocol != nil {
		return errors.New("hosts want a PROXY header")
	}
	if len(lb.Tables(c.Balancer)) == 0 {
		return errors.New("its policy is not MAGLEV, and XDP picks by Maglev tables alone")
	}
	if lb.Bounded(c.Balancer) {
		return errors.New("it moves flows away from busy hosts (hash_balance_factor)")
	}
	for _, h := range c.Hosts {
		if err := reachable(l, c, h); err != nil {
			return err
		}
	}
	return nil
}

// reachable reports why the way of forwarding cannot bring a listener's packets to a host.
func reachable(l *dataplane.Listener, c *dataplane.Cluster, h *dataplane.Host) error {
	how := forwardingOf(c, h)
	for _, a := range l.Addresses {
		if how != "nat" && h.Address.Port() != a.Addr.Port() {
			return fmt.Errorf("host %s has another port than the listener (%d), and %s leaves ports alone: set forwarding nat, or give the host the listener's port", h.Address, a.Addr.Port(), how)
		}
		if how == "nat" && h.Address.Addr().Unmap().Is4() != a.Addr.Addr().Is4() {
			return fmt.Errorf("host %s is of another family than the listener's %s, and nat does not translate between families: set forwarding ipip", h.Address, a.Addr.Addr())
		}
	}
	if a := h.Address.Addr(); a.Zone() != "" || a.IsLoopback() {
		return fmt.Errorf("host %s is not reached through an interface", h.Address)
	}
	return nil
}

// forwardingOf returns how packets get to a host: ipip, gue, l2 or nat.
func forwardingOf(c *dataplane.Cluster, h *dataplane.Host) string {
	switch {
	case h.Forwarding != "":
		return h.Forwarding
	case c.Forwarding != "":
		return c.Forwarding
	}
	return "ipip"
}

// keysOf returns the keys of a listener's addresses.
func keysOf(l *dataplane.Listener) []serviceKey {
	keys := make([]serviceKey, 0, len(l.Addresses))
	for _, a := range l.Addresses {
		keys = append(keys, serviceKey{netip.AddrPortFrom(a.Addr.Addr(), a.Addr.Port()), uint8(l.Protocol)})
	}
	return keys
}
