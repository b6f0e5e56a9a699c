package proxy

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
)

// socketKey tells which configured address a socket set serves. A set is handed from one version of a
// listener to the next, and from a removed listener to a new one, if the keys are equal.
type socketKey struct {
	protocol dataplane.Protocol
	addr     netip.AddrPort
	// An ephemeral port belongs to one listener's n-th address and to nobody else.
	ephemeral string
}

func keyOf(l *dataplane.Listener, i int) socketKey {
	k := socketKey{protocol: l.Protocol, addr: l.Addresses[i].Addr}
	if k.addr.Port() == 0 {
		k.ephemeral = fmt.Sprintf("%s/%d", l.Name, i)
	}
	return k
}

// socketSet is the sockets of one listening address: one for each worker with SO_REUSEPORT, else a
// single one. The kernel's queue of such a socket may hold connections at any time, so a set lives as
// long as any listener wants its address.
type socketSet struct {
	key socketKey
	// addr has the real port.
	addr dataplane.ListenAddress
	fds  []int
}

// of returns the sockets of one of so many workers. A shared UDP socket belongs to worker 0 alone, since
// sessions are kept by worker.
func (s *socketSet) of(worker, workers int) []int {
	if len(s.fds) == 1 {
		if s.key.protocol == dataplane.TCP || worker == 0 {
			return s.fds
		}
		return nil
	}
	var own []int
	for i := worker; i < len(s.fds); i += workers {
		own = append(own, s.fds[i])
	}
	return own
}

func (s *socketSet) close() {
	for _, fd := range s.fds {
		unix.Close(fd)
	}
	s.fds = nil
}

// bindSockets opens and binds the sockets of the i-th address of l; they do not listen yet.
func bindSockets(l *dataplane.Listener, i, workers int) (*socketSet, error) {
	s := &socketSet{key: keyOf(l, i), addr: l.Addresses[i]}
	n := 1
	if l.ReusePort {
		n = workers
	}
	for range n {
		fd, err := bindSocket(l, s.addr)
		if err != nil {
			s.close()
			return nil, err
		}
		s.fds = append(s.fds, fd)
		if s.addr.Addr.Port() == 0 {
			s.addr.Addr = netip.AddrPortFrom(s.addr.Addr.Addr(), localAddr(fd).Port())
		}
	}
	return s, nil
}

func bindSocket(l *dataplane.Listener, a dataplane.ListenAddress) (fd int, err error) {
	var sa sockaddr
	sa.set(a.Addr)
	kind := unix.SOCK_STREAM
	if l.Protocol == dataplane.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err = unix.Socket(sa.family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot create a socket for '%s': %w", a.Addr, err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	set := func(level, name, v int, what string) {
		if err == nil {
			if e := sysSetInt(fd, level, name, v); e != 0 {
				err = fmt.Errorf("cannot set %s on '%s': %s", what, a.Addr, strerror(e))
			}
		}
	}
	if l.Protocol == dataplane.TCP {
		set(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR")
		// Accepted sockets inherit these, which saves a call for each connection.
		set(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1, "TCP_NODELAY")
		if err == nil {
			err = setKeepalive(fd, l.Keepalive)
		}
	}
	if l.ReusePort {
		set(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT")
	}
	v6 := sa.family == unix.AF_INET6
	if v6 {
		only := 1
		if a.IPv4Compat {
			only = 0
		}
		set(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only, "IPV6_V6ONLY")
	}
	if l.Freebind {
		set(unix.SOL_IP, unix.IP_FREEBIND, 1, "IP_FREEBIND")
	}
	if l.Transparent {
		if v6 {
			set(unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1, "IPV6_TRANSPARENT (it needs CAP_NET_ADMIN)")
		} else {
			set(unix.SOL_IP, unix.IP_TRANSPARENT, 1, "IP_TRANSPARENT (it needs CAP_NET_ADMIN)")
		}
	}
	if err == nil {
		err = setOptions(fd, l, dataplane.StatePrebind)
	}
	if err != nil {
		return -1, err
	}
	if e := sysBind(fd, &sa); e != 0 {
		return -1, &bindError{a.Addr, e}
	}
	return fd, setOptions(fd, l, dataplane.StateBound)
}

// bindError is Envoy's text for an address that cannot be had.
type bindError struct {
	addr netip.AddrPort
	err  unix.Errno
}

func (e *bindError) Error() string {
	return fmt.Sprintf("cannot bind '%s': %s", e.addr, strerror(e.err))
}
func (e *bindError) Unwrap() error { return e.err }

// listen lets the kernel accept connections on all sockets of a set; for UDP there is nothing to do.
func (s *socketSet) listen(l *dataplane.Listener) error {
	if s.key.protocol != dataplane.TCP {
		return nil
	}
	backlog := l.Backlog
	if backlog <= 0 {
		backlog = 1<<31 - 1 // the kernel cuts it to net.core.somaxconn
	}
	for _, fd := range s.fds {
		if err := unix.Listen(fd, backlog); err != nil {
			if e, ok := err.(unix.Errno); ok {
				return &bindError{s.addr.Addr, e}
			}
			return fmt.Errorf("cannot listen on '%s': %w", s.addr.Addr, err)
		}
		if err := setOptions(fd, l, dataplane.StateListening); err != nil {
			return err
		}
	}
	return nil
}

// adopt makes sockets that served another version of a listener serve l: what can be changed on a
// listening socket is, the sharing among workers stays.
func (s *socketSet) adopt(l *dataplane.Listener) error {
	for _, fd := range s.fds {
		if l.Protocol == dataplane.TCP {
			if err := setKeepalive(fd, l.Keepalive); err != nil {
				return err
			}
		}
		for _, state := range []dataplane.SocketState{dataplane.StatePrebind, dataplane.StateBound} {
			if err := setOptions(fd, l, state); err != nil {
				return err
			}
		}
	}
	return s.listen(l) // sets the backlog anew
}

func setOptions(fd int, l *dataplane.Listener, state dataplane.SocketState) error {
	for _, o := range l.SocketOptions {
		if o.State != state {
			continue
		}
		var err error
		if o.Bytes != nil {
			err = unix.SetsockoptString(fd, o.Level, o.Name, string(o.Bytes))
		} else {
			err = unix.SetsockoptInt(fd, o.Level, o.Name, o.Int)
		}
		if err != nil {
			return fmt.Errorf("cannot set socket option %d of level %d on listener %q: %w", o.Name, o.Level, l.Name, err)
		}
	}
	return nil
}

// setKeepalive turns keepalive probes on; nil leaves the socket alone.
func setKeepalive(fd int, k *dataplane.TCPKeepalive) error {
	if k == nil {
		return nil
	}
	seconds := func(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
	for _, o := range [...]struct{ level, name, v int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(k.Time)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(k.Interval)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, k.Probes},
	} {
		if o.v == 0 {
			continue
		}
		if e := sysSetInt(fd, o.level, o.name, o.v); e != 0 {
			return fmt.Errorf("cannot set keepalive: %w", e)
		}
	}
	return nil
}
