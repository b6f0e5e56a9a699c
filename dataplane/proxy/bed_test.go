package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
	"github.com/guideway/guideway/dataplane/stats"
)

// bed is a data plane with one listener "l", whose tcp_proxy "t" goes to the cluster "c", unless a test
// changes that before apply. Its stats have the names of the recorded rows.
type bed struct {
	t        testing.TB
	store    *stats.Store
	srv      *Server
	files    *accesslog.Files
	logPath  string
	listener dataplane.Listener
	proxy    dataplane.TCPProxy
	filters  []dataplane.NetworkFilter
	cluster  *dataplane.Cluster
	snap     dataplane.Snapshot
	// What the listener and the proxy count, by the names of the recorded rows.
	listenerStats *dataplane.ListenerStats
	tcpStats      *dataplane.TCPStats
}

type bedOption func(*Config)

func newBed(t testing.TB, options ...bedOption) *bed {
	t.Helper()
	b := &bed{t: t, store: stats.NewStore()}
	c := Config{Workers: 1, Stats: b.store, Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))}
	for _, o := range options {
		o(&c)
	}
	srv, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	b.srv = srv
	t.Cleanup(func() { srv.Close() })
	b.cluster = newCluster(b.store, "c")
	b.proxy = dataplane.TCPProxy{
		StatPrefix: "t", Clusters: []dataplane.WeightedCluster{{Name: "c", Weight: 1}}, TotalWeight: 1,
		IdleTimeout: time.Hour, MaxConnectAttempts: 1,
	}
	b.listener = dataplane.Listener{
		Name: "l", StatName: "127.0.0.1_10000", Protocol: dataplane.TCP, ReusePort: true,
		Addresses:   []dataplane.ListenAddress{{Addr: netip.MustParseAddrPort("127.0.0.1:0")}},
		BufferLimit: 1 << 20, FiltersTimeout: 15 * time.Second, Hash: 1, SocketHash: 1,
		Matcher: &dataplane.ChainMatcher{},
	}
	b.listenerStats = dataplane.NewListenerStats(b.store, b.listener.StatName, dataplane.TCP, c.Workers)
	b.tcpStats = dataplane.NewTCPStats(b.store, "t")
	return b
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

func newCluster(store *stats.Store, name string) *dataplane.Cluster {
	d := dataplane.Thresholds{MaxConnections: 1 << 20, MaxPendingRequests: 1024, MaxRequests: 1 << 20, MaxRetries: 3}
	return &dataplane.Cluster{
		Name: name, StatName: name, ConnectTimeout: 5 * time.Second, BufferLimit: 1 << 20,
		Breakers: dataplane.CircuitBreakers{Default: d, High: d},
		Balancer: &anyHost{}, Stats: dataplane.NewClusterStats(store, name), Live: &dataplane.ClusterLive{},
	}
}

// anyHost picks hosts by the hash, or at random without one.
type anyHost struct{ hosts []*dataplane.Host }

func (a *anyHost) Pick(hash uint64, hashed bool) *dataplane.Host {
	if len(a.hosts) == 0 {
		return nil
	}
	if !hashed {
		hash = rand.Uint64()
	}
	return a.hosts[hash%uint64(len(a.hosts))]
}

func host(addr string) *dataplane.Host {
	return &dataplane.Host{Address: netip.MustParseAddrPort(addr), Weight: 1, State: &dataplane.HostState{}}
}

// setHosts gives the cluster hosts at the addresses.
func (b *bed) setHosts(addrs ...string) {
	var hosts []*dataplane.Host
	for _, a := range addrs {
		hosts = append(hosts, host(a))
	}
	b.cluster.Hosts = hosts
	b.cluster.Balancer = &anyHost{hosts}
}

// logTo makes the proxy write access log lines in a format.
func (b *bed) logTo(format string) *accesslog.Log {
	b.t.Helper()
	f, err := accesslog.ParseText(format + "\n")
	if err != nil {
		b.t.Fatal(err)
	}
	return b.openLog(f)
}

