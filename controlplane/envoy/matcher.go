package envoy

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	udpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/udp/udp_proxy/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	ipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/input_matchers/ip/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// udpRoute names the cluster for a datagram's addresses; ok is false if nothing matched.
type udpRoute func(src, dst netip.AddrPort) (cluster string, ok bool)

// udpPredicate is a condition on a datagram's addresses.
type udpPredicate func(src, dst netip.AddrPort) bool

// input is what a matcher looks at: an address or a port, as text and, for addresses, as such.
type input struct {
	text func(src, dst netip.AddrPort) string
	addr func(src, dst netip.AddrPort) netip.Addr // nil for ports
}

// maxMatcherDepth bounds nesting of matchers.
const maxMatcherDepth = 32

// udpCompiler compiles a matcher tree and gathers the clusters it names.
type udpCompiler struct{ clusters []string }

// udpRoutes compiles the matcher of a udp_proxy.
func udpRoutes(m *matcherv3.Matcher, at cursor) (func(src, dst netip.AddrPort) string, []string) {
	c := &udpCompiler{}
	route := c.matcher(m, at, 0)
	return func(src, dst netip.AddrPort) string {
		cluster, _ := route(src, dst)
		return cluster
	}, c.clusters
}

func nowhere(_, _ netip.AddrPort) (string, bool) { return "", false }

func (c *udpCompiler) matcher(m *matcherv3.Matcher, at cursor, depth int) udpRoute {
	if depth > maxMatcherDepth {
		at.fail("matchers are nested deeper than %d levels", maxMatcherDepth)
		return nowhere
	}
	var route udpRoute = nowhere
	switch t := m.GetMatcherType().(type) {
	case *matcherv3.Matcher_MatcherList_:
		route = c.list(t.MatcherList, at.field("matcher_list"), depth)
	case *matcherv3.Matcher_MatcherTree_:
		route = c.tree(t.MatcherTree, at.field("matcher_tree"), depth)
	}
	if m.GetOnNoMatch() == nil {
		return route
	}
	otherwise := c.onMatch(m.GetOnNoMatch(), at.field("on_no_match"), depth)
	return func(src, dst netip.AddrPort) (string, bool) {
		if cluster, ok := route(src, dst); ok {
			return cluster, true
		}
		return otherwise(src, dst)
	}
}

func (c *udpCompiler) onMatch(m *matcherv3.Matcher_OnMatch, at cursor, depth int) udpRoute {
	switch o := m.GetOnMatch().(type) {
	case *matcherv3.Matcher_OnMatch_Matcher:
		return c.matcher(o.Matcher, at.field("matcher"), depth+1)
	case *matcherv3.Matcher_OnMatch_Action:
		where := at.field("action").field("typed_config")
		route, ok := unpack(o.Action.GetTypedConfig()).(*udpproxyv3.Route)
		if !ok {
			where.fail("the action of a udp_proxy matcher must be a Route (envoy.extensions.filters.udp.udp_proxy.v3.Route)")
			return nowhere
		}
		if !slices.Contains(c.clusters, route.GetCluster()) {
			c.clusters = append(c.clusters, route.GetCluster())
		}
		return func(_, _ netip.AddrPort) (string, bool) { return route.GetCluster(), true }
	}
	at.fail("needs an action or a matcher")
	return nowhere
}

// list tries matchers in order. One whose nested matcher finds nothing is passed over.
func (c *udpCompiler) list(l *matcherv3.Matcher_MatcherList, at cursor, depth int) udpRoute {
	type arm struct {
		when udpPredicate
		then udpRoute
	}
	var arms []arm
	for i, m := range l.GetMatchers() {
		where := at.field("matchers").at(i)
		arms = append(arms, arm{
			c.predicate(m.GetPredicate(), where.field("predicate"), depth),
			c.onMatch(m.GetOnMatch(), where.field("on_match"), depth),
		})
	}
	return func(src, dst netip.AddrPort) (string, bool) {
		for _, a := range arms {
			if a.when(src, dst) {
				if cluster, ok := a.then(src, dst); ok {
					return cluster, true
				}
			}
		}
		return "", false
	}
}

