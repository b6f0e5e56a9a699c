package peers

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// backends are where the proxies send to: a sink for bulk, an echo, and a counter of datagrams.
type backends struct {
	bulk, echo *net.TCPListener
	udp        *net.UDPConn
	received   atomic.Int64 // bulk bytes
	datagrams  atomic.Int64
	running    sync.WaitGroup
}

func startBackends() (*backends, error) {
	b := &backends{}
	var err error
	listen := func() *net.TCPListener {
		if err != nil {
			return nil
		}
		var l *net.TCPListener
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address(0)))
		return l
	}
	b.bulk, b.echo = listen(), listen()
	if err == nil {
		b.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(address(0)))
	}
	if err != nil {
		b.close()
		return nil, err
	}
	b.udp.SetReadBuffer(8 << 20)
	b.running.Go(func() { b.accept(b.bulk, b.sink) })
	b.running.Go(func() { b.accept(b.echo, b.mirror) })
	b.running.Go(b.count)
	return b, nil
}

func (b *backends) close() {
	if b.bulk != nil {
		b.bulk.Close()
	}
	if b.echo != nil {
		b.echo.Close()
	}
	if b.udp != nil {
		b.udp.Close()
	}
	b.running.Wait()
}

func (b *backends) accept(l *net.TCPListener, serve func(*net.TCPConn)) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		go serve(c)
	}
}

// sink reads a connection to its end without copying: TCP discards what is read with MSG_TRUNC.
func (b *backends) sink(c *net.TCPConn) {
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	for {
		var n uintptr
		var errno syscall.Errno
		err := raw.Read(func(fd uintptr) bool {
			n, _, errno = syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, 0, 1<<20, unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
			return errno != syscall.EAGAIN
		})
		if err != nil || errno != 0 || n == 0 {
			return
		}
		b.received.Add(int64(n))
	}
}

// mirror sends everything back.
func (b *backends) mirror(c *net.TCPConn) {
	defer c.Close()
	buf := make([]byte, message)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// count counts datagrams.
func (b *backends) count() {
	p := ipv4.NewPacketConn(b.udp)
	batch := make([]ipv4.Message, 64)
	for i := range batch {
		batch[i].Buffers = [][]byte{make([]byte, 256)}
	}
	for {
		n, err := p.ReadBatch(batch, 0)
		if err != nil {
			return
		}
		b.datagrams.Add(int64(n))
	}
}
