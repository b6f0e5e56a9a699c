package dataplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func prefixes(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestChainMatcher(t *testing.T) {
	conn := func(remote, local, name string) ConnAddrs {
		r := netip.MustParseAddrPort(remote)
		return ConnAddrs{Remote: r, Direct: r, Local: netip.MustParseAddrPort(local), ServerName: name}
	}
	for _, tc := range []struct {
		name      string
		matches   map[string]ChainMatch
		fallback  bool
		conn      ConnAddrs
		transport string
		alpn      []string
		want      string
	}{
		{"no criteria", map[string]ChainMatch{"a": {}}, false, conn("10.0.0.1:1", "10.0.0.2:80", ""), "", nil, "a"},
		{"port decides and there is no way back", map[string]ChainMatch{
			"a": {DestinationPort: 80, SourceRanges: prefixes("192.0.2.0/24")}, "b": {},
		}, true, conn("10.0.0.1:1", "10.0.0.2:80", ""), "", nil, "default"},
		{"longest destination range", map[string]ChainMatch{
			"a": {PrefixRanges: prefixes("10.0.0.0/8")}, "b": {PrefixRanges: prefixes("10.0.0.0/24")}, "c": {},
		}, false, conn("10.0.0.1:1", "10.0.0.2:80", ""), "", nil, "b"},
		{"IPv6 does not match IPv4 ranges", map[string]ChainMatch{
			"a": {PrefixRanges: prefixes("0.0.0.0/0")},
		}, true, conn("[2001:db8::1]:1", "[2001:db8::2]:80", ""), "", nil, "default"},
		{"exact name before wildcard", map[string]ChainMatch{
			"a": {ServerNames: []string{"*.example.com"}}, "b": {ServerNames: []string{"x.example.com"}},
		}, false, conn("10.0.0.1:1", "10.0.0.2:80", "x.example.com"), "tls", nil, "b"},
		{"wildcard at any depth", map[string]ChainMatch{
			"a": {ServerNames: []string{"*.example.com"}}, "b": {ServerNames: []string{"*.com"}},
		}, false, conn("10.0.0.1:1", "10.0.0.2:80", "z.y.example.com"), "tls", nil, "a"},
		{"a wildcard does not match its own domain", map[string]ChainMatch{
			"a": {ServerNames: []string{"*.example.com"}},
		}, true, conn("10.0.0.1:1", "10.0.0.2:80", "example.com"), "tls", nil, "default"},
		{"transport", map[string]ChainMatch{
			"a": {TransportProtocol: "tls"}, "b": {TransportProtocol: "raw_buffer"},
		}, false, conn("10.0.0.1:1", "10.0.0.2:80", ""), "raw_buffer", nil, "b"},
		{"first of the client's protocols", map[string]ChainMatch{
			"a": {ApplicationProtocols: []string{"http/1.1"}}, "b": {ApplicationProtocols: []string{"h2"}},
		}, false, conn("10.0.0.1:1", "10.0.0.2:80", ""), "tls", []string{"x", "h2", "http/1.1"}, "b"},
		{"local source", map[string]ChainMatch{
			"a": {SourceType: SameIPOrLoopback}, "b": {SourceType: ExternalSource},
		}, false, conn("127.0.0.1:1", "10.0.0.2:80", ""), "", nil, "a"},
		{"127.0.0.2 is not loopback to Envoy", map[string]ChainMatch{
			"a": {SourceType: SameIPOrLoopback}, "b": {SourceType: ExternalSource},
		}, false, conn("127.0.0.2:1", "10.0.0.2:80", ""), "", nil, "b"},
		{"source port", map[string]ChainMatch{
			"a": {SourcePorts: []uint16{5, 6}}, "b": {},
		}, false, conn("10.0.0.1:6", "10.0.0.2:80", ""), "", nil, "a"},
		{"nothing matches", map[string]ChainMatch{"a": {SourcePorts: []uint16{5}}}, false, conn("10.0.0.1:6", "10.0.0.2:80", ""), "", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var chains []*FilterChain
			for name, m := range tc.matches {
				chains = append(chains, &FilterChain{Name: name, Match: m})
			}
			var fallback *FilterChain
			if tc.fallback {
				fallback = &FilterChain{Name: "default"}
			}
			m, err := NewChainMatcher(chains, fallback)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if c := m.Find(tc.conn, tc.transport, tc.alpn); c != nil {
				got = c.Name
			}
			if got != tc.want {
				t.Errorf("chain %q, want %q", got, tc.want)
			}
		})
	}
}

