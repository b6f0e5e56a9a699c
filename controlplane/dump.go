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
	p.dumpClusters(s, dump.Clusters)
	p.dumpListeners(s, dump.Listeners)
	return dump
}

// dumpClusters adds static clusters and those of CDS apart.
func (p *Process) dumpClusters(s *State, dump *adminv3.ClustersConfigDump) {
	dump.VersionInfo = s.ClustersVersion
	dynamic := func(c *ClusterState) *adminv3.ClustersConfigDump_DynamicCluster {
		return &adminv3.ClustersConfigDump_DynamicCluster{
			VersionInfo: c.Version, Cluster: packed(c.Desired.Source), LastUpdated: timestamppb.New(c.Updated),
			ErrorState: failure(s.RefusedClusters, c.Desired.Settings.Name),
		}
	}
	known := map[string]bool{}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		if !c.Desired.Settings.AddedViaAPI {
			dump.StaticClusters = append(dump.StaticClusters, &adminv3.ClustersConfigDump_StaticCluster{
				Cluster: packed(c.Desired.Source), LastUpdated: timestamppb.New(c.Updated),
			})
			continue
		}
		known[c.Desired.Settings.Name] = true
		dump.DynamicActiveClusters = append(dump.DynamicActiveClusters, dynamic(c))
	}
	for i := range s.Warming {
		if c := &s.Warming[i]; c.Desired.Settings.AddedViaAPI {
			known[c.Desired.Settings.Name] = true
			dump.DynamicWarmingClusters = append(dump.DynamicWarmingClusters, dynamic(c))
		}
	}
	for _, name := range sortedNames(s.RefusedClusters) {
		if !known[name] {
			dump.DynamicWarmingClusters = append(dump.DynamicWarmingClusters, &adminv3.ClustersConfigDump_DynamicCluster{
				ErrorState: failure(s.RefusedClusters, name),
			})
		}
	}
}

// dumpListeners adds static listeners and those of LDS apart.
func (p *Process) dumpListeners(s *State, dump *adminv3.ListenersConfigDump) {
	dump.VersionInfo = s.ListenersVersion
	known := map[string]bool{}
	dynamic := func(name, version string, source proto.Message, at time.Time) {
		known[name] = true
		dump.DynamicListeners = append(dump.DynamicListeners, &adminv3.ListenersConfigDump_DynamicListener{
			Name: name,
			ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{
				VersionInfo: version, Listener: packed(source), LastUpdated: timestamppb.New(at),
			},
			ErrorState: failure(s.RefusedListeners, name),
		})
	}
	for _, l := range s.Listeners {
		at := since(s.ListenerUpdated[l.Name], s.Updated)
		if l.AddedViaAPI {
			dynamic(l.Name, s.ListenerVersion[l.Name], l.Source, at)
			continue
		}
		dump.StaticListeners = append(dump.StaticListeners, &adminv3.ListenersConfigDump_StaticListener{
			Listener: packed(l.Source), LastUpdated: timestamppb.New(at),
		})
	}
	for _, h := range s.HTTP {
		if h.AddedViaAPI {
			dynamic(h.Status.Name, h.Version, h.Source, h.Updated)
			continue
		}
		dump.StaticListeners = append(dump.StaticListeners, &adminv3.ListenersConfigDump_StaticListener{
			Listener: packed(h.Source), LastUpdated: timestamppb.New(h.Updated),
		})
	}
	for _, name := range sortedNames(s.RefusedListeners) {
		if !known[name] {
			dump.DynamicListeners = append(dump.DynamicListeners, &adminv3.ListenersConfigDump_DynamicListener{
				Name: name, ErrorState: failure(s.RefusedListeners, name),
			})
		}
	}
}

// failure is what was refused last under a name; nil if nothing was.
func failure(refused map[string]RefusedState, name string) *adminv3.UpdateFailureState {
	r, ok := refused[name]
	if !ok {
		return nil
	}
	f := &adminv3.UpdateFailureState{LastUpdateAttempt: timestamppb.New(r.At), Details: r.Details, VersionInfo: r.Version}
	if r.Source != nil {
		f.FailedConfiguration = packed(r.Source)
	}
	return f
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
