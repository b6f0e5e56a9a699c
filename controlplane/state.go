package controlplane

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
)

// Phase of a process's life, by Envoy's names and numbers.
type Phase uint8

// Phases.
const (
	Live Phase = iota
	Draining
	PreInitializing
	Initializing
)

// String returns Envoy's spelling.
func (p Phase) String() string {
	return [...]string{"LIVE", "DRAINING", "PRE_INITIALIZING", "INITIALIZING"}[p]
}

// State is what others may see of the loop: immutable, a new one after each change.
type State struct {
	Phase   Phase
	Started time.Time
	Node    model.Node
	Config  *model.Config
	// Updated is when Config was put in force.
	Updated time.Time
	// Clusters in force and their desired state, sorted by name; warming ones are not among them.
	Clusters []ClusterState
	// Listeners in configuration order.
	Listeners []*model.Listener
	// ListenerUpdated is when each listener changed last, ListenerVersion the version that brought it by
	// LDS.
	ListenerUpdated map[string]time.Time
	ListenerVersion map[string]string
	// Warming are clusters that wait for their hosts; those that will replace an active one are among
	// them.
	Warming []ClusterState
	// HTTP are the listeners that the process answers itself.
	HTTP []HTTPState
	// ClustersVersion and ListenersVersion are those of the last answers by CDS and LDS.
	ClustersVersion, ListenersVersion string
	// RefusedClusters and RefusedListeners hold what was refused last, by name.
	RefusedClusters, RefusedListeners map[string]RefusedState
	// Runtime layers in force, lowest first.
	Runtime []model.RuntimeLayer
	// Generation of the snapshot in force.
	Generation uint64
}

// HTTPState is one listener that the process answers itself.
type HTTPState struct {
	Status dataplane.ListenerStatus
	Source proto.Message
	// Version is "" for a static one.
	Version     string
	AddedViaAPI bool
	Updated     time.Time
}

// RefusedState is a resource whose last update was refused.
type RefusedState struct {
	Source           proto.Message
	Version, Details string
	At               time.Time
}

// ClusterState is one cluster. Active is nil while it warms for the first time.
type ClusterState struct {
	Desired *model.Cluster
	// Version is that of the resource that brought the cluster by CDS, EndpointsVersion that of its
	// endpoints by EDS; "" otherwise.
	Version, EndpointsVersion string
	Active                    *dataplane.Cluster
	// Assignment as discovery found it last.
	Assignment *model.Assignment
	// Updated is when the desired state changed last, Changed when hosts, weights or health did.
	Updated, Changed time.Time
}

// State returns the present state.
func (c *Control) State() *State { return c.state.Load() }

// phase moves to the next phase.
func (c *Control) phase(p Phase) {
	s := *c.state.Load()
	if s.Phase == p {
		return
	}
	s.Phase = p
	c.state.Store(&s)
	c.counters.phase(p)
}

// publish renews what others see.
func (c *Control) publish() {
	c.unseen = false
	s := *c.state.Load()
	s.Config, s.Node, s.Generation = c.config, c.config.Node, c.generation
	s.Listeners = c.listeners
	s.Runtime = c.layers()
	s.ListenerUpdated, s.ListenerVersion = make(map[string]time.Time, len(c.listenerChanges)), map[string]string{}
	for name, change := range c.listenerChanges {
		s.ListenerUpdated[name] = change.at
		if change.version != "" {
			s.ListenerVersion[name] = change.version
		}
	}
	s.Clusters, s.Warming, s.HTTP = nil, nil, nil
	for _, name := range sortedNames(c.clusters) {
		if cl := c.clusters[name]; cl.current != nil {
			s.Clusters = append(s.Clusters, cl.view())
		}
	}
	for _, name := range sortedNames(c.warming) {
		s.Warming = append(s.Warming, c.warming[name].view())
	}
	for _, name := range sortedNames(c.http) {
		n := c.http[name]
		s.HTTP = append(s.HTTP, HTTPState{n.status(), n.Source, n.version, n.api, n.at})
	}
	s.ClustersVersion, s.ListenersVersion = c.clusterVersion, c.listenerVersion
	s.RefusedClusters, s.RefusedListeners = refusedView(c.refused.clusters), refusedView(c.refused.listeners)
	c.state.Store(&s)
	c.counters.publish(c)
}

func (cl *cluster) view() ClusterState {
	v := ClusterState{
		Desired: cl.desired, Version: cl.version, Active: cl.current, Assignment: cl.assignmentView(),
		Updated: cl.updated, Changed: cl.changed,
	}
	if cl.eds != nil {
		v.EndpointsVersion = cl.eds.version
	}
	return v
}

func refusedView(m map[string]*lastTry) map[string]RefusedState {
	out := make(map[string]RefusedState, len(m))
	for name, t := range m {
		out[name] = RefusedState{t.message, t.version, t.details, t.at}
	}
	return out
}
