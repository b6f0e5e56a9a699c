package admin

import (
	"context"
	"errors"
	"net/netip"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"

	"github.com/guideway/guideway/controlplane/logging"
	"github.com/guideway/guideway/controlplane/plan"
	"github.com/guideway/guideway/dataplane"
)

// State is what the admin server shows of the process, and what it can do to it. Methods are called
// from any goroutine, several at a time; what they return must not change afterwards.
type State interface {
	// Phase is the answer to /ready.
	Phase() adminv3.ServerInfo_State
	// ServerInfo is the body of /server_info. Its state is filled in from Phase.
	ServerInfo() *adminv3.ServerInfo
	// Clusters in force, in any order; warming ones are not among them.
	Clusters() []Cluster
	// Listeners in configuration order, also stopped ones, with real ports where 0 was configured.
	Listeners() []dataplane.ListenerStatus
	// ConfigDump is what /config_dump shows besides endpoints.
	ConfigDump() ConfigDump
	// Runtime is the layers of the runtime and their values.
	Runtime() Runtime

	// Logging is the process log, whose levels /logging shows and sets.
	Logging() *logging.Log
	// ReopenLogs opens log files anew, as SIGUSR1 does.
	ReopenLogs()
	// FailHealthCheck makes Phase DRAINING (or LIVE again); traffic goes on.
	FailHealthCheck(fail bool)
	// Drain stops listeners.
	Drain(Drain)
	// ModifyRuntime sets keys of the admin layer of the runtime; an empty value takes the override
	// away. The error is ErrNoAdminLayer if there is no such layer.
	ModifyRuntime(map[string]string) error
	// Quit ends the process in an orderly way, soon; it returns at once.
	Quit()

	// DrainHost takes hosts out for new flows, or back in; "" is every cluster that has the address. The
	// error is ErrNoHost if none has it.
	DrainHost(cluster string, address netip.AddrPort, drain bool) ([]Host, error)
	// Plan says what a bootstrap, as YAML or JSON text, would change. The error is ErrInvalid if the text
	// is not one that can be served.
	Plan(ctx context.Context, text string) (*plan.Change, error)
	// Changes are the last changes of what is in force, newest first.
	Changes() []*plan.Change
}

// Host is a host of a cluster.
type Host struct {
	Cluster string
	Address netip.AddrPort
	Health  dataplane.Health
	State   *dataplane.HostState
}

// ErrNoHost and ErrInvalid are wrapped by what State's methods return.
var (
	ErrNoHost  = errors.New("no such host")
	ErrInvalid = errors.New("the configuration is not valid")
)

// ErrNoAdminLayer is the error of ModifyRuntime without an admin layer in layered_runtime.
var ErrNoAdminLayer = errors.New("No admin layer specified")

// Drain says how /drain_listeners stops listeners.
type Drain struct {
	// InboundOnly spares listeners whose traffic direction is not inbound.
	InboundOnly bool
	// Graceful lets them accept for the drain time before they stop.
	Graceful bool
	// SkipExit drains without ever stopping them.
	SkipExit bool
}

// Cluster is an active cluster.
type Cluster struct {
	*dataplane.Cluster
	// Policy is the name of the load balancing policy (MAGLEV ...), Discovery the kind of cluster
	// (STATIC, STRICT_DNS, LOGICAL_DNS, EDS); both are for people.
	Policy, Discovery string
	// Outlier tells whether outlier detection is on.
	Outlier bool
	// OverprovisioningFactor in percent.
	OverprovisioningFactor uint32
	// LocalityWeight by priority and locality; without an entry the weight is 0.
	LocalityWeight map[LocalityKey]uint32
	// EDSVersion is the version of the endpoints, for clusters whose endpoints come by EDS.
	EDSVersion string
	// Changed is when hosts, weights or health changed last, and Disruption what that did to the table.
	// Both may be zero.
	Changed    time.Time
	Disruption *Disruption
}

// LocalityKey names a locality within a priority.
type LocalityKey struct {
	Priority uint32
	Locality dataplane.Locality
}

// Disruption is what the last change of a table moved, in slots.
type Disruption struct {
	// Moved slots changed their owner; Minimum is what any table had to move.
	Moved, Minimum, Size uint32
}

// ConfigDump holds the parts of a configuration dump. Absent parts are left out.
type ConfigDump struct {
	Bootstrap *adminv3.BootstrapConfigDump
	Clusters  *adminv3.ClustersConfigDump
	Listeners *adminv3.ListenersConfigDump
}

// Runtime is the runtime as /runtime shows it.
type Runtime struct {
	// Layers by name, lowest first.
	Layers []string
	// Entries holds for each key its value in each layer, "" for none.
	Entries map[string][]string
}
