package health

import "time"

// HoldDown keeps a host that failed its checks out for a while even if it passes them again, longer
// with each failure that follows soon, so that a flapping host does not move flows each time.
// Guideway's own; the zero value is off, and then Envoy's rules are all there is.
type HoldDown struct {
	// Base is how long a host stays out after its first failure; it doubles with each next one.
	Base time.Duration
	// Max bounds that. A host that stayed up for Max starts again with Base. Below Base means Base.
	Max time.Duration
}

// holdState is the hold-down of one host.
type holdState struct {
	until time.Time // out till then
	upAt  time.Time // when it last came back
	last  time.Duration
}

// down notes that the host failed.
func (h *holdState) down(c HoldDown, now time.Time) {
	if c.Base <= 0 {
		return
	}
	limit := max(c.Max, c.Base)
	if h.last == 0 || now.Sub(h.upAt) >= limit {
		h.last = c.Base
	} else {
		h.last = min(2*h.last, limit)
	}
	h.until = now.Add(h.last)
}

// up notes that the host came back.
func (h *holdState) up(now time.Time) { h.upAt = now }

// over reports whether the host may come back.
func (h *holdState) over(now time.Time) bool { return !now.Before(h.until) }
