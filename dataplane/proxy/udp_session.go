package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
)

// udpSession is one client at one local address, its host, and the connected socket between them.
// About 300 bytes, and one descriptor.
type udpSession struct {
	l       *udpListener
	cluster *udpCluster
	host    *udpHost
	backend *dataplane.Host                 // as it was picked; host forgets it when it is gone
	track   *conntrack.Session[*udpSession] // nil once it has ended
	fd      int
	token   token

	// peer is the client's address as the listening socket gave it, which need not be of client's family.
	peer  sockaddr
	local localEnd
	// client and to are both ends as they are known outside.
	client, to netip.AddrPort

	id    uint64
	start time.Time
	// Datagrams and bytes from (rx) and to (tx) the client.
	rx, rxBytes, tx, txBytes, txErrs uint64
	// No trains of datagrams to the client or the host, since the kernel has refused one.
	noClientTrains, noHostTrains bool
	// The session's datagrams in the batch in hand are a list through udpIO.next; slot+1, 0 is none.
	first, last uint8
	periodic    *timer
	// leaving is set while the host's flows are being closed (CloseAfter).
	leaving bool
}

// begin makes the session that a client's datagram asks for. It returns nil if there cannot be one now;
// that has been counted and logged.
func (l *udpListener) begin(track *conntrack.Session[*udpSession], h *udpHost, peer *unix.RawSockaddrAny, local localEnd) *udpSession {
	l.stats.SessTotal.Inc()
	l.total.sessions++
	s := &udpSession{
		l: l, cluster: h.cluster, host: h, backend: h.host, fd: -1,
		local: local, client: track.Flow().Src, to: track.Flow().Dst,
		id: l.nextID, start: l.loop.now,
		noClientTrains: !l.io.canSplit, noHostTrains: !l.io.canSplit,
	}
	l.nextID++
	s.peer.setRaw(peer)
	if !s.cluster.acquire() {
		s.logRefused()
		return nil
	}
	if e, err := s.connect(); err != nil {
		s.cluster.release()
		s.cluster.pending.upTxErrs++
		l.io.count(s.cluster)
		s.logFailed()
		l.io.report(l, e, err)
		return nil
	}
	s.track = track
	s.host.begun()
	l.stats.SessActive.Inc()
	s.startLogging()
	return s
}

// crowdedFor is how long new sessions are refused when all local ports are taken: to find that out, the
// kernel looks at every socket there is, which takes a millisecond that live sessions need.
const crowdedFor = 100 * time.Millisecond

var errCrowded = errors.New("all local ports were taken a moment ago")

// connect opens the socket to the host.
func (s *udpSession) connect() (e unix.Errno, err error) {
	if s.l.loop.now.Before(s.cluster.crowded) {
		return unix.EAGAIN, errCrowded
	}
	to := &s.host.remote
	s.fd, e = sysUDPSocket(to.family)
	if e != 0 {
		return e, fmt.Errorf("cannot open a socket to %s: %w", s.backend.Address, e)
	}
	if e, err = s.bind(to.family); err == nil {
		sysSetInt(s.fd, unix.SOL_UDP, unix.UDP_GRO, 1) // Linux 5.0; without it datagrams come singly
		if e = sysConnect(s.fd, to); e != 0 {
			if e == unix.EAGAIN {
				s.cluster.crowded = s.l.loop.now.Add(crowdedFor)
			}
			err = fmt.Errorf("cannot connect to %s: %w", s.backend.Address, e)
		} else if s.token, err = s.l.loop.add(s.fd, unix.EPOLLIN|unix.EPOLLET, s); err == nil {
			return 0, nil
		}
	}
	sysClose(s.fd)
	s.fd = -1
	return e, err
}

// bind gives the socket the source address that the configuration asks for, if any.
func (s *udpSession) bind(family int) (unix.Errno, error) {
	from := s.cluster.c.BindAddress
	if s.l.proxy.UseOriginalSrcIP {
		from = netip.AddrPortFrom(s.client.Addr(), 0)
	}
	if !from.IsValid() || from.Addr().Is4() != (family == unix.AF_INET) {
		return 0, nil
	}
	if s.l.proxy.UseOriginalSrcIP {
		if e := setTransparent(s.fd, family); e != 0 {
			return e, fmt.Errorf("cannot use the client's address as source: %w", e)
		}
	}
	var a sockaddr
	a.set(from)
	if e := sysBind(s.fd, &a); e != 0 {
		return e, fmt.Errorf("cannot bind an upstream socket to %s: %w", from, e)
	}
	return 0, nil
}