func TestChainMatcherConflicts(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b ChainMatch
		want bool
	}{
		{"both empty", ChainMatch{}, ChainMatch{}, true},
		{"a port in common", ChainMatch{SourcePorts: []uint16{1, 2}}, ChainMatch{SourcePorts: []uint16{2, 3}}, true},
		{"ranges of different length", ChainMatch{SourceRanges: prefixes("10.0.0.0/8")}, ChainMatch{SourceRanges: prefixes("10.0.0.0/9")}, false},
		{"bits beyond the length", ChainMatch{SourceRanges: prefixes("10.0.0.0/8")}, ChainMatch{SourceRanges: prefixes("10.9.9.9/8")}, true},
		{"names", ChainMatch{ServerNames: []string{"a", "b"}}, ChainMatch{ServerNames: []string{"b"}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewChainMatcher([]*FilterChain{{Match: tc.a}, {Match: tc.b}}, nil)
			var conflict *ChainConflict
			if got := errors.As(err, &conflict); got != tc.want {
				t.Fatalf("conflict %v (%v), want %v", got, err, tc.want)
			}
			if conflict != nil && (conflict.First != 0 || conflict.Second != 1) {
				t.Errorf("conflict between %d and %d", conflict.First, conflict.Second)
			}
		})
	}
}

// slowFind keeps the rules that fit best, criterion by criterion; it is the matcher's meaning.
func slowFind(chains []*FilterChain, fallback *FilterChain, a ConnAddrs, transport string, protocols []string) *FilterChain {
	type candidate struct {
		chain *FilterChain
		fit   int
	}
	keep := func(in []candidate, fit func(m *ChainMatch) int) []candidate {
		best := -1
		var out []candidate
		for _, c := range in {
			c.fit = fit(&c.chain.Match)
			if c.fit < 0 || c.fit < best {
				continue
			}
			if c.fit > best {
				best, out = c.fit, nil
			}
			out = append(out, c)
		}
		return out
	}
	longest := func(ps []netip.Prefix, addr netip.Addr) int {
		if len(ps) == 0 {
			return 0
		}
		best := -1
		for _, p := range ps {
			if p.Contains(addr) {
				best = max(best, p.Bits())
			}
		}
		return best
	}
	var in []candidate
	for _, c := range chains {
		in = append(in, candidate{chain: c})
	}
	in = keep(in, func(m *ChainMatch) int {
		switch m.DestinationPort {
		case 0:
			return 0
		case a.Local.Port():
			return 1
		}
		return -1
	})
	in = keep(in, func(m *ChainMatch) int { return longest(m.PrefixRanges, a.Local.Addr()) })
	in = keep(in, func(m *ChainMatch) int {
		if len(m.ServerNames) == 0 {
			return 0
		}
		best := -1
		for _, n := range m.ServerNames {
			switch {
			case n == a.ServerName:
				best = max(best, 1000)
			case strings.HasPrefix(n, "*") && strings.HasSuffix(a.ServerName, n[1:]) && len(a.ServerName) > len(n)-1:
				best = max(best, len(n))
			}
		}
		return best
	})
	in = keep(in, func(m *ChainMatch) int {
		switch m.TransportProtocol {
		case "":
			return 0
		case transport:
			return 1
		}
		return -1
	})
	in = keep(in, func(m *ChainMatch) int {
		if len(m.ApplicationProtocols) == 0 {
			return 0
		}
		for i, p := range protocols {
			for _, q := range m.ApplicationProtocols {
				if p == q {
					return 100 - i
				}
			}
		}
		return -1
	})
	in = keep(in, func(m *ChainMatch) int { return longest(m.DirectSourceRanges, a.Direct.Addr()) })
	in = keep(in, func(m *ChainMatch) int {
		local := a.Remote.Addr() == a.Local.Addr() || a.Remote.Addr().String() == "127.0.0.1" || a.Remote.Addr().String() == "::1"
		switch {
		case m.SourceType == AnySource:
			return 0
		case (m.SourceType == SameIPOrLoopback) == local:
			return 1
		}
		return -1
	})
	in = keep(in, func(m *ChainMatch) int { return longest(m.SourceRanges, a.Remote.Addr()) })
	in = keep(in, func(m *ChainMatch) int {
		if len(m.SourcePorts) == 0 {
			return 0
		}
		for _, p := range m.SourcePorts {
			if p == a.Remote.Port() {
				return 1
			}
		}
		return -1
	})
	switch len(in) {
	case 0:
		return fallback
	case 1:
		return in[0].chain
	}
	panic("the conflict should have been found")
}

