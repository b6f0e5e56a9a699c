package live

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// openers is how many flows are being opened at the same time, at most.
const openers = 64

// A flow that could not be opened waits for its next attempt: retry, then twice that,
// up to 2^retryDoublings times.
const (
	retry          = 200 * time.Millisecond
	retryDoublings = 4
)

// Script is what happens while flows are held. It begins steps of the meter, and changes what it wants to.
type Script func(ctx context.Context, m *Meter) error

// Meter holds flows and keeps their books.
type Meter struct {
	plan     Plan
	run      uint32
	start    time.Time
	recorder *recorder
	slots    []*slot
	flows    atomic.Uint64 // number of the last flow
	lag      atomic.Int64  // nanoseconds
	wanted   chan *slot    // are to be opened
	working  sync.WaitGroup
}

// slot is a place for a flow. When its flow breaks another is opened in it.
type slot struct {
	network Network
	number  int // among those of its protocol

	mu       sync.Mutex
	conn     net.Conn
	flow     *flow // nil: none is open
	failures int   // attempts since it was open
	why      string
}

// Measure holds the flows of a plan, plays the script once all that can be opened are open, and
// tells what happened. It returns what there is also if the script fails or ctx ends.
func Measure(ctx context.Context, plan Plan, script Script) (*Results, error) {
	if err := plan.Check(); err != nil {
		return nil, err
	}
	if plan.Dial == nil {
		plan.Dial = dial
	}
	if plan.Progress == nil {
		plan.Progress = func(string, int, int) {}
	}
	m := &Meter{plan: plan, run: rand.Uint32(), start: time.Now(), recorder: newRecorder(plan.Bucket)}
	for i := range plan.TCP {
		m.slots = append(m.slots, &slot{network: TCP, number: i})
	}
	for i := range plan.UDP {
		m.slots = append(m.slots, &slot{network: UDP, number: i})
	}
	// Protocols mixed, so that neither is asked in a burst.
	rand.Shuffle(len(m.slots), func(i, j int) { m.slots[i], m.slots[j] = m.slots[j], m.slots[i] })
	m.wanted = make(chan *slot, len(m.slots))
	m.recorder.begin("opening", nil, 0, census{})

	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	err := m.play(ctx, work, script)
	m.recorder.mu.Lock()
	m.recorder.end(m.now())
	m.recorder.mu.Unlock()
	stop()
	m.closeAll()
	m.working.Wait()
	r := &Results{Plan: plan, Start: m.start, Steps: m.recorder.steps, Timeline: m.recorder.timeline, Lag: time.Duration(m.lag.Load())}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		r.Interrupted, err = true, nil
	}
	return r, err
}

func (m *Meter) play(ctx, work context.Context, script Script) error {
	for range openers {
		m.working.Go(func() { m.openWanted(work) })
	}
	for _, s := range m.slots {
		m.wanted <- s
	}
	if err := m.waitForFlows(ctx); err != nil {
		return err
	}
	m.Step("before")
	m.working.Go(func() { m.ask(work) })
	for _, n := range Networks {
		if m.plan.NewRate > 0 && m.has(n) {
			m.working.Go(func() { m.probe(work, n) })
		}
	}
	if err := m.Settle(ctx, m.plan.Settle); err != nil {
		return err
	}
	return script(ctx, m)
}

func (m *Meter) has(n Network) bool {
	if n == TCP {
		return m.plan.TCP > 0
	}
	return m.plan.UDP > 0
}

// now is the time since the start.
func (m *Meter) now() time.Duration { return time.Since(m.start) }

// Plan returns the plan, with its defaults.
func (m *Meter) Plan() Plan { return m.plan }

// Step ends the present step and begins one that changes the named backends.
func (m *Meter) Step(name string, changed ...string) {
	var open census
	for _, n := range Networks {
		open[n] = map[string]int{}
	}
	for _, s := range m.slots {
		s.mu.Lock()
		if s.flow != nil {
			open[s.network][s.flow.backend]++
		}
		s.mu.Unlock()
	}
	m.recorder.begin(name, changed, m.now(), open)
}

// Snapshot is how things stand.
type Snapshot struct {
	At   time.Duration
	Open [2]int      // flows, by Network
	Sum  [2]Happened // since the start
}

// Snapshot tells how things stand.
func (m *Meter) Snapshot() Snapshot {
	s := Snapshot{At: m.now(), Sum: m.recorder.soFar()}
	for _, slot := range m.slots {
		slot.mu.Lock()
		if slot.flow != nil {
			s.Open[slot.network]++
		}
		slot.mu.Unlock()
	}
	return s
}

