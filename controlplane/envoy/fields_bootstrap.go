package envoy

import "google.golang.org/protobuf/reflect/protoreflect"

// bootstrapFields covers the bootstrap but for listeners and clusters.
var bootstrapFields = table{
	"envoy.config.bootstrap.v3.Bootstrap": {
		acted: `node static_resources dynamic_resources cluster_manager stats_config stats_flush_interval
			stats_flush_on_admin layered_runtime admin overload_manager use_tcp_for_dns_lookups
			dns_resolution_config typed_dns_resolver_config`,
		ignored: notes{
			"node_context_params":              "xdstp names are not used",
			"flags_path":                       "Guideway reads no flags from files",
			"deferred_stat_options":            "stats are made when they are first needed",
			"watchdog":                         "Guideway has no watchdog threads",
			"watchdogs":                        "Guideway has no watchdog threads",
			"tracing":                          "L4 proxies start no traces",
			"enable_dispatcher_stats":          "there are no dispatchers",
			"header_prefix":                    "it is about HTTP headers",
			"stats_server_version_override":    "server.version is Guideway's own",
			"stats_eviction_interval":          "stats go when their owner goes",
			"bootstrap_extensions":             "Envoy's extensions do not run here",
			"fatal_actions":                    "Envoy's extensions do not run here",
			"inline_headers":                   "it is about HTTP headers",
			"perf_tracing_file_path":           "Guideway writes no traces",
			"default_regex_engine":             "regular expressions are RE2 always",
			"xds_config_tracker_extension":     "Envoy's extensions do not run here",
			"application_log_config":           "use --log-format",
			"grpc_async_client_manager_config": "there is one gRPC client",
			"memory_allocator_manager":         "Guideway does not use Envoy's allocator",
			"enable_worker_cpu_affinity":       "use taskset or the service manager",
			"certificate_provider_instances":   "Guideway terminates no TLS",
			"stats_sinks":                      "stats are not pushed; scrape /stats/prometheus",
		},
		rejected: notes{
			"hds_config":               "health discovery needs a management service of its own",
			"config_sources":           "xdstp sources are not supported; use dynamic_resources",
			"default_config_source":    "xdstp sources are not supported; use dynamic_resources",
			"default_socket_interface": "sockets are made by Guideway itself",
			"xds_delegate_extension":   "Envoy's extensions do not run here",
			"listener_manager":         "only Envoy's default listener manager is imitated",
		},
	},
	"envoy.config.bootstrap.v3.Bootstrap.StaticResources": {
		acted: "listeners clusters secrets",
	},
	"envoy.config.bootstrap.v3.Bootstrap.DynamicResources": {
		acted: "lds_config cds_config ads_config",
		rejected: notes{
			"lds_resources_locator": "xdstp names are not supported; use lds_config",
			"cds_resources_locator": "xdstp names are not supported; use cds_config",
		},
	},
	"envoy.config.core.v3.Node": {
		acted: "id cluster locality",
		leaf:  "metadata",
		ignored: notes{
			"dynamic_parameters":       "xdstp names are not used",
			"user_agent_name":          "Guideway gives its own name",
			"user_agent_version":       "Guideway gives its own version",
			"user_agent_build_version": "Guideway gives its own version",
			"extensions":               "Guideway lists its own extensions",
			"client_features":          "Guideway lists its own features",
			"listening_addresses":      "it is deprecated and has no effect in Envoy",
		},
	},
	"envoy.config.core.v3.Locality": {acted: "region zone sub_zone"},

	"envoy.config.bootstrap.v3.Admin": {
		acted: "address allow_paths",
		ignored: notes{
			"access_log":               "the admin server writes no access log",
			"access_log_path":          "the admin server writes no access log",
			"profile_path":             "profiles are served over HTTP",
			"socket_options":           "the admin server sets none",
			"ignore_global_conn_limit": "admin connections are never limited",
		},
	},
	"envoy.config.bootstrap.v3.ClusterManager": {
		acted: "outlier_detection upstream_bind_config",
		ignored: notes{
			"local_cluster_name":               "zone aware routing is not supported",
			"enable_deferred_cluster_creation": "clusters are made at once",
		},
		rejected: notes{"load_stats_config": "load reports (LRS) are not supported"},
	},
	"envoy.config.bootstrap.v3.ClusterManager.OutlierDetection": {
		acted:    "event_log_path",
		rejected: notes{"event_service": "events go to event_log_path"},
	},
	"envoy.config.bootstrap.v3.LayeredRuntime": {acted: "layers"},
	"envoy.config.bootstrap.v3.RuntimeLayer": {
		acted: "name admin_layer",
		leaf:  "static_layer",
		rejected: notes{
			"disk_layer": "runtime values are not read from disk; use a static_layer",
			"rtds_layer": "runtime values are not fetched; use a static_layer",
		},
	},
	"envoy.config.bootstrap.v3.RuntimeLayer.AdminLayer": {},

	"envoy.config.overload.v3.OverloadManager": {
		acted: "resource_monitors",
		ignored: notes{
			"refresh_interval":      "connections are counted, not sampled",
			"actions":               "no other overload action exists here",
			"loadshed_points":       "no other overload action exists here",
			"buffer_factory_config": "buffers are not Envoy's",
		},
	},
	"envoy.config.overload.v3.ResourceMonitor": {acted: "name", leaf: "typed_config"},
	"envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig": {
		acted: "max_active_downstream_connections",
	},

	"envoy.config.metrics.v3.StatsConfig": {
		acted: "stats_tags use_all_default_tags stats_matcher histogram_bucket_settings",
		ignored: notes{
			"allow_default_tag_overrides": "a custom tag of a default tag's name wins here anyway",
		},
	},
	"envoy.config.metrics.v3.TagSpecifier": {acted: "tag_name regex fixed_value"},
	"envoy.config.metrics.v3.StatsMatcher": {acted: "reject_all exclusion_list inclusion_list"},
	"envoy.config.metrics.v3.HistogramBucketSettings": {
		acted:   "match buckets",
		ignored: notes{"bins": "Prometheus histograms have the bounds in buckets"},
	},
	"envoy.type.matcher.v3.ListStringMatcher": {acted: "patterns"},
}

