package proxy

import (
	"time"

	"github.com/guideway/guideway/dataplane"
)

// tcpState is what a worker keeps for TCP.
type tcpState struct {
	w      *worker
	shared *process
}

func (t *tcpState) init(w *worker, p *process) { t.w, t.shared = w, p }

func (t *tcpState) applied(old, new *dataplane.Snapshot) {}

func (t *tcpState) drainChains(gone map[*liveChain]bool, d time.Duration, done func()) {}

func (t *tcpState) end() {}
