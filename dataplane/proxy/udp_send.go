package proxy

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// outbox is a batch of datagrams that leave by one socket, with as few system calls and passes through
// the kernel's stack as their addresses and lengths allow. It does not copy what it sends.
type outbox struct {
	// toClient: to the clients of sessions by their listening socket, instead of to their hosts.
	toClient bool

	msgs   [udpBatch]mmsghdr
	trains [udpBatch]train
	to     [udpBatch]*udpSession
	iovs   [udpBatch]unix.Iovec
	ctl    []byte
	n, iov int // used messages and vector elements
}

func (o *outbox) init() { o.ctl = make([]byte, udpBatch*udpControlMax) }

// add appends what was received at once: a datagram, or several of segment bytes each. The caller sees
// to it that there is room; add takes one vector element.
func (o *outbox) add(s *udpSession, p []byte, segment int) {
	o.iovs[o.iov] = unix.Iovec{Base: unsafe.SliceData(p)}
	o.iovs[o.iov].SetLen(len(p))
	o.iov++
	if o.n > 0 && o.to[o.n-1] == s && segment == 0 && s.trains(o.toClient) && o.trains[o.n-1].extend(len(p)) {
		return
	}
	o.trains[o.n].begin(o.iov-1, len(p), segment)
	o.to[o.n] = s
	o.n++
}

// flush sends everything by fd and counts what became of it.
func (o *outbox) flush(fd int) {
	for i := range o.n {
		o.prepare(i)
	}
	for i := 0; i < o.n; {
		sent, e := 0, unix.Errno(0)
		if o.to[i].trains(o.toClient) || !o.trains[i].split() {
			sent, e = sysSendmmsg(fd, o.msgs[i:o.n])
		} else {
			e = unix.EIO // known to fail: the kernel cannot cut what is sent on this way
		}
		for range sent {
			o.to[i].sent(o.toClient, o.trains[i].datagrams(), o.trains[i].bytes)
			i++
		}
		if e != 0 {
			o.failed(fd, i, e)
			i++
		}
	}
	for i := range o.n {
		o.to[i] = nil
	}
	o.n, o.iov = 0, 0
}

// prepare fills in the header of the i-th message.
func (o *outbox) prepare(i int) {
	h, t, s := &o.msgs[i].hdr, &o.trains[i], o.to[i]
	h.Iov = &o.iovs[t.iov]
	h.SetIovlen(t.count)
	ctl, n := o.ctl[i*udpControlMax:][:udpControlMax], 0
	if o.toClient {
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&s.peer.raw)), s.peer.len
		if s.l.wildcard {
			n = s.local.putSource(ctl, n, s.l.v6)
		}
	}
	if t.split() {
		n = putSegment(ctl, n, t.segment)
	}
	o.setControl(h, ctl[:n])
}

func (o *outbox) setControl(h *unix.Msghdr, ctl []byte) {
	h.Control = nil
	if len(ctl) > 0 {
		h.Control = &ctl[0]
	}
	h.SetControllen(len(ctl))
}

// failed deals with a message that was refused with e.
func (o *outbox) failed(fd, i int, e unix.Errno) {
	t, s := &o.trains[i], o.to[i]
	if icmpError(e) && !o.toClient {
		s.receiveError()
		e = sysSendmsg(fd, &o.msgs[i].hdr)
	}
	switch e {
	case 0:
		s.sent(o.toClient, t.datagrams(), t.bytes)
		return
	case unix.EINVAL, unix.EIO, unix.EMSGSIZE, unix.EOPNOTSUPP:
		if t.split() {
			// The datagrams of a train must fit the path's MTU, and some devices cannot cut one.
			s.noTrains(o.toClient)
			o.sendSingly(fd, i)
			return
		}
	}
	// EAGAIN, ENOBUFS: the socket's buffer or the device's queue is full, and UDP has no way to wait.
	s.lost(o.toClient, t.datagrams())
}

// icmpError reports whether a send on a connected socket may have failed because of an ICMP error
// about an earlier datagram, which the kernel reports once and then forgets (udp(7), ip(7)).
func icmpError(e unix.Errno) bool {
	switch e {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.EPROTO, unix.ENOPROTOOPT:
		return true
	}
	return false
}

// sendSingly sends the datagrams of a train one by one.
func (o *outbox) sendSingly(fd, i int) {
	t, s := &o.trains[i], o.to[i]
	h := o.msgs[i].hdr
	n := 0
	if o.toClient && s.l.wildcard {
		n = s.local.putSource(o.ctl[i*udpControlMax:][:udpControlMax], 0, s.l.v6)
	}
	o.setControl(&h, o.ctl[i*udpControlMax:][:n])
	h.SetIovlen(1)
	for _, v := range o.iovs[t.iov : t.iov+t.count] {
		p := unsafe.Slice(v.Base, int(v.Len))
		for len(p) > 0 {
			piece := p[:min(t.segment, len(p))]
			p = p[len(piece):]
			iov := &o.iovs[t.iov] // used up already
			*iov = unix.Iovec{Base: &piece[0]}
			iov.SetLen(len(piece))
			h.Iov = iov
			if sysSendmsg(fd, &h) == 0 {
				s.sent(o.toClient, 1, len(piece))
			} else {
				s.lost(o.toClient, 1)
			}
		}
	}
}
