package controlplane

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane/xds"
)

// restored is what a former run of the process stored: it serves while the management server cannot be
// reached at a start.
type restored struct {
	clusters, listeners []*xds.Resource
	endpoints           map[string]*xds.Resource
	// inUse is set once the server could not be reached and the stored state came into force.
	inUse bool
}

// restore reads the state directory. What cannot be used is reported, and the start goes on without.
func (c *Control) restore() error {
	if c.Dynamic.StateDir == "" {
		return nil
	}
	var err error
	if c.saver, err = xds.OpenStore(c.Dynamic.StateDir, c.Log.For("config")); err != nil {
		return err
	}
	state, err := c.saver.Load()
	if err != nil {
		return err
	}
	c.config = c.Config // for the translation of resources
	parser := xds.New(xds.Deps{Context: c.ctx, Env: c.env(), Stats: c.Stats, Log: c.Log.For("config"), Post: c.post})
	defer parser.Close()
	parse := func(list []xds.Stored) []*xds.Resource {
		var out []*xds.Resource
		for _, s := range list {
			r := parser.Parse(s.Message)
			r.Name, r.Version = s.Name, s.Version
			out = append(out, r)
		}
		return out
	}
	c.restored.clusters, c.restored.listeners = parse(state.Clusters), parse(state.Listeners)
	c.restored.endpoints = map[string]*xds.Resource{}
	for _, r := range parse(state.Endpoints) {
		if r.Err == nil {
			c.restored.endpoints[r.Name] = r
		}
	}
	return nil
}

// save stores what has come by xDS, if it changed. Until the server has been heard the former state stays.
func (c *Control) save() {
	if c.saver == nil || !c.unsaved || c.starting || c.restored.inUse && !c.sources.Heard() {
		return
	}
	c.unsaved = false
	c.restored = restored{} // what is in force now is newer
	var state xds.State
	add := func(list *[]xds.Stored, name, version string, m proto.Message) {
		if m != nil {
			*list = append(*list, xds.Stored{Name: name, Version: version, Message: m})
		}
	}
	for _, name := range c.apiClusters() {
		cl := c.newest(name)
		add(&state.Clusters, name, cl.version, cl.desired.Source)
	}
	seen := map[string]bool{}
	for _, clusters := range []map[string]*cluster{c.warming, c.clusters} {
		for _, name := range sortedNames(clusters) {
			cl := clusters[name]
			if resource := resourceName(cl.desired); cl.eds != nil && !seen[resource] && cl.eds.message != nil {
				seen[resource] = true
				add(&state.Endpoints, resource, cl.eds.version, cl.eds.message)
			}
		}
	}
	for _, l := range c.listeners {
		if l.AddedViaAPI {
			add(&state.Listeners, l.Name, c.listenerChanges[l.Name].version, l.Source)
		}
	}
	for _, name := range sortedNames(c.http) {
		if h := c.http[name]; h.api {
			add(&state.Listeners, name, h.version, h.Source)
		}
	}
	c.saver.Save(state)
}

func (c *Control) endSaving() {
	if c.saver == nil {
		return
	}
	if err := c.saver.Close(); err != nil {
		c.Log.For("config").Error(fmt.Sprintf("the state directory does not hold the last state: %v", err))
	}
}
