package envoy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// managementTLS reports whether a cluster is a management server that is reached by TLS: the one place
// where Guideway speaks it. The secrets must be at hand.
func (t *translator) managementTLS(c *clusterv3.Cluster, at cursor) bool {
	packed := c.GetTransportSocket().GetTypedConfig()
	if t.api || packed == nil || !packed.MessageIs(&tlsv3.UpstreamTlsContext{}) || !t.isServer(c.GetName()) {
		return false
	}
	m, _ := unpack(packed).(*tlsv3.UpstreamTlsContext)
	common := m.GetCommonTlsContext()
	where := at.field("transport_socket").field("typed_config").field("common_tls_context")
	for i, s := range common.GetTlsCertificateSdsSecretConfigs() {
		t.secret(s, where.field("tls_certificate_sds_secret_configs").at(i))
	}
	if s := common.GetValidationContextSdsSecretConfig(); s != nil {
		t.secret(s, where.field("validation_context_sds_secret_config"))
	}
	if s := common.GetCombinedValidationContext().GetValidationContextSdsSecretConfig(); s != nil {
		t.secret(s, where.field("combined_validation_context").field("validation_context_sds_secret_config"))
	}
	return true
}

// secret checks that a secret comes from a file or from the bootstrap.
func (t *translator) secret(s *tlsv3.SdsSecretConfig, at cursor) {
	if s.GetSdsConfig() == nil {
		for _, m := range t.boot.GetStaticResources().GetSecrets() {
			if m.GetName() == s.GetName() {
				return
			}
		}
		at.field("name").failAs("Unknown static secret: "+s.GetName(), "secret %q is not in static_resources.secrets", s.GetName())
		return
	}
	switch src := s.GetSdsConfig().GetConfigSourceSpecifier().(type) {
	case *corev3.ConfigSource_PathConfigSource:
		pathExists(src.PathConfigSource.GetPath(), at.field("sds_config").field("path_config_source").field("path"))
	case *corev3.ConfigSource_Path:
		pathExists(src.Path, at.field("sds_config").field("path"))
	default:
		at.field("sds_config").fail("secrets are read from files only; use path_config_source")
	}
}

// isServer reports whether a source of the bootstrap names the cluster as its management server.
func (t *translator) isServer(name string) bool {
	names := func(s *corev3.ApiConfigSource) bool {
		for _, g := range s.GetGrpcServices() {
			if g.GetEnvoyGrpc().GetClusterName() == name {
				return true
			}
		}
		return false
	}
	d := t.boot.GetDynamicResources()
	if names(d.GetAdsConfig()) || names(d.GetCdsConfig().GetApiConfigSource()) || names(d.GetLdsConfig().GetApiConfigSource()) {
		return true
	}
	for _, c := range t.boot.GetStaticResources().GetClusters() {
		if names(c.GetEdsClusterConfig().GetEdsConfig().GetApiConfigSource()) {
			return true
		}
	}
	return false
}
