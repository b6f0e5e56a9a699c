package proxy

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
	"github.com/guideway/guideway/dataplane/stats"
)

// connect begins the next attempt to connect to a host: cluster, breakers, host, socket. Each attempt
// asks all of it anew, as Envoy does.
func (c *conn) connect() {
	p := c.chain.cfg.Proxy
	for {
		cluster := c.t.w.cluster(pickCluster(p))
		if cluster == nil {
			c.log |= accesslog.FlagNoCluster
			c.chain.tcp.CxNoRoute.Inc()
			c.kill(reasonNoCluster)
			return
		}
		c.cluster = cluster
		limits := &cluster.Breakers.Default
		if !below(&cluster.Live.Connections, limits.MaxConnections) {
			c.log |= accesslog.FlagUpstreamOverflow
			cluster.Stats.UpstreamCxOverflow.Inc()
			c.kill(reasonOverflow)
			return
		}
		if c.attempts >= max(p.MaxConnectAttempts, 1) {
			c.log |= accesslog.FlagUpstreamRetryLimit
			cluster.Stats.UpstreamCxConnectAttemptsExceeded.Inc()
			c.kill(reasonConnectFailed)
			return
		}
		hash, hashed := cluster.HashPolicy(p.Hash).HashOf(dataplane.TCP, c.remoteAddr(), c.hashLocal(p))
		host := cluster.Balancer.Pick(hash, hashed)
		if host == nil {
			c.log |= accesslog.FlagNoHealthyUpstream
			cluster.Stats.UpstreamCxNoneHealthy.Inc()
			c.kill(reasonNoHost)
			return
		}
		c.attempts++
		overflow := !below(&cluster.Live.Pending, limits.MaxPendingRequests)
		c.noteAttempt(host, overflow)
		if overflow {
			cluster.Stats.UpstreamRqPendingOverflow.Inc()
			c.host = nil
		} else {
			c.host = host
			c.beginPending()
			if c.mustQueue() {
				return
			}
			if c.dial() {
				return
			}
		}
		if c.waitBackoff() {
			return
		}
	}
}

// hashLocal is the local address where the hash needs it: finding it may cost a system call.
func (c *conn) hashLocal(p *dataplane.TCPProxy) netip.AddrPort {
	if p.Hash.Kind != dataplane.HashFiveTuple {
		return netip.AddrPort{}
	}
	return c.localAddr()
}

func pickCluster(p *dataplane.TCPProxy) string {
	switch len(p.Clusters) {
	case 0:
		return ""
	case 1:
		return p.Clusters[0].Name
	}
	n := rand.Uint64N(max(p.TotalWeight, 1))
	for i := range p.Clusters {
		w := uint64(p.Clusters[i].Weight)
		if n < w {
			return p.Clusters[i].Name
		}
		n -= w
	}
	return p.Clusters[len(p.Clusters)-1].Name
}

// waitBackoff arms the time to the next attempt; false if there is none, and the attempt is due.
func (c *conn) waitBackoff() bool {
	b := c.chain.cfg.Proxy.Backoff
	if b == nil || c.attempts >= max(c.chain.cfg.Proxy.MaxConnectAttempts, 1) {
		return false
	}
	c.state = stateBackoff
	c.t.w.timers.arm(&c.phase, c.t.w.now, jitteredBackoff(b, c.attempts-1))
	return true
}

// noteAttempt keeps the hosts of all attempts for the log. A single one is c.host, and needs no list.
func (c *conn) noteAttempt(h *dataplane.Host, overflow bool) {
	if len(c.chain.cfg.Proxy.AccessLog) == 0 || c.attempts == 1 && !overflow {
		return
	}
	x := c.more()
	if len(x.attempted) == 0 && c.host != nil {
		x.attempted = append(x.attempted, c.host.Address)
	}
	x.attempted = append(x.attempted, h.Address)
}

// below reports whether one more may be opened.
func below(g *stats.Gauge, limit uint32) bool { return g.Value() < int64(limit) }

// count adds d to a resource of a cluster and keeps its "open" gauge right: 1 while the breaker is open.
func count(g *stats.Gauge, d int64, limit uint32, open *stats.Gauge) {
	is := int64(0)
	if g.Add(d) >= int64(limit) {
		is = 1
	}
	if open.Value() != is {
		open.Set(is)
	}
}

