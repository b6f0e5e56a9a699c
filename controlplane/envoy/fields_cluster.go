package envoy

import "google.golang.org/protobuf/reflect/protoreflect"

// clusterFields covers clusters but for policies, health and endpoints.
var clusterFields = table{
	"envoy.config.cluster.v3.Cluster": {
		acted: `name alt_stat_name type cluster_type eds_cluster_config connect_timeout
			per_connection_buffer_limit_bytes lb_policy load_assignment health_checks
			circuit_breakers dns_refresh_rate dns_jitter dns_failure_refresh_rate respect_dns_ttl
			dns_lookup_family dns_resolvers use_tcp_for_dns_lookups dns_resolution_config
			typed_dns_resolver_config wait_for_warm_on_init outlier_detection upstream_bind_config
			ring_hash_lb_config maglev_lb_config least_request_lb_config round_robin_lb_config
			common_lb_config transport_socket transport_socket_matches upstream_connection_options
			close_connections_on_host_health_failure ignore_health_on_host_removal
			load_balancing_policy http2_protocol_options metadata typed_extension_protocol_options`,
		ignored: notes{
			"max_requests_per_connection":                  "connections carry one client each",
			"upstream_http_protocol_options":               "it is about HTTP",
			"common_http_protocol_options":                 "it is about HTTP",
			"http_protocol_options":                        "it is about HTTP",
			"protocol_selection":                           "it is about HTTP",
			"cleanup_interval":                             "it is for ORIGINAL_DST clusters",
			"track_timeout_budgets":                        "it is about HTTP",
			"track_cluster_stats":                          "it is about HTTP",
			"preconnect_policy":                            "connections are made when a client needs one",
			"connection_pool_per_downstream_connection":    "connections are never shared",
			"upstream_config":                              "connections are plain TCP always",
			"lrs_report_endpoint_metrics":                  "load reports (LRS) are not sent",
			"queuing_policies":                             "it is about HTTP",
			"stats_matcher":                                "use the stats_config of the bootstrap",
			"per_connection_buffer_high_watermark_timeout": "slow peers are held back as long as it takes",
		},
		rejected: notes{
			"transport_socket_matcher": "sockets are not chosen by endpoint",
			"lb_subset_config":         "subset load balancing is not supported",
			"original_dst_lb_config":   "ORIGINAL_DST clusters are not supported",
			"filters":                  "upstream network filters are Envoy extensions",
			"lrs_server":               "load reports (LRS) are not sent",
		},
	},
	"envoy.config.cluster.v3.Cluster.TransportSocketMatch": {
		acted:   "transport_socket",
		ignored: notes{"name": "all sockets are raw buffers", "match": "all sockets are raw buffers"},
	},
	"envoy.config.cluster.v3.Cluster.CustomClusterType": {acted: "name typed_config"},
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig":  {acted: "eds_config service_name"},
	"envoy.config.cluster.v3.Cluster.RefreshRate":       {acted: "base_interval max_interval"},
	"envoy.config.cluster.v3.Cluster.CommonLbConfig": {
		acted: `healthy_panic_threshold locality_weighted_lb_config ignore_new_hosts_until_first_hc
			consistent_hashing_lb_config`,
		ignored: notes{
			"update_merge_window":                  "updates are applied at once",
			"close_connections_on_host_set_change": "it closes idle pool connections, and there is no pool",
		},
		rejected: notes{
			"zone_aware_lb_config": "without it routing would differ; use locality_weighted_lb_config",
			"override_host_status": "it is about HTTP sessions",
		},
	},
	"envoy.config.cluster.v3.Cluster.CommonLbConfig.LocalityWeightedLbConfig": {},
	"envoy.config.cluster.v3.Cluster.CommonLbConfig.ConsistentHashingLbConfig": {
		acted: "use_hostname_for_hashing hash_balance_factor",
	},
	"envoy.config.cluster.v3.CircuitBreakers": {acted: "thresholds per_host_thresholds"},
	"envoy.config.cluster.v3.CircuitBreakers.Thresholds": {
		acted: "priority max_connections max_pending_requests max_requests max_retries track_remaining",
		ignored: notes{
			"retry_budget":         "connects are retried by max_connect_attempts",
			"max_connection_pools": "there are no connection pools",
		},
	},
	"envoy.config.cluster.v3.UpstreamConnectionOptions": {
		acted: "tcp_keepalive",
		ignored: notes{
			"set_local_interface_name_on_upstream_connections": "nothing reads it",
			"happy_eyeballs_config":                            "additional_addresses are tried in order",
		},
	},
	"envoy.config.core.v3.BindConfig": {
		acted:   "source_address",
		ignored: notes{"freebind": "the address must be one of this machine"},
		rejected: notes{
			"socket_options":              "upstream sockets take no raw options",
			"extra_source_addresses":      "one source address a cluster is supported",
			"additional_source_addresses": "one source address a cluster is supported",
			"local_address_selector":      "one source address a cluster is supported",
			"validate_network_namespaces": "network namespaces are not switched",
		},
		harmless: map[protoreflect.Name]func(protoreflect.Value) bool{"freebind": isFalse},
	},
	"envoy.config.core.v3.Metadata": {
		leaf:    "filter_metadata",
		ignored: notes{"typed_filter_metadata": "nothing reads it"},
	},

	"envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport": {
		acted:   "config transport_socket",
		ignored: notes{"tlv_as_pool_key": "connections are never shared"},
		rejected: notes{
			"allow_unspecified_address": "a header always has the client's addresses",
		},
	},
	"envoy.config.core.v3.ProxyProtocolConfig": {acted: "version pass_through_tlvs added_tlvs"},

	"envoy.extensions.clusters.dns.v3.DnsCluster": {
		acted: `dns_refresh_rate dns_failure_refresh_rate respect_dns_ttl dns_jitter
			typed_dns_resolver_config dns_lookup_family all_addresses_in_single_endpoint`,
		rejected: notes{"dns_min_refresh_rate": "refreshes follow dns_refresh_rate and the TTL"},
	},
	"envoy.extensions.clusters.dns.v3.DnsCluster.RefreshRate": {acted: "base_interval max_interval"},
	"envoy.config.core.v3.DnsResolutionConfig":                {acted: "resolvers dns_resolver_options"},
	"envoy.config.core.v3.DnsResolverOptions": {
		acted:   "use_tcp_for_dns_lookups",
		ignored: notes{"no_default_search_domain": "names are looked up as they stand"},
	},
	"envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig": {
		acted: "resolvers dns_resolver_options",
		ignored: notes{
			"use_resolvers_as_fallback":  "the resolvers given are the ones asked",
			"filter_unroutable_families": "dns_lookup_family decides",
			"udp_max_queries":            "a socket serves one query",
			"query_timeout_seconds":      "the resolver's own timeout is used",
			"query_tries":                "the resolver's own number of tries is used",
			"rotate_nameservers":         "resolvers are asked in order",
			"edns0_max_payload_size":     "the usual payload size is used",
			"max_udp_channel_duration":   "a socket serves one query",
			"reinit_channel_on_timeout":  "a socket serves one query",
			"qcache_max_ttl":             "answers are not cached",
		},
	},
	"envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig": {
		ignored: notes{
			"num_retries":          "a failed lookup is repeated after dns_failure_refresh_rate",
			"num_resolver_threads": "lookups do not wait for each other",
		},
	},
	"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
		acted: "explicit_http_config use_downstream_protocol_config",
		ignored: notes{
			"common_http_protocol_options":   noHTTP,
			"upstream_http_protocol_options": noHTTP,
			"auto_config":                    noHTTP,
			"http_filters":                   noHTTP,
			"header_validation_config":       noHTTP,
			"outlier_detection":              noHTTP,
			"request_mirror_policies":        noHTTP,
			"hash_policy":                    noHTTP,
			"retry_policy":                   noHTTP,
		},
	},
	"envoy.extensions.upstreams.http.v3.HttpProtocolOptions.ExplicitHttpConfig": {
		acted: "http2_protocol_options",
		ignored: notes{
			"http_protocol_options":  noHTTP,
			"http3_protocol_options": noHTTP,
		},
	},
	"envoy.extensions.upstreams.http.v3.HttpProtocolOptions.UseDownstreamHttpConfig": {
		acted: "http2_protocol_options",
		ignored: notes{
			"http_protocol_options":  noHTTP,
			"http3_protocol_options": noHTTP,
		},
	},
	"envoy.config.core.v3.Http2ProtocolOptions": {
		leaf: "connection_keepalive",
		ignored: notes{
			"hpack_table_size":                                     noTuning,
			"max_concurrent_streams":                               noTuning,
			"initial_stream_window_size":                           noTuning,
			"initial_connection_window_size":                       noTuning,
			"allow_connect":                                        noTuning,
			"allow_metadata":                                       noTuning,
			"max_outbound_frames":                                  noTuning,
			"max_outbound_control_frames":                          noTuning,
			"max_consecutive_inbound_frames_with_empty_payload":    noTuning,
			"max_inbound_priority_frames_per_stream":               noTuning,
			"max_inbound_window_update_frames_per_data_frame_sent": noTuning,
			"stream_error_on_invalid_http_messaging":               noTuning,
			"override_stream_error_on_invalid_http_message":        noTuning,
			"custom_settings_parameters":                           noTuning,
			"use_oghttp2_codec":                                    noTuning,
			"max_metadata_size":                                    noTuning,
			"enable_huffman_encoding":                              noTuning,
			"max_header_field_size_kb":                             noTuning,
			"disallow_obs_text":                                    noTuning,
			"stream_reset_burst":                                   noTuning,
			"stream_reset_rate":                                    noTuning,
		},
	},
}