func TestChainMatcherAgainstSlow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	ranges := prefixes("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "::/0", "2001:db8::/32", "127.0.0.0/8")
	addrs := []string{"10.1.2.3", "10.1.9.9", "10.9.9.9", "192.0.2.1", "2001:db8::1", "::1", "127.0.0.1"}
	names := []string{"a.example.com", "*.example.com", "*.com", "example.com"}
	some := func(n int) []netip.Prefix {
		var out []netip.Prefix
		for range r.IntN(n) {
			out = append(out, ranges[r.IntN(len(ranges))])
		}
		return out
	}
	addr := func() netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(addrs[r.IntN(len(addrs))]), uint16(1+r.IntN(3)))
	}
	built, found := 0, 0
	for round := range 4000 {
		var chains []*FilterChain
		for i := range 1 + r.IntN(5) {
			c := &FilterChain{Name: fmt.Sprint(i)}
			m := &c.Match
			switch r.IntN(8) {
			case 0:
				m.DestinationPort = uint16(1 + r.IntN(2))
			case 1:
				m.PrefixRanges = some(3)
			case 2:
				m.ServerNames = names[:r.IntN(len(names))]
			case 3:
				m.TransportProtocol = []string{"tls", "raw_buffer"}[r.IntN(2)]
			case 4:
				m.ApplicationProtocols = []string{"h2", "http/1.1"}[:1+r.IntN(2)]
			}
			switch r.IntN(6) {
			case 0:
				m.DirectSourceRanges = some(3)
			case 1:
				m.SourceType = SourceType(r.IntN(3))
			case 2:
				m.SourceRanges = some(4)
			case 3:
				m.SourcePorts = []uint16{uint16(1 + r.IntN(3))}
			}
			chains = append(chains, c)
		}
		var fallback *FilterChain
		if r.IntN(2) == 0 {
			fallback = &FilterChain{Name: "default"}
		}
		m, err := NewChainMatcher(chains, fallback)
		if err != nil {
			continue
		}
		built++
		for range 20 {
			a := ConnAddrs{Remote: addr(), Local: addr(), Direct: addr(), ServerName: []string{"", "a.example.com", "b.example.com", "x.y.com", "com"}[r.IntN(5)]}
			transport := []string{"", "tls", "raw_buffer"}[r.IntN(3)]
			protocols := [][]string{nil, {"h2"}, {"http/1.1"}, {"http/1.1", "h2"}}[r.IntN(4)]

			want := slowFind(chains, fallback, a, transport, protocols)
			if got := m.Find(a, transport, protocols); got != want {
				t.Fatalf("round %d: %+v %q %v: got %+v, want %+v of %+v", round, a, transport, protocols, got, want, chains)
			}
			if want != nil && want != fallback {
				found++
			}
		}
	}
	if built < 500 || found < 500 {
		t.Errorf("only %d matchers and %d matches: the test does not test", built, found)
	}
}
