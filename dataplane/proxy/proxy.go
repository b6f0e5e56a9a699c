package proxy

import (
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/guideway/guideway/dataplane/stats"
)

// Config of a proxy data plane.
type Config struct {
	// Workers is the number of event loops; 0 means one per CPU.
	Workers int
	Stats   *stats.Store
	Log     *slog.Logger
	// DrainTime is how long connections of a removed or replaced listener or filter chain may go on
	// before they are cut; 0 means Envoy's 600 s, less than 0 cuts them at once.
	DrainTime time.Duration
	// Handed are listening sockets of a former process, in place of which none are bound: the listeners of
	// the first snapshot take those of their addresses, the others are closed.
	Handed []HandedSockets
	// DrainImmediately makes filters with check_drain_close close connections at the begin of a drain;
	// otherwise the share of them grows over the drain time (--drain-strategy).
	DrainImmediately bool
}

// New starts the workers of a proxy data plane; it serves nothing before the first Apply.
func New(c Config) (*Server, error) {
	if c.Stats == nil {
		return nil, errors.New("proxy: no stats store given")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Workers <= 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.DrainTime == 0 {
		c.DrainTime = 600 * time.Second
	}
	return start(c)
}
