package dataplane

import "net/netip"

// ChainMatch is filter_chain_match. Empty criteria match everything.
type ChainMatch struct {
	DestinationPort      uint16 // 0 means any
	PrefixRanges         []netip.Prefix
	ServerNames          []string
	TransportProtocol    string
	ApplicationProtocols []string
	DirectSourceRanges   []netip.Prefix
	SourceType           SourceType
	SourceRanges         []netip.Prefix
	SourcePorts          []uint16
}

// SourceType restricts a chain to local or external clients.
type SourceType uint8

// Source types.
const (
	AnySource SourceType = iota
	SameIPOrLoopback
	ExternalSource
)

// ChainMatcher chooses the filter chain of a connection by Envoy's fixed order of criteria.
type ChainMatcher struct{}

// Find returns the chain for a connection, or nil if none matches and there is no default chain.
// transport and protocols are what the TLS inspector found ("tls" or "raw_buffer", ALPN).
func (m *ChainMatcher) Find(a ConnAddrs, transport string, protocols []string) *FilterChain {
	return nil
}

// IsEmpty reports whether the match asks for nothing, so that every connection fits.
func (m *ChainMatch) IsEmpty() bool {
	return m.DestinationPort == 0 && m.TransportProtocol == "" && m.SourceType == AnySource &&
		len(m.PrefixRanges) == 0 && len(m.ServerNames) == 0 && len(m.ApplicationProtocols) == 0 &&
		len(m.DirectSourceRanges) == 0 && len(m.SourceRanges) == 0 && len(m.SourcePorts) == 0
}
