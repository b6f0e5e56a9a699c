package proxy

import (
	"time"

	"github.com/guideway/guideway/dataplane/accesslog"
)

// logLine writes a line about the connection to the proxy's access logs.
func (c *conn) logLine(kind accesslog.Type, end endReason) {
	p := c.chain.cfg.Proxy
	if p == nil || len(p.AccessLog) == 0 {
		return
	}
	info := &c.t.info
	c.describe(info)
	info.Type = kind
	info.FilterChainName = c.chain.cfg.Name
	info.DownstreamDetectedClose, info.UpstreamDetectedClose = typeNormal, typeNormal
	if kind == accesslog.TCPConnectionEnd {
		info.DownstreamLocalClose, info.UpstreamLocalClose = end.downstream, end.upstream
		info.DownstreamDetectedClose, info.UpstreamDetectedClose = end.downType, end.upType
	}
	for _, l := range p.AccessLog {
		l.Write(info)
	}
	*info = accesslog.Info{}
}

// logNoChain writes a line about a connection that no filter chain took to the listener's access logs.
func (c *conn) logNoChain() {
	if len(c.ln.cfg.AccessLog) == 0 {
		return
	}
	info := &c.t.info
	c.describe(info)
	info.Type = accesslog.NotSet
	info.Flags = accesslog.FlagNoRoute
	info.ResponseCodeDetails = "filter_chain_not_found"
	info.DownstreamDetectedClose = typeNormal
	for _, l := range c.ln.cfg.AccessLog {
		l.Write(info)
	}
	*info = accesslog.Info{}
}

// describe fills in what is known of the connection.
func (c *conn) describe(info *accesslog.Info) {
	*info = accesslog.Info{
		ConnectionID:           c.id,
		Start:                  time.Unix(0, c.startWall),
		Duration:               c.t.since() - c.start,
		BytesReceived:          c.toUp.read + uint64(c.denied),
		BytesSent:              c.toDown.read,
		DownstreamWireReceived: c.toUp.read,
		DownstreamWireSent:     c.toDown.read,
		UpstreamWireReceived:   c.toDown.read,
		Remote:                 c.remoteAddr(),
		Local:                  c.localAddr(),
		Direct:                 c.remote,
		DirectLocal:            c.directLocal(),
		UpstreamAttempts:       c.attempts,
		Flags:                  c.log,
	}
	if c.cluster != nil {
		info.UpstreamCluster = c.cluster.Name
	}
	if c.host != nil && (c.connectedAt != 0 || c.log&accesslog.FlagUpstreamConnectionFailure != 0) {
		info.UpstreamHost = c.host.Address
		info.UpstreamHostName = c.host.Hostname
		if info.UpstreamHostName == "" {
			info.UpstreamHostName = c.host.Address.String()
		}
	}
	if c.connectedAt != 0 {
		info.UpstreamWireSent = c.toUp.read
		info.UpstreamConnectionID = c.upID
		info.UpstreamConnected = time.Unix(0, c.startWall).Add(c.connectedAt - c.start)
		info.UpstreamRemote = c.host.Address
		if c.x != nil && c.x.remoteUp.IsValid() {
			info.UpstreamRemote = c.x.remoteUp
		}
		if c.up.open {
			info.UpstreamLocal = localAddr(int(c.up.fd))
		}
	}
	switch {
	case c.x != nil && len(c.x.attempted) > 0:
		info.UpstreamHostsAttempted = c.x.attempted
	case c.host != nil && c.attempts > 0:
		c.t.attempted[0] = c.host.Address
		info.UpstreamHostsAttempted = c.t.attempted[:]
	}
	if x := c.x; x != nil {
		info.UpstreamFailure = x.failure
		info.ConnectionTermination = x.termination
		info.ServerName = x.serverName
	}
}

// periodicLog writes a line while the connection lives (access_log_flush_interval).
func (c *conn) periodicLog() {
	c.logLine(accesslog.TCPPeriodic, endReason{})
	c.t.w.timers.arm(&c.x.periodic, c.t.w.now, c.chain.cfg.Proxy.LogInterval)
}
