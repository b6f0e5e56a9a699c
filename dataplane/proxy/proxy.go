package proxy

import (
	"log/slog"

	"github.com/guideway/guideway/dataplane/stats"
)

// Config of a proxy data plane.
type Config struct {
	// Workers is the number of event loops; 0 means one per CPU.
	Workers int
	Stats   *stats.Store
	Log     *slog.Logger
}
