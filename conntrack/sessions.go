package conntrack

import (
	"fmt"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Sessions are the UDP sessions of one worker of a proxy. The proxy knows every
// session it has, so that slots need no state here: a datagram without a session
// is a new flow and goes where the table says now, one with a session stays with
// its backend for as long as that can serve.
//
// It belongs to one goroutine, takes no lock, and does not allocate for the
// datagrams of a session that is there.
type Sessions[V any] struct {
	cfg SessionsConfig[V]
	// In the order of the last datagram: what is idle is at its end.
	lru *simplelru.LRU[Flow, *Session[V]]

	overflow uint64
}

// SessionsConfig is the bounds of Sessions.
type SessionsConfig[V any] struct {
	// Max is how many sessions there are at most; required.
	Max int
	// EvictOldest makes room for a new session by ending the one that has been
	// idle for longest. The default refuses the new one, as Envoy's
	// max_connections circuit breaker does.
	EvictOldest bool
	// Idle is the time without a datagram in either direction after which a
	// session ends; required. See NoIdle.
	Idle time.Duration
	// OnEnd, if set, is called with each session that ends, when it is no longer
	// there. It must not call the Sessions back.
	OnEnd func(*Session[V], EndReason)
}

// Session is a UDP session.
type Session[V any] struct {
	// Value is the caller's: sockets, counters, the log entry.
	Value V
	flow  Flow
	last  time.Duration
	gen   uint32
	b     Backend
	ended bool
}

// Flow returns the client's and the local address.
func (s *Session[V]) Flow() Flow { return s.flow }

// Backend returns the backend that the session is with.
func (s *Session[V]) Backend() Backend { return s.b }

// Last returns when the last datagram came, from either side.
func (s *Session[V]) Last() time.Duration { return s.last }

// Standing says how a session's backend stands.
type Standing uint8

// The standings of a session's backend.
const (
	// Serving: it keeps its sessions (CanServe).
	Serving Standing = iota
	// Unfit: it is still there, but a session that can go elsewhere does so at its
	// next datagram.
	Unfit
	// Gone: removed, or its index has become another backend's.
	Gone
)

// Hosts is what the rules ask about the backends of a service.
type Hosts interface {
	// Standing says how the backend stands that had index b in generation gen.
	Standing(b Backend, gen uint32) Standing
	// Pick returns the backend of a new session of the flow and its generation,
	// and false if there is none.
	Pick(f Flow) (b Backend, gen uint32, ok bool)
}

// Outcome says what a client's datagram did.
type Outcome uint8

// The outcomes of a client's datagram. With the last two there is no session,
// and the datagram is dropped.
const (
	// Kept: it belongs to a session, whose backend is the same as before.
	Kept Outcome = iota
	// Began: it has begun a session.
	Began
	// Moved: its session has moved to another backend just now. Value is as it
	// was: what belongs to the old backend is the caller's to close.
	Moved
	// Refused: there are as many sessions as may be.
	Refused
	// NoHost: there is no backend for it.
	NoHost
)

// EndReason says why a session ended.
type EndReason uint8

// The reasons of a session's end.
const (
	EndIdle    EndReason = iota // no datagram for the idle timeout
	EndGone                     // its backend was removed
	EndEvicted                  // a newer session needed the room
	EndClosed                   // by End or EndAll
)

// NewSessions returns a worker's sessions; none yet.
func NewSessions[V any](cfg SessionsConfig[V]) (*Sessions[V], error) {
	if cfg.Max <= 0 || cfg.Idle <= 0 {
		return nil, fmt.Errorf("conntrack: %d sessions with an idle timeout of %v: both must be positive", cfg.Max, cfg.Idle)
	}
	// It never evicts by itself: room is made before a session is added.
	lru, err := simplelru.NewLRU[Flow, *Session[V]](cfg.Max, nil)
	if err != nil {
		return nil, fmt.Errorf("conntrack: sessions: %w", err)
	}
	return &Sessions[V]{cfg: cfg, lru: lru}, nil
}

// Datagram returns the session that a client's datagram belongs to, by Envoy's
// rules for udp_proxy: a session whose backend cannot serve is picked for again
// and moves if that yields another backend that can, otherwise it stays; one
// whose backend is gone ends.
func (t *Sessions[V]) Datagram(f Flow, now time.Duration, hosts Hosts) (*Session[V], Outcome) {
	if s, ok := t.lru.Get(f); ok {
		if now-s.last > t.cfg.Idle {
			t.end(s, EndIdle) // Expire has not come by yet
		} else if standing := hosts.Standing(s.b, s.gen); standing == Gone {
			t.end(s, EndGone)
		} else {
			s.last = now
			return s, s.stayOrMove(standing, hosts)
		}
	}
	b, gen, ok := hosts.Pick(f)
	if !ok {
		return nil, NoHost
	}
	if !t.room(now) {
		return nil, Refused
	}
	s := &Session[V]{flow: f, last: now, b: b, gen: gen}
	t.lru.Add(f, s)
	return s, Began
}

// stayOrMove picks again for a session whose backend is unfit.
func (s *Session[V]) stayOrMove(standing Standing, hosts Hosts) Outcome {
	if standing == Serving {
		return Kept
	}
	b, gen, ok := hosts.Pick(s.flow)
	if !ok || b == s.b || hosts.Standing(b, gen) != Serving {
		return Kept
	}
	s.b, s.gen = b, gen
	return Moved
}

// room reports whether there is room for one more session, and makes it if
// that may be.
func (t *Sessions[V]) room(now time.Duration) bool {
	if t.lru.Len() < t.cfg.Max {
		return true
	}
	_, oldest, _ := t.lru.GetOldest()
	if now-oldest.last > t.cfg.Idle {
		t.end(oldest, EndIdle)
		return true
	}
	t.overflow++
	if !t.cfg.EvictOldest {
		return false
	}
	t.end(oldest, EndEvicted)
	return true
}

// Touch notes a datagram from the backend. A session that has ended stays so.
func (t *Sessions[V]) Touch(s *Session[V], now time.Duration) {
	if !s.ended {
		t.lru.Get(s.flow)
		s.last = now
	}
}

// Expire ends the sessions that are idle, oldest first.
func (t *Sessions[V]) Expire(now time.Duration) {
	for {
		_, s, ok := t.lru.GetOldest()
		if !ok || now-s.last <= t.cfg.Idle {
			return
		}
		t.end(s, EndIdle)
	}
}

// NextExpiry returns the first moment at which Expire may find something to do
// if no datagram comes, and false if there are no sessions.
func (t *Sessions[V]) NextExpiry() (time.Duration, bool) {
	_, s, ok := t.lru.GetOldest()
	if !ok {
		return 0, false
	}
	if t.cfg.Idle >= NoIdle-s.last {
		return NoIdle, true
	}
	return s.last + t.cfg.Idle + 1, true
}

// End ends a session. Ending one that has ended does nothing.
func (t *Sessions[V]) End(s *Session[V]) { t.end(s, EndClosed) }

// EndAll ends every session.
func (t *Sessions[V]) EndAll() {
	for _, s := range t.lru.Values() {
		t.end(s, EndClosed)
	}
}

// Reconcile ends the sessions whose backend is gone, as Envoy does when a host
// is removed, rather than at their next datagram. It looks at every session.
func (t *Sessions[V]) Reconcile(hosts Hosts) {
	for _, s := range t.lru.Values() {
		if hosts.Standing(s.b, s.gen) == Gone {
			t.end(s, EndGone)
		}
	}
}

func (t *Sessions[V]) end(s *Session[V], why EndReason) {
	if s.ended {
		return
	}
	s.ended = true
	t.lru.Remove(s.flow)
	if t.cfg.OnEnd != nil {
		t.cfg.OnEnd(s, why)
	}
}

// SetIdle changes the idle timeout, also of the sessions there are.
func (t *Sessions[V]) SetIdle(idle time.Duration) error {
	if idle <= 0 {
		return fmt.Errorf("conntrack: idle timeout %v is not positive: set conntrack.NoIdle to switch it off", idle)
	}
	t.cfg.Idle = idle
	return nil
}

// Len returns how many sessions there are.
func (t *Sessions[V]) Len() int { return t.lru.Len() }

// All yields the sessions, longest idle first. The caller may end the one it
// has.
func (t *Sessions[V]) All(yield func(*Session[V]) bool) {
	for _, s := range t.lru.Values() {
		if !s.ended && !yield(s) {
			return
		}
	}
}

// Overflow returns how many new sessions found no room; each was refused, or
// ended a live one.
func (t *Sessions[V]) Overflow() uint64 { return t.overflow }
