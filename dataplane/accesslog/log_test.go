package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/guideway/guideway/dataplane/stats"
)

func mustText(t *testing.T, format string) *Format {
	t.Helper()
	f, err := ParseText(format)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestInterval waits for the flush interval on a fake clock.
func TestInterval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	synctest.Test(t, func(t *testing.T) {
		store := stats.NewStore()
		files := NewFiles(store, 10*time.Second)
		defer files.Close()
		log := New(mustText(t, "%CONNECTION_ID%\n"), Target(path), nil)
		log.Write(&Info{ConnectionID: 1}) // not open: dropped
		if err := log.Open(files); err != nil {
			t.Fatal(err)
		}
		log.Write(&Info{ConnectionID: 2})
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if got := read(t, path); got != "" {
			t.Errorf("written before the interval: %q", got)
		}
		if n := store.Gauge("filesystem.write_total_buffered").Value(); n != 2 {
			t.Errorf("%d bytes buffered", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := read(t, path); got != "2\n" {
			t.Errorf("got %q", got)
		}
		for name, want := range map[string]uint64{"flushed_by_timer": 1, "write_buffered": 1, "write_completed": 1, "write_failed": 0} {
			if n := store.Counter("filesystem." + name).Value(); n != want {
				t.Errorf("%s is %d, want %d", name, n, want)
			}
		}
	})
}

// TestSharedPath has two logs and many writers on one path: no line is torn or lost.
func TestSharedPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	files := NewFiles(stats.NewStore(), 0)
	a := New(mustText(t, "a %CONNECTION_ID% xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"), Target(path), nil)
	b := New(mustText(t, "b %CONNECTION_ID% xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"), Target(path), nil)
	for _, l := range []*Log{a, b} {
		if err := l.Open(files); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				l := a
				if i%2 == 0 {
					l = b
				}
				l.Write(&Info{ConnectionID: uint64(w*2000 + i)})
			}
		})
	}
	wg.Wait()
	files.Close()
	seen := map[string]bool{}
	for line := range strings.Lines(read(t, path)) {
		var which string
		var id int
		if n, err := fmt.Sscanf(line, "%s %d xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n", &which, &id); n != 2 || err != nil {
			t.Fatalf("torn line %q", line)
		}
		seen[fmt.Sprint(id)] = true
	}
	if len(seen) != 8000 {
		t.Errorf("%d lines of 8000", len(seen))
	}
}

// TestReopen is a log rotation: the file is moved away, Reopen makes a new one.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	store := stats.NewStore()
	files := NewFiles(store, 0)
	defer files.Close()
	log := New(mustText(t, "%CONNECTION_ID%\n"), Target(path), nil)
	if err := log.Open(files); err != nil {
		t.Fatal(err)
	}
	log.Write(&Info{ConnectionID: 1})
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	files.Reopen()
	files.Flush()
	log.Write(&Info{ConnectionID: 2})
	files.Flush()
	if old, now := read(t, path+".1"), read(t, path); old != "1\n" || now != "2\n" {
		t.Errorf("old file %q, new file %q", old, now)
	}
	// a directory in the way: the old file goes on
	if err := os.Rename(path, path+".2"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	files.Reopen()
	files.Flush()
	log.Write(&Info{ConnectionID: 3})
	files.Flush()
	if got := read(t, path+".2"); got != "2\n3\n" {
		t.Errorf("got %q", got)
	}
	if n := store.Counter("filesystem.reopen_failed").Value(); n != 1 {
		t.Errorf("reopen_failed is %d", n)
	}
}

