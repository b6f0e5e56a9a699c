package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ChainMatch is filter_chain_match. Empty criteria match everything.
type ChainMatch struct {
	DestinationPort uint16 // 0 means any
	PrefixRanges    []netip.Prefix
	// ServerNames are exact names, or "*.example.com" for any depth below a domain; in lower case.
	ServerNames          []string
	TransportProtocol    string
	ApplicationProtocols []string
	DirectSourceRanges   []netip.Prefix
	SourceType           SourceType
	SourceRanges         []netip.Prefix
	SourcePorts          []uint16
}

// IsEmpty reports whether the match asks for nothing, so that every connection fits.
func (m *ChainMatch) IsEmpty() bool {
	return m.DestinationPort == 0 && m.TransportProtocol == "" && m.SourceType == AnySource &&
		len(m.PrefixRanges) == 0 && len(m.ServerNames) == 0 && len(m.ApplicationProtocols) == 0 &&
		len(m.DirectSourceRanges) == 0 && len(m.SourceRanges) == 0 && len(m.SourcePorts) == 0
}

// SourceType restricts a chain to local or external clients.
type SourceType uint8

// Source types.
const (
	AnySource SourceType = iota
	SameIPOrLoopback
	ExternalSource
)

// ChainMatcher chooses the filter chain of a connection. Criteria are looked at in Envoy's fixed
// order: destination port, destination address, server name, transport protocol, application
// protocols, direct source address, source type, source address, source port. At each step the most
// specific entry decides, and there is no way back: if nothing below it matches, no chain does.
// Immutable and safe for concurrent use.
type ChainMatcher struct {
	root  matchNode
	chain *FilterChain // default
}

// maxChainRules bounds the combinations of criteria in one listener.
const maxChainRules = 1 << 20

// ChainConflict tells of two chains that take the same connections.
type ChainConflict struct{ First, Second int }

func (e *ChainConflict) Error() string {
	return fmt.Sprintf("filter chains %d and %d match the same connections", e.First, e.Second)
}

// matchNode is one step for those connections that have come so far; which of its tables is used
// depends on the step.
type matchNode struct {
	ports    map[uint16]*matchNode
	words    map[string]*matchNode
	prefixes prefixNodes
	types    [ExternalSource + 1]*matchNode
	chain    *FilterChain
	index    int // of chain
}

// prefixNodes finds the longest prefix that holds an address.
type prefixNodes struct {
	nodes map[netip.Prefix]*matchNode
	// Lengths in use, longest first.
	bits4, bits6 []int
}

func (p *prefixNodes) add(prefix netip.Prefix) *matchNode {
	if n := p.nodes[prefix]; n != nil {
		return n
	}
	if p.nodes == nil {
		p.nodes = map[netip.Prefix]*matchNode{}
	}
	n := &matchNode{}
	p.nodes[prefix] = n
	bits := &p.bits6
	if prefix.Addr().Is4() {
		bits = &p.bits4
	}
	if !slices.Contains(*bits, prefix.Bits()) {
		*bits = append(*bits, prefix.Bits())
		slices.SortFunc(*bits, func(a, b int) int { return b - a })
	}
	return n
}

func (p *prefixNodes) find(a netip.Addr) *matchNode {
	bits := p.bits6
	if a.Is4() {
		bits = p.bits4
	}
	for _, b := range bits {
		prefix, err := a.WithZone("").Prefix(b)
		if err != nil {
			continue
		}
		if n := p.nodes[prefix]; n != nil {
			return n
		}
	}
	return nil
}

