package xds

import (
	"fmt"
	"log/slog"
	"time"
)

// Transport opens streams to one management server.
type Transport interface {
	// Open begins a stream and returns at once. What becomes of it is told to h, in order, on any
	// goroutine; Closed comes last, unless the stream was closed from this side.
	Open(h Handler) Stream
}

// Stream is one stream to a management server. Its methods never block.
type Stream interface {
	Send(*Request)
	Close()
}

// Handler hears of a stream.
type Handler interface {
	Connected()
	Received(*Response)
	Closed(error)
}

// mux carries the subscriptions of one management server over one stream: for all types (aggregated) or
// for one.
type mux struct {
	client    *Client
	log       *slog.Logger
	transport Transport
	delta     bool
	stats     *serverStats
	limit     *bucket // nil without rate_limit_settings

	channels [types]*channel // nil where there was no subscription
	queue    []*channel      // those with a request that is due, in order
	stream   Stream          // nil while there is none
	attempt  int             // counts streams, so that what an old one says is known for old
	up       bool            // requests can be sent
	heard    bool            // a message has come on this stream
	backoff  backoff
	wake     func() // stops the timer for requests that wait
	retry    func() // stops the timer for the next stream
	closed   bool
}

// channel is one type on a mux.
type channel struct {
	typ     Type
	machine machine
	subs    []*Subscription
	held    bool // requests wait: see Client.Hold
	queued  bool
	pace    pace
	// answered is set once a response has come on this stream; resync stops the timer that asks anew if
	// none does.
	answered bool
	resync   func()
	doubt    doubt
	expiry   map[string]func() // timers of resources with a time to live
}

// resyncAfter is how long a server may be silent on a new stream before it is asked as if nothing was
// known. A server that restarts may count its versions from the start, and takes a client that knows the
// same number, for other content, to be up to date.
const resyncAfter = 5 * time.Second

func (m *mux) channel(t Type) *channel {
	ch := m.channels[t]
	if ch == nil {
		ch = &channel{typ: t, expiry: map[string]func(){}}
		if m.delta {
			ch.machine = newDelta(t)
		} else {
			ch.machine = newSotw(t)
		}
		m.channels[t] = ch
	}
	return ch
}

func (m *mux) subscribe(s *Subscription) {
	ch := m.channel(s.typ)
	ch.subs = append(ch.subs, s)
	ch.machine.want(s.name)
	m.enqueue(ch)
	if m.stream == nil && m.retry == nil {
		m.open()
	}
}

func (m *mux) unsubscribe(s *Subscription) {
	ch := m.channels[s.typ]
	others := false
	kept := ch.subs[:0:0]
	for _, x := range ch.subs {
		if x == s {
			continue
		}
		kept = append(kept, x)
		others = others || x.name == s.name
	}
	ch.subs = kept
	if !others {
		ch.machine.unwant(s.name)
		ch.cease(s.name)
		m.enqueue(ch)
	}
}

func (m *mux) subscriptions(f func(*Subscription)) (n int) {
	for _, ch := range m.channels {
		if ch == nil {
			continue
		}
		for _, s := range ch.subs {
			n++
			f(s)
		}
	}
	return n
}

// enqueue puts a channel in line if a request of it is due.
func (m *mux) enqueue(ch *channel) {
	if !ch.queued && ch.machine.due() {
		ch.queued = true
		m.queue = append(m.queue, ch)
	}
}

// open begins a stream.
func (m *mux) open() {
	m.retry = nil
	if m.closed || m.subscriptions(func(*Subscription) {}) == 0 {
		return
	}
	m.attempt++
	m.heard = false
	m.stream = m.transport.Open(&streamHandler{m, m.attempt})
}

// streamHandler brings what a stream says to the owner's goroutine.
type streamHandler struct {
	m       *mux
	attempt int
}

func (h *streamHandler) post(f func()) {
	h.m.client.Post(func() {
		if !h.m.closed && h.attempt == h.m.attempt && h.m.stream != nil {
			f()
		}
	})
}

func (h *streamHandler) Connected()           { h.post(h.m.connected) }
func (h *streamHandler) Received(r *Response) { h.post(func() { h.m.received(r) }) }
func (h *streamHandler) Closed(err error)     { h.post(func() { h.m.disconnected(err) }) }

