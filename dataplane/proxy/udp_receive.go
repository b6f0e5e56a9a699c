package proxy

import (
	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/conntrack"
)

// ready takes datagrams of clients and sends them on to their sessions' hosts. Level-triggered: what it
// leaves, so that others get their turn, is still there in the next one.
func (l *udpListener) ready(uint32) {
	const rounds = 4
	for range rounds {
		n, e := l.io.requests.receive(l.fd, 0, udpBatch)
		if e != 0 {
			if e != unix.EAGAIN {
				l.stats.SessRxErrors.Inc()
				l.total.rxErrs++
			}
			return
		}
		l.io.received += n
		l.io.atEndOfTurn()
		l.forward(n)
		if n < udpBatch {
			return
		}
	}
}

// forward gives the n datagrams received to their sessions, and sends each session's in one go.
func (l *udpListener) forward(n int) {
	io := l.io
	touched := 0
	var (
		last      conntrack.Flow
		lastLocal localEnd
		s         *udpSession
	)
	for i := range n {
		p := io.requests.payload(i)
		from := io.requests.sender(i)
		var local localEnd
		segment := 0
		if ctl := io.requests.control(i); ctl != nil {
			local, segment = parseUDPControl(ctl)
		}
		l.total.received += uint64(len(p))
		if !l.proxy.DownstreamGRO {
			var dropped int
			whole := len(p)
			p, segment, dropped = limitLength(p, segment, int(l.proxy.MaxRxDownstream))
			if dropped > 0 {
				l.lstats.RxDatagramDropped.Add(uint64(dropped))
				if p == nil {
					continue
				}
				io.requests.keepTail(i, whole-len(p))
			}
		}
		// Datagrams of one client often come in a row.
		if s == nil || l.proxy.PerPacket || from != last.Src || local != lastLocal {
			last, lastLocal = conntrack.Flow{Src: from, Dst: l.addr, Proto: conntrack.UDP}, local
			if l.wildcard {
				last.Dst = local.addrPort(l.addr.Port())
			}
			if s = l.session(last, i, local); s == nil {
				continue
			}
		}
		datagrams := uint64(datagramsIn(len(p), segment))
		s.rx += datagrams
		s.rxBytes += uint64(len(p))
		s.cluster.pending.rx += datagrams
		s.cluster.pending.rxBytes += uint64(len(p))
		io.segments[i], io.next[i] = segment, 0
		if s.first == 0 {
			s.first = uint8(i + 1)
			io.touched[touched] = s
			touched++
			io.count(s.cluster)
		} else {
			io.next[s.last-1] = uint8(i + 1)
		}
		s.last = uint8(i + 1)
	}
	for i, s := range io.touched[:touched] {
		s.sendOn()
		io.touched[i] = nil
	}
}

// session returns the session that a client's datagram belongs to, a new one if need be, or nil if the
// datagram is to be dropped. slot has its sender.
func (l *udpListener) session(f conntrack.Flow, slot int, local localEnd) *udpSession {
	table := l.sessions
	if l.proxy.PerPacket {
		u := l.hosts.pick(f)
		if u == nil {
			return nil
		}
		if u.sessions == nil {
			u.sessions, _ = l.newSessions() // it has been made with these settings before
		}
		table = u.sessions
		l.hosts.pinned = u
		defer func() { l.hosts.pinned = nil }()
	}
	t, outcome := table.Datagram(f, l.now(), &l.hosts)
	switch outcome {
	case conntrack.Kept:
		return t.Value
	case conntrack.Moved:
		t.Value.close(conntrack.EndClosed)
		l.live--
		t.Value = nil
	case conntrack.NoHost, conntrack.Refused:
		return nil
	}
	s := l.begin(t, l.hosts.slots[t.Backend()], &l.io.requests.names[slot], local)
	if s == nil {
		table.End(t)
		return nil
	}
	t.Value = s
	l.live++
	if !l.idle.armed() {
		l.armIdle()
	}
	return s
}

// sendOn sends the session's datagrams of this batch to its host.
func (s *udpSession) sendOn() {
	io := s.l.io
	first := s.first
	s.first = 0
	if first == s.last && io.segments[first-1] == 0 {
		p := io.requests.payload(int(first - 1))
		e := sysSend(s.fd, p)
		if icmpError(e) {
			// About an earlier datagram: it has been heard of now, and this one was not sent.
			s.receiveError()
			e = sysSend(s.fd, p)
		}
		if e == 0 {
			s.sent(false, 1, len(p))
		} else {
			s.lost(false, 1)
		}
		return
	}
	for slot := first; slot != 0; slot = io.next[slot-1] {
		i := int(slot - 1)
		io.inbound.add(s, io.requests.payload(i), io.segments[i])
	}
	io.inbound.flush(s.fd)
}