// NewChainMatcher builds the matcher of a listener. The error is a *ChainConflict if two chains take
// the same connections. fallback may be nil.
func NewChainMatcher(chains []*FilterChain, fallback *FilterChain) (*ChainMatcher, error) {
	m := &ChainMatcher{chain: fallback}
	b := chainBuilder{}
	for i, c := range chains {
		b.chain, b.index = c, i
		if err := b.add(&m.root, 0); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// chainBuilder enters chains into the nodes, one step after the other.
type chainBuilder struct {
	chain *FilterChain
	index int
	rules int
}

// everywhere is what no address range means.
var everywhere = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

func (b *chainBuilder) add(n *matchNode, step int) error {
	match := &b.chain.Match
	switch step {
	case 0:
		return b.port(n, match.DestinationPort, step)
	case 1:
		return b.ranges(n, match.PrefixRanges, step)
	case 2:
		return b.each(n, match.ServerNames, step)
	case 3:
		return b.word(n, match.TransportProtocol, step)
	case 4:
		return b.each(n, match.ApplicationProtocols, step)
	case 5:
		return b.ranges(n, match.DirectSourceRanges, step)
	case 6:
		next := &n.types[match.SourceType]
		if *next == nil {
			*next = &matchNode{}
		}
		return b.add(*next, step+1)
	case 7:
		return b.ranges(n, match.SourceRanges, step)
	case 8:
		if len(match.SourcePorts) == 0 {
			return b.port(n, 0, step)
		}
		for _, p := range match.SourcePorts {
			if err := b.port(n, p, step); err != nil {
				return err
			}
		}
		return nil
	}
	if b.rules++; b.rules > maxChainRules {
		return fmt.Errorf("filter_chain_match: more than %d combinations of criteria; use fewer ranges and names", maxChainRules)
	}
	if n.chain != nil {
		return &ChainConflict{n.index, b.index}
	}
	n.chain, n.index = b.chain, b.index
	return nil
}

func (b *chainBuilder) port(n *matchNode, p uint16, step int) error {
	if n.ports == nil {
		n.ports = map[uint16]*matchNode{}
	}
	if n.ports[p] == nil {
		n.ports[p] = &matchNode{}
	}
	return b.add(n.ports[p], step+1)
}

func (b *chainBuilder) each(n *matchNode, words []string, step int) error {
	if len(words) == 0 {
		return b.word(n, "", step)
	}
	for _, w := range words {
		// The star of a wildcard goes: ".example.com".
		if err := b.word(n, strings.TrimPrefix(w, "*"), step); err != nil {
			return err
		}
	}
	return nil
}

func (b *chainBuilder) word(n *matchNode, w string, step int) error {
	if n.words == nil {
		n.words = map[string]*matchNode{}
	}
	if n.words[w] == nil {
		n.words[w] = &matchNode{}
	}
	return b.add(n.words[w], step+1)
}

func (b *chainBuilder) ranges(n *matchNode, prefixes []netip.Prefix, step int) error {
	if len(prefixes) == 0 {
		prefixes = everywhere
	}
	for _, p := range prefixes {
		if err := b.add(n.prefixes.add(p.Masked()), step+1); err != nil {
			return err
		}
	}
	return nil
}

// Find returns the chain for a connection, or the default chain if none matches, which may be nil.
// transport is what the TLS inspector found ("tls" or "raw_buffer"; "" if none ran), protocols are
// the client's ALPN, and a.ServerName is in lower case. A nil matcher finds nothing.
func (m *ChainMatcher) Find(a ConnAddrs, transport string, protocols []string) *FilterChain {
	if m == nil {
		return nil
	}
	if n := m.root.atPort(a.Local.Port()); n != nil {
		n = n.atRange(a.Local.Addr())
		n = n.atName(a.ServerName)
		n = n.atWord(transport)
		n = n.atProtocol(protocols)
		n = n.atRange(a.Direct.Addr())
		n = n.atSource(&a)
		n = n.atRange(a.Remote.Addr())
		if n = n.atPort(a.Remote.Port()); n != nil {
			return n.chain
		}
	}
	return m.chain
}

func (n *matchNode) atPort(p uint16) *matchNode {
	if n == nil {
		return nil
	}
	if next := n.ports[p]; next != nil {
		return next
	}
	return n.ports[0]
}

func (n *matchNode) atRange(a netip.Addr) *matchNode {
	if n == nil {
		return nil
	}
	return n.prefixes.find(a)
}

func (n *matchNode) atWord(w string) *matchNode {
	if n == nil {
		return nil
	}
	if next := n.words[w]; next != nil {
		return next
	}
	return n.words[""]
}

// atName tries the name, then the domains above it from the longest, then no name.
func (n *matchNode) atName(name string) *matchNode {
	if n == nil {
		return nil
	}
	if next := n.words[name]; next != nil {
		return next
	}
	for rest := name; len(rest) > 1; {
		dot := strings.IndexByte(rest[1:], '.')
		if dot < 0 {
			break
		}
		if rest = rest[1+dot:]; len(rest) == 1 {
			break
		}
		if next := n.words[rest]; next != nil {
			return next
		}
	}
	return n.words[""]
}

// atProtocol takes the first of the client's protocols that has an entry.
func (n *matchNode) atProtocol(protocols []string) *matchNode {
	if n == nil {
		return nil
	}
	for _, p := range protocols {
		if next := n.words[p]; next != nil && p != "" {
			return next
		}
	}
	return n.words[""]
}

func (n *matchNode) atSource(a *ConnAddrs) *matchNode {
	if n == nil {
		return nil
	}
	kind := ExternalSource
	if isLocal(a) {
		kind = SameIPOrLoopback
	}
	if next := n.types[kind]; next != nil {
		return next
	}
	return n.types[AnySource]
}

// isLocal is Envoy's isSameIpOrLoopback: of 127.0.0.0/8 only 127.0.0.1 counts.
func isLocal(a *ConnAddrs) bool {
	remote := a.Remote.Addr()
	return remote == a.Local.Addr() || remote == netip.IPv6Loopback() || remote == netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
