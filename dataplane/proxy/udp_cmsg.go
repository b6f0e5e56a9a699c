package proxy

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control messages of UDP sockets: the address a datagram was sent to or leaves from (ip(7) IP_PKTINFO,
// ipv6(7) IPV6_PKTINFO), and the size of the pieces of several datagrams that travel as one (udp(7)
// UDP_GRO, UDP_SEGMENT).

// udpControlMax has room for one message of each kind: 40 and 24 bytes on 64 bits.
const udpControlMax = 96

// localEnd is the address a datagram was sent to. A link-local one is not complete without its interface.
type localEnd struct {
	ip      netip.Addr
	ifindex uint32
}

// addrPort is the local end with a port; the interface of a link-local address stands as a number, as
// in addrPortOf.
func (l localEnd) addrPort(port uint16) netip.AddrPort {
	ip := l.ip
	if l.ifindex != 0 {
		ip = ip.WithZone(strconv.FormatUint(uint64(l.ifindex), 10))
	}
	return netip.AddrPortFrom(ip, port)
}

// parseUDPControl reads the control messages of a received datagram. segment is 0 if it came alone.
func parseUDPControl(b []byte) (local localEnd, segment int) {
	for len(b) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		n := int(h.Len)
		if n < unix.SizeofCmsghdr || n > len(b) {
			break
		}
		data := b[unix.CmsgLen(0):n]
		switch {
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && len(data) >= 2:
			segment = int(binary.NativeEndian.Uint16(data)) // an int whose upper half is 0 or not there
			if len(data) >= 4 {
				segment = int(binary.NativeEndian.Uint32(data))
			}
		case h.Level == unix.SOL_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			p := (*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0]))
			local.ip = netip.AddrFrom4(p.Addr)
		case h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			p := (*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0]))
			local.ip = netip.AddrFrom16(p.Addr).Unmap()
			if local.ip.IsLinkLocalUnicast() && local.ip.Is6() {
				local.ifindex = p.Ifindex
			}
		}
		next := cmsgAlign(n)
		if next >= len(b) {
			break
		}
		b = b[next:]
	}
	return local, segment
}

func cmsgAlign(n int) int {
	const word = int(unsafe.Sizeof(uintptr(0)))
	return (n + word - 1) &^ (word - 1)
}

// putSource appends the source address of a datagram to the n bytes of control messages in b and
// returns their new length. v6 tells the family of the socket, not of the address.
func (l localEnd) putSource(b []byte, n int, v6 bool) int {
	if v6 {
		data := putCmsg(b[n:], unix.SOL_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		*(*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0])) = unix.Inet6Pktinfo{Addr: l.ip.As16(), Ifindex: l.ifindex}
		return n + unix.CmsgSpace(unix.SizeofInet6Pktinfo)
	}
	data := putCmsg(b[n:], unix.SOL_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
	*(*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0])) = unix.Inet4Pktinfo{Spec_dst: l.ip.As4()}
	return n + unix.CmsgSpace(unix.SizeofInet4Pktinfo)
}

// putSegment appends the size of the datagrams that a send is cut into.
func putSegment(b []byte, n, size int) int {
	data := putCmsg(b[n:], unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	binary.NativeEndian.PutUint16(data, uint16(size))
	return n + unix.CmsgSpace(2)
}

func putCmsg(b []byte, level, kind int32, size int) []byte {
	clear(b[:unix.CmsgSpace(size)])
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(size))
	return b[unix.CmsgLen(0):]
}
