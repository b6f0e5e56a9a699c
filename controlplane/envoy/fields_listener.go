package envoy

import "google.golang.org/protobuf/reflect/protoreflect"

// listenerFields covers listeners and filter chains.
var listenerFields = table{
	"envoy.config.listener.v3.Listener": {
		acted: `name address additional_addresses stat_prefix filter_chains default_filter_chain
			per_connection_buffer_limit_bytes drain_type listener_filters listener_filters_timeout
			continue_on_listener_filters_timeout transparent freebind socket_options
			traffic_direction udp_listener_config access_log tcp_backlog_size reuse_port
			enable_reuse_port ignore_global_conn_limit tcp_keepalive bind_to_port metadata`,
		ignored: notes{
			"stats_matcher":                                "use the stats_config of the bootstrap",
			"tcp_fast_open_queue_length":                   "connections open the ordinary way",
			"enable_mptcp":                                 "connections are plain TCP",
			"connection_balance_config":                    "the kernel spreads connections over the workers",
			"bypass_overload_manager":                      "the only overload action is the connection limit; use ignore_global_conn_limit",
			"max_connections_to_accept_per_socket_event":   "workers accept in batches of their own",
			"per_connection_buffer_high_watermark_timeout": "slow peers are held back as long as it takes",
		},
		rejected: notes{
			"use_original_dst":     "connections are not handed to other listeners",
			"filter_chain_matcher": "only filter_chain_match is supported",
			"fcds_config":          "filter chains are not fetched one by one; use LDS",
			"deprecated_v1":        "use bind_to_port",
			"api_listener":         "it is for gRPC clients that embed Envoy",
			"internal_listener":    "internal listeners exist only inside Envoy",
		},
		harmless: map[protoreflect.Name]func(protoreflect.Value) bool{
			"use_original_dst": isFalse,
			"deprecated_v1":    func(v protoreflect.Value) bool { return !v.Message().Has(v.Message().Descriptor().Fields().Get(0)) },
		},
	},
	"envoy.config.listener.v3.AdditionalAddress": {
		acted: "address",
		rejected: notes{
			"socket_options": "all addresses of a listener share its socket options",
			"tcp_keepalive":  "all addresses of a listener share its keepalive",
		},
	},
	"envoy.config.listener.v3.FilterChain": {
		acted: "filter_chain_match filters use_proxy_proto transport_socket name",
		ignored: notes{
			"metadata":                         "nothing reads it",
			"transport_socket_connect_timeout": "plain TCP has no handshake to wait for",
		},
	},
	"envoy.config.listener.v3.FilterChainMatch": {
		acted: `destination_port prefix_ranges direct_source_prefix_ranges source_type
			source_prefix_ranges source_ports server_names transport_protocol application_protocols`,
		rejected: notes{
			"address_suffix": "Envoy does not implement it; use prefix_ranges",
			"suffix_len":     "Envoy does not implement it; use prefix_ranges",
		},
	},
	"envoy.config.listener.v3.Filter": {
		acted:    "name typed_config",
		rejected: notes{"config_discovery": "filters are not fetched one by one; write typed_config"},
	},
	"envoy.config.listener.v3.ListenerFilter": {
		acted: "name typed_config",
		rejected: notes{
			"config_discovery": "filters are not fetched one by one; write typed_config",
			"filter_disabled":  "a listener filter runs for every connection",
		},
	},
	"envoy.config.listener.v3.UdpListenerConfig": {
		acted: "downstream_socket_config",
		ignored: notes{
			"udp_packet_packet_writer_config": "datagrams are written in batches already",
		},
		rejected: notes{"quic_options": "QUIC is not terminated; a udp_proxy passes it on"},
	},
	"envoy.config.core.v3.UdpSocketConfig":                       {acted: "max_rx_datagram_size prefer_gro"},
	"envoy.config.core.v3.TransportSocket":                       {acted: "name typed_config"},
	"envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer": {},

	"envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol": {
		acted: "allow_requests_without_proxy_protocol pass_through_tlvs disallowed_versions stat_prefix",
		ignored: notes{
			"rules":        "no filter reads metadata",
			"tlv_location": "no filter reads metadata",
		},
	},
	"envoy.config.core.v3.ProxyProtocolPassThroughTLVs": {acted: "match_type tlv_type"},
	"envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector": {
		ignored: notes{
			"enable_ja3_fingerprinting": "nothing reads fingerprints",
			"enable_ja4_fingerprinting": "nothing reads fingerprints",
			"initial_read_buffer_size":  "the buffer grows as needed",
			"max_client_hello_size":     "the limit is 16 KiB",
		},
		rejected: notes{
			"close_connection_on_client_hello_parsing_errors": "what is no TLS is passed on as raw_buffer",
		},
		harmless: map[protoreflect.Name]func(protoreflect.Value) bool{
			"enable_ja3_fingerprinting": isFalse, "enable_ja4_fingerprinting": isFalse,
		},
	},
}
