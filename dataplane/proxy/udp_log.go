package proxy

import "github.com/guideway/guideway/dataplane/accesslog"

// startLogging writes the line of a session's beginning and sets the clock for periodic ones, as the
// configuration says. (LogOnConnected is about tunnels, of which there are none.)
func (s *udpSession) startLogging() {
	p := s.l.proxy
	if len(p.AccessLog) == 0 {
		return
	}
	if p.LogOnStart {
		s.write(s.info(accesslog.UDPSessionStart))
	}
	if p.LogInterval > 0 {
		s.periodic = &timer{}
		s.periodic.fire = func() {
			s.write(s.info(accesslog.UDPPeriodic))
			if every := s.l.proxy.LogInterval; every > 0 {
				s.l.loop.timers.arm(s.periodic, s.l.loop.now, every)
			}
		}
		s.l.loop.timers.arm(s.periodic, s.l.loop.now, p.LogInterval)
	}
}

func (s *udpSession) logEnd() {
	if len(s.l.proxy.AccessLog) > 0 {
		s.write(s.info(accesslog.UDPSessionEnd))
	}
}

// logRefused writes the line of a session that the circuit breaker did not allow. As in Envoy it has
// no host.
func (s *udpSession) logRefused() {
	if len(s.l.proxy.AccessLog) == 0 {
		return
	}
	i := s.info(accesslog.UDPSessionEnd)
	i.Flags = accesslog.FlagUpstreamOverflow
	i.UpstreamHost, i.UpstreamHostName = i.UpstreamRemote, ""
	s.write(i)
}

// logFailed writes the line of a session whose socket could not be made.
func (s *udpSession) logFailed() {
	if len(s.l.proxy.AccessLog) == 0 {
		return
	}
	i := s.info(accesslog.UDPSessionEnd)
	i.Flags = accesslog.FlagUpstreamConnectionFailure
	i.UpstreamRemote = s.backend.Address
	s.write(i)
}

func (s *udpSession) write(i *accesslog.Info) {
	for _, l := range s.l.proxy.AccessLog {
		l.Write(i)
	}
}

// info is what a line may tell of the session. UpstreamCluster stays empty as in Envoy; the name is in
// the metadata.
func (s *udpSession) info(kind accesslog.Type) *accesslog.Info {
	i := &accesslog.Info{
		Type: kind, ConnectionID: s.id, Start: s.start, Duration: s.l.loop.now.Sub(s.start),
		BytesReceived: s.rxBytes, BytesSent: s.txBytes,
		Remote: s.client, Local: s.to, Direct: s.client, DirectLocal: s.to,
		UpstreamHost: s.backend.Address, UpstreamHostName: s.backend.Hostname,
		Metadata: map[string]map[string]any{"udp.proxy.session": {
			"cluster_name":       s.cluster.name,
			"bytes_received":     s.rxBytes,
			"bytes_sent":         s.txBytes,
			"datagrams_received": s.rx,
			"datagrams_sent":     s.tx,
			"errors_sent":        s.txErrs,
		}},
	}
	if s.fd >= 0 {
		i.UpstreamRemote = s.backend.Address
		i.UpstreamLocal = localAddr(s.fd)
	}
	return i
}

// logProxyEnd writes the listener's own line, when it stops.
func (l *udpListener) logProxyEnd() {
	if len(l.proxy.ProxyAccessLog) == 0 {
		return
	}
	t := &l.total
	i := &accesslog.Info{
		Type: accesslog.NotSet, Start: l.start, Duration: l.loop.now.Sub(l.start),
		BytesReceived: t.received, BytesSent: t.txBytes,
		Metadata: map[string]map[string]any{"udp.proxy.proxy": {
			"bytes_received":     t.rxBytes,
			"bytes_sent":         t.txBytes,
			"datagrams_received": t.rx,
			"datagrams_sent":     t.tx,
			"errors_received":    t.rxErrs,
			"errors_sent":        t.txErrs,
			"idle_timeout":       t.idle,
			"no_route":           t.noRoute,
			"session_total":      t.sessions,
		}},
	}
	for _, log := range l.proxy.ProxyAccessLog {
		log.Write(i)
	}
}