// sharedFields covers messages that stand in many places.
var sharedFields = table{
	"envoy.config.core.v3.Address": {
		acted: "socket_address",
		rejected: notes{
			"pipe":                   "unix sockets are not supported; use a socket_address",
			"envoy_internal_address": "internal listeners exist only inside Envoy; use a socket_address",
		},
	},
	"envoy.config.core.v3.SocketAddress": {
		acted: "protocol address port_value ipv4_compat",
		rejected: notes{
			"named_port":                 "named ports need a resolver, which Guideway does not have; use port_value",
			"resolver_name":              "custom resolvers are not supported; use an IP address, or a DNS cluster",
			"network_namespace_filepath": "start Guideway in that network namespace instead",
		},
	},
	"envoy.config.core.v3.CidrRange": {acted: "address_prefix prefix_len"},
	"envoy.config.core.v3.TcpKeepalive": {
		acted: "keepalive_probes keepalive_time keepalive_interval",
	},
	"envoy.config.core.v3.SocketOption": {
		acted:   "level name int_value buf_value state",
		ignored: notes{"description": "it is a comment"},
		rejected: notes{
			"type":       "options are set on every socket of the listener",
			"ip_version": "options are set on every socket of the listener",
		},
		harmless: map[protoreflect.Name]func(protoreflect.Value) bool{
			"description": func(protoreflect.Value) bool { return true },
		},
	},
	"envoy.config.core.v3.BackoffStrategy":      {acted: "base_interval max_interval"},
	"envoy.config.core.v3.TypedExtensionConfig": {acted: "name typed_config"},
	"envoy.config.core.v3.RuntimeDouble": {
		acted:   "default_value",
		ignored: notes{"runtime_key": "only the default value is used"},
	},
	"envoy.type.v3.Percent":           {acted: "value"},
	"envoy.type.v3.FractionalPercent": {acted: "numerator denominator"},
	"envoy.type.v3.Int64Range":        {acted: "start end"},
	"envoy.type.v3.Int32Range":        {acted: "start end"},
	"envoy.type.matcher.v3.StringMatcher": {
		acted:    "exact prefix suffix safe_regex contains ignore_case",
		rejected: notes{"custom": "only the built-in string matches are supported"},
	},
	"envoy.type.matcher.v3.RegexMatcher": {
		acted:   "regex",
		ignored: notes{"google_re2": "regular expressions are RE2 always"},
		harmless: map[protoreflect.Name]func(protoreflect.Value) bool{
			"google_re2": func(v protoreflect.Value) bool { return !v.Message().Has(v.Message().Descriptor().Fields().Get(0)) },
		},
	},

	"envoy.config.core.v3.ConfigSource": {
		acted: "path path_config_source api_config_source ads initial_fetch_timeout resource_api_version",
		rejected: notes{
			"authorities": "xdstp names are not supported",
			"self":        "name the server: ads, api_config_source or path_config_source",
		},
	},
	"envoy.config.core.v3.AggregatedConfigSource": {},
	"envoy.config.core.v3.PathConfigSource": {
		acted:   "path watched_directory",
		ignored: notes{"poll_interval": "files are watched, not polled"},
	},
	"envoy.config.core.v3.WatchedDirectory": {
		acted:   "path",
		ignored: notes{"watch_modify": "files count that are moved into the directory"},
	},
	"envoy.config.core.v3.ApiConfigSource": {
		acted: "api_type transport_api_version grpc_services set_node_on_first_message_only",
		leaf:  "rate_limit_settings",
		ignored: notes{
			"config_validators": "Envoy's extensions do not run here",
		},
		rejected: notes{
			"cluster_names":   "it is for REST; use grpc_services",
			"refresh_delay":   "it is for REST, which is not supported",
			"request_timeout": "it is for REST, which is not supported",
		},
	},
	"envoy.config.core.v3.GrpcService": {
		acted: "envoy_grpc",
		leaf:  "initial_metadata retry_policy",
		ignored: notes{
			"timeout": "streams have no timeout",
		},
		rejected: notes{"google_grpc": "use envoy_grpc with a static cluster"},
	},
	"envoy.config.core.v3.GrpcService.EnvoyGrpc": {
		acted: "cluster_name authority max_receive_message_length",
		leaf:  "retry_policy",
		ignored: notes{
			"skip_envoy_headers": "no such headers are sent",
		},
	},
}
