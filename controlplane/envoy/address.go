package envoy

import (
	"net"
	"net/netip"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/guideway/guideway/dataplane"
)

type (
	listenerMessage = *listenerv3.Listener
	endpointMessage = *endpointv3.LbEndpoint
)

// addressText is address and port as written, or "".
func addressText(a *corev3.Address) string {
	s := a.GetSocketAddress()
	if s == nil {
		return ""
	}
	return net.JoinHostPort(s.GetAddress(), strconv.Itoa(int(s.GetPortValue())))
}

// ip reads the address of a socket as an IP address with its port; ok is false after a problem.
// Envoy takes an empty address in a bind configuration for any; the caller deals with that.
func (c cursor) ip(s *corev3.SocketAddress) (addr netip.AddrPort, ok bool) {
	if s.GetNamedPort() != "" {
		c.field("named_port").fail("named ports need a resolver, which Guideway does not have; use port_value")
		return addr, false
	}
	a, err := parseIP(s.GetAddress())
	if err != nil {
		c.field("address").failAs("malformed IP address: "+s.GetAddress(), "address %q is not an IP address", s.GetAddress())
		return addr, false
	}
	return netip.AddrPortFrom(a, uint16(s.GetPortValue())), true
}

// parseIP takes what inet_pton takes, and scopes.
func parseIP(s string) (netip.Addr, error) { return netip.ParseAddr(s) }

// socketAddress returns the socket address in an Address, or nil after a problem.
func (c cursor) socketAddress(a *corev3.Address) (*corev3.SocketAddress, cursor) {
	switch a.GetAddress().(type) {
	case *corev3.Address_SocketAddress:
		return a.GetSocketAddress(), c.field("socket_address")
	case *corev3.Address_Pipe:
		c.field("pipe").fail("unix sockets are not supported; use a socket_address")
	case *corev3.Address_EnvoyInternalAddress:
		c.field("envoy_internal_address").fail("internal listeners exist only inside Envoy; use a socket_address")
	default:
		c.fail("address is required")
	}
	return nil, c
}

// protocol of a socket address.
func protocolOf(s *corev3.SocketAddress) dataplane.Protocol {
	if s.GetProtocol() == corev3.SocketAddress_UDP {
		return dataplane.UDP
	}
	return dataplane.TCP
}

// cidr reads a CIDR range. A length beyond the address's is cut and bits beyond the length are dropped,
// as Envoy does.
func (c cursor) cidr(r interface{ GetAddressPrefix() string }, length uint32) (netip.Prefix, bool) {
	a, err := parseIP(r.GetAddressPrefix())
	if err != nil || a.Zone() != "" {
		c.field("address_prefix").failAs("malformed IP address: "+r.GetAddressPrefix(), "address_prefix %q is not an IP address", r.GetAddressPrefix())
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, min(int(length), a.BitLen())).Masked(), true
}

// prefixes reads a list of CIDR ranges.
func (c cursor) prefixes(rs []*corev3.CidrRange) []netip.Prefix {
	var out []netip.Prefix
	for i, r := range rs {
		if p, ok := c.at(i).cidr(r, r.GetPrefixLen().GetValue()); ok {
			out = append(out, p)
		}
	}
	return out
}
