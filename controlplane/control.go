package controlplane

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/guideway/guideway/controlplane/health"
	"github.com/guideway/guideway/controlplane/hotrestart"
	"github.com/guideway/guideway/controlplane/logging"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/controlplane/xds"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
	"github.com/guideway/guideway/dataplane/stats"
)

// Options of a control loop.
type Options struct {
	// Config is the configuration to start with.
	Config *model.Config
	Stats  *stats.Store
	Log    *logging.Log
	Files  *accesslog.Files
	// Dataplane applies what the loop decides. The loop does not close it.
	Dataplane dataplane.Dataplane
	// DrainTime is --drain-time-s.
	DrainTime time.Duration
	// Workers of the data plane, for its gauge.
	Workers int
	// Drained are hosts that a former process had taken out.
	Drained []hotrestart.Drained
	// Dynamic is about resources that come by xDS.
	Dynamic DynamicOptions
}

// Control is the control loop of one process. Its methods are safe for concurrent use once Run has
// been called.
type Control struct {
	Options
	events   chan func()
	pressing chan func() // what cannot wait; see build.go
	ended    chan struct{}
	live     chan struct{}

	// Owned by the loop.
	config          *model.Config
	clusters        map[string]*cluster
	warming         map[string]*cluster // incarnations that will replace those in clusters
	probes          *health.Pool
	eventLogs       map[string]*os.File
	listeners       []*model.Listener
	runtime         map[string]string // merged
	overrides       map[string]string // the admin layer's; replaced, never changed
	listenerChanges map[string]listenerChange
	incarnation     uint64
	generation      uint64
	dirty           bool
	starting        bool
	healthFailed    bool // by FailHealthCheck
	stage           stage
	failure         error // why the start failed
	counters        counters
	ctx             context.Context

	// What comes by xDS; see dynamic.go.
	sources                         *xds.Client
	sourcesKey                      string
	clustersAnswered                bool
	listenersAnswered               bool
	clusterVersion, listenerVersion string
	refused                         refused
	failed                          []dataplane.ListenerFailure // of the last apply, by LDS
	warned                          map[string]bool
	http                            map[string]*httpServer
	restored                        restored
	unsaved                         bool // what has come is to be stored
	unseen                          bool // it is to be published
	saver                           *xds.Store

	// inForce is the snapshot that the data plane has; nil before the first.
	inForce *dataplane.Snapshot
	changes changeLog

	state atomic.Pointer[State]
}

// New returns a control loop for the options. It does nothing until Run.
func New(o Options) *Control {
	c := &Control{
		Options:         o,
		events:          make(chan func(), 256),
		pressing:        make(chan func(), 256),
		ended:           make(chan struct{}),
		live:            make(chan struct{}),
		clusters:        map[string]*cluster{},
		warming:         map[string]*cluster{},
		probes:          health.NewPool(0),
		eventLogs:       map[string]*os.File{},
		listenerChanges: map[string]listenerChange{},
		starting:        true,
		refused:         refused{clusters: map[string]*lastTry{}, listeners: map[string]*lastTry{}},
		warned:          map[string]bool{},
		http:            map[string]*httpServer{},
	}
	c.counters.bind(o.Stats)
	c.state.Store(&State{Phase: PreInitializing, Started: time.Now(), Config: o.Config, Node: o.Config.Node})
	return c
}

// Run serves until ctx ends. It returns an error only if the start fails: a static listener that cannot
// be bound, an access log that cannot be opened.
func (c *Control) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.ctx = ctx
	defer close(c.ended)
	defer c.stopClusters()
	defer c.endAllHTTP()
	if err := c.restore(); err != nil {
		c.Log.For("config").Warn("the stored state is not used", "reason", err)
	}
	defer c.endSaving()
	defer c.save() // what came last may not have been stored yet
	if err := c.load(ctx, c.Config); err != nil {
		return err
	}
	defer func() { c.sources.Close() }() // the last one: a reload may have made others
	server := newServerStats(c.Stats, c.Workers)
	flush := time.NewTicker(flushInterval(c.Config))
	defer flush.Stop()
	for {
		if err := c.settle(ctx); ctx.Err() != nil {
			return nil // whatever the start failed by, it was to end
		} else if err != nil {
			return err
		}
		c.sources.Hold(xds.Clusters, !c.starting && len(c.warming) > 0)
		c.sources.Flush()
		c.save()
		select {
		case <-ctx.Done():
			return nil
		case <-flush.C:
			server.update(c.state.Load().Started)
			c.Stats.Flush()
		case f := <-c.pressing:
			f()
		case f := <-c.events:
			f()
		}
		c.takeEvents() // what has queued up meanwhile becomes one change
	}
}

// flushInterval is stats_flush_interval, 5 s unless set.
func flushInterval(config *model.Config) time.Duration {
	if config.StatsFlushInterval > 0 {
		return config.StatsFlushInterval
	}
	return 5 * time.Second
}

// post has the loop run f. It is dropped if the loop has ended.
func (c *Control) post(f func()) {
	select {
	case c.events <- f:
	case <-c.ended:
	}
}

// do has the loop run f and waits until it has; it reports false if the loop ended before.
func (c *Control) do(f func()) bool {
	done := make(chan struct{})
	c.post(func() { f(); close(done) })
	select {
	case <-done:
		return true
	case <-c.ended:
		return false
	}
}

// settle puts in force what has changed, and takes the next steps of the start.
func (c *Control) settle(ctx context.Context) error {
	if c.promote() {
		c.dirty = true
	}
	if c.starting && c.failure == nil && c.advance() && c.starting {
		c.failure = c.goLive(ctx)
	}
	switch {
	case c.failure != nil:
		return c.failure
	case c.starting:
		c.publish()
	case c.dirty:
		c.dirty = false
		_ = c.apply(ctx) // reports what fails
		for _, f := range c.failed {
			c.Log.For("config").Error("a listener that came by LDS does not serve", "listener", f.Name, "reason", f.Err)
		}
	case c.unseen:
		c.publish()
	}
	return nil
}

// apply builds the next snapshot and hands it to the data plane. Errors are reported here, but
// for those of the start, which the caller gets.
func (c *Control) apply(ctx context.Context) error {
	before := c.changes.before(c, false)
	clusters, err := c.build(ctx)
	if err != nil {
		return err
	}
	snapshot := &dataplane.Snapshot{Clusters: clusters, MaxConnections: c.config.MaxConnections}
	for _, l := range c.listeners {
		snapshot.Listeners = append(snapshot.Listeners, l.Listener)
		if l.UDP != nil {
			for _, name := range l.UDP.Clusters {
				if cl := c.clusters[name]; cl != nil {
					cl.stats.BindUDP()
				}
			}
		}
	}
	err = c.put(ctx, snapshot, before)
	c.failed, err = c.splitFailures(err)
	if err != nil {
		if c.starting {
			return err
		}
		c.counters.listenerCreateFailure.Inc()
		c.Log.For("config").Error("not all of the change is in force", "reason", err)
	}
	c.publish()
	return nil
}
