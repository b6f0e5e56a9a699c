package proxy

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
)

// BenchmarkUDP passes datagrams from clients to a host that echoes them, and back, through the proxy and
// through a plain event loop that makes a system call for each datagram, as most proxies do. An
// operation is a datagram there and back; "cpu-ns/datagram" is the CPU time of the proxy's thread alone,
// for one datagram one way. "Without trains" the kernel is not asked to cut what is sent (UDP_SEGMENT).
func BenchmarkUDP(b *testing.B) {
	for _, flows := range []struct{ n, window, size int }{{1, 32, 1200}, {64, 1, 64}, {64, 16, 200}, {300, 1, 64}} {
		for _, subject := range []string{"plain", "guideway without trains", "guideway"} {
			b.Run(fmt.Sprintf("flows=%d/window=%d/size=%d/%s", flows.n, flows.window, flows.size, subject), func(b *testing.B) {
				host := newEchoHost(b)
				var addr netip.AddrPort
				var cpu func() time.Duration
				if subject == "plain" {
					addr, cpu = startPlainLoop(b, host.addr)
				} else {
					bed := newUDPBed(b, 1)
					bed.setHosts(hostOf(host.addr))
					bed.cluster.Breakers.Default.MaxConnections = 1 << 20
					bed.listener.UDP.Hash = dataplane.HashPolicy{Kind: dataplane.HashSourceIP}
					bed.apply()
					addr = bed.addr(0)
					if subject != "guideway" {
						bed.srv.workers[0].call(func() { bed.srv.workers[0].udpIO.canSplit = false })
					}
					cpu = func() (d time.Duration) {
						bed.srv.workers[0].call(func() { d = threadCPU() })
						return d
					}
				}
				driveEcho(b, host, addr, cpu, flows.n, flows.window, flows.size)
			})
		}
	}
}

func threadCPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// newSocket is a bound UDP socket with room for bursts.
func newSocket(b *testing.B) (int, netip.AddrPort) {
	fd, e := sysUDPSocket(unix.AF_INET)
	if e != 0 {
		b.Fatal(e)
	}
	b.Cleanup(func() { sysClose(fd) })
	sysSetInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	var a sockaddr
	a.set(netip.MustParseAddrPort("127.0.0.1:0"))
	if e := sysBind(fd, &a); e != 0 {
		b.Fatal(e)
	}
	return fd, localAddr(fd)
}

// echoHost answers each datagram with itself when it is told to look.
type echoHost struct {
	fd   int
	addr netip.AddrPort
	in   datagrams
}

func newEchoHost(b *testing.B) *echoHost {
	h := &echoHost{}
	h.fd, h.addr = newSocket(b)
	h.in.init(true)
	return h
}

func (h *echoHost) look() {
	n, _ := h.in.receive(h.fd, 0, udpBatch)
	for i := range n {
		h.in.control(i)
		m := &h.in.msgs[i].hdr
		h.in.iovs[i].SetLen(int(h.in.msgs[i].n))
		m.SetControllen(0)
	}
	for sent := 0; sent < n; {
		k, e := sysSendmmsg(h.fd, h.in.msgs[sent:n])
		if e != 0 {
			k = 1
		}
		sent += k
	}
	for i := range n {
		h.in.iovs[i].SetLen(udpSlot)
		h.in.control(i)
		h.in.msgs[i].hdr.Namelen = unix.SizeofSockaddrAny
		h.in.msgs[i].hdr.SetControllen(udpControlMax)
	}
}

// driveEcho keeps window datagrams of each flow under way until b.N have come back. It polls, on a
// thread of its own.
func driveEcho(b *testing.B, host *echoHost, to netip.AddrPort, cpu func() time.Duration, flows, window, size int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var a sockaddr
	a.set(to)
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(ep)
	fds := make([]int, flows)
	for i := range fds {
		fds[i], _ = newSocket(b)
		if e := sysConnect(fds[i], &a); e != 0 {
			b.Fatal(e)
		}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fds[i], &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			b.Fatal(err)
		}
	}
	var back datagrams
	back.init(false)
	payload := make([]byte, size)
	send := func(i, n int) {
		for range n {
			sysSend(fds[i], payload)
		}
	}
	events := make([]unix.EpollEvent, 256)
	received, heard := 0, time.Now()
	poll := func() {
		host.look()
		n, _ := unix.EpollWait(ep, events, 0)
		for _, ev := range events[:max(n, 0)] {
			k, _ := back.receive(fds[ev.Fd], 0, udpBatch)
			received += k
			send(int(ev.Fd), k)
		}
		switch now := time.Now(); {
		case n > 0:
			heard = now
		case now.Sub(heard) > patience/100:
			for i := range fds {
				send(i, window) // all were lost
			}
			heard = now
		}
	}
	for i := range fds {
		send(i, window)
		poll()
	}
	for received < 2*flows*window { // sessions are there
		poll()
	}
	received = 0
	before := cpu()
	b.ResetTimer()
	for received < b.N {
		poll()
	}
	b.StopTimer()
	b.ReportMetric(float64(cpu()-before)/float64(2*received), "cpu-ns/datagram")
	b.ReportMetric(2*float64(received)/b.Elapsed().Seconds(), "datagrams/s")
}

// startPlainLoop starts a proxy that receives and sends one datagram at a time.
func startPlainLoop(b *testing.B, host netip.AddrPort) (netip.AddrPort, func() time.Duration) {
	fd, addr := newSocket(b)
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	ask, told, done := make(chan struct{}, 1), make(chan time.Duration), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer unix.Close(ep)
		type session struct {
			fd     int
			client sockaddr
		}
		sessions := map[netip.AddrPort]*session{}
		byFD := map[int32]*session{}
		defer func() {
			for _, s := range sessions {
				sysClose(s.fd)
			}
		}()
		var to sockaddr
		to.set(host)
		unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
		p := make([]byte, 1<<16)
		var rsa unix.RawSockaddrAny
		receive := func(fd int) (int, bool) {
			n := uint32(unix.SizeofSockaddrAny)
			k, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&rsa)), uintptr(unsafe.Pointer(&n)))
			return int(k), e == 0
		}
		events := make([]unix.EpollEvent, 256)
		for {
			n, _ := unix.EpollWait(ep, events, 100)
			for _, ev := range events[:max(n, 0)] {
				for {
					k, ok := receive(int(ev.Fd))
					if !ok {
						break
					}
					if s := byFD[ev.Fd]; s != nil {
						unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(k), 0, uintptr(unsafe.Pointer(&s.client.raw)), uintptr(s.client.len))
						continue
					}
					from := addrPortOf(&rsa)
					s := sessions[from]
					if s == nil {
						s = &session{}
						s.client.set(from)
						s.fd, _ = sysUDPSocket(unix.AF_INET)
						sysConnect(s.fd, &to)
						unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(s.fd)})
						sessions[from], byFD[int32(s.fd)] = s, s
					}
					sysSend(s.fd, p[:k])
				}
			}
			select {
			case _, ok := <-ask:
				if !ok {
					return
				}
				told <- threadCPU()
			default:
			}
		}
	}()
	b.Cleanup(func() { close(ask); <-done })
	return addr, func() time.Duration { ask <- struct{}{}; return <-told }
}
