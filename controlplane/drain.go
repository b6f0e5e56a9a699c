package controlplane

import (
	"time"
)

// Live is closed when the start is over and listeners accept.
func (c *Control) Live() <-chan struct{} { return c.live }

// Rejected counts a changed configuration that was refused.
func (c *Control) Rejected() { c.counters.reloadRejected.Inc() }

// FailHealthCheck makes /ready answer 503 (or 200 again), so that whoever announces or balances this
// instance takes it out. Traffic goes on. It is in force on return; during the start, from its end on.
func (c *Control) FailHealthCheck(fail bool) {
	c.do(func() {
		c.healthFailed = fail
		switch phase := c.state.Load().Phase; {
		case fail && phase == Live:
			c.phase(Draining)
		case !fail && phase == Draining:
			c.phase(Live)
		}
		c.Dataplane.SetDraining(fail)
	})
}

// DrainListeners stops listeners, all or only the inbound ones, at once or after grace. Established TCP
// connections go on.
func (c *Control) DrainListeners(inboundOnly bool, grace time.Duration) {
	c.do(func() {
		var names []string
		for _, l := range c.listeners {
			if !inboundOnly || l.Inbound {
				names = append(names, l.Name)
			}
		}
		if len(names) > 0 {
			c.Dataplane.DrainListeners(names, grace)
		}
	})
}