// poll asks done again and again until it says yes.
func (m *Meter) poll(ctx context.Context, done func() bool) error {
	every := time.NewTicker(min(max(m.plan.Interval/8, time.Millisecond), 100*time.Millisecond))
	defer every.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
	}
	return nil
}

// waitForFlows waits until each slot has its flow, or has failed to get one three times.
func (m *Meter) waitForFlows(ctx context.Context) error {
	const attempts = 3
	open := 0
	why := map[string]int{}
	err := m.poll(ctx, func() bool {
		settled := 0
		open = 0
		clear(why)
		for _, s := range m.slots {
			s.mu.Lock()
			switch {
			case s.flow != nil:
				open++
				settled++
			case s.failures >= attempts:
				why[s.why]++
				settled++
			}
			s.mu.Unlock()
		}
		m.plan.Progress(Opening, open, len(m.slots))
		return settled == len(m.slots)
	})
	if err == nil && open == 0 {
		return fmt.Errorf("no flow could be opened (%s): is the balancer at the target, and do backends of guideway bench backend answer behind it?", most(why))
	}
	return err
}

// Settle waits until every flow that is open has asked that many times more and
// has been answered, or is broken; and until each that was broken has tried again.
// It is over after Plan.BrokenAfter and that many intervals at the latest.
func (m *Meter) Settle(ctx context.Context, rounds int) error {
	if rounds < 1 {
		return nil
	}
	type goal struct {
		flow *flow
		seq  uint64
	}
	goals := make(map[*slot]goal, len(m.slots))
	for _, s := range m.slots {
		s.mu.Lock()
		g := goal{flow: s.flow}
		if g.flow != nil {
			g.seq = g.flow.seq + uint64(rounds)
		}
		goals[s] = g
		s.mu.Unlock()
	}
	return m.poll(ctx, func() bool {
		for s, g := range goals {
			s.mu.Lock()
			var met bool
			if s.flow != nil && s.flow == g.flow {
				met = g.flow.answered >= g.seq
			} else {
				met = s.flow != nil || s.failures > 0
			}
			s.mu.Unlock()
			if !met {
				return false
			}
			delete(goals, s)
		}
		return true
	})
}

// openWanted opens flows for slots that want one.
func (m *Meter) openWanted(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-m.wanted:
			m.fill(ctx, s)
		}
	}
}

func (m *Meter) fill(ctx context.Context, s *slot) {
	step := m.recorder.step()
	o, err := m.open(ctx, s.network, s.number)
	if ctx.Err() != nil {
		if err == nil {
			o.conn.Close()
		}
		return
	}
	if err != nil {
		m.recorder.failed(s.network, step, reason(err), m.now())
		s.mu.Lock()
		s.failures++
		s.why = reason(err)
		rest := retry << min(s.failures-1, retryDoublings)
		s.mu.Unlock()
		m.working.Go(func() {
			select {
			case <-time.After(rest):
				m.wanted <- s // has room for all slots
			case <-ctx.Done():
			}
		})
		return
	}
	m.recorder.opened(s.network, step, o.flow.backend, o.connect, o.first)
	s.mu.Lock()
	s.conn, s.flow, s.failures = o.conn, o.flow, 0
	if ctx.Err() != nil { // closeAll may have been here already
		s.conn.Close()
	}
	s.mu.Unlock()
	if s.network == TCP {
		m.working.Go(func() { m.readConnection(ctx, s, o) })
	} else {
		m.working.Go(func() { m.readDatagrams(ctx, s, o) })
	}
}

// readConnection takes the answers on a connection until it ends.
func (m *Meter) readConnection(ctx context.Context, s *slot, o *opened) {
	for {
		line, err := o.reader.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			m.ended(ctx, s, o.flow, "garbled")
			return
		}
		if err != nil {
			m.ended(ctx, s, o.flow, reason(err))
			return
		}
		got, ok := parseMessage(line)
		if !ok {
			// Not what we sent, so another backend's greeting.
			m.greeted(s, o.flow, bytes.TrimRight(line, "\r\n"))
			continue
		}
		if !m.answered(s, o.flow, got, nil) {
			m.ended(ctx, s, o.flow, "garbled")
			return
		}
	}
}

