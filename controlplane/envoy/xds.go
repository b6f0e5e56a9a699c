package envoy

import (
	"fmt"
	"os"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/guideway/guideway/controlplane/model"
)

// dynamic reads where listeners and clusters come from.
func (t *translator) dynamic(b *bootstrapv3.Bootstrap, at cursor) model.Dynamic {
	var out model.Dynamic
	d := b.GetDynamicResources()
	if ads := d.GetAdsConfig(); ads != nil {
		t.apiSource(ads, true, at.field("ads_config"))
		out.ADS = ads
	}
	if s := d.GetLdsConfig(); s != nil {
		out.LDS = t.configSource(s, at.field("lds_config"))
	}
	if s := d.GetCdsConfig(); s != nil {
		out.CDS = t.configSource(s, at.field("cds_config"))
	}
	return out
}

// configSource checks one source of resources.
func (t *translator) configSource(s *corev3.ConfigSource, at cursor) *model.ConfigSource {
	switch src := s.GetConfigSourceSpecifier().(type) {
	case *corev3.ConfigSource_Ads:
		if t.boot.GetDynamicResources().GetAdsConfig() == nil {
			at.field("ads").fail("ads is not configured: set dynamic_resources.ads_config")
		}
	case *corev3.ConfigSource_ApiConfigSource:
		t.apiSource(src.ApiConfigSource, false, at.field("api_config_source"))
	case *corev3.ConfigSource_PathConfigSource:
		pathExists(src.PathConfigSource.GetPath(), at.field("path_config_source").field("path"))
	case *corev3.ConfigSource_Path:
		pathExists(src.Path, at.field("path"))
	case *corev3.ConfigSource_Self:
		at.field("self").fail("name the server: ads, api_config_source or path_config_source")
	default:
		at.fail("name where resources come from: ads, api_config_source or path_config_source")
	}
	return &model.ConfigSource{Message: s}
}

func pathExists(name string, at cursor) {
	if _, err := os.Stat(name); err != nil {
		at.failAs(fmt.Sprintf("paths must refer to an existing path in the system: '%s' does not exist", name),
			"file %q does not exist", name)
	}
}

// apiSource checks a gRPC server: its cluster must be static and find its own hosts without EDS.
func (t *translator) apiSource(s *corev3.ApiConfigSource, ads bool, at cursor) {
	switch s.GetApiType() {
	case corev3.ApiConfigSource_GRPC, corev3.ApiConfigSource_DELTA_GRPC:
	default:
		at.field("api_type").fail("api_type %s is not supported; use GRPC or DELTA_GRPC", s.GetApiType())
		return
	}
	if s.GetTransportApiVersion() == corev3.ApiVersion_V2 {
		at.field("transport_api_version").fail("transport_api_version must be V3")
	}
	switch n := len(s.GetGrpcServices()); {
	case n == 0:
		at.field("grpc_services").failAs("API configs must have either a gRPC service or a cluster name defined", "grpc_services must name a server")
		return
	case n > 1:
		at.field("grpc_services").at(1).fail("one server is supported; remove the others")
	}
	service := s.GetGrpcServices()[0]
	if service.GetEnvoyGrpc() == nil {
		at.field("grpc_services").at(0).fail("use envoy_grpc with a static cluster")
		return
	}
	name := service.GetEnvoyGrpc().GetClusterName()
	if t.serves(name) {
		return
	}
	reason := fmt.Sprintf("cluster %q is not defined in static_resources.clusters (or is an EDS cluster)", name)
	if ads {
		at.failAs(fmt.Sprintf("Unknown gRPC client cluster '%s'", name), "%s", reason)
		return
	}
	at.failAs(fmt.Sprintf("envoy.config.core.v3.ApiConfigSource must have a statically defined non-EDS cluster: '%s' does not exist, was added via api, or is an EDS cluster", name), "%s", reason)
}

// serves reports whether a static cluster may be a management server.
func (t *translator) serves(name string) bool {
	for _, c := range t.boot.GetStaticResources().GetClusters() {
		if c.GetName() == name {
			return c.GetType() != clusterv3.Cluster_EDS && c.GetClusterType().GetName() != "envoy.cluster.eds"
		}
	}
	return false
}

// needNode checks that the node is named once xDS is used: servers tell their clients apart by it.
func (t *translator) needNode(b *bootstrapv3.Bootstrap, cfg *model.Config, at cursor) {
	if cfg.Node.ID != "" && cfg.Node.Cluster != "" {
		return
	}
	const need = "%s: node 'id' and 'cluster' are required. Set it either in 'node' config or via --service-node and --service-cluster options."
	who := ""
	switch {
	case cfg.Dynamic.ADS != nil:
		who = "ads"
	case cfg.Dynamic.CDS != nil:
		who = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	case cfg.Dynamic.LDS != nil:
		who = "type.googleapis.com/envoy.config.listener.v3.Listener"
	default:
		for _, c := range cfg.Clusters {
			if c.EDS != nil {
				who = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
			}
		}
	}
	if who != "" {
		at.field("node").failAs(fmt.Sprintf(need, who), "node.id and node.cluster are required with xDS; set them, or use --service-node and --service-cluster")
	}
}
