package stats

import (
	"regexp"
	"strings"
)

// rule is one of Envoy's default tags: a pattern of tokens, or a regex.
type rule struct {
	tag     string
	pattern string // tokens: "$" the value, "*" one token, "**" the rest
	regex   string
	// contains is a part that every match has; not is a value that is none.
	contains, not string
}

const (
	tagValue = `[^\.]+`
	ipv4Port = `(?:\d{1,3}\.){3}\d{1,3}_\d{1,5}`
	ipv6Port = `\[[_a-fA-F0-9\.]*\]_\d{1,5}`
	address  = ipv4Port + `|` + ipv6Port
)

// defaultRules of Envoy 1.40 for the names that Guideway has or that a configured prefix can form, in
// Envoy's order. Those for HTTP are kept as far as the admin listener, or a prefix with dots, meets them.
var defaultRules = []rule{
	{tag: "envoy.response_code_class", regex: `_rq_((\d))xx$`, contains: "xx"},
	{tag: "envoy.response_code", regex: `_rq(_(\d{3}))$`, contains: "_rq_"},
	{tag: "envoy.mongo_callsite", pattern: "mongo.*.collection.*.callsite.$.query.**"},
	{tag: "envoy.mongo_collection", pattern: "mongo.*.collection.$.**.query.*"},
	{tag: "envoy.mongo_cmd", pattern: "mongo.*.cmd.$.**"},
	{tag: "envoy.grpc_bridge_method", pattern: "cluster.*.grpc.*.$.**"},
	{tag: "envoy.http_user_agent", pattern: "http.*.user_agent.$.**"},
	{tag: "envoy.virtual_cluster", pattern: "vhost.*.vcluster.$.**"},
	{tag: "envoy.fault_downstream_cluster", pattern: "http.*.fault.$.**"},
	{tag: "envoy.ssl_cipher", regex: `^listener\..*?\.ssl\.ciphers(\.([^\.]+))$`, contains: ".ssl.ciphers."},
	{tag: "cipher_suite", regex: `^cluster\.[^\.]+\.ssl\.ciphers(\.([^\.]+))$`, contains: ".ssl.ciphers."},
	{tag: "envoy.grpc_bridge_service", pattern: "cluster.*.grpc.$.**"},
	{tag: "envoy.tcp_prefix", pattern: "tcp.$.**"},
	{tag: "envoy.udp_prefix", pattern: "udp.$.**"},
	{tag: "envoy.clientssl_prefix", pattern: "auth.clientssl.$.**"},
	{tag: "envoy.ratelimit_prefix", pattern: "ratelimit.$.**"},
	{tag: "envoy.health_check_name", regex: `^cluster\.[^\.]+\.health_check(\.name\.([^\.]+))\..+`, contains: ".health_check.name."},
	{tag: "envoy.cluster_name", pattern: "cluster.$.**"},
	{tag: "envoy.http_conn_manager_prefix", regex: `^listener\..*?\.http\.((` + tagValue + `)\.)`, contains: ".http."},
	{tag: "envoy.http_conn_manager_prefix", pattern: "http.$.**"},
	{tag: "envoy.listener_address", regex: `^listener\.((` + address + `|` + tagValue + `)\.)`, not: "admin"},
	{tag: "envoy.virtual_host", pattern: "vhost.$.**"},
	{tag: "envoy.mongo_prefix", pattern: "mongo.$.**"},
	{tag: "envoy.worker_id", regex: `^(?:listener\.(?:` + address + `|` + tagValue + `)|server|listener_manager|thread_local_cluster_manager)\.worker_((\d+)\.)`, contains: ".worker_"},
	{tag: "envoy.thrift_prefix", pattern: "thrift.$.**"},
	{tag: "envoy.redis_prefix", pattern: "redis.$.**"},
	{tag: "envoy.rbac_prefix", pattern: "$.rbac.**"},
	{tag: "envoy.ext_authz_prefix", pattern: "http.*.ext_authz.$.**"},
	{tag: "envoy.ext_authz_prefix", pattern: "cluster.*.ext_authz.$.**"},
	{tag: "envoy.connection_limit_prefix", pattern: "connection_limit.$.**"},
	{tag: "envoy.proxy_protocol_prefix", regex: `^proxy_proto\.((` + tagValue + `)\.).+$`, not: "versions"},
	{tag: "envoy.proxy_protocol_version", regex: `^proxy_proto\.((?:` + tagValue + `\.)?versions\.v(\d)\.)\w+$`, contains: "versions.v"},
	{tag: "envoy.local_http_ratelimit_prefix", pattern: "$.http_local_rate_limit.**"},
	{tag: "envoy.local_network_ratelimit_prefix", pattern: "local_rate_limit.$.**"},
	{tag: "envoy.local_listener_ratelimit_prefix", pattern: "listener_local_ratelimit.$.**"},
	{tag: "envoy.dns_filter_prefix", pattern: "dns_filter.$.**"},
	{tag: "envoy.google_grpc_client_prefix", pattern: "grpc.$.**"},
	// Guideway's own.
	{tag: "guideway.listener", pattern: "guideway.service.$.**"},
	{tag: "guideway.reason", pattern: "guideway.xdp.drop.$"},
	{tag: "guideway.event", pattern: "guideway.xdp.event.$"},
}

func (r rule) compile() extractor {
	e := extractor{tag: r.tag, contains: r.contains, not: r.not}
	if r.pattern != "" {
		e.tokens = strings.Split(r.pattern, ".")
	} else {
		e.regex = regexp.MustCompile(r.regex)
	}
	return e
}

// token returns the first token of the names that the rule is for, or "" for a rule that is tried on all.
func (r rule) token() string {
	if r.pattern == "" {
		return leadingToken(r.regex)
	}
	first, _, _ := strings.Cut(r.pattern, ".")
	if first == "$" {
		return ""
	}
	return first
}
