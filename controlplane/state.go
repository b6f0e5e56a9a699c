package controlplane

import (
	"maps"
	"time"

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
	// ListenerUpdated is when each listener changed last.
	ListenerUpdated map[string]time.Time
	// Runtime layers in force, lowest first.
	Runtime []model.RuntimeLayer
	// Generation of the snapshot in force.
	Generation uint64
}

// ClusterState is one active cluster.
type ClusterState struct {
	Desired *model.Cluster
	Active  *dataplane.Cluster
	// Assignment as discovery found it last.
	Assignment *model.Assignment
	// Updated is when the desired state changed last, Changed when hosts, weights or health did, and
	// Disruption what that moved (nil for other policies than MAGLEV).
	Updated, Changed time.Time
	Disruption       *Disruption
}

// Disruption is what a change of a cluster's tables moved, in slots over all priorities.
type Disruption struct {
	// Moved slots changed their owner; Minimum is what any table had to move.
	Moved, Minimum, Size uint32
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
	s := *c.state.Load()
	s.Config, s.Node, s.Generation = c.config, c.config.Node, c.generation
	s.Listeners = c.listeners
	s.Runtime, s.ListenerUpdated = c.layers(), maps.Clone(c.listenerUpdated)
	s.Clusters = nil
	for _, name := range sortedNames(c.clusters) {
		cl := c.clusters[name]
		if cl.current != nil {
			s.Clusters = append(s.Clusters, ClusterState{Desired: cl.desired, Active: cl.current, Assignment: cl.assignmentView(), Updated: cl.updated, Changed: cl.changed, Disruption: cl.disruption})
		}
	}
	c.state.Store(&s)
	c.counters.publish(c)
}