// policyFields covers load balancing policies.
var policyFields = table{
	"envoy.config.cluster.v3.Cluster.MaglevLbConfig": {acted: "table_size"},
	"envoy.config.cluster.v3.Cluster.RingHashLbConfig": {
		acted: "minimum_ring_size hash_function maximum_ring_size",
	},
	"envoy.config.cluster.v3.Cluster.LeastRequestLbConfig": {
		acted:    "choice_count active_request_bias",
		rejected: notes{"slow_start_config": slowStart},
	},
	"envoy.config.cluster.v3.Cluster.RoundRobinLbConfig": {
		rejected: notes{"slow_start_config": slowStart},
	},
	// The policies of a list are walked one by one: only the first that is supported counts.
	"envoy.config.cluster.v3.LoadBalancingPolicy": {leaf: "policies"},

	"envoy.extensions.load_balancing_policies.maglev.v3.Maglev": {
		acted: "table_size consistent_hashing_lb_config locality_weighted_lb_config",
	},
	"envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash": {
		acted: `hash_function minimum_ring_size maximum_ring_size use_hostname_for_hashing
			hash_balance_factor consistent_hashing_lb_config locality_weighted_lb_config`,
	},
	"envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest": {
		acted:    "choice_count active_request_bias locality_lb_config enable_full_scan selection_method",
		rejected: notes{"slow_start_config": slowStart},
	},
	"envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin": {
		acted:    "locality_lb_config",
		rejected: notes{"slow_start_config": slowStart},
	},
	"envoy.extensions.load_balancing_policies.random.v3.Random": {acted: "locality_lb_config"},
	"envoy.extensions.load_balancing_policies.common.v3.LocalityLbConfig": {
		acted:    "locality_weighted_lb_config",
		rejected: notes{"zone_aware_lb_config": "without it routing would differ; use locality_weighted_lb_config"},
	},
	"envoy.extensions.load_balancing_policies.common.v3.LocalityLbConfig.LocalityWeightedLbConfig": {},
	"envoy.extensions.load_balancing_policies.common.v3.ConsistentHashingLbConfig": {
		acted: "use_hostname_for_hashing hash_balance_factor",
		leaf:  "hash_policy", // see policy.go
	},
}

const (
	noHTTP   = "HTTP is spoken only for health checks and xDS, where HTTP/2 is all that can be asked for"
	noTuning = "HTTP/2 is spoken only for health checks and xDS, with usual settings"
)

const slowStart = "new hosts get their full share at once"
