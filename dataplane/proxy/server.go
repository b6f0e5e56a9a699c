package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// Server is the proxy data plane. It implements dataplane.Dataplane.
type Server struct {
	cfg     Config
	shared  process
	workers []*worker
	running sync.WaitGroup

	mu     sync.Mutex // held over Apply, DrainListeners and Close
	closed bool
	// live are the listeners in force, by name and in configuration order.
	live  map[string]*liveListener
	order []string
	// handed are sockets of a former process that no listener has claimed yet.
	handed map[socketKey]*socketSet
	// stopping are the timers of graceful drains.
	stopping []*time.Timer
}

var _ dataplane.Dataplane = (*Server)(nil)

var errClosed = errors.New("the proxy data plane is closed")

func start(c Config) (*Server, error) {
	s := &Server{cfg: c, live: map[string]*liveListener{}, handed: setsOf(c.Handed)}
	for i := range c.Workers {
		l, err := newLoop()
		if err != nil {
			for _, w := range s.workers {
				w.loop.close()
			}
			return nil, fmt.Errorf("worker %d of %d: %w: start fewer, or raise the limit of open files", i+1, c.Workers, err)
		}
		w := &worker{
			loop: l, index: i, count: c.Workers, cfg: &s.cfg, store: c.Stats, log: c.Log.With("worker", i),
			snap:      &dataplane.Snapshot{},
			acceptors: map[*socketSet]*acceptor{}, udp: map[udpSocket]udpEndpoint{},
		}
		w.tcp.init(w, &s.shared)
		s.workers = append(s.workers, w)
	}
	for _, w := range s.workers {
		s.running.Go(w.run)
	}
	return s, nil
}

// everyWorker runs f on all loops and waits until all have run it.
func (s *Server) everyWorker(f func(*worker)) {
	var wg sync.WaitGroup
	wg.Add(len(s.workers))
	for _, w := range s.workers {
		w.post(func() { f(w); wg.Done() })
	}
	wg.Wait()
}

// Apply implements dataplane.Dataplane.
func (s *Server) Apply(ctx context.Context, snap *dataplane.Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p := s.plan(snap)
	s.install(snap, p)
	s.dropUnclaimed(p)
	if len(p.failed) > 0 {
		return &dataplane.ListenerError{Failed: p.failed}
	}
	return nil
}

// Listening implements dataplane.Dataplane. Stopped listeners stay in the list.
func (s *Server) Listening() []dataplane.ListenerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]dataplane.ListenerStatus, 0, len(s.order))
	for _, name := range s.order {
		l := s.live[name]
		st := dataplane.ListenerStatus{Name: name, Protocol: l.cfg.Protocol, Draining: l.drain.begun() || l.stopped}
		for _, set := range l.sockets {
			st.Addresses = append(st.Addresses, set.addr)
		}
		list = append(list, st)
	}
	return list
}

// DrainListeners implements dataplane.Dataplane.
func (s *Server) DrainListeners(names []string, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if names == nil {
		names = s.order
	}
	var found []*liveListener
	for _, name := range names {
		if l := s.live[name]; l != nil && !l.stopped {
			found = append(found, l)
		}
	}
	if grace <= 0 {
		s.stopListeners(found)
		return
	}
	for _, l := range found {
		l.drain.begin(time.Now(), grace)
	}
	stop := append([]string(nil), names...)
	s.stopping = append(s.stopping, time.AfterFunc(grace, func() { s.DrainListeners(stop, 0) }))
}

// stopListeners closes the sockets of listeners; what they accepted goes on.
func (s *Server) stopListeners(list []*liveListener) {
	for _, l := range list {
		l.stopped = true
		s.cfg.Stats.Counter("listener_manager.listener_stopped").Inc()
	}
	s.everyWorker(func(w *worker) {
		for _, l := range list {
			for _, set := range l.sockets {
				w.stopSocket(set)
			}
		}
	})
	for _, l := range list {
		for _, set := range l.sockets {
			set.close()
		}
	}
}

// SetDraining implements dataplane.Dataplane.
func (s *Server) SetDraining(draining bool) { s.shared.draining.Store(draining) }

// Close implements dataplane.Dataplane.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, t := range s.stopping {
		t.Stop()
	}
	for _, w := range s.workers {
		w.post(w.end)
	}
	s.running.Wait()
	for _, l := range s.live {
		for _, set := range l.sockets {
			set.close()
		}
	}
	return nil
}
