package proxy

import (
	"net/netip"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below cannot block: their descriptors are non-blocking, or the call never waits. So they
// skip the Go scheduler's bookkeeping around system calls, which costs some 50 ns each and lets sysmon
// take the processor away from a loop in the middle of its work.

func sysRead(fd int, p []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

func sysWrite(fd int, p []byte) (int, unix.Errno) {
	// sendto with MSG_NOSIGNAL: a write to a closed peer must be an error, not a SIGPIPE.
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_NOSIGNAL, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

func sysPeek(fd int, p []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_PEEK, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

func sysSplice(from, to, max int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(max), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

func sysAccept(fd int, rsa *unix.RawSockaddrAny) (int, unix.Errno) {
	n := uint32(unix.SizeofSockaddrAny)
	nfd, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(rsa)), uintptr(unsafe.Pointer(&n)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, e
	}
	return int(nfd), 0
}

func sysSocket(family int) (int, unix.Errno) {
	fd, _, e := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), 0
}

func sysConnect(fd int, a *sockaddr) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), uintptr(a.len))
	return e
}

func sysBind(fd int, a *sockaddr) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), uintptr(a.len))
	return e
}

func sysShutdownWrite(fd int) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
	return e
}

func sysClose(fd int) { unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

func sysSetInt(fd, level, name, v int) unix.Errno {
	x := int32(v)
	_, _, e := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(unsafe.Pointer(&x)), 4, 0)
	return e
}

// sysSocketError takes the pending error of a socket (SO_ERROR), which clears it.
func sysSocketError(fd int) unix.Errno {
	var x int32
	n := uint32(4)
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR, uintptr(unsafe.Pointer(&x)), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return e
	}
	return unix.Errno(x)
}

// sysResetOnClose makes the next close of fd send a RST and drop unsent bytes.
func sysResetOnClose(fd int) {
	l := unix.Linger{Onoff: 1}
	unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&l)), unsafe.Sizeof(l), 0)
}

// sysUnsent is the number of bytes the peer has not acknowledged yet.
func sysUnsent(fd int) int {
	var n int32
	unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	return int(n)
}

func sysName(fd int, call uintptr) netip.AddrPort {
	var rsa unix.RawSockaddrAny
	n := uint32(unix.SizeofSockaddrAny)
	if _, _, e := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&rsa)), uintptr(unsafe.Pointer(&n))); e != 0 {
		return netip.AddrPort{}
	}
	return addrPortOf(&rsa)
}

// localAddr is the address of the socket's own end, IPv4-mapped addresses unmapped.
func localAddr(fd int) netip.AddrPort { return sysName(fd, unix.SYS_GETSOCKNAME) }

// sockaddr is a socket address in the kernel's form.
type sockaddr struct {
	raw    unix.RawSockaddrInet6 // the longer of the two
	len    uint32
	family int
}

func (s *sockaddr) set(a netip.AddrPort) {
	ip := a.Addr()
	if ip.Is4() {
		s.family, s.len = unix.AF_INET, unix.SizeofSockaddrInet4
		p := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		*p = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: ip.As4()}
		putPort(&p.Port, a.Port())
		return
	}
	s.family, s.len = unix.AF_INET6, unix.SizeofSockaddrInet6
	s.raw = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: ip.As16(), Scope_id: scopeID(ip.Zone())}
	putPort(&s.raw.Port, a.Port())
}

// scopeID reads a zone, which is kept as a number here (as Envoy prints it).
func scopeID(zone string) uint32 {
	if zone == "" {
		return 0
	}
	n, _ := strconv.ParseUint(zone, 10, 32)
	return uint32(n)
}

func putPort(p *uint16, port uint16) {
	b := (*[2]byte)(unsafe.Pointer(p))
	b[0], b[1] = byte(port>>8), byte(port)
}

func getPort(p *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(p))
	return uint16(b[0])<<8 | uint16(b[1])
}

// addrPortOf reads a kernel address. IPv4-mapped peers of dual-stack sockets are unmapped, and a scope
// is kept as a number.
func addrPortOf(rsa *unix.RawSockaddrAny) netip.AddrPort {
	switch rsa.Addr.Family {
	case unix.AF_INET:
		p := (*unix.RawSockaddrInet4)(unsafe.Pointer(rsa))
		return netip.AddrPortFrom(netip.AddrFrom4(p.Addr), getPort(&p.Port))
	case unix.AF_INET6:
		p := (*unix.RawSockaddrInet6)(unsafe.Pointer(rsa))
		ip := netip.AddrFrom16(p.Addr).Unmap()
		if p.Scope_id != 0 && ip.Is6() {
			ip = ip.WithZone(strconv.FormatUint(uint64(p.Scope_id), 10))
		}
		return netip.AddrPortFrom(ip, getPort(&p.Port))
	}
	return netip.AddrPort{}
}

// strerror is the C library's text of an error, as it stands in Envoy's messages.
func strerror(e unix.Errno) string {
	s := e.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}
