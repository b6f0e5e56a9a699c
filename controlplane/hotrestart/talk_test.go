package hotrestart

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane/proxy"
	"github.com/guideway/guideway/dataplane/stats"
)

// fakeOlder is a process with many sockets that notes what it is asked for.
type fakeOlder struct {
	t      *testing.T
	count  int
	refuse error

	mu    sync.Mutex
	asked []string
	ended chan bool // orphaned or not
}

func (o *fakeOlder) note(what string) {
	o.mu.Lock()
	o.asked = append(o.asked, what)
	o.mu.Unlock()
}

func (o *fakeOlder) all() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.asked, " ")
}

func (o *fakeOlder) Info() (Info, error) { o.note("info"); return Info{Epoch: 4}, o.refuse }

func (o *fakeOlder) Sockets() ([]proxy.HandedSockets, error) {
	o.note("sockets")
	h := proxy.HandedSockets{Ephemeral: "l/0"}
	for range o.count {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			o.t.Fatal(err)
		}
		h.FDs = append(h.FDs, fd)
	}
	h.Count = len(h.FDs)
	return []proxy.HandedSockets{h}, nil
}

func (o *fakeOlder) Admin() (int, string, error) { return -1, "", nil }
func (o *fakeOlder) CloseAdmin()                 { o.note("close-admin") }
func (o *fakeOlder) OpenAdmin()                  { o.note("open-admin") }
func (o *fakeOlder) Drain()                      { o.note("drain") }
func (o *fakeOlder) Left() Left {
	return Left{Totals: stats.Totals{Counters: map[string]int64{"a": 1}}, Flows: 2, Connections: 1}
}
func (o *fakeOlder) Terminate(orphaned bool) { o.ended <- orphaned }

func begin(t *testing.T, o *fakeOlder) (name string) {
	t.Helper()
	o.t, o.ended = t, make(chan bool, 1)
	name = Name(filepath.Join(t.TempDir(), "s"), 0, 4)
	s, err := Listen(name, 0o600, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if _, err := Listen(name, 0o600, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrInUse) {
		t.Errorf("a second listener: %v", err)
	}
	go s.Serve(o)
	return name
}

func TestTalk(t *testing.T) {
	o := &fakeOlder{count: 2*atOnce + 7}
	n, err := Take(begin(t, o), 5)
	if err != nil {
		t.Fatal(err)
	}
	sockets, admin, _, err := n.Sockets()
	if err != nil || admin != nil || len(sockets) != 1 || len(sockets[0].FDs) != o.count || sockets[0].Ephemeral != "l/0" {
		t.Fatalf("%d sets, admin %v, %v", len(sockets), admin, err)
	}
	for _, fd := range sockets[0].FDs {
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_DGRAM {
			t.Fatalf("descriptor %d is no UDP socket: %v", fd, err)
		}
	}
	proxy.CloseHanded(sockets)
	if err := n.CloseAdmin(); err != nil {
		t.Error(err)
	}
	if err := n.Drain(); err != nil {
		t.Error(err)
	}
	if left, err := n.Left(); err != nil || left.Flows != 2 || left.Totals.Counters["a"] != 1 {
		t.Errorf("%+v, %v", left, err)
	}
	if err := n.Terminate(); err != nil {
		t.Error(err)
	}
	if orphaned := <-o.ended; orphaned {
		t.Error("ended as an orphan")
	}
	if got := o.all(); got != "info sockets close-admin drain" {
		t.Errorf("asked for %s", got)
	}
}

// TestBrokenTalk: a successor that goes before it serves changes nothing; one that goes later leaves an
// orphan.
func TestBrokenTalk(t *testing.T) {
	o := &fakeOlder{}
	name := begin(t, o)
	n, err := Take(name, 5)
	if err != nil {
		t.Fatal(err)
	}
	n.CloseAdmin()
	n.Close()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(o.all(), "open-admin"); time.Sleep(time.Millisecond) { // between looks
		if time.Now().After(end) {
			t.Fatalf("the admin API does not come back: %s", o.all())
		}
	}
	if _, err := Take(name, 9); err == nil || !strings.Contains(err.Error(), "epoch 4, not 8") {
		t.Errorf("another epoch: %v", err)
	}
	if n, err = Take(name, 5); err != nil {
		t.Fatal(err)
	}
	n.Drain()
	n.Close()
	if orphaned := <-o.ended; !orphaned {
		t.Error("not an orphan")
	}
}

func TestRefusals(t *testing.T) {
	o := &fakeOlder{refuse: errors.New("still starting")}
	name := begin(t, o)
	if _, err := Take(name, 5); err == nil || !strings.Contains(err.Error(), "still starting") {
		t.Errorf("got %v", err)
	}
	for _, r := range []request{{Do: doHello, Version: "guideway.0"}, {Do: doSockets}, {Do: doTerminate}} {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := errors.Join(writeMessage(c, &r), readMessage(c, &a)); err != nil && !errors.Is(err, io.EOF) || a.Error == "" {
			t.Errorf("%+v is not refused: %+v, %v", r, a, err)
		}
		c.Close()
	}
	if _, err := Take(filepath.Join(t.TempDir(), "nobody"), 1); err == nil {
		t.Error("there is nobody to take over from")
	}
}
