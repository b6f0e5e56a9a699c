package controlplane

import (
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/guideway/guideway/controlplane/admin"
	"github.com/guideway/guideway/controlplane/hotrestart"
	"github.com/guideway/guideway/controlplane/logging"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
)

// Process is what the admin server shows of this process, and steers. It implements admin.State.
type Process struct {
	*Control
	// Version in Envoy's form: sha/x.y.z/status/type/ssl.
	Version string
	// Options are the command line as /server_info shows it.
	Options *adminv3.CommandLineOptions
	Files   *accesslog.Files
	// Reopened is told when log files are to be opened anew.
	Reopen func()
	// Stop ends the process in an orderly way, soon.
	Stop func()
	// FirstStarted is when the first process of a row of hot restarts started; zero for this one's start.
	FirstStarted time.Time
	// Read turns the text of a bootstrap into a configuration as the process would load it.
	Read func(text string) (*model.Config, error)
}

var _ admin.State = (*Process)(nil)

// Phase implements admin.State.
func (p *Process) Phase() adminv3.ServerInfo_State {
	return adminv3.ServerInfo_State(p.State().Phase) // the numbers are Envoy's
}

// ServerInfo implements admin.State.
func (p *Process) ServerInfo() *adminv3.ServerInfo {
	s := p.State()
	up := durationpb.New(time.Since(s.Started).Truncate(time.Second))
	all := up
	if !p.FirstStarted.IsZero() {
		all = durationpb.New(time.Since(p.FirstStarted).Truncate(time.Second))
	}
	return &adminv3.ServerInfo{
		Version:            p.Version,
		HotRestartVersion:  p.hotRestartVersion(),
		CommandLineOptions: p.Options,
		UptimeCurrentEpoch: up,
		UptimeAllEpochs:    all,
		Node:               nodeProto(s, p.Version),
	}
}

// hotRestartVersion is the version of the protocol between processes; "disabled" without one.
func (p *Process) hotRestartVersion() string {
	if p.Options.GetDisableHotRestart() {
		return "disabled"
	}
	return hotrestart.Version
}

func nodeProto(s *State, version string) *corev3.Node {
	n := &corev3.Node{Id: s.Node.ID, Cluster: s.Node.Cluster}
	identify(n, version)
	if l := s.Node.Locality; l != (dataplane.Locality{}) {
		n.Locality = &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
	}
	return n
}

// Clusters implements admin.State.
func (p *Process) Clusters() []admin.Cluster {
	s := p.State()
	out := make([]admin.Cluster, 0, len(s.Clusters))
	for i := range s.Clusters {
		c := &s.Clusters[i]
		view := admin.Cluster{
			Cluster:                c.Active,
			Policy:                 c.Desired.LB.Policy.String(),
			Discovery:              c.Desired.Discovery.String(),
			Outlier:                c.Desired.Outlier != nil,
			OverprovisioningFactor: c.Assignment.OverprovisioningFactor,
			EDSVersion:             c.EndpointsVersion,
			Changed:                c.Changed,
			LocalityWeight:         map[admin.LocalityKey]uint32{},
		}
		for _, l := range c.Assignment.Localities {
			if l.HasLocality && l.HasWeight {
				view.LocalityWeight[admin.LocalityKey{Priority: l.Priority, Locality: l.Locality}] = l.Weight
			}
		}
		if d := p.lastDisruption(c.Active.Name); d != nil {
			view.Disruption = &admin.Disruption{Moved: d.Moved, Minimum: d.Minimum, Size: d.Size}
		}
		out = append(out, view)
	}
	return out
}

// Listeners implements admin.State.
func (p *Process) Listeners() []dataplane.ListenerStatus {
	list := p.Dataplane.Listening()
	for _, h := range p.State().HTTP {
		list = append(list, h.Status)
	}
	return list
}

// Runtime implements admin.State.
func (p *Process) Runtime() admin.Runtime {
	r := admin.Runtime{Entries: map[string][]string{}}
	layers := p.State().Runtime
	for _, l := range layers {
		r.Layers = append(r.Layers, l.Name)
	}
	for i, l := range layers {
		for key, value := range l.Values {
			if r.Entries[key] == nil {
				r.Entries[key] = make([]string, len(layers))
			}
			r.Entries[key][i] = value
		}
	}
	return r
}

// Logging implements admin.State.
func (p *Process) Logging() *logging.Log { return p.Log }

// ReopenLogs implements admin.State.
func (p *Process) ReopenLogs() { p.Reopen() }

// FailHealthCheck implements admin.State.
func (p *Process) FailHealthCheck(fail bool) { p.Control.FailHealthCheck(fail) }

// Drain implements admin.State.
func (p *Process) Drain(d admin.Drain) {
	if d.SkipExit {
		p.Dataplane.SetDraining(true)
		return
	}
	grace := time.Duration(0)
	if d.Graceful {
		grace = p.DrainTime
		p.Dataplane.SetDraining(true)
	}
	p.DrainListeners(d.InboundOnly, grace)
}

// ModifyRuntime implements admin.State.
func (p *Process) ModifyRuntime(values map[string]string) error { return p.modifyRuntime(values) }

// Quit implements admin.State.
func (p *Process) Quit() { p.Stop() }
