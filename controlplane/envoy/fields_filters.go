package envoy

import "google.golang.org/protobuf/reflect/protoreflect"

// filterFields covers tcp_proxy, udp_proxy, the network filters before them and access logs.
var filterFields = table{
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy": {
		acted: `stat_prefix cluster weighted_clusters idle_timeout access_log max_connect_attempts
			backoff_options hash_policy max_downstream_connection_duration
			max_downstream_connection_duration_jitter_percentage access_log_flush_interval
			flush_access_log_on_connected access_log_options proxy_protocol_tlvs
			proxy_protocol_tlv_merge_policy upstream_connect_mode max_early_data_bytes check_drain_close`,
		ignored: notes{
			"downstream_idle_timeout": "it has no effect in Envoy either; use idle_timeout",
			"upstream_idle_timeout":   "it has no effect in Envoy either; use idle_timeout",
		},
		rejected: notes{
			"on_demand":        "clusters are not fetched on demand",
			"metadata_match":   "subset load balancing is not supported",
			"tunneling_config": "tunnels over HTTP CONNECT are not supported",
		},
	},
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster": {acted: "clusters"},
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight": {
		acted:    "name weight",
		rejected: notes{"metadata_match": "subset load balancing is not supported"},
	},
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.TcpAccessLogOptions": {
		acted: "access_log_flush_interval flush_access_log_on_connected flush_access_log_on_start",
	},
	"envoy.type.v3.HashPolicy": {
		acted:    "source_ip",
		rejected: notes{"filter_state": "tcp_proxy.hash_policy.filter_state needs L7/extension filters; use source_ip"},
	},
	"envoy.type.v3.HashPolicy.SourceIp": {},
	"envoy.config.core.v3.TlvEntry": {
		acted:    "type value",
		rejected: notes{"format_string": "only a fixed value is supported"},
	},

	"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig": {
		acted: `stat_prefix cluster matcher idle_timeout use_original_src_ip hash_policies
			upstream_socket_config use_per_packet_load_balancing access_log proxy_access_log
			access_log_options`,
		rejected: notes{
			"session_filters":  "session filters are Envoy extensions",
			"tunneling_config": "tunnels over HTTP are not supported",
		},
	},
	"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.HashPolicy": {acted: "source_ip key"},
	"envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.UdpAccessLogOptions": {
		acted:   "access_log_flush_interval",
		ignored: notes{"flush_access_log_on_tunnel_connected": "there are no tunnels"},
	},
	"envoy.extensions.filters.udp.udp_proxy.v3.Route": {acted: "cluster"},

	"xds.type.matcher.v3.Matcher":                                     {acted: "matcher_list matcher_tree on_no_match"},
	"xds.type.matcher.v3.Matcher.MatcherList":                         {acted: "matchers"},
	"xds.type.matcher.v3.Matcher.MatcherList.FieldMatcher":            {acted: "predicate on_match"},
	"xds.type.matcher.v3.Matcher.MatcherList.Predicate":               {acted: "single_predicate or_matcher and_matcher not_matcher"},
	"xds.type.matcher.v3.Matcher.MatcherList.Predicate.PredicateList": {acted: "predicate"},
	"xds.type.matcher.v3.Matcher.MatcherList.Predicate.SinglePredicate": {
		acted: "input value_match custom_match",
	},
	"xds.type.matcher.v3.Matcher.MatcherTree":          {acted: "input exact_match_map prefix_match_map custom_match"},
	"xds.type.matcher.v3.Matcher.MatcherTree.MatchMap": {acted: "map"},
	"xds.type.matcher.v3.Matcher.OnMatch": {
		acted:    "matcher action",
		rejected: notes{"keep_matching": "the first match decides"},
	},
	"xds.core.v3.TypedExtensionConfig": {acted: "name typed_config"},
	"xds.type.matcher.v3.StringMatcher": {
		acted:    "exact prefix suffix safe_regex contains ignore_case",
		rejected: notes{"custom": "only the built-in string matches are supported"},
	},
	"xds.type.matcher.v3.RegexMatcher": {
		acted:   "regex",
		ignored: notes{"google_re2": "regular expressions are RE2 always"},
		harmless: map[protoreflect.Name]func(protoreflect.Value) bool{
			"google_re2": func(protoreflect.Value) bool { return true },
		},
	},
	"xds.type.matcher.v3.IPMatcher":                {acted: "range_matchers"},
	"xds.type.matcher.v3.IPMatcher.IPRangeMatcher": {acted: "ranges on_match exclusive"},
	"envoy.extensions.matching.input_matchers.ip.v3.Ip": {
		acted:   "cidr_ranges",
		ignored: notes{"stat_prefix": "the matcher keeps no stats"},
		harmless: map[protoreflect.Name]func(protoreflect.Value) bool{
			"stat_prefix": func(protoreflect.Value) bool { return true }, // it is required
		},
	},
	"xds.core.v3.CidrRange": {acted: "address_prefix prefix_len"},
	"envoy.extensions.matching.common_inputs.network.v3.SourceIPInput":        {},
	"envoy.extensions.matching.common_inputs.network.v3.DestinationIPInput":   {},
	"envoy.extensions.matching.common_inputs.network.v3.SourcePortInput":      {},
	"envoy.extensions.matching.common_inputs.network.v3.DestinationPortInput": {},

	"envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit": {
		acted: "stat_prefix max_connections delay runtime_enabled",
	},
	"envoy.config.core.v3.RuntimeFeatureFlag": {
		acted:   "default_value",
		ignored: notes{"runtime_key": "only the default value is used"},
	},
	"envoy.extensions.filters.network.rbac.v3.RBAC": {
		acted: "rules stat_prefix",
		ignored: notes{
			"shadow_rules":             "shadow rules decide nothing",
			"shadow_matcher":           "shadow rules decide nothing",
			"shadow_rules_stat_prefix": "shadow rules decide nothing",
			"enforcement_type":         "L4 rules give the same answer for every byte",
		},
		rejected: notes{
			"matcher":    "use rules",
			"delay_deny": "a denied connection is closed at once",
		},
	},
	"envoy.config.rbac.v3.RBAC": {
		acted:    "action",
		leaf:     "policies", // see rbac.go
		rejected: notes{"audit_logging_options": "audit loggers are Envoy extensions"},
	},

	"envoy.config.accesslog.v3.AccessLog": {acted: "name filter typed_config"},
	"envoy.config.accesslog.v3.AccessLogFilter": {
		acted: "and_filter or_filter response_flag_filter duration_filter log_type_filter",
		rejected: notes{
			"status_code_filter":      "L4 connections have no status",
			"not_health_check_filter": "it is about HTTP requests",
			"traceable_filter":        "it is about HTTP requests",
			"runtime_filter":          "samples are not supported",
			"header_filter":           "it is about HTTP requests",
			"grpc_status_filter":      "it is about gRPC requests",
			"extension_filter":        "Envoy's extensions do not run here",
			"metadata_filter":         "metadata is not matched",
		},
	},
	"envoy.config.accesslog.v3.AndFilter":          {acted: "filters"},
	"envoy.config.accesslog.v3.OrFilter":           {acted: "filters"},
	"envoy.config.accesslog.v3.ResponseFlagFilter": {acted: "flags"},
	"envoy.config.accesslog.v3.LogTypeFilter":      {acted: "types exclude"},
	"envoy.config.accesslog.v3.DurationFilter":     {acted: "comparison"},
	"envoy.config.accesslog.v3.ComparisonFilter":   {acted: "op value"},
	"envoy.config.core.v3.RuntimeUInt32": {
		acted:   "default_value",
		ignored: notes{"runtime_key": "only the default value is used"},
	},
	"envoy.extensions.access_loggers.file.v3.FileAccessLog": {
		acted: "path format log_format",
		leaf:  "json_format typed_json_format",
	},
	"envoy.extensions.access_loggers.stream.v3.StdoutAccessLog": {acted: "log_format"},
	"envoy.extensions.access_loggers.stream.v3.StderrAccessLog": {acted: "log_format"},
	"envoy.config.core.v3.SubstitutionFormatString": {
		acted: "text_format text_format_source omit_empty_values",
		leaf:  "json_format",
		ignored: notes{
			"content_type":        "it is about HTTP bodies",
			"json_format_options": "keys are sorted always",
		},
		rejected: notes{"formatters": "only the built-in operators are supported"},
	},
	"envoy.config.core.v3.DataSource": {
		acted:    "filename inline_bytes inline_string environment_variable",
		rejected: notes{"watched_directory": "the file is read once"},
	},
}
