package proxy

import (
	"log/slog"
	"sync/atomic"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// worker is one event loop with everything it serves. All fields belong to the loop's goroutine.
type worker struct {
	*loop
	index int
	count int // workers of the server
	log   *slog.Logger
	store *stats.Store
	cfg   *Config

	// snap is the snapshot in force; never nil.
	snap *dataplane.Snapshot

	acceptors map[*socketSet]*acceptor
	udp       map[udpSocket]udpEndpoint

	udpIO *udpIO // nil before the first UDP listener

	tcp tcpState
	// leaving are hosts whose flows are being closed; see closeafter.go.
	leaving map[*dataplane.HostState]*departure
}

// udpSocket is one of a worker's UDP sockets. Mostly it has one of each set; a process with more workers
// may have left it several.
type udpSocket struct {
	set *socketSet
	fd  int
}

// udpEndpoint is one UDP socket of a listener on one worker. It is called on the worker's loop only.
type udpEndpoint interface {
	// update brings another version of the listener, or another listener, for the same socket. If it
	// fails, the endpoint is as before.
	update(*dataplane.Listener, *listenerStatus) error
	// applied tells that the worker's snapshot changed from old to new.
	applied(old, new *dataplane.Snapshot)
	// stop ends the endpoint and all its sessions. It takes the socket out of the loop; its owner
	// closes it afterwards.
	stop()
}

// listenerStatus is what an endpoint may want to know of its socket beside the configuration.
type listenerStatus struct {
	// addr has the real port.
	addr  dataplane.ListenAddress
	stats *dataplane.ListenerStats
}

// cluster returns the cluster of that name, nil if it is not active.
func (w *worker) cluster(name string) *dataplane.Cluster { return w.snap.Clusters[name] }

// process is what all workers of a server share.
type process struct {
	// connections counts live downstream TCP connections, for Snapshot.MaxConnections.
	connections atomic.Int64
	// draining is set by SetDraining.
	draining atomic.Bool
	// connectionIDs are given to connections of both sides, from 1.
	connectionIDs atomic.Uint64
	queues        hostQueues
}

// update is what one Apply asks of a worker.
type update struct {
	snap *dataplane.Snapshot
	// serve is the listeners in force afterwards, but for stopped ones.
	serve []*liveListener
	// failed collects listeners that the worker could not start.
	failed map[string]error
}

// apply makes u the state in force.
func (w *worker) apply(u *update) {
	old := w.snap
	w.snap = u.snap
	w.departures(old, u.snap) // before the UDP sockets forget hosts that left
	keep := make(map[*socketSet]bool)
	for _, l := range u.serve {
		for _, s := range l.sockets {
			keep[s] = true
			if err := w.serveSocket(l, s); err != nil {
				u.failed[l.cfg.Name] = err
			}
		}
	}
	for s, a := range w.acceptors {
		if !keep[s] {
			a.stop()
			delete(w.acceptors, s)
		}
	}
	for s, e := range w.udp {
		if !keep[s.set] && !handedOver(e) {
			e.stop()
			delete(w.udp, s)
			continue
		}
		e.applied(old, u.snap)
	}
	w.tcp.applied(old, u.snap)
}

// serveSocket makes a socket serve this version of its listener.
func (w *worker) serveSocket(l *liveListener, s *socketSet) error {
	fds := s.of(w.index, w.count)
	if len(fds) == 0 {
		return nil
	}
	if l.cfg.Protocol == dataplane.UDP {
		status := &listenerStatus{s.addr, l.stats}
		for _, fd := range fds {
			var err error
			if e := w.udp[udpSocket{s, fd}]; e != nil {
				err = e.update(l.cfg, status)
			} else if e, err = newUDPListener(w, fd, l.cfg, status); err == nil {
				w.udp[udpSocket{s, fd}] = e
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if a := w.acceptors[s]; a != nil {
		a.listener = l
		return nil
	}
	a, err := newAcceptor(w, l, fds, s)
	if err != nil {
		return err
	}
	w.acceptors[s] = a
	return nil
}

// stopSocket ends what a worker does with a socket that is about to be closed.
func (w *worker) stopSocket(s *socketSet) {
	if a := w.acceptors[s]; a != nil {
		a.stop()
		delete(w.acceptors, s)
	}
	for k, e := range w.udp {
		if k.set == s {
			e.stop()
			delete(w.udp, k)
		}
	}
}

// end is the worker's last deed: it ends all it serves.
func (w *worker) end() {
	for s := range w.acceptors {
		w.stopSocket(s)
	}
	for s := range w.udp {
		w.stopSocket(s.set)
	}
	w.tcp.end()
	w.quit = true
}
