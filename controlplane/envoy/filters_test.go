package envoy

import (
	"net/netip"
	"testing"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
)

// loadCase loads a base with changes; see verdict_test.go for their form.
func loadCase(t *testing.T, base, lines string) *model.Config {
	t.Helper()
	cfg, err := loadBytes(change(t, base, lines), parseJSON)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestRBAC(t *testing.T) {
	conn := dataplane.ConnAddrs{
		Remote: netip.MustParseAddrPort("10.1.2.3:1000"), Direct: netip.MustParseAddrPort("192.0.2.1:1000"),
		Local: netip.MustParseAddrPort("198.51.100.1:443"), ServerName: "www.example.com",
	}
	for _, tc := range []struct {
		permission, principal string
		match                 bool
	}{
		{"{any: true}", "{any: true}", true},
		{"{any: true}", "{remote_ip: {address_prefix: 10.0.0.0, prefix_len: 8}}", true},
		{"{any: true}", "{source_ip: {address_prefix: 10.1.2.3, prefix_len: 32}}", true},
		{"{any: true}", "{direct_remote_ip: {address_prefix: 10.0.0.0, prefix_len: 8}}", false},
		{"{any: true}", "{direct_remote_ip: {address_prefix: 192.0.2.0, prefix_len: 24}}", true},
		{"{any: true}", "{not_id: {remote_ip: {address_prefix: 10.0.0.0, prefix_len: 8}}}", false},
		{"{any: true}", "{and_ids: {ids: [{any: true}, {not_id: {any: true}}]}}", false},
		{"{any: true}", "{or_ids: {ids: [{not_id: {any: true}}, {any: true}]}}", true},
		{"{destination_ip: {address_prefix: 198.51.100.0, prefix_len: 24}}", "{any: true}", true},
		{"{destination_ip: {address_prefix: '2001:db8::', prefix_len: 32}}", "{any: true}", false},
		{"{destination_port: 443}", "{any: true}", true},
		{"{destination_port_range: {start: 400, end: 443}}", "{any: true}", false},
		{"{destination_port_range: {start: 443, end: 444}}", "{any: true}", true},
		{"{not_rule: {destination_port: 443}}", "{any: true}", false},
		{"{and_rules: {rules: [{destination_port: 443}, {any: true}]}}", "{any: true}", true},
		{"{or_rules: {rules: [{destination_port: 1}, {destination_port: 2}]}}", "{any: true}", false},
		{"{requested_server_name: {suffix: .example.com}}", "{any: true}", true},
		{"{requested_server_name: {exact: WWW.example.com, ignore_case: true}}", "{any: true}", true},
		{"{requested_server_name: {safe_regex: {regex: 'www'}}}", "{any: true}", false},
		{"{requested_server_name: {safe_regex: {regex: 'w+[.].*'}}}", "{any: true}", true},
	} {
		for _, action := range []string{"ALLOW", "DENY", "LOG"} {
			cfg := loadCase(t, "tcp", "X.filters: [{name: r, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC, stat_prefix: a, rules: {action: "+action+
				", policies: {p: {permissions: ["+tc.permission+"], principals: ["+tc.principal+"]}}}}}, "+terminal+"]")
			ok, policy := cfg.Listeners[0].Chains[0].Filters[0].(*dataplane.RBAC).Allowed(conn)
			wantOK := map[string]bool{"ALLOW": tc.match, "DENY": !tc.match, "LOG": true}[action]
			wantPolicy := map[bool]string{true: "p"}[tc.match]
			if ok != wantOK || policy != wantPolicy {
				t.Errorf("%s %s %s: %v %q, want %v %q", action, tc.permission, tc.principal, ok, policy, wantOK, wantPolicy)
			}
		}
	}
}

func TestUDPMatcher(t *testing.T) {
	const (
		input  = "{name: i, typed_config: {'@type': type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3."
		source = input + "SourceIPInput}}"
		port   = input + "DestinationPortInput}}"
	)
	to := func(cluster string) string {
		return "{action: {name: r, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route, cluster: " + cluster + "}}}"
	}
	byIP := func(ranges string) string {
		return "{matcher_tree: {input: " + source + ", custom_match: {name: ip, typed_config: {'@type': type.googleapis.com/xds.type.matcher.v3.IPMatcher, range_matchers: [" + ranges + "]}}}"
	}
	lan := "{ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}], on_match: " + to("lan") + "}"
	for _, tc := range []struct{ name, matcher, src, want string }{
		{"no match alone", "{on_no_match: " + to("a") + "}", "10.0.0.1:5", "a"},
		{"in range", byIP(lan) + ", on_no_match: " + to("wan") + "}", "10.9.9.9:5", "lan"},
		{"out of range", byIP(lan) + ", on_no_match: " + to("wan") + "}", "11.9.9.9:5", "wan"},
		{"nothing", byIP(lan) + "}", "11.9.9.9:5", ""},
		{"longest range", byIP(lan+", {ranges: [{address_prefix: 10.1.0.0, prefix_len: 16}], on_match: "+to("site")+"}") + "}", "10.1.0.1:5", "site"},
		{"a nested matcher without a match falls back to the shorter range", byIP(lan+", {ranges: [{address_prefix: 10.1.0.0, prefix_len: 16}], on_match: {matcher: {matcher_tree: {input: "+port+", exact_match_map: {map: {'1': "+to("one")+"}}}}}}") + "}", "10.1.0.1:5", "lan"},
		{"but not to an exclusive one", byIP("{exclusive: true, ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}], on_match: "+to("lan")+"}, {ranges: [{address_prefix: 10.1.0.0, prefix_len: 16}], on_match: {matcher: {matcher_tree: {input: "+port+", exact_match_map: {map: {'1': "+to("one")+"}}}}}}") + "}", "10.1.0.1:5", ""},
		{"exact port", "{matcher_tree: {input: " + port + ", exact_match_map: {map: {'53': " + to("dns") + ", '5': " + to("no") + "}}}}", "10.0.0.1:5", "dns"},
		{"longest prefix of text", "{matcher_tree: {input: " + source + ", prefix_match_map: {map: {'10.': " + to("a") + ", '10.1.': " + to("b") + "}}}}", "10.1.0.1:5", "b"},
		{"first of a list", "{matcher_list: {matchers: [{predicate: {single_predicate: {input: " + source + ", value_match: {prefix: '10.'}}}, on_match: " + to("a") + "}, {predicate: {single_predicate: {input: " + source + ", value_match: {prefix: '10.1.'}}}, on_match: " + to("b") + "}]}}", "10.1.0.1:5", "a"},
		{"and, or, not", "{matcher_list: {matchers: [{predicate: {and_matcher: {predicate: [{or_matcher: {predicate: [{single_predicate: {input: " + port + ", value_match: {exact: '1'}}}, {single_predicate: {input: " + port + ", value_match: {exact: '53'}}}]}}, {not_matcher: {single_predicate: {input: " + source + ", value_match: {contains: '9'}}}}]}}, on_match: " + to("a") + "}]}, on_no_match: " + to("b") + "}", "10.0.0.1:5", "a"},
		{"ip matcher in a list", "{matcher_list: {matchers: [{predicate: {single_predicate: {input: " + source + ", custom_match: {name: ip, typed_config: {'@type': type.googleapis.com/envoy.extensions.matching.input_matchers.ip.v3.Ip, stat_prefix: s, cidr_ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]}}}}, on_match: " + to("a") + "}]}}", "10.0.0.1:5", "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			udp := loadCase(t, "udp", "U.matcher: "+tc.matcher).Listeners[0].UDP
			if got := udp.Route(netip.MustParseAddrPort(tc.src), netip.MustParseAddrPort("192.0.2.1:53")); got != tc.want {
				t.Errorf("cluster %q, want %q", got, tc.want)
			}
			for _, name := range udp.Clusters {
				if name == tc.want {
					return
				}
			}
			if tc.want != "" {
				t.Errorf("%q is not among the clusters %q", tc.want, udp.Clusters)
			}
		})
	}
}

func TestStatsConfig(t *testing.T) {
	cfg := loadCase(t, "tcp", "stats_config: {stats_matcher: {inclusion_list: {patterns: [{prefix: cluster.}, {safe_regex: {regex: 'tcp[.].*'}}]}}, histogram_bucket_settings: [{match: {suffix: _ms}, buckets: [1, 2]}]}")
	for name, want := range map[string]bool{"cluster.a": false, "tcp.t.x": false, "xtcp.t": true, "server.live": true} {
		if got := cfg.Stats.Reject(name); got != want {
			t.Errorf("%s rejected: %v", name, got)
		}
	}
	if b := cfg.Stats.Buckets[0]; !b.Match("a_ms") || b.Match("ms_a") || len(b.Bounds) != 2 {
		t.Errorf("buckets %+v", b)
	}
	if loadCase(t, "tcp", "").Stats.Reject != nil {
		t.Error("stats are rejected though nothing says so")
	}
}
