package envoy

// assignmentFields covers ClusterLoadAssignment.
var assignmentFields = table{
	"envoy.config.endpoint.v3.ClusterLoadAssignment": {
		acted:    "cluster_name endpoints policy",
		rejected: notes{"named_endpoints": "write the endpoints where they belong"},
	},
	"envoy.config.endpoint.v3.ClusterLoadAssignment.Policy": {
		acted: "overprovisioning_factor endpoint_stale_after weighted_priority_health",
		ignored: notes{
			"drop_overloads": "Envoy's L4 proxies drop nothing by it either",
		},
	},
	"envoy.config.endpoint.v3.LocalityLbEndpoints": {
		acted: "locality lb_endpoints load_balancing_weight priority",
		ignored: notes{
			"metadata":  "nothing reads it",
			"proximity": "Envoy does not use it either",
		},
		rejected: notes{
			"load_balancer_endpoints":      "use lb_endpoints",
			"leds_cluster_locality_config": "endpoints are not fetched locality by locality; use EDS",
		},
	},
	"envoy.config.endpoint.v3.LbEndpoint": {
		acted:    "endpoint health_status metadata load_balancing_weight",
		rejected: notes{"endpoint_name": "write the endpoint where it belongs"},
	},
	"envoy.config.endpoint.v3.Endpoint": {
		acted:   "address health_check_config hostname additional_addresses",
		ignored: notes{"observability_name": "nothing reads it"},
	},
	"envoy.config.endpoint.v3.Endpoint.AdditionalAddress": {acted: "address"},
	"envoy.config.endpoint.v3.Endpoint.HealthCheckConfig": {
		acted: "port_value hostname address disable_active_health_check",
	},
}

// healthFields covers active health checks and outlier detection.
var healthFields = table{
	"envoy.config.core.v3.HealthCheck": {
		acted: `timeout interval initial_jitter interval_jitter interval_jitter_percent
			unhealthy_threshold healthy_threshold reuse_connection http_health_check
			tcp_health_check grpc_health_check no_traffic_interval no_traffic_healthy_interval
			unhealthy_interval unhealthy_edge_interval healthy_edge_interval event_log_path
			event_logger always_log_health_check_failures always_log_health_check_success`,
		ignored: notes{"name": "a cluster has one checker"},
		rejected: notes{
			"alt_port":                        "Envoy does not use it either; set health_check_config.port_value of the endpoints",
			"custom_health_check":             "use a TCP, HTTP or gRPC check",
			"event_service":                   "events go to a file; use event_logger",
			"tls_options":                     "checks are made in the clear",
			"transport_socket_match_criteria": "checks are made in the clear",
		},
	},
	"envoy.config.core.v3.HealthCheck.Payload": {acted: "text binary"},
	"envoy.config.core.v3.HealthCheck.TcpHealthCheck": {
		acted: "send receive proxy_protocol_config",
	},
	"envoy.config.core.v3.HealthCheck.HttpHealthCheck": {
		acted: `host path receive request_headers_to_add request_headers_to_remove expected_statuses
			retriable_statuses codec_client_type method response_buffer_size`,
		ignored: notes{"service_name_matcher": "the answer's service name is not looked at"},
		rejected: notes{
			"send":              "Envoy does not implement it",
			"use_alpn_protocol": "checks are made in the clear",
		},
	},
	"envoy.config.core.v3.HealthCheck.GrpcHealthCheck": {acted: "service_name authority initial_metadata"},
	"envoy.config.core.v3.HeaderValueOption": {
		acted:   "header append append_action",
		ignored: notes{"keep_empty_value": "empty values are kept"},
	},
	"envoy.config.core.v3.HeaderValue": {
		acted: "key value raw_value",
	},
	"envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink": {acted: "event_log_path"},

	"envoy.config.cluster.v3.OutlierDetection": {
		acted: `consecutive_5xx interval base_ejection_time max_ejection_percent
			enforcing_consecutive_5xx consecutive_gateway_failure
			enforcing_consecutive_gateway_failure split_external_local_origin_errors
			consecutive_local_origin_failure enforcing_consecutive_local_origin_failure
			max_ejection_time max_ejection_time_jitter successful_active_health_check_uneject_host
			always_eject_one_host`,
		ignored: notes{
			"enforcing_success_rate":                    noRates,
			"success_rate_minimum_hosts":                noRates,
			"success_rate_request_volume":               noRates,
			"success_rate_stdev_factor":                 noRates,
			"enforcing_local_origin_success_rate":       noRates,
			"failure_percentage_threshold":              noRates,
			"enforcing_failure_percentage":              noRates,
			"enforcing_failure_percentage_local_origin": noRates,
			"failure_percentage_minimum_hosts":          noRates,
			"failure_percentage_request_volume":         noRates,
			"detect_degraded_hosts":                     "it is about HTTP answers",
		},
		rejected: notes{"monitors": "Envoy's extensions do not run here"},
	},
}

const noRates = "only consecutive failures eject hosts, not rates"