func (m *mux) connected() {
	m.up = true
	m.stats.connected.Set(1)
	m.queue = nil
	for _, ch := range m.channels {
		if ch == nil {
			continue
		}
		known := ch.machine.accepted() != ""
		ch.machine.restart()
		ch.queued, ch.answered = false, false
		m.enqueue(ch)
		if known && !m.delta {
			m.watchSilence(ch)
		}
	}
}

func (m *mux) watchSilence(ch *channel) {
	attempt := m.attempt
	ch.resync = m.client.after(resyncAfter, func() {
		ch.resync = nil
		if m.up && m.attempt == attempt && !ch.answered && len(ch.subs) > 0 {
			ch.machine.anew()
			m.enqueue(ch)
		}
	})
}

func (m *mux) disconnected(err error) {
	m.stream.Close()
	m.drop()
	m.subscriptions(func(s *Subscription) {
		s.stats.failure.Inc()
		s.stats.attempt.Inc()
		s.unreachable()
	})
	wait := m.backoff.wait()
	level := slog.LevelWarn
	if !m.heard {
		level = slog.LevelDebug // attempts while a server is away; the first failure was told
		if m.attempt == 1 {
			level = slog.LevelWarn
		}
	}
	m.log.Log(m.client.Context, level, "the stream to the management server has ended; what is in force stays", "reason", err, "retry_ms", wait.Milliseconds())
	m.retry = m.client.after(wait, m.open)
}

// drop forgets the stream.
func (m *mux) drop() {
	m.stream, m.up, m.queue = nil, false, nil
	m.stats.connected.Set(0)
	m.stats.pending.Set(0)
	for _, ch := range m.channels {
		if ch == nil {
			continue
		}
		ch.queued = false
		if ch.resync != nil {
			ch.resync()
			ch.resync = nil
		}
	}
}

func (m *mux) received(r *Response) {
	m.heard = true
	m.backoff.reset()
	if r.ControlPlane != "" {
		m.stats.identifier.Set(r.ControlPlane)
	}
	t, ok := typeOf(r.URL)
	if !ok || m.channels[t] == nil {
		m.log.Warn("a response of a type that was not asked for is ignored", "type", r.URL)
		return
	}
	ch := m.channels[t]
	if ch.resync != nil {
		ch.resync()
		ch.resync = nil
	}
	first := !ch.answered && m.attempt > 1
	ch.answered = true
	if len(ch.subs) == 0 {
		ch.machine.ignore(r)
		m.enqueue(ch)
		return
	}
	began := m.client.Clock.Now()
	var err error
	switch {
	case r.Err != nil:
		err = r.Err
		for _, s := range ch.subs {
			s.outcome(err, r.Version, began)
		}
	case t.wildcard():
		err = m.wildcard(ch, r, first, began)
	default:
		err = m.named(ch, r, began)
	}
	if err != nil {
		m.log.Warn("update rejected", "type", t.String(), "version", r.Version, "reason", err)
	} else {
		ch.pace.accepted()
	}
	ch.machine.answer(r, err)
	m.enqueue(ch)
}

// wildcard hands a response for all resources of a type to its one watcher.
func (m *mux) wildcard(ch *channel, r *Response, first bool, began time.Time) error {
	s := ch.subs[0]
	u := Update{Resources: r.Resources, Removed: r.Removed, Full: !m.delta, Version: r.Version}
	m.lives(ch, r)
	if ch.doubt.hold(m, ch, u, first) {
		s.outcome(nil, r.Version, began)
		return nil
	}
	return s.take(ch.doubt.merge(u), began)
}

