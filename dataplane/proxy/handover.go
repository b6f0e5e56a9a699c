package proxy

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
)

// HandedSockets are the listening sockets of one address, on their way from one process to the next. The
// kernel's queue of a socket goes with it, so no connection attempt notices.
type HandedSockets struct {
	Protocol dataplane.Protocol `json:"protocol"`
	// Configured is the address of the configuration, Bound has the real port.
	Configured dataplane.ListenAddress `json:"configured"`
	Bound      dataplane.ListenAddress `json:"bound"`
	// Ephemeral names the listener's address where the configured port is 0.
	Ephemeral string `json:"ephemeral,omitempty"`
	// FDs are the sockets, by worker, or one that all share.
	FDs []int `json:"-"`
	// Count is their number.
	Count int `json:"count"`
}

// Sockets returns copies of all listening sockets, for another process; the caller closes them.
func (s *Server) Sockets() ([]HandedSockets, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []HandedSockets
	fail := func(err error) ([]HandedSockets, error) {
		CloseHanded(all)
		return nil, err
	}
	if s.closed {
		return nil, errClosed
	}
	for _, name := range s.order {
		l := s.live[name]
		if l.stopped {
			continue
		}
		for _, set := range l.sockets {
			h := HandedSockets{Protocol: set.key.protocol, Configured: dataplane.ListenAddress{Addr: set.key.addr, IPv4Compat: set.addr.IPv4Compat}, Bound: set.addr, Ephemeral: set.key.ephemeral}
			all = append(all, h)
			for _, fd := range set.fds {
				dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
				if err != nil {
					return fail(fmt.Errorf("copying the socket of '%s': %w", set.addr.Addr, err))
				}
				last := &all[len(all)-1]
				last.FDs = append(last.FDs, dup)
				last.Count = len(last.FDs)
			}
		}
	}
	return all, nil
}

// CloseHanded closes sockets that Sockets returned.
func CloseHanded(all []HandedSockets) {
	for _, h := range all {
		for _, fd := range h.FDs {
			unix.Close(fd)
		}
	}
}

func setsOf(handed []HandedSockets) map[socketKey]*socketSet {
	sets := map[socketKey]*socketSet{}
	for _, h := range handed {
		key := socketKey{protocol: h.Protocol, addr: h.Configured.Addr, ephemeral: h.Ephemeral}
		sets[key] = &socketSet{key: key, addr: h.Bound, fds: h.FDs}
	}
	return sets
}

// fit makes sockets that may come from a process with fewer workers enough for these. Surplus ones stay:
// connections may be waiting in their queues, and the kernel goes on sending datagrams to a socket that the
// other process has open too.
func (s *socketSet) fit(l *dataplane.Listener, address, workers int) error {
	if len(s.fds) <= 1 {
		return nil
	}
	at := *l
	at.Addresses = append([]dataplane.ListenAddress(nil), l.Addresses...)
	at.Addresses[address].Addr = s.addr.Addr // the real port
	for len(s.fds) < workers && l.ReusePort {
		fd, err := bindSocket(&at, s.addr)
		if err != nil {
			return err
		}
		s.fds = append(s.fds, fd)
	}
	return nil
}

// dropUnclaimed closes the handed sockets that no listener of the first snapshot wants.
func (s *Server) dropUnclaimed(p *plan) {
	if s.handed == nil {
		return
	}
	claimed := map[*socketSet]bool{}
	for _, l := range p.next {
		for _, set := range l.sockets {
			claimed[set] = true
		}
	}
	for _, set := range s.handed {
		if !claimed[set] {
			set.close()
		}
	}
	s.handed = nil
}

// HandOver stops accepting because another process does now with the sockets it got from Sockets. TCP
// connections go on, and so do UDP sessions, which send their hosts' answers but hear no more of their
// clients: what these send begins sessions over there.
func (s *Server) HandOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	var over []*liveListener
	for _, l := range s.live {
		if !l.stopped {
			l.stopped = true
			l.drain.begin(time.Now(), s.cfg.DrainTime)
			over = append(over, l)
		}
	}
	s.everyWorker(func(w *worker) {
		for _, l := range over {
			for _, set := range l.sockets {
				if a := w.acceptors[set]; a != nil {
					a.unwatch() // what waits in the queue is the other's to accept
					delete(w.acceptors, set)
				}
				for k, e := range w.udp {
					if u, ok := e.(*udpListener); ok && k.set == set {
						u.deafen()
					}
				}
			}
		}
	})
	for _, l := range over {
		for _, set := range l.sockets {
			if set.key.protocol == dataplane.TCP {
				set.close()
			}
		}
	}
}

// deafen takes the listening socket out of the loop; sessions still send through it.
func (l *udpListener) deafen() {
	if !l.deaf {
		l.io.settle()
		l.loop.remove(l.fd, l.token)
		l.deaf = true
	}
}

// handedOver reports whether another process reads the endpoint's socket.
func handedOver(e udpEndpoint) bool {
	l, ok := e.(*udpListener)
	return ok && l.deaf
}