func TestOpenError(t *testing.T) {
	log := New(Default(), Target(filepath.Join(t.TempDir(), "nope", "log")), nil)
	err := log.Open(NewFiles(stats.NewStore(), 0))
	if err == nil || !strings.Contains(err.Error(), "unable to open file '") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// blockedWriter is a disk that does not answer until it is released.
type blockedWriter struct {
	entered, release chan struct{}
	mu               sync.Mutex
	got              bytes.Buffer
	fail             error
}

func (w *blockedWriter) Write(b []byte) (int, error) {
	w.entered <- struct{}{}
	<-w.release
	if w.fail != nil {
		return 0, w.fail
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got.Write(b)
}
func (*blockedWriter) Close() error { return nil }

// TestSlowDisk holds a write up: writers go on, up to the bound, and what is beyond it is counted.
func TestSlowDisk(t *testing.T) {
	store := stats.NewStore()
	files := NewFiles(store, 0)
	w := &blockedWriter{entered: make(chan struct{}), release: make(chan struct{})}
	s := &sink{stats: &files.stats, wake: make(chan struct{}, 1), done: make(chan struct{}), out: w}
	files.sinks["slow"] = s
	go s.run(0)
	line := bytes.Repeat([]byte{'x'}, 1<<10)
	for range flushSize >> 10 {
		s.write(line)
	}
	<-w.entered // the first 64 KiB are on their way and stuck
	for range maxBuffered>>10 + 3 {
		s.write(line)
	}
	if n := store.Counter("guideway.access_log.lines_dropped").Value(); n != 3 {
		t.Errorf("%d lines dropped, want 3", n)
	}
	w.release <- struct{}{}
	<-w.entered
	w.release <- struct{}{}
	files.Close()
	if got, want := w.got.Len(), flushSize+maxBuffered; got != want {
		t.Errorf("%d bytes written, want %d", got, want)
	}
	if n := store.Gauge("filesystem.write_total_buffered").Value(); n != 0 {
		t.Errorf("%d bytes still counted as buffered", n)
	}
}

func TestWriteFailed(t *testing.T) {
	store := stats.NewStore()
	files := NewFiles(store, 0)
	w := &blockedWriter{entered: make(chan struct{}, 9), release: make(chan struct{}), fail: errors.New("disk full")}
	close(w.release)
	s := &sink{stats: &files.stats, wake: make(chan struct{}, 1), done: make(chan struct{}), out: w}
	files.sinks["full"] = s
	go s.run(0)
	s.write([]byte("x"))
	files.Close()
	s.write([]byte("late"))
	if failed, dropped := store.Counter("filesystem.write_failed").Value(), store.Counter("guideway.access_log.lines_dropped").Value(); failed != 1 || dropped != 1 {
		t.Errorf("%d writes failed and %d lines dropped, want 1 and 1", failed, dropped)
	}
}

func TestFilters(t *testing.T) {
	flags := func(names ...string) Filter {
		f, err := ResponseFlagFilter(names)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	end := TypeFilter([]Type{TCPConnectionEnd}, false)
	slow := DurationFilter(func(d time.Duration) bool { return d >= time.Second })
	failed := &Info{Type: TCPConnectionEnd, Flags: FlagNoHealthyUpstream}
	fine := &Info{Type: TCPConnectionEnd, Duration: time.Minute}
	for _, c := range []struct {
		name         string
		filter       Filter
		failed, fine bool
	}{
		{"any flag", flags(), true, false},
		{"UH or UF", flags("UF", "UH"), true, false},
		{"UF", flags("UF"), false, false},
		{"an HTTP flag", flags("UT"), false, false},
		{"type", end, true, true},
		{"all but the type", TypeFilter([]Type{TCPConnectionEnd}, true), false, false},
		{"slow", slow, false, true},
		{"and", And(end, slow), false, true},
		{"or", Or(flags(), slow), true, true},
	} {
		if a, b := c.filter(failed), c.filter(fine); a != c.failed || b != c.fine {
			t.Errorf("%s: %v and %v, want %v and %v", c.name, a, b, c.failed, c.fine)
		}
	}
	if _, err := ResponseFlagFilter([]string{"NOPE"}); err == nil {
		t.Error("an unknown flag is no error")
	}

	path := filepath.Join(t.TempDir(), "log")
	files := NewFiles(stats.NewStore(), 0)
	log := New(mustText(t, "%RESPONSE_FLAGS%\n"), Target(path), flags())
	if err := log.Open(files); err != nil {
		t.Fatal(err)
	}
	log.Write(fine)
	log.Write(failed)
	files.Close()
	if got := read(t, path); got != "UH\n" {
		t.Errorf("got %q", got)
	}
}
