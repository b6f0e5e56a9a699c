package accesslog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/guideway/guideway/dataplane/stats"
)

const (
	// flushSize wakes the writer before its interval is over; 64 KiB, as in Envoy.
	flushSize = 64 << 10
	// maxBuffered bounds what waits for a slow disk, per target. Twice that is held at most, while one
	// buffer is being written.
	maxBuffered = 4 << 20
)

// Files holds the open targets, one per path, each with a writer goroutine of its own. Safe for
// concurrent use. Targets stay open until Close.
type Files struct {
	interval time.Duration
	stats    fileStats

	mu     sync.Mutex
	sinks  map[Target]*sink
	closed bool
}

// fileStats are Envoy's "filesystem." and a count of our own.
type fileStats struct {
	FlushedByTimer *stats.Counter `stat:"flushed_by_timer"`
	ReopenFailed   *stats.Counter `stat:"reopen_failed"`
	WriteBuffered  *stats.Counter `stat:"write_buffered"`
	WriteCompleted *stats.Counter `stat:"write_completed"`
	WriteFailed    *stats.Counter `stat:"write_failed"`
	TotalBuffered  *stats.Gauge   `stat:"write_total_buffered"`
	dropped        *stats.Counter
}

// NewFiles returns an empty set of targets that writes buffered lines out every interval (Envoy's
// default: 10 s), or when 64 KiB have gathered. The stats are filesystem.*, and
// guideway.access_log.lines_dropped for lines that found a full buffer.
func NewFiles(store *stats.Store, interval time.Duration) *Files {
	f := &Files{interval: interval, sinks: map[Target]*sink{}}
	stats.Bind(store.Scope("filesystem."), &f.stats)
	f.stats.dropped = store.Counter("guideway.access_log.lines_dropped")
	return f
}

func (f *Files) open(target Target) (*sink, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errors.New("access logs are closed")
	}
	if s := f.sinks[target]; s != nil {
		return s, nil
	}
	w, err := openTarget(target)
	if err != nil {
		return nil, err
	}
	s := &sink{target: target, stats: &f.stats, wake: make(chan struct{}, 1), done: make(chan struct{}), out: w}
	f.sinks[target] = s
	go s.run(f.interval)
	return s, nil
}

func openTarget(target Target) (io.WriteCloser, error) {
	// The standard streams are taken as they are: a socket or a pipe cannot be opened again by its name.
	switch target {
	case Stdout, "/proc/self/fd/1":
		return stream{os.Stdout}, nil
	case Stderr, "/proc/self/fd/2":
		return stream{os.Stderr}, nil
	}
	w, err := os.OpenFile(string(target), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, fmt.Errorf("unable to open file '%s': %w", target, err)
	}
	return w, nil
}

// stream is a standard stream, which is not ours to close.
type stream struct{ io.Writer }

func (stream) Close() error { return nil }

// Reopen makes every target close its file and open its path anew (log rotation), after writing out what
// it holds. A path that cannot be opened keeps the old file and is counted.
func (f *Files) Reopen() {
	for _, s := range f.all() {
		s.mu.Lock()
		s.reopen = true
		s.mu.Unlock()
		s.signal()
	}
}

// Flush writes out everything that was written before the call, and returns when it is with the kernel.
func (f *Files) Flush() {
	for _, s := range f.all() {
		s.flush()
	}
}

// Close flushes and closes all targets. Lines written afterwards are dropped.
func (f *Files) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	for _, s := range f.all() {
		s.mu.Lock()
		already := s.closed
		s.closed = true
		s.mu.Unlock()
		s.signal()
		if !already {
			<-s.done
		}
	}
}

func (f *Files) all() []*sink {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*sink, 0, len(f.sinks))
	for _, s := range f.sinks {
		all = append(all, s)
	}
	return all
}

// sink is one open target: a buffer that data-plane workers append to, and a goroutine that writes it.
type sink struct {
	target Target
	stats  *fileStats
	wake   chan struct{}
	done   chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // held for as long as a line is copied, never over a system call
	buf     []byte
	spare   []byte // the buffer that was written last, for reuse
	reopen  bool
	closed  bool
	waiting []chan struct{} // flushes to answer

	out io.WriteCloser // the goroutine's own
}

func (s *sink) write(line []byte) {
	s.mu.Lock()
	if s.closed || len(s.buf)+len(line) > maxBuffered {
		s.mu.Unlock()
		s.stats.dropped.Inc()
		return
	}
	before := len(s.buf)
	s.buf = append(s.buf, line...)
	full := before < flushSize && len(s.buf) >= flushSize
	s.mu.Unlock()
	s.stats.WriteBuffered.Inc()
	s.stats.TotalBuffered.Add(int64(len(line)))
	if full {
		s.signal()
	}
}

// signal wakes the goroutine; a signal that is pending covers this one.
func (s *sink) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sink) flush() {
	c := make(chan struct{})
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.waiting = append(s.waiting, c)
	s.mu.Unlock()
	s.signal()
	<-c
}

func (s *sink) run(interval time.Duration) {
	defer close(s.done)
	var tick <-chan time.Time
	if interval > 0 {
		t := time.NewTicker(interval)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-s.wake:
		case <-tick:
			s.stats.FlushedByTimer.Inc()
		}
		if !s.turn() {
			return
		}
	}
}

// turn writes out what is buffered and does what was asked for; false means that the sink was closed.
func (s *sink) turn() bool {
	s.mu.Lock()
	buf, reopen, closed, waiting := s.buf, s.reopen, s.closed, s.waiting
	s.buf, s.spare = s.spare[:0], nil
	s.reopen, s.waiting = false, nil
	s.mu.Unlock()

	if len(buf) > 0 {
		if _, err := s.out.Write(buf); err != nil {
			s.stats.WriteFailed.Inc()
		} else {
			s.stats.WriteCompleted.Inc()
		}
		s.stats.TotalBuffered.Add(-int64(len(buf)))
	}
	if reopen {
		if w, err := openTarget(s.target); err != nil {
			s.stats.ReopenFailed.Inc()
		} else {
			s.out.Close()
			s.out = w
		}
	}
	if cap(buf) <= 2*flushSize { // a buffer that a slow disk let grow is given back
		s.mu.Lock()
		s.spare = buf
		s.mu.Unlock()
	}
	for _, c := range waiting {
		close(c)
	}
	if closed {
		s.out.Close()
	}
	return !closed
}