// named hands the resources of a response to those who asked for them by name. What nobody asked for is
// ignored, and of several copies the first counts.
func (m *mux) named(ch *channel, r *Response, began time.Time) error {
	m.lives(ch, r)
	found := make(map[string]*Resource, len(r.Resources))
	for _, x := range r.Resources {
		if found[x.Name] == nil {
			found[x.Name] = x
		}
	}
	gone := map[string]bool{}
	for _, name := range r.Removed {
		gone[name] = true
	}
	var refusal *Refusal
	for _, s := range append([]*Subscription(nil), ch.subs...) {
		u := Update{Version: r.Version}
		switch x := found[s.name]; {
		case x != nil && x.Heartbeat:
			continue
		case x != nil:
			u.Resources = []*Resource{x}
		case gone[s.name]:
			u.Removed = []string{s.name}
		default:
			continue
		}
		if err := s.take(u, began); err != nil {
			if refusal == nil {
				refusal = &Refusal{}
			}
			refusal.Refused = append(refusal.Refused, Refused{s.name, err})
		}
	}
	if refusal == nil {
		return nil
	}
	return &namedRefusal{refusal}
}

// namedRefusal is the refusal of endpoints. Envoy names no resource in it, since the reasons do; one
// that does not is named here.
type namedRefusal struct{ *Refusal }

func (e *namedRefusal) Unwrap() error { return e.Refusal }

func (e *namedRefusal) Error() string {
	if len(e.Refused) == 1 {
		return fmt.Sprintf("%v (cluster load assignment '%s')", e.Refused[0].Err, e.Refused[0].Name)
	}
	e.Prefix = "Error updating cluster load assignment(s)"
	return e.Refusal.Error()
}

// lives starts, renews and stops the timers of resources with a time to live.
func (m *mux) lives(ch *channel, r *Response) {
	for _, name := range r.Removed {
		ch.cease(name)
	}
	for _, x := range r.Resources {
		ch.cease(x.Name)
		if name := x.Name; x.TTL > 0 {
			ch.expiry[name] = m.client.after(x.TTL, func() { m.expired(ch, name) })
		}
	}
}

// cease stops the timer of a resource.
func (ch *channel) cease(name string) {
	if stop := ch.expiry[name]; stop != nil {
		stop()
		delete(ch.expiry, name)
	}
}

// expired takes a resource away that was not renewed in time.
func (m *mux) expired(ch *channel, name string) {
	delete(ch.expiry, name)
	m.log.Warn("a resource was not renewed within its time to live and is gone", "type", ch.typ.String(), "name", name)
	for _, s := range append([]*Subscription(nil), ch.subs...) {
		if s.name == "" || s.name == name {
			if err := s.watcher.Update(Update{Removed: []string{name}, Version: ch.machine.accepted()}); err != nil {
				m.log.Warn("it cannot be removed", "name", name, "reason", err)
			}
		}
	}
}

// flush sends what is due and may go.
func (m *mux) flush() {
	if !m.up {
		return
	}
	if m.wake != nil {
		m.wake()
		m.wake = nil
	}
	now := m.client.Clock.Now()
	var wait time.Duration
	later := func(d time.Duration) {
		if wait == 0 || d < wait {
			wait = d
		}
	}
	waiting := m.queue
	m.queue = nil
	for i := 0; i < len(waiting); i++ {
		ch := waiting[i]
		if ch.held {
			m.queue = append(m.queue, ch)
			continue
		}
		refusing := ch.machine.refusing()
		if refusing {
			if d := ch.pace.ready(now); d > 0 {
				later(d)
				m.queue = append(m.queue, ch)
				continue
			}
		}
		if m.limit != nil {
			if d, ok := m.limit.take(now); !ok {
				m.stats.limited.Inc()
				later(d)
				m.queue = append(m.queue, waiting[i:]...)
				break
			}
		}
		if refusing {
			ch.pace.refused(now)
		}
		m.stream.Send(ch.machine.next())
		if ch.machine.due() {
			waiting = append(waiting, ch)
		} else {
			ch.queued = false
		}
	}
	m.stats.pending.Set(int64(len(m.queue)))
	if wait > 0 {
		m.wake = m.client.after(wait, func() { m.wake = nil })
	}
}

func (m *mux) close() {
	m.closed = true
	for _, stop := range []func(){m.wake, m.retry} {
		if stop != nil {
			stop()
		}
	}
	for _, ch := range m.channels {
		if ch == nil {
			continue
		}
		ch.doubt.cancel()
		for name := range ch.expiry {
			ch.cease(name)
		}
	}
	if m.stream != nil {
		m.stream.Close()
		m.drop()
	}
}
