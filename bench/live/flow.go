package live

import "time"

// window is how many messages of a flow are remembered. What is answered later
// than that counts as reordered, without a round-trip time.
const window = 64

// sending is a message that was sent; 32 bytes.
type sending struct {
	seq      uint64
	at       time.Duration
	step     int32 // in which it was sent
	answered bool
}

// flow is the book of one flow, from its first answer to its end: 2.2 kB, most
// of it the window. Times count from the start of the run.
type flow struct {
	stamp            // of its next message
	network  Network //
	backend  string  // who answers
	answered uint64  // one more than the highest sequence number answered
	window   [window]sending

	waiting bool          // a message after the last answer is out
	since   time.Duration // when the first such message was sent
	stalled bool          // and has been out for too long
}

// send notes that the next message goes out.
func (f *flow) send(now time.Duration, step int) stamp {
	s := f.stamp
	f.window[s.seq%window] = sending{seq: s.seq, at: now, step: int32(step)}
	if !f.waiting {
		f.waiting, f.since = true, now
	}
	f.seq++
	return s
}

// silent is for how long nothing has come although something was asked.
func (f *flow) silent(now time.Duration) time.Duration {
	if !f.waiting {
		return 0
	}
	return now - f.since
}

// full tells that as many messages are out as are remembered.
func (f *flow) full() bool { return f.seq-f.answered >= window }

// arrival is what an answer means.
type arrival struct {
	unknown    bool          // no message of this flow that was sent
	duplicate  bool          // answered before
	reordered  bool          // a later one was answered before
	forgotten  bool          // beyond the window: neither time nor step are known
	roundTrip  time.Duration //
	step       int           // in which the message was sent
	silence    time.Duration // that this ends
	wasStalled bool          // the flow had been found stalled; it goes on
	movedFrom  string        // the backend before, if this is another
}

// arrive notes an answer. An empty backend means the one before.
func (f *flow) arrive(seq uint64, backend []byte, now time.Duration) (a arrival) {
	if seq >= f.seq {
		return arrival{unknown: true}
	}
	s := &f.window[seq%window]
	switch {
	case s.seq != seq:
		a.forgotten = true
	case s.answered:
		a.duplicate = true
	default:
		s.answered = true
		a.roundTrip, a.step = now-s.at, int(s.step)
	}
	a.reordered = !a.duplicate && seq < f.answered
	if len(backend) > 0 {
		a.movedFrom = f.moveTo(backend)
	}
	a.silence, a.wasStalled = f.silent(now), f.stalled
	f.stalled = false
	f.answered = max(f.answered, seq+1)
	f.waiting = f.answered < f.seq
	if f.waiting {
		f.since = f.window[f.answered%window].at
		if f.seq-f.answered > window { // its sending is forgotten
			f.since = now
		}
	}
	return a
}

// moveTo notes who answers, and returns who did before if that is another.
func (f *flow) moveTo(backend []byte) (from string) {
	if string(backend) == f.backend {
		return ""
	}
	from, f.backend = f.backend, string(backend)
	return from
}