// readDatagrams takes the answers to a UDP flow until its socket is closed.
func (m *Meter) readDatagrams(ctx context.Context, s *slot, o *opened) {
	buf := make([]byte, 2*MaxSize)
	for {
		n, err := o.conn.Read(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, syscall.ECONNREFUSED):
			// ICMP "port unreachable": says that a message was not delivered, not that the flow is over.
			m.recorder.refused(UDP, m.now())
			continue
		case err != nil:
			m.ended(ctx, s, o.flow, reason(err))
			return
		}
		if backend, message, ok := splitAnswer(buf[:n]); ok {
			if got, ok := parseMessage(message); ok {
				m.answered(s, o.flow, got, backend)
			}
		}
	}
}

// answered notes an answer; false means that it is none to this flow.
func (m *Meter) answered(s *slot, f *flow, got stamp, backend []byte) bool {
	if got.run != f.run || got.flow != f.flow {
		return f.network == UDP // a datagram for a flow that had this port before
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.now()
	m.notice(f, now)
	a := f.arrive(got.seq, backend, now)
	if !a.unknown {
		m.recorder.arrived(f, a, now)
	}
	return !a.unknown
}

// greeted notes that another backend greets on a connection.
func (m *Meter) greeted(s *slot, f *flow, backend []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from := f.moveTo(backend); from != "" {
		m.recorder.arrived(f, arrival{forgotten: true, movedFrom: from}, m.now())
	}
}

// notice counts a flow that has been silent for too long.
func (m *Meter) notice(f *flow, now time.Duration) {
	if !f.stalled && f.silent(now) >= m.plan.StallAfter {
		f.stalled = true
		m.recorder.stalled(f, now)
	}
}

// ended counts a flow as broken and wants another in its slot.
func (m *Meter) ended(ctx context.Context, s *slot, f *flow, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.endLocked(ctx, s, f, how)
}

func (m *Meter) endLocked(ctx context.Context, s *slot, f *flow, how string) {
	if s.flow != f || ctx.Err() != nil {
		return // ended before, or we end it
	}
	s.conn.Close()
	s.flow = nil
	m.recorder.broken(f, how, m.now())
	m.wanted <- s
}

// ask sends each flow's messages, flow by flow, spread evenly over the interval.
func (m *Meter) ask(ctx context.Context) {
	buf := make([]byte, 0, MaxSize+64)
	begin := m.now()
	turn := 0
	due := func() time.Duration {
		rounds, rest := turn/len(m.slots), turn%len(m.slots)
		return begin + time.Duration(rounds)*m.plan.Interval + m.plan.Interval*time.Duration(rest)/time.Duration(len(m.slots))
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		step := m.recorder.step()
		now := m.now()
		for due() <= now {
			m.lag.Store(max(m.lag.Load(), int64(now-due())))
			m.askOne(ctx, m.slots[turn%len(m.slots)], step, buf)
			turn++
			if turn%64 == 0 {
				now = m.now()
				step = m.recorder.step()
			}
		}
		timer.Reset(max(due()-m.now(), time.Millisecond))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

func (m *Meter) askOne(ctx context.Context, s *slot, step int, buf []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flow
	if f == nil {
		return
	}
	now := m.now()
	m.notice(f, now)
	if f.silent(now) >= m.plan.BrokenAfter {
		m.endLocked(ctx, s, f, "silent")
		return
	}
	if f.network == TCP && f.full() {
		return // what is out fits the socket's buffer, more may block
	}
	message := appendMessage(buf[:0], f.send(now, step), m.plan.Size)
	m.recorder.sent(f.network, step)
	// A reset is told once, to who comes first; the reader would only see an end. UDP has the message as lost.
	if _, err := s.conn.Write(message); err != nil && f.network == TCP {
		m.endLocked(ctx, s, f, reason(err))
	}
}

// probe opens flows at the plan's rate and closes them.
func (m *Meter) probe(ctx context.Context, network Network) {
	every := time.NewTicker(time.Duration(float64(time.Second) / m.plan.NewRate))
	defer every.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		m.working.Go(func() {
			step := m.recorder.step()
			o, err := m.open(ctx, network, n)
			switch {
			case err == nil:
				o.conn.Close()
				m.recorder.opened(network, step, o.flow.backend, o.connect, o.first)
			case ctx.Err() == nil:
				m.recorder.failed(network, step, reason(err), m.now())
			}
		})
	}
}

func (m *Meter) closeAll() {
	for _, s := range m.slots {
		s.mu.Lock()
		if s.conn != nil {
			s.conn.Close()
		}
		s.mu.Unlock()
	}
}