func (b *bed) openLog(f *accesslog.Format) *accesslog.Log {
	b.t.Helper()
	if b.files == nil {
		b.files = accesslog.NewFiles(b.store, time.Hour)
		b.t.Cleanup(b.files.Close)
		b.logPath = filepath.Join(b.t.TempDir(), "access.log")
	}
	l := accesslog.New(f, accesslog.Target(b.logPath), nil)
	if err := l.Open(b.files); err != nil {
		b.t.Fatal(err)
	}
	return l
}

// lines waits until at least n access log lines are written, and returns all.
func (b *bed) lines(n int) []string {
	b.t.Helper()
	var lines []string
	eventually(b.t, "access log lines", func() bool {
		b.files.Flush()
		text, err := os.ReadFile(b.logPath)
		if err != nil {
			b.t.Fatal(err)
		}
		lines = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if len(text) == 0 {
			lines = nil
		}
		return len(lines) >= n
	})
	return lines
}

// apply makes the bed's configuration the one in force.
func (b *bed) apply() {
	b.t.Helper()
	if err := b.tryApply(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) tryApply() error {
	p, l := b.proxy, b.listener
	if l.Chains == nil && l.DefaultChain == nil {
		l.Chains = []*dataplane.FilterChain{{Filters: b.filters, Proxy: &p, Hash: l.Hash}}
	}
	b.snap.Generation++
	s := b.snap
	s.Listeners = append([]*dataplane.Listener{&l}, b.snap.Listeners...)
	s.Clusters = map[string]*dataplane.Cluster{"c": b.cluster}
	for name, c := range b.snap.Clusters {
		s.Clusters[name] = c
	}
	return b.srv.Apply(context.Background(), &s)
}

// addr is where the listener listens.
func (b *bed) addr() string {
	b.t.Helper()
	for _, l := range b.srv.Listening() {
		if l.Name == b.listener.Name {
			return l.Addresses[0].Addr.String()
		}
	}
	b.t.Fatal("the listener is not there")
	return ""
}

// dial connects to the listener.
func (b *bed) dial() *client {
	b.t.Helper()
	return dial(b.t, b.addr())
}

// values are the stats that are not 0, by name.
func (b *bed) values() map[string]int64 {
	v := map[string]int64{}
	collect(v, b.cluster.Stats)
	collect(v, b.listenerStats)
	collect(v, b.tcpStats)
	return v
}

func collect(to map[string]int64, from any) {
	v := reflect.ValueOf(from).Elem()
	prefix := v.FieldByName("Scope").Interface().(*stats.Scope).Prefix()
	for i := range v.NumField() {
		tag, ok := v.Type().Field(i).Tag.Lookup("stat")
		if !ok || v.Field(i).IsNil() {
			continue
		}
		name, _, _ := strings.Cut(tag, ",")
		n := int64(0)
		switch s := v.Field(i).Interface().(type) {
		case *stats.Counter:
			n = int64(s.Value())
		case *stats.Gauge:
			n = s.Value()
		}
		if n != 0 {
			to[prefix+name] = n
		}
	}
}

// idle waits until no connection is left.
func (b *bed) idle() {
	b.t.Helper()
	eventually(b.t, "the end of all connections", func() bool {
		var left atomic.Int64
		b.srv.everyWorker(func(w *worker) { left.Add(int64(w.tcp.count)) })
		return left.Load() == 0
	})
}

// eventually waits for a condition; it bounds the wait, and fails the test at its end.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// client is one end of a TCP connection.
type client struct {
	*net.TCPConn
	t testing.TB
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(30 * time.Second))
	t.Cleanup(func() { c.Close() })
	return &client{c.(*net.TCPConn), t}
}

func (c *client) say(s string) *client {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
	return c
}

func (c *client) hear(want string) *client {
	c.t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		c.t.Fatalf("heard %q, %v; want %q", b, err, want)
	}
	return c
}

