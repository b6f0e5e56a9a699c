package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// prober opens probes of one kind.
type prober interface {
	// open returns the probe of a target. It does no I/O.
	open(*Target) probe
}

// probe checks one target, again and again, and may keep a connection between its runs.
type probe interface {
	// run makes one check; ctx carries the timeout and may be cancelled. No two runs at a time.
	run(ctx context.Context) outcome
	// close gives a kept connection up; not while a run is under way.
	close()
}

// dialer connects to targets from the cluster's source address, and knows the PROXY header the
// cluster wants in front of what is sent.
type dialer struct {
	net   net.Dialer
	proxy int // version of the PROXY header, 0 for none
}

func newDialer(cfg *Config) *dialer {
	d := &dialer{net: net.Dialer{KeepAlive: -1}, proxy: cfg.ProxyProtocol}
	if cfg.BindAddress.IsValid() {
		d.net.LocalAddr = net.TCPAddrFromAddrPort(cfg.BindAddress)
	}
	return d
}

func (d *dialer) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return d.net.DialContext(ctx, "tcp", to.String())
}

// proxyHeader is the PROXY protocol header of a connection that a check makes on its own behalf:
// version 1 with the connection's own addresses, version 2 with the command LOCAL (PROXY protocol
// specification, 2.1 and 2.2).
func proxyHeader(version int, c net.Conn) []byte {
	switch version {
	case 1:
		from := c.LocalAddr().(*net.TCPAddr).AddrPort()
		to := c.RemoteAddr().(*net.TCPAddr).AddrPort()
		family := "TCP6"
		if to.Addr().Unmap().Is4() {
			family = "TCP4"
		}
		return fmt.Appendf(nil, "PROXY %s %s %s %d %d\r\n", family, from.Addr().Unmap().WithZone(""), to.Addr().Unmap().WithZone(""), from.Port(), to.Port())
	case 2:
		return []byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00")
	}
	return nil
}

// bound makes reads and writes of c end when ctx does. The function returned undoes it, and reports
// whether c is still usable.
func bound(ctx context.Context, c net.Conn) (release func() bool) {
	return context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
}

// broken is the outcome of a probe that ended with an error instead of an answer.
func broken(ctx context.Context, err error) outcome {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return failed(failedTimeout)
	}
	return failed(failedNetwork)
}

// idleState is what became of a connection while nobody read it.
type idleState uint8

const (
	idleQuiet  idleState = iota
	idleSpoke            // there is something to read
	idleClosed           // the other side closed it, or it failed
)

// lookIdle finds out without blocking, so that an idle connection needs no goroutine of its own.
func lookIdle(c net.Conn) idleState {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return idleQuiet
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return idleClosed
	}
	var (
		b    [1]byte
		n    int
		rerr error
	)
	err = raw.Read(func(fd uintptr) bool {
		n, _, rerr = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return true
	})
	switch {
	case err != nil:
		return idleClosed
	case rerr == unix.EAGAIN || rerr == unix.EINTR:
		return idleQuiet
	case rerr != nil || n == 0:
		return idleClosed
	}
	return idleSpoke
}
