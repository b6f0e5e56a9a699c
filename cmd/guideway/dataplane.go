package main

import (
	"time"

	"github.com/guideway/guideway/controlplane/logging"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/mode"
	"github.com/guideway/guideway/dataplane/proxy"
	"github.com/guideway/guideway/dataplane/stats"
	"github.com/guideway/guideway/dataplane/xdp"
)

// newDataplane starts the data planes that a configuration may need: the proxy at once, XDP when the first
// listener wants it. handed are the listening sockets of a former process.
func newDataplane(f *serveFlags, log *logging.Log, store *stats.Store, config *model.Config, handed []proxy.HandedSockets) (*mode.Plane, *proxy.Server, error) {
	sockets, err := proxy.New(proxy.Config{
		Workers: f.workers(), Stats: store, Log: log.For("proxy"),
		DrainTime: time.Duration(f.drainTime) * time.Second, DrainImmediately: f.drainStrategy == "immediate", Handed: handed,
	})
	if err != nil {
		return nil, nil, err
	}
	own := config.Guideway
	return mode.New(mode.Config{
		Mode: own.Dataplane, Interfaces: own.Interfaces, RequireNative: f.requireNative, Proxy: sockets,
		OpenXDP: func(modes []xdp.Mode, listeners []*dataplane.Listener, clusters map[string]*dataplane.Cluster) (mode.XDPPlane, error) {
			return xdp.Open(xdp.Config{
				Interfaces: own.Interfaces, Modes: modes, Pins: f.pins, Sources: own.OuterSources, Stats: store, Log: log.For("xdp"),
			}, listeners, clusters)
		},
		Stats: store, Log: log.For("main"),
	}), sockets, nil
}