// hearOut reads to the end, and tells how it came.
func (c *client) hearOut() (got, then string) {
	b, err := io.ReadAll(c)
	switch {
	case err == nil:
		return string(b), "end of stream"
	case errors.Is(err, syscall.ECONNRESET):
		return string(b), "reset"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return string(b), "stays open"
	}
	return string(b), err.Error()
}

func (c *client) reset() {
	c.SetLinger(0)
	c.Close()
}

// fakeHost is a backend that plays one role with each connection and keeps what it saw.
type fakeHost struct {
	*net.TCPListener
	t    testing.TB
	mu   sync.Mutex
	got  []byte
	ends []string
	open []*net.TCPConn
	wg   sync.WaitGroup
}

func startHost(t testing.TB, role func(*fakeHost, *net.TCPConn)) *fakeHost {
	t.Helper()
	return startHostAt(t, "127.0.0.1:0", role)
}

func startHostAt(t testing.TB, addr string, role func(*fakeHost, *net.TCPConn)) *fakeHost {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeHost{TCPListener: l.(*net.TCPListener), t: t}
	h.wg.Go(func() {
		for {
			c, err := h.AcceptTCP()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.open = append(h.open, c)
			h.mu.Unlock()
			h.wg.Go(func() {
				role(h, c)
				c.Close()
			})
		}
	})
	t.Cleanup(h.stop)
	return h
}

// stop ends the host with all its connections.
func (h *fakeHost) stop() {
	h.Close()
	h.mu.Lock()
	for _, c := range h.open {
		c.Close()
	}
	h.mu.Unlock()
	h.wg.Wait()
}

func (h *fakeHost) addr() string { return h.Addr().String() }

// read keeps what comes until the end, and how the end came; each is called with what comes.
func (h *fakeHost) read(c *net.TCPConn, each func([]byte)) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if n > 0 {
			h.mu.Lock()
			h.got = append(h.got, b[:n]...)
			h.mu.Unlock()
			if each != nil {
				each(b[:n])
			}
		}
		if err != nil {
			h.ended(err)
			return
		}
	}
}

func (h *fakeHost) ended(err error) {
	how := err.Error()
	switch {
	case err == io.EOF:
		how = "end"
	case errors.Is(err, syscall.ECONNRESET):
		how = "reset"
	}
	h.mu.Lock()
	h.ends = append(h.ends, how)
	h.mu.Unlock()
}

// told waits until n connections have ended, and returns how, and all bytes that came.
func (h *fakeHost) told(n int) (got string, ends []string) {
	h.t.Helper()
	eventually(h.t, "ends seen by a backend", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		got, ends = string(h.got), append([]string(nil), h.ends...)
		return len(ends) >= n
	})
	return got, ends
}

// heard waits until the bytes that came end with want.
func (h *fakeHost) heard(want string) {
	h.t.Helper()
	eventually(h.t, "bytes at a backend", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return strings.HasSuffix(string(h.got), want)
	})
}

// The roles.
func echo(h *fakeHost, c *net.TCPConn) { h.read(c, func(b []byte) { c.Write(b) }) }

func greet(h *fakeHost, c *net.TCPConn) {
	c.Write([]byte("A"))
	echo(h, c)
}

func sink(h *fakeHost, c *net.TCPConn) { h.read(c, nil) }

func answerAfterEnd(h *fakeHost, c *net.TCPConn) {
	got, err := io.ReadAll(c)
	if err == nil {
		err = io.EOF
	}
	h.ended(err)
	io.WriteString(c, "after the end: "+string(got))
}

func farewell(h *fakeHost, c *net.TCPConn) {
	io.WriteString(c, "bye")
	c.CloseWrite()
	h.read(c, nil)
}

func resetAtFirst(h *fakeHost, c *net.TCPConn) {
	c.Read(make([]byte, 1024))
	c.SetLinger(0)
}

func closeAtOnce(h *fakeHost, c *net.TCPConn) {}

// refused is an address where nobody listens.
func refused(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// stalled is an address whose accept queue is full: connects get no answer.
func stalled(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	addr := localAddr(fd).String()
	for range 2 { // fills the queue; the second connect may be left hanging
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
	}
	return addr
}