func (c *conn) beginPending() {
	cl := c.cluster
	cl.Stats.UpstreamRqPendingTotal.Inc()
	cl.Stats.UpstreamRqPendingActive.Inc()
	c.host.State.RqPendingActive.Add(1)
	count(&cl.Live.Pending, 1, cl.Breakers.Default.MaxPendingRequests, cl.Stats.RqPendingOpen)
	c.pending = true
}

func (c *conn) endPending() {
	if !c.pending {
		return
	}
	cl := c.cluster
	c.pending = false
	cl.Stats.UpstreamRqPendingActive.Dec()
	c.host.State.RqPendingActive.Add(-1)
	count(&cl.Live.Pending, -1, cl.Breakers.Default.MaxPendingRequests, cl.Stats.RqPendingOpen)
}

// dial opens a socket to the picked host; false if the attempt has failed already.
func (c *conn) dial() bool {
	cl, h := c.cluster, c.host
	cl.Stats.UpstreamCxTotal.Inc()
	cl.Stats.UpstreamCxActive.Inc()
	h.State.CxTotal.Add(1)
	h.State.CxActive.Add(1)
	count(&cl.Live.Connections, 1, cl.Breakers.Default.MaxConnections, cl.Stats.CxOpen)
	c.upOpen = true
	c.upID = c.t.shared.connectionIDs.Add(1)
	c.connectAt = c.t.since()
	c.state = stateConnecting

	var e unix.Errno
	if len(h.AdditionalAddresses) > 0 {
		e = c.startRace()
	} else {
		e = c.t.dial(&c.up, cl, h.Address)
	}
	if e != 0 {
		c.connectFailed("immediate_connect_error:_", e, false)
		return false
	}
	c.t.w.timers.arm(&c.phase, c.t.w.now, cl.ConnectTimeout)
	return true
}

// dial begins a connect on side s.
func (t *tcpState) dial(s *side, cl *dataplane.Cluster, to netip.AddrPort) unix.Errno {
	var sa sockaddr
	sa.set(to)
	fd, e := sysSocket(sa.family)
	if e == unix.EMFILE || e == unix.ENFILE {
		t.descriptors.exhausted("cluster "+cl.Name, e)
		fd, e = sysSocket(sa.family) // from the reserve
	}
	if e != 0 {
		return e
	}
	s.fd, s.open = int32(fd), true
	sysSetInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if cl.Keepalive != nil {
		if err := setKeepalive(fd, cl.Keepalive); err != nil {
			t.w.log.Warn("upstream connection without the configured keepalive", "cluster", cl.Name, "error", err)
		}
	}
	if cl.BindAddress.IsValid() {
		var from sockaddr
		from.set(cl.BindAddress)
		if cl.BindAddress.Port() == 0 {
			// The port is chosen at the connect, by both addresses: more than 28,000 connections.
			sysSetInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		}
		if e := sysBind(fd, &from); e != 0 {
			cl.Stats.BindErrors.Inc()
			s.close()
			return e
		}
	}
	if e := sysConnect(fd, &sa); e != 0 && e != unix.EINPROGRESS {
		s.close()
		return e
	}
	if err := s.watch(); err != nil {
		s.close()
		return unix.ENOMEM
	}
	return 0
}

// connectReady hears of the socket that is being connected.
func (c *conn) connectReady(ev uint32) {
	if ev&unix.EPOLLERR != 0 {
		if e := sysSocketError(int(c.up.fd)); e != 0 {
			c.attemptFailed("delayed_connect_error:_", e, false)
			return
		}
		c.up.failed = false
	}
	if ev&(unix.EPOLLOUT|unix.EPOLLIN|unix.EPOLLHUP) == 0 {
		return
	}
	c.connected()
}

func (c *conn) connectTimedOut() {
	if c.x != nil && c.x.race != nil {
		c.x.race.stop()
	}
	c.cluster.Stats.UpstreamCxConnectTimeout.Inc()
	c.attemptFailed("", 0, true)
}

// attemptFailed ends an attempt that had begun, and goes on to the next.
func (c *conn) attemptFailed(how string, e unix.Errno, timeout bool) {
	c.connectFailed(how, e, timeout)
	if !c.waitBackoff() {
		c.connect()
	}
}

