package controlplane

import (
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/guideway/guideway/controlplane/admin"
)

// ConfigDump implements admin.State: the configuration as it was read, with when each part came into force.
func (p *Process) ConfigDump() admin.ConfigDump {
	s := p.State()
	dump := admin.ConfigDump{
		Clusters:  &adminv3.ClustersConfigDump{},
		Listeners: &adminv3.ListenersConfigDump{},
	}
	if boot, ok := s.Config.Source.(*bootstrapv3.Bootstrap); ok {
		boot = proto.Clone(boot).(*bootstrapv3.Bootstrap)
		if boot.Node == nil {
			boot.Node = &corev3.Node{}
		}
		identify(boot.Node, p.Version)
		dump.Bootstrap = &adminv3.BootstrapConfigDump{Bootstrap: boot, LastUpdated: timestamppb.New(s.Updated)}
	}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		dump.Clusters.StaticClusters = append(dump.Clusters.StaticClusters, &adminv3.ClustersConfigDump_StaticCluster{
			Cluster: packed(c.Desired.Source), LastUpdated: timestamppb.New(c.Updated),
		})
	}
	for _, l := range s.Listeners {
		dump.Listeners.StaticListeners = append(dump.Listeners.StaticListeners, &adminv3.ListenersConfigDump_StaticListener{
			Listener: packed(l.Source), LastUpdated: timestamppb.New(since(s.ListenerUpdated[l.Name], s.Updated)),
		})
	}
	return dump
}

func since(t, fallback time.Time) time.Time {
	if t.IsZero() {
		return fallback
	}
	return t
}

// packed wraps a message; one that cannot be packed (none that was parsed) is left out.
func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		return nil
	}
	return a
}
