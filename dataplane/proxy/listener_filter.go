package proxy

import (
	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// listenerFilter looks at a client's first bytes before a filter chain is chosen. It belongs to a
// listener and is shared by all workers.
type listenerFilter interface {
	// run looks at b, all that has come so far and is not consumed. It returns how many bytes of it are
	// to be taken out of the stream.
	run(c *conn, b []byte) (take int, v verdict)
}

// verdict of a listener filter.
type verdict uint8

const (
	filterMore verdict = iota // more bytes are needed
	filterDone
	filterRefuse // the connection is to be closed
)

func (l *liveListener) makeFilters(store *stats.Store) {
	for _, f := range l.cfg.ListenerFilters {
		switch f := f.(type) {
		case *dataplane.ProxyProtocolFilter:
			n, scopes := newProxyProtocol(store, f)
			l.filters = append(l.filters, n)
			l.scopes = append(l.scopes, scopes...)
		case *dataplane.TLSInspector:
			n, scope := newTLSInspector(store)
			l.filters = append(l.filters, n)
			l.scopes = append(l.scopes, scope)
		}
	}
}

// beginFilters waits for the client's first bytes.
func (c *conn) beginFilters() {
	c.state = stateFiltering
	c.more()
	c.ln.stats.PreCxActive.Inc()
	if err := c.down.watch(); err != nil {
		c.endUncounted()
		return
	}
	if d := c.ln.cfg.FiltersTimeout; d > 0 {
		c.t.w.timers.arm(&c.phase, c.t.w.now, d)
	}
}

// leaveFilters ends the stage of listener filters, however it ends.
func (c *conn) leaveFilters() {
	if c.state == stateFiltering {
		c.state = stateFree
		c.ln.stats.PreCxActive.Dec()
		c.t.w.timers.disarm(&c.phase)
	}
}

// runFilters runs as many filters as the bytes that have come allow.
func (c *conn) runFilters() {
	for c.x.filter < len(c.ln.filters) {
		if !c.down.readable {
			return
		}
		fd := int(c.down.fd)
		n, e := sysPeek(fd, c.t.buf)
		switch {
		case e == unix.EAGAIN:
			c.down.readable = false
			return
		case e != 0:
			c.ln.stats.FilterError.Inc()
			c.endUncounted()
			return
		case n == 0:
			c.ln.stats.FilterClosed.Inc()
			c.endUncounted()
			return
		}
		take, v := c.ln.filters[c.x.filter].run(c, c.t.buf[:n])
		switch v {
		case filterMore:
			if c.down.ended {
				c.ln.stats.FilterClosed.Inc()
				c.endUncounted()
				return
			}
			c.down.readable = false // until there is more than was seen
			return
		case filterRefuse:
			c.endUncounted()
			return
		}
		for take > 0 {
			n, e := sysRead(fd, c.t.buf[:take])
			if e != 0 || n == 0 {
				c.ln.stats.FilterError.Inc()
				c.endUncounted()
				return
			}
			take -= n
		}
		c.x.filter++
	}
	c.leaveFilters()
	c.chooseChain()
}

// filtersTimedOut is the end of listener_filters_timeout.
func (c *conn) filtersTimedOut() {
	c.ln.stats.PreCxTimeout.Inc()
	if !c.ln.cfg.ContinueOnFiltersTimeout {
		c.endUncounted()
		return
	}
	c.leaveFilters()
	c.chooseChain()
}
