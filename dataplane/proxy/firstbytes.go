package proxy

import "golang.org/x/sys/unix"

// earlyData waits for the client's first bytes, which start the connect (ON_DOWNSTREAM_DATA).
func (c *conn) earlyData() {
	if !c.down.readable {
		return
	}
	if c.checkRBAC && !c.decideRBAC() {
		return
	}
	p := c.chain.cfg.Proxy
	n, e := sysRead(int(c.down.fd), c.t.buf[:min(max(int(p.MaxEarlyData), bulkRead), readSize)])
	switch {
	case e == unix.EAGAIN:
		c.down.readable = false
		return
	case e != 0:
		c.clientReset()
		return
	}
	c.chain.tcp.EarlyData.Inc()
	if n == 0 {
		c.kill(reasonNone) // nothing will ever come
		return
	}
	c.last = c.t.since()
	c.toUp.read += uint64(n)
	c.chain.tcp.RxBytesTotal.Add(uint64(n))
	c.chain.tcp.RxBytesBuffered.Add(int64(n))
	c.toUp.keep(c.t, c.t.buf[:n])
	c.early = int32(n)
	c.connect()
}

// decideRBAC asks the rules at the client's first byte, or its end; false if the connection is over or
// there is no byte yet.
func (c *conn) decideRBAC() bool {
	_, e := sysPeek(int(c.down.fd), c.t.buf[:1])
	if e == unix.EAGAIN {
		c.down.readable = false
		return c.state == stateOpen // the other direction may go on
	}
	if e != 0 {
		c.clientReset()
		return false
	}
	c.checkRBAC = false
	a := c.addrs()
	for _, r := range c.chain.rbac {
		ok, policy := r.cfg.Allowed(a)
		if ok {
			r.allowed.Inc()
			continue
		}
		r.denied.Inc()
		// What has come is read, so that the close is an orderly end.
		if n, e := sysRead(int(c.down.fd), c.t.buf); e == 0 {
			c.denied = uint32(n)
			c.chain.tcp.RxBytesTotal.Add(uint64(n))
		}
		if policy == "" {
			policy = "none"
		}
		c.more().termination = "rbac_access_denied_matched_policy[" + policy + "]"
		c.kill(reasonRBAC)
		return false
	}
	return true
}
