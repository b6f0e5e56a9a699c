package proxy

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// udpBatch is how many datagrams (or trains of them) one system call receives or sends.
	udpBatch = 64
	// udpSlot is the room of one: any datagram, and all the kernel glues together (GRO), fits.
	udpSlot = 65536
	// udpStride puts the slots at different places of their pages; the beginnings of all slots would
	// otherwise share a few sets of the caches.
	udpStride = udpSlot + 4096 + 128
	// maxSegments is UDP_MAX_SEGMENTS of the kernels that have the smallest.
	maxSegments = 64
	// maxTrain bounds the bytes that are sent as one: the payload of the longest IPv4 datagram.
	maxTrain = 65507
)

// datagrams is memory for receiving udpBatch datagrams. About 4.3 MB of address space; a page or two
// of each slot are touched unless datagrams are long.
type datagrams struct {
	msgs  [udpBatch]mmsghdr
	iovs  [udpBatch]unix.Iovec
	names [udpBatch]unix.RawSockaddrAny
	skip  [udpBatch]uint32 // bytes at the beginning that are not wanted
	ctl   []byte
	buf   []byte
}

// init prepares the messages; named asks for the senders' addresses.
func (d *datagrams) init(named bool) {
	d.buf = make([]byte, udpBatch*udpStride)
	d.ctl = make([]byte, udpBatch*udpControlMax)
	for i := range d.msgs {
		h := &d.msgs[i].hdr
		d.iovs[i].Base = &d.buf[i*udpStride]
		d.iovs[i].SetLen(udpSlot)
		h.Iov = &d.iovs[i]
		h.SetIovlen(1)
		h.Control = &d.ctl[i*udpControlMax]
		h.SetControllen(udpControlMax)
		if named {
			h.Name = (*byte)(unsafe.Pointer(&d.names[i]))
			h.Namelen = unix.SizeofSockaddrAny
		}
	}
}

// receive fills the slots from first on, limit at most.
func (d *datagrams) receive(fd, first, limit int) (int, unix.Errno) {
	n, e := sysRecvmmsg(fd, d.msgs[first:first+limit])
	clear(d.skip[first : first+n])
	return n, e
}

// payload is the datagram in a slot.
func (d *datagrams) payload(i int) []byte {
	return d.buf[i*udpStride:][d.skip[i]:d.msgs[i].n:d.msgs[i].n]
}

// keepTail takes n bytes away from the beginning of what is in a slot.
func (d *datagrams) keepTail(i, n int) { d.skip[i] = uint32(n) }

// control is the control messages that came with a datagram; the slot is ready for the next one after it.
func (d *datagrams) control(i int) []byte {
	h := &d.msgs[i].hdr
	n := int(h.Controllen)
	h.SetControllen(udpControlMax)
	if n == 0 {
		return nil
	}
	return d.ctl[i*udpControlMax:][:n]
}

// sender is the address a datagram came from.
func (d *datagrams) sender(i int) netip.AddrPort {
	d.msgs[i].hdr.Namelen = unix.SizeofSockaddrAny
	return addrPortOf(&d.names[i])
}

// train is a message under construction: one datagram, or several of equal length (the last may be
// shorter) that the kernel cuts apart again (UDP_SEGMENT).
type train struct {
	iov   int // its first in the vector
	count int // pieces in the vector
	bytes int
	// segment is the length of each datagram; a piece that arrived glued holds several.
	segment int
	glued   bool
	closed  bool // the last one was shorter
}

// datagramsIn is how many datagrams n bytes make if they come in pieces of segment bytes; segment is 0
// for a single one.
func datagramsIn(n, segment int) int {
	if segment == 0 || n <= segment {
		return 1
	}
	return (n + segment - 1) / segment
}

// begin starts a train with a piece of n bytes.
func (t *train) begin(iov, n, segment int) {
	glued := segment != 0 && n > segment
	if !glued {
		segment = n
	}
	*t = train{iov: iov, count: 1, bytes: n, segment: segment, glued: glued, closed: glued || n == 0}
}

// extend adds a single datagram of n bytes if it may travel along.
func (t *train) extend(n int) bool {
	if t.closed || n == 0 || n > t.segment || t.count == maxSegments || t.bytes+n > maxTrain {
		return false
	}
	t.count++
	t.bytes += n
	t.closed = n < t.segment
	return true
}

// split reports whether the kernel has to cut the message into datagrams.
func (t *train) split() bool { return t.glued || t.count > 1 }

// datagrams is how many datagrams the train holds.
func (t *train) datagrams() int { return datagramsIn(t.bytes, t.segment) }