// connectFailed does the bookkeeping of a failed attempt.
func (c *conn) connectFailed(how string, e unix.Errno, timeout bool) {
	cl, h := c.cluster, c.host
	c.up.close()
	c.log |= accesslog.FlagUpstreamConnectionFailure
	cl.Stats.UpstreamCxConnectFail.Inc()
	h.State.CxConnectFail.Add(1)
	cl.Stats.UpstreamRqPendingFailureEject.Inc()
	c.endPending()
	c.endUpstream(!timeout)
	switch {
	case !timeout:
		c.more().failure = how + underscored(strerror(e))
	case c.x != nil:
		c.x.failure = ""
	}
	if cl.Observer != nil {
		cl.Observer.ConnectFailed(h, timeout)
	}
}

func underscored(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == ' ' {
			b[i] = '_'
		}
	}
	return string(b)
}

// connected makes the connection whole: from here on bytes are relayed.
func (c *conn) connected() {
	t, cl, h := c.t, c.cluster, c.host
	t.w.timers.disarm(&c.phase)
	c.endPending()
	cl.Stats.UpstreamRqTotal.Inc()
	cl.Stats.UpstreamRqActive.Inc()
	h.State.RqTotal.Add(1)
	h.State.RqActive.Add(1)
	count(&cl.Live.Requests, 1, cl.Breakers.Default.MaxRequests, cl.Stats.RqOpen)
	c.upActive = true
	c.connectedAt = t.since()
	cl.Stats.UpstreamCxConnectMs.Record(milliseconds(c.connectedAt - c.connectAt))
	if cl.Observer != nil {
		cl.Observer.ConnectSucceeded(h)
	}
	if c.x != nil {
		c.x.failure = ""
	}
	p := c.chain.cfg.Proxy
	if p.LogOnConnected {
		c.logLine(accesslog.TCPUpstreamConnected, endReason{})
	}
	c.state = stateOpen
	c.up.writable = true
	c.down.writable = true
	if c.early > 0 {
		c.chain.tcp.RxBytesBuffered.Add(-int64(c.early))
		c.early = 0
	}
	if cl.ProxyProtocol != nil {
		c.sendProxyHeader()
	}
	if !c.down.watched {
		if err := c.down.watch(); err != nil {
			t.w.log.Error("cannot watch a client's socket", "error", err)
			c.kill(reasonNone)
			return
		}
		c.down.readable = true // mostly it has spoken by now
	}
	c.relay()
}

// endUpstream takes the upstream connection out of the counts; remote says who ended it.
func (c *conn) endUpstream(remote bool) {
	defer c.up.close()
	c.endPending()
	if !c.upOpen {
		return
	}
	cl, h := c.cluster, c.host
	c.upOpen = false
	cl.Stats.UpstreamCxDestroy.Inc()
	if remote {
		cl.Stats.UpstreamCxDestroyRemote.Inc()
	} else {
		cl.Stats.UpstreamCxDestroyLocal.Inc()
	}
	if c.upActive {
		c.upActive = false
		cl.Stats.UpstreamCxDestroyWithRq.Inc()
		if remote {
			cl.Stats.UpstreamCxDestroyRemoteWithRq.Inc()
		} else {
			cl.Stats.UpstreamCxDestroyLocalWithRq.Inc()
		}
		cl.Stats.UpstreamRqActive.Dec()
		h.State.RqActive.Add(-1)
		count(&cl.Live.Requests, -1, cl.Breakers.Default.MaxRequests, cl.Stats.RqOpen)
	}
	cl.Stats.UpstreamCxActive.Dec()
	h.State.CxActive.Add(-1)
	count(&cl.Live.Connections, -1, cl.Breakers.Default.MaxConnections, cl.Stats.CxOpen)
	cl.Stats.UpstreamCxLengthMs.Record(milliseconds(c.t.since() - c.connectAt))
	if c.t.shared.queues.waiting.Load() > 0 {
		c.t.shared.queues.wake(h.State)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d / time.Millisecond) }

// jitteredBackoff is Envoy's backoff: uniform in [0, min(Max, Base*2^n - 1)], whole milliseconds.
func jitteredBackoff(b *dataplane.Backoff, n uint32) time.Duration {
	ceiling := b.Max
	if ceiling <= 0 {
		ceiling = 10 * b.Base
	}
	if n < 32 {
		if d := b.Base << n; d < ceiling && d > 0 {
			ceiling = d
		}
	}
	ms := uint64(ceiling / time.Millisecond)
	if ms == 0 {
		return 0
	}
	return time.Duration(rand.Uint64N(ms)) * time.Millisecond
}

// jitter is a random part of up to percent of d.
func jitter(d time.Duration, percent float64) time.Duration {
	if percent <= 0 {
		return 0
	}
	return time.Duration(rand.Float64() * percent / 100 * float64(d))
}