func never(_, _ netip.AddrPort) bool { return false }

func (c *udpCompiler) predicate(p *matcherv3.Matcher_MatcherList_Predicate, at cursor, depth int) udpPredicate {
	if depth > maxMatcherDepth {
		at.fail("predicates are nested deeper than %d levels", maxMatcherDepth)
		return never
	}
	all := func(list *matcherv3.Matcher_MatcherList_Predicate_PredicateList, at cursor) []udpPredicate {
		var out []udpPredicate
		for i, q := range list.GetPredicate() {
			out = append(out, c.predicate(q, at.field("predicate").at(i), depth+1))
		}
		return out
	}
	switch t := p.GetMatchType().(type) {
	case *matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_:
		return single(t.SinglePredicate, at.field("single_predicate"))
	case *matcherv3.Matcher_MatcherList_Predicate_OrMatcher:
		ps := all(t.OrMatcher, at.field("or_matcher"))
		return func(src, dst netip.AddrPort) bool {
			return slices.ContainsFunc(ps, func(q udpPredicate) bool { return q(src, dst) })
		}
	case *matcherv3.Matcher_MatcherList_Predicate_AndMatcher:
		ps := all(t.AndMatcher, at.field("and_matcher"))
		return func(src, dst netip.AddrPort) bool {
			return !slices.ContainsFunc(ps, func(q udpPredicate) bool { return !q(src, dst) })
		}
	case *matcherv3.Matcher_MatcherList_Predicate_NotMatcher:
		q := c.predicate(t.NotMatcher, at.field("not_matcher"), depth+1)
		return func(src, dst netip.AddrPort) bool { return !q(src, dst) }
	}
	at.fail("needs a predicate")
	return never
}

// single compares one input.
func single(p *matcherv3.Matcher_MatcherList_Predicate_SinglePredicate, at cursor) udpPredicate {
	in, ok := readInput(p.GetInput(), at.field("input"))
	if !ok {
		return never
	}
	switch m := p.GetMatcher().(type) {
	case *matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch:
		match := at.field("value_match").xdsStringMatch(m.ValueMatch)
		if match == nil {
			return never
		}
		return func(src, dst netip.AddrPort) bool { return match(in.text(src, dst)) }
	case *matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_CustomMatch:
		where := at.field("custom_match").field("typed_config")
		ip, ok := unpack(m.CustomMatch.GetTypedConfig()).(*ipv3.Ip)
		if !ok || in.addr == nil {
			where.fail("the only custom match is of addresses (envoy.extensions.matching.input_matchers.ip.v3.Ip)")
			return never
		}
		ranges := where.field("cidr_ranges").prefixes(ip.GetCidrRanges())
		return func(src, dst netip.AddrPort) bool {
			a := in.addr(src, dst)
			return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
		}
	}
	return never
}