func setTransparent(fd, family int) unix.Errno {
	if family == unix.AF_INET6 {
		return sysSetInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
	}
	return sysSetInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
}

// close ends the session; its socket hears nothing from here on.
func (s *udpSession) close(why conntrack.EndReason) {
	if s.track == nil {
		return
	}
	s.track = nil
	if why == conntrack.EndIdle {
		s.l.stats.IdleTimeout.Inc()
		s.l.total.idle++
	}
	if s.periodic != nil {
		s.l.loop.timers.disarm(s.periodic)
	}
	s.logEnd() // it asks the socket for its address
	s.l.loop.forget(s.token)
	sysClose(s.fd)
	s.fd = -1
	s.cluster.release()
	s.host.ended()
	s.l.stats.SessActive.Dec()
}

// ready takes the host's datagrams, which leave for the client by the end of the turn. Edge-triggered:
// a read that fills fewer slots than it might has taken all there is.
func (s *udpSession) ready(uint32) {
	const rounds = 8
	if s.track == nil {
		return // ended while it waited for another turn
	}
	io := s.l.io
	for range rounds {
		first, limit := io.replyRoom(s.l)
		n, e := io.replies.receive(s.fd, first, limit)
		if e != 0 {
			if e == unix.EAGAIN {
				return
			}
			s.receiveError()
			continue
		}
		for i := first; i < first+n; i++ {
			s.reply(i)
		}
		io.used += n
		io.received += n
		s.l.touch(s)
		if n < limit {
			return
		}
	}
	s.l.loop.again(s)
}

// reply passes the datagram in a slot on to the client.
func (s *udpSession) reply(slot int) {
	io := s.l.io
	p := io.replies.payload(slot)
	segment := 0
	if ctl := io.replies.control(slot); ctl != nil {
		_, segment = parseUDPControl(ctl)
	}
	c := &s.cluster.pending
	if !s.l.proxy.UpstreamGRO {
		var dropped int
		p, segment, dropped = limitLength(p, segment, int(s.l.proxy.MaxRxUpstream))
		c.upRxTooBig += uint64(dropped)
		io.count(s.cluster)
		if p == nil {
			return
		}
	}
	c.upRx += uint64(datagramsIn(len(p), segment))
	c.upRxBytes += uint64(len(p))
	io.count(s.cluster)
	io.outbound.add(s, p, segment)
}

// limitLength takes the datagrams longer than limit away from what was received at once. p is nil if
// nothing is left.
func limitLength(p []byte, segment, limit int) (rest []byte, restSegment, dropped int) {
	n := datagramsIn(len(p), segment)
	switch {
	case n == 1 && len(p) <= limit, n > 1 && segment <= limit:
		return p, segment, 0
	case n > 1:
		if last := p[(n-1)*segment:]; len(last) <= limit {
			return last, 0, n - 1
		}
	}
	return nil, 0, n
}

// receiveError notes that the host, or a router before it, answered with an ICMP error. The session stays.
func (s *udpSession) receiveError() {
	s.cluster.pending.upRxErrs++
	s.l.io.count(s.cluster)
}

// sent notes n datagrams that went out.
func (s *udpSession) sent(toClient bool, n, bytes int) {
	c := &s.cluster.pending
	if toClient {
		s.tx += uint64(n)
		s.txBytes += uint64(bytes)
		c.tx += uint64(n)
		c.txBytes += uint64(bytes)
	} else {
		c.upTx += uint64(n)
		c.upTxBytes += uint64(bytes)
	}
	s.l.io.count(s.cluster)
}

// lost notes n datagrams that could not be sent.
func (s *udpSession) lost(toClient bool, n int) {
	if toClient {
		s.txErrs += uint64(n)
		s.cluster.pending.txErrs += uint64(n)
	} else {
		s.cluster.pending.upTxErrs += uint64(n)
	}
	s.l.io.count(s.cluster)
}

func (s *udpSession) trains(toClient bool) bool {
	if toClient {
		return !s.noClientTrains
	}
	return !s.noHostTrains
}

func (s *udpSession) noTrains(toClient bool) {
	if toClient {
		s.noClientTrains = true
	} else {
		s.noHostTrains = true
	}
}
