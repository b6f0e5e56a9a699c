package stats

import "sync"

// Histogram collects values (milliseconds, counts). The zero value is ready; safe for concurrent use.
type Histogram struct {
	mu    sync.Mutex
	count uint64
	sum   float64
}

// Record adds one value.
func (h *Histogram) Record(v float64) {
	h.mu.Lock()
	h.count++
	h.sum += v
	h.mu.Unlock()
}