// tree looks an input up in a map.
func (c *udpCompiler) tree(t *matcherv3.Matcher_MatcherTree, at cursor, depth int) udpRoute {
	in, ok := readInput(t.GetInput(), at.field("input"))
	if !ok {
		return nowhere
	}
	switch m := t.GetTreeType().(type) {
	case *matcherv3.Matcher_MatcherTree_ExactMatchMap:
		routes := c.routes(m.ExactMatchMap, at.field("exact_match_map"), depth)
		return func(src, dst netip.AddrPort) (string, bool) {
			if r := routes[in.text(src, dst)]; r != nil {
				return r(src, dst)
			}
			return "", false
		}
	case *matcherv3.Matcher_MatcherTree_PrefixMatchMap:
		routes := c.routes(m.PrefixMatchMap, at.field("prefix_match_map"), depth)
		prefixes := make([]string, 0, len(routes))
		for p := range routes {
			prefixes = append(prefixes, p)
		}
		slices.SortFunc(prefixes, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
		return func(src, dst netip.AddrPort) (string, bool) {
			text := in.text(src, dst)
			for _, p := range prefixes { // longest first
				if strings.HasPrefix(text, p) {
					if cluster, ok := routes[p](src, dst); ok {
						return cluster, true
					}
				}
			}
			return "", false
		}
	case *matcherv3.Matcher_MatcherTree_CustomMatch:
		where := at.field("custom_match").field("typed_config")
		ip, ok := unpack(m.CustomMatch.GetTypedConfig()).(*matcherv3.IPMatcher)
		if !ok || in.addr == nil {
			where.fail("the only custom match is of addresses (xds.type.matcher.v3.IPMatcher)")
			return nowhere
		}
		return c.ranges(ip, in, where, depth)
	}
	return nowhere
}

func (c *udpCompiler) routes(m *matcherv3.Matcher_MatcherTree_MatchMap, at cursor, depth int) map[string]udpRoute {
	out := map[string]udpRoute{}
	names := make([]string, 0, len(m.GetMap()))
	for name := range m.GetMap() {
		names = append(names, name)
	}
	slices.Sort(names) // for the order of clusters and problems
	for _, name := range names {
		out[name] = c.onMatch(m.GetMap()[name], at.field("map").field(name), depth)
	}
	return out
}

// ranges matches an address: of the ranges that hold it the longest first, then in order; one that is
// exclusive counts only if it comes first.
func (c *udpCompiler) ranges(m *matcherv3.IPMatcher, in input, at cursor, depth int) udpRoute {
	type arm struct {
		prefix    netip.Prefix
		exclusive bool
		then      udpRoute
	}
	var arms []arm
	for i, r := range m.GetRangeMatchers() {
		where := at.field("range_matchers").at(i)
		then := c.onMatch(r.GetOnMatch(), where.field("on_match"), depth)
		for j, p := range r.GetRanges() {
			if prefix, ok := where.field("ranges").at(j).xdsPrefix(p); ok {
				arms = append(arms, arm{prefix, r.GetExclusive(), then})
			}
		}
	}
	slices.SortStableFunc(arms, func(a, b arm) int { return b.prefix.Bits() - a.prefix.Bits() })
	return func(src, dst netip.AddrPort) (string, bool) {
		a := in.addr(src, dst).WithZone("")
		first := true
		for i := range arms {
			if !arms[i].prefix.Contains(a) || !first && arms[i].exclusive {
				continue
			}
			if cluster, ok := arms[i].then(src, dst); ok {
				return cluster, true
			}
			first = false
		}
		return "", false
	}
}

func (c cursor) xdsPrefix(r *corev3.CidrRange) (netip.Prefix, bool) {
	return c.cidr(r, r.GetPrefixLen().GetValue())
}

// readInput reads what a matcher looks at.
func readInput(e interface{ GetTypedConfig() *anypb.Any }, at cursor) (input, bool) {
	address := func(pick func(src, dst netip.AddrPort) netip.Addr) input {
		return input{func(src, dst netip.AddrPort) string { return pick(src, dst).String() }, pick}
	}
	port := func(pick func(src, dst netip.AddrPort) uint16) input {
		return input{text: func(src, dst netip.AddrPort) string { return strconv.Itoa(int(pick(src, dst))) }}
	}
	switch unpack(e.GetTypedConfig()).(type) {
	case *networkv3.SourceIPInput:
		return address(func(src, _ netip.AddrPort) netip.Addr { return src.Addr() }), true
	case *networkv3.DestinationIPInput:
		return address(func(_, dst netip.AddrPort) netip.Addr { return dst.Addr() }), true
	case *networkv3.SourcePortInput:
		return port(func(src, _ netip.AddrPort) uint16 { return src.Port() }), true
	case *networkv3.DestinationPortInput:
		return port(func(_, dst netip.AddrPort) uint16 { return dst.Port() }), true
	}
	at.field("typed_config").fail("a udp_proxy matcher looks at SourceIPInput, DestinationIPInput, SourcePortInput or DestinationPortInput")
	return input{}, false
}
