package proxy

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
)

// plan is how to come from the listeners in force to those of a snapshot.
type plan struct {
	next  map[string]*liveListener
	order []string
	// retired are versions of listeners that are not in force any more, with the version that comes in
	// their place (nil if none).
	retired []retirement
	// close are sockets that nobody uses afterwards.
	close  []*socketSet
	failed []dataplane.ListenerFailure
}

type retirement struct{ old, new *liveListener }

// plan binds what is new, all of it before any of it listens, and finds what stays, moves and goes.
func (s *Server) plan(snap *dataplane.Snapshot) *plan {
	p := &plan{next: map[string]*liveListener{}}

	// Sockets whose listener goes, or may give them to another version of itself, are to be had.
	spare := map[socketKey]*socketSet{}
	for key, set := range s.handed {
		spare[key] = set
	}
	wanted := map[string]*dataplane.Listener{}
	for _, l := range snap.Listeners {
		if wanted[l.Name] == nil {
			wanted[l.Name] = l
		}
	}
	for name, old := range s.live {
		if l := wanted[name]; l != nil && (l.Hash == old.cfg.Hash || l.SocketHash == old.cfg.SocketHash) {
			continue
		}
		if !old.stopped {
			for _, set := range old.sockets {
				spare[set.key] = set
			}
		}
	}

	var bound []*socketSet
	for _, l := range snap.Listeners {
		if wanted[l.Name] != l {
			continue // a second listener of one name; only the first is used
		}
		old := s.live[l.Name]
		var next *liveListener
		switch {
		case old != nil && l.Hash == old.cfg.Hash:
			next = old.sameAs(l)
		case old != nil && (old.stopped || l.SocketHash == old.cfg.SocketHash):
			next = s.newLiveListener(l, old)
			next.sockets = old.sockets
		default:
			sets, fresh, err := s.sockets(l, spare)
			if err != nil {
				p.failed = append(p.failed, dataplane.ListenerFailure{Name: l.Name, Err: err})
				if old == nil {
					continue
				}
				next = old // the former version serves on
				break
			}
			bound = append(bound, fresh...)
			next = s.newLiveListener(l, nil)
			next.sockets = sets
		}
		p.next[l.Name] = next
		p.order = append(p.order, l.Name)
	}

	// Now that all are bound, they listen.
	for _, set := range bound {
		l := p.ownerOf(set)
		if l == nil {
			continue
		}
		if err := set.listen(l.cfg); err != nil {
			p.drop(s, l, err)
		}
	}

	inUse := map[*socketSet]bool{}
	for _, l := range p.next {
		for _, set := range l.sockets {
			inUse[set] = true
		}
	}
	for name, old := range s.live {
		if next := p.next[name]; next != old {
			p.retired = append(p.retired, retirement{old, next})
		}
		for _, set := range old.sockets {
			if !inUse[set] && !old.stopped {
				p.close = append(p.close, set)
			}
		}
	}
	for _, set := range bound {
		if !inUse[set] {
			p.close = append(p.close, set)
		}
	}
	return p
}

// sockets finds or binds the sockets of a listener. fresh are those bound here.
func (s *Server) sockets(l *dataplane.Listener, spare map[socketKey]*socketSet) (sets, fresh []*socketSet, err error) {
	defer func() {
		if err != nil {
			for _, set := range fresh {
				set.close()
			}
			for _, set := range sets {
				if set.fds != nil {
					spare[set.key] = set
				}
			}
			sets, fresh = nil, nil
		}
	}()
	for i := range l.Addresses {
		key := keyOf(l, i)
		if set := spare[key]; set != nil {
			delete(spare, key)
			sets = append(sets, set)
			if err := set.fit(l, i, len(s.workers)); err != nil {
				return sets, fresh, err
			}
			if err := set.adopt(l); err != nil {
				return sets, fresh, err
			}
			continue
		}
		if s.taken(key, spare) {
			return sets, fresh, &bindError{key.addr, unix.EADDRINUSE}
		}
		set, err := bindSockets(l, i, len(s.workers))
		if err != nil {
			return sets, fresh, err
		}
		sets, fresh = append(sets, set), append(fresh, set)
	}
	if len(sets) == 0 {
		return sets, fresh, fmt.Errorf("listener %q has no address", l.Name)
	}
	return sets, fresh, nil
}

// taken reports whether a listener of ours holds the address and keeps it: with SO_REUSEPORT the kernel
// would not object, and the two would share its connections at random.
func (s *Server) taken(key socketKey, spare map[socketKey]*socketSet) bool {
	for _, l := range s.live {
		if l.stopped {
			continue
		}
		for _, set := range l.sockets {
			if set.key == key && spare[key] == nil {
				return true
			}
		}
	}
	return false
}

func (p *plan) ownerOf(set *socketSet) *liveListener {
	for _, l := range p.next {
		for _, x := range l.sockets {
			if x == set {
				return l
			}
		}
	}
	return nil
}

// drop takes a listener that cannot serve out of the plan; its former version stays if there is one.
func (p *plan) drop(s *Server, l *liveListener, err error) {
	name := l.cfg.Name
	p.failed = append(p.failed, dataplane.ListenerFailure{Name: name, Err: err})
	l.release()
	if old := s.live[name]; old != nil {
		p.next[name] = old
		return
	}
	delete(p.next, name)
	for i := range p.order {
		if p.order[i] == name {
			p.order = append(p.order[:i], p.order[i+1:]...)
			break
		}
	}
}

// install makes a plan the state in force on all workers, then ends what is left over.
func (s *Server) install(snap *dataplane.Snapshot, p *plan) {
	updates := make([]update, len(s.workers))
	var serve []*liveListener
	for _, name := range p.order {
		if l := p.next[name]; !l.stopped {
			serve = append(serve, l)
		}
	}
	s.everyWorker(func(w *worker) {
		u := &updates[w.index]
		*u = update{snap: snap, serve: serve, failed: map[string]error{}}
		w.apply(u)
	})
	for _, r := range p.retired {
		s.retire(r)
	}
	for _, set := range p.close {
		set.close()
	}
	s.live, s.order = p.next, p.order

	// Whatever a worker could not start (a UDP socket that refuses an option, say) ends everywhere.
	failed := map[string]error{}
	for _, u := range updates {
		for name, err := range u.failed {
			failed[name] = err
		}
	}
	for _, name := range append([]string(nil), s.order...) {
		if err := failed[name]; err != nil {
			l := s.live[name]
			s.stopListeners([]*liveListener{l})
			delete(s.live, name)
			p.drop(s, l, err)
		}
	}
	s.order = p.order
}
