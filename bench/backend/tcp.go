package backend

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// afterTheEnd is what HalfClose says before it repeats what it got.
const afterTheEnd = "after the end: "

// chunk is the most that is read at once. Buffers come from a pool and are held only while bytes are in flight,
// so an idle connection costs a goroutine's stack and its descriptor.
const chunk = 64 << 10

var chunks = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// acceptPause is how long a listener rests when the process is out of descriptors.
const acceptPause = 10 * time.Millisecond

// accept takes connections until the listener is closed.
func (b *Backend) accept(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return
		default: // EMFILE and the like pass
			time.Sleep(acceptPause)
			continue
		}
		b.accepted.Add(1)
		how := b.Behaviour()
		b.mu.Lock()
		if b.closed || !how.accepts() {
			b.mu.Unlock()
			c.SetLinger(0)
			c.Close()
			continue
		}
		b.conns[c] = struct{}{}
		b.live.Add(1)
		b.running.Go(func() { b.serve(c, how) })
		b.mu.Unlock()
	}
}

// serve does with a connection what the behaviour says.
func (b *Backend) serve(c *net.TCPConn, how Behaviour) {
	defer func() {
		c.Close()
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
		b.live.Add(-1)
	}()
	if b.conf.Handler != nil {
		b.conf.Handler(c)
		return
	}
	err := b.converse(c, how)
	if b.conf.Ended != nil {
		b.conf.Ended(c.RemoteAddr().(*net.TCPAddr).AddrPort(), err)
	}
}

// converse is a connection of one behaviour, up to where it is to be closed.
func (b *Backend) converse(c *net.TCPConn, how Behaviour) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	switch how {
	case Identify:
		if err := b.write(c, b.greeting(c)); err != nil {
			return err
		}
		return b.echo(c, rc)
	case Echo:
		return b.echo(c, rc)
	case HalfClose:
		answer := []byte(afterTheEnd)
		if err := b.each(rc, func(p []byte) error { answer = append(answer, p...); return nil }); err != nil {
			return err
		}
		return b.write(c, answer)
	case Reset:
		err := b.each(rc, func([]byte) error { c.SetLinger(0); return errDone })
		if err == errDone {
			err = nil
		}
		return err
	case Hang:
		return waitForEnd(rc)
	}
	return nil // CloseAtOnce
}

func (b *Backend) greeting(c *net.TCPConn) []byte {
	if b.conf.Greeting != "" {
		return []byte(b.conf.Greeting)
	}
	if b.conf.ID != "" {
		return []byte(b.conf.ID + "\n")
	}
	at := c.LocalAddr().(*net.TCPAddr).AddrPort()
	return []byte(netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String() + "\n")
}

func (b *Backend) write(c *net.TCPConn, p []byte) error {
	n, err := c.Write(p)
	b.bytesOut.Add(int64(n))
	return err
}

func (b *Backend) echo(c *net.TCPConn, rc syscall.RawConn) error {
	return b.each(rc, func(p []byte) error { return b.write(c, p) })
}

// errDone ends each early.
var errDone = errors.New("done")

// each hands over what arrives, chunk by chunk, until the peer's end (nil) or an error.
func (b *Backend) each(rc syscall.RawConn, take func([]byte) error) error {
	for {
		buf, n, err := readChunk(rc)
		if n > 0 {
			b.bytesIn.Add(int64(n))
			err = take((*buf)[:n])
		}
		if buf != nil {
			chunks.Put(buf)
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// readChunk waits for bytes without holding a buffer, then reads into one from the pool, which
// the caller gives back. 0 bytes and no error is the peer's end.
func readChunk(rc syscall.RawConn) (buf *[]byte, n int, err error) {
	waitErr := rc.Read(func(fd uintptr) bool {
		buf = chunks.Get().(*[]byte)
		for {
			n, err = unix.Read(int(fd), *buf)
			if err != unix.EINTR {
				break
			}
		}
		if err == unix.EAGAIN {
			chunks.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	if waitErr != nil {
		return buf, 0, waitErr
	}
	return buf, max(n, 0), err
}

// waitForEnd returns when the peer has ended or reset the connection, or we closed it. It reads nothing:
// what the peer sends stays in the socket, and fills its window.
func waitForEnd(rc syscall.RawConn) error {
	var peekErr error
	err := rc.Read(func(fd uintptr) bool {
		var one [1]byte
		n, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == unix.EINTR {
			return false
		}
		peekErr = err
		return n == 0 || err != nil
	})
	if err != nil {
		return err
	}
	return peekErr
}

// stall makes the listener's accept queue as short as Linux has it and fills it with connections of
// our own: with a backlog of 0 one connection fits, and the kernel then drops further SYNs
// (tcp_conn_request, net/ipv4/tcp_input.c).
func (b *Backend) stall(l *net.TCPListener, at netip.AddrPort) error {
	rc, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var listenErr error
	if err := rc.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), 0) }); err != nil {
		return err
	}
	if listenErr != nil {
		return fmt.Errorf("listen with a backlog of 0: %w", listenErr)
	}
	if at.Addr().IsUnspecified() {
		own := netip.IPv6Loopback()
		if at.Addr().Is4() {
			own = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		at = netip.AddrPortFrom(own, at.Port())
	}
	c, err := net.DialTCP(family("tcp", at), nil, net.TCPAddrFromAddrPort(at))
	if err != nil {
		return fmt.Errorf("fill the accept queue of %s: %w", at, err)
	}
	b.fillers = append(b.fillers, c)
	return nil
}
