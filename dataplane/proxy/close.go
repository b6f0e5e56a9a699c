package proxy

import (
	"math/rand/v2"
	"time"

	"github.com/guideway/guideway/dataplane/accesslog"
)

// reason says why this side ended a connection. The texts are those of Envoy's
// DOWNSTREAM_LOCAL_CLOSE_REASON and UPSTREAM_LOCAL_CLOSE_REASON, spelled as there.
type reason struct{ downstream, upstream string }

var (
	reasonNone          = reason{}
	reasonIdle          = bothSides("tcp_session_idle_timeout")
	reasonDuration      = bothSides("max_connection_duration_reached")
	reasonDrain         = bothSides("tcp_proxy_drain_close")
	reasonRBAC          = bothSides("rbac_deny_close")
	reasonShutdown      = bothSides("purging_socket_that_have_not_progressed_to_connections")
	reasonCloseAfter    = bothSides("guideway_close_after")
	reasonChainGone     = bothSides("filter_chain_is_being_removed")
	reasonOverLimit     = reason{downstream: "over_connection_limit"}
	reasonConnectFailed = reason{downstream: "tcp_initializion_failure:0"}
	reasonNoHost        = reason{downstream: "tcp_initializion_failure:1"}
	reasonOverflow      = reason{downstream: "tcp_initializion_failure:2"}
	reasonNoCluster     = reason{downstream: "tcp_initializion_failure:3"}
)

func bothSides(s string) reason { return reason{s, s} }

// How an end was seen (DOWNSTREAM_DETECTED_CLOSE_TYPE and the like).
const (
	typeNormal      = "Normal"
	typeRemoteReset = "RemoteReset"
	typeLocalReset  = "LocalReset"
)

// endReason is all that a log line tells of an end.
type endReason struct {
	reason
	downType, upType string
}

// finish ends a connection whose both directions have ended in order.
func (c *conn) finish() {
	c.endDownstream(reasonNone, typeNormal, typeNormal)
	c.endUpstream(!c.upShutEnd)
	c.free()
}

// kill closes both sides at once, without flushing what is held.
func (c *conn) kill(r reason) {
	if c.chain == nil {
		c.endUncounted()
		return
	}
	if c.x != nil && c.x.waiting != nil {
		c.t.shared.queues.abandon(c.host.State, c.x.waiting)
		c.x.waiting = nil
	}
	if c.x != nil && c.x.race != nil {
		c.x.race.stop()
	}
	c.dropAll()
	if !c.upActive {
		r.upstream = "" // there was none
	}
	if c.pending {
		c.cluster.Stats.UpstreamRqCancelled.Inc()
	}
	c.endDownstream(r, typeNormal, typeNormal)
	c.endUpstream(false)
	c.free()
}

// dropAll discards what is held, and tells the gauges.
func (c *conn) dropAll() {
	if c.early > 0 {
		c.chain.tcp.RxBytesBuffered.Add(-int64(c.early))
		c.early = 0
	}
	if c.cluster != nil && c.cluster.Stats != nil {
		c.dropHeld(&c.toUp, c.cluster.Stats.UpstreamCxTxBytesBuffered)
	}
	if c.chain != nil && c.chain.tcp != nil {
		c.dropHeld(&c.toDown, c.chain.tcp.TxBytesBuffered)
	}
}

// clientReset ends a connection whose client reset it: the upstream gets a reset too, and no more bytes.
func (c *conn) clientReset() {
	c.dropAll()
	c.endDownstream(reasonNone, typeRemoteReset, typeNormal)
	if c.up.open {
		sysResetOnClose(int(c.up.fd))
	}
	c.endUpstream(false)
	c.free()
}

// upstreamReset ends a connection whose upstream reset it: the client gets all that came before, then a
// reset. The reset would throw away what the kernel has not delivered yet, so that is waited for.
func (c *conn) upstreamReset() {
	c.log |= accesslog.FlagUpstreamRemoteReset
	c.dropHeld(&c.toUp, c.cluster.Stats.UpstreamCxTxBytesBuffered)
	c.toUp.ended, c.toUp.shut = true, true
	c.state = stateResetting
	c.endUpstream(true)
	c.finishReset()
}

// resetPoll is how often the client's acknowledgements are looked at before a reset.
const resetPoll = 5 * time.Millisecond

func (c *conn) finishReset() {
	if sysUnsent(int(c.down.fd)) > 0 && !c.down.failed {
		c.t.w.timers.arm(&c.phase, c.t.w.now, resetPoll)
		return
	}
	c.endDownstream(reasonNone, typeLocalReset, typeRemoteReset)
	c.down.reset()
	c.free()
}

// endDownstream writes the end line and takes the client's connection out of the counts. Its socket is
// closed after that: whoever sees the end finds it counted.
func (c *conn) endDownstream(r reason, down, up string) {
	if !c.counted {
		return
	}
	c.counted = false
	c.logLine(accesslog.TCPConnectionEnd, endReason{r, down, up})
	t, l := c.t, c.ln
	t.shared.connections.Add(-1)
	l.open.Add(-1)
	l.stats.CxDestroy.Inc()
	l.stats.CxActive.Dec()
	l.stats.Workers[t.w.index].CxActive.Dec()
	l.stats.CxLengthMs.Record(milliseconds(t.since() - c.start))
	for _, f := range c.chain.limits[:c.limits] {
		f.leave()
	}
	c.limits = 0
	t.w.timers.disarm(&c.phase)
	if c.x != nil {
		t.w.timers.disarm(&c.x.maxDuration)
		t.w.timers.disarm(&c.x.periodic)
	}
}

// endUncounted ends a connection that no filter chain took.
func (c *conn) endUncounted() {
	c.leaveFilters()
	c.t.shared.connections.Add(-1)
	c.ln.open.Add(-1)
	c.free()
}

// durationOver is the end of max_downstream_connection_duration.
func (c *conn) durationOver() {
	c.log |= accesslog.FlagDurationTimeout
	c.chain.tcp.MaxDuration.Inc()
	c.kill(reasonDuration)
}

// drainClose closes the connection after bytes have moved if its listener is draining
// (check_drain_close), once what is held is written.
func (c *conn) drainClose() {
	if !c.draining {
		if !c.drainNow() {
			return
		}
		c.draining = true
		c.chain.tcp.DrainClose.Inc()
	}
	if !c.toUp.holds() && !c.toDown.holds() {
		c.kill(reasonDrain)
	}
}

// drainNow decides as Envoy does: always when the process fails its health check, by a probability that
// grows over the drain time when the listener drains.
func (c *conn) drainNow() bool {
	if c.t.shared.draining.Load() && !c.ln.cfg.DrainModifyOnly {
		return true
	}
	d := c.ln.drain
	if !d.begun() {
		return false
	}
	return c.t.w.cfg.DrainImmediately || rand.Float64() < d.share(c.t.w.now)
}
