package health

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/guideway/guideway/controlplane/model"
)

// backend is a TCP server on loopback that notes what each of its connections got.
type backend struct {
	addr   netip.AddrPort
	listen net.Listener

	mu     sync.Mutex
	conns  []*heard
	closed sync.WaitGroup
	ended  chan struct{} // nothing is accepted any more
}

// stop ends the listening and waits for the connections there are to end.
func (b *backend) stop() {
	b.listen.Close()
	<-b.ended
	b.closed.Wait()
}

// heard is what one connection got, and how it ended: "FIN" or an error.
type heard struct {
	text  strings.Builder
	ended string
}

// serve starts a backend; handle gets each connection and may read and answer it.
func serve(t testing.TB, addr string, handle func(c net.Conn, r *bufio.Reader)) *backend {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{addr: netip.MustParseAddrPort(l.Addr().String()), listen: l, ended: make(chan struct{})}
	t.Cleanup(func() { l.Close() })
	go func() {
		defer close(b.ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h := &heard{}
			b.mu.Lock()
			b.conns = append(b.conns, h)
			b.mu.Unlock()
			b.closed.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(10 * time.Second))
				handle(c, bufio.NewReader(io.TeeReader(c, &locked{&b.mu, &h.text})))
				_, err := io.Copy(&locked{&b.mu, &h.text}, c)
				b.mu.Lock()
				defer b.mu.Unlock()
				if h.ended = "FIN"; err != nil {
					h.ended = err.Error()
				}
			})
		}
	}()
	return b
}

// locked writes under a lock.
type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// texts returns what the connections got so far.
func (b *backend) texts() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.conns {
		out = append(out, h.text.String())
	}
	return out
}

// testProbe makes the probe of a check against a backend, and ends with it.
func testProbe(t testing.TB, cfg Config, to netip.AddrPort) probe {
	t.Helper()
	if cfg.Cluster == "" {
		cfg.Cluster = "c"
	}
	if cfg.Check.Timeout == 0 {
		cfg.Check.Timeout = 5 * time.Second
	}
	p, _, err := newProber(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	pr := p.open(&Target{Check: to})
	t.Cleanup(pr.close)
	return pr
}

// check runs a probe once.
func check(t testing.TB, p probe) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return p.run(ctx)
}

// overdue runs a probe whose time is up almost at once.
func overdue(t testing.TB, p probe) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	return p.run(ctx)
}

var (
	pass     = outcome{ok: true}
	pingPong = model.TCPCheck{Send: []byte("PING"), Receive: [][]byte{[]byte("+PO"), []byte("NG")}}
)

// answerEach answers each n bytes with parts, written one by one.
func answerEach(n int, parts ...string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		buf := make([]byte, n)
		for {
			if _, err := io.ReadFull(r, buf); err != nil {
				return
			}
			for _, p := range parts {
				c.Write([]byte(p))
			}
		}
	}
}

func quiet(net.Conn, *bufio.Reader) {}

// unusedAddr is an address nobody listens on.
func unusedAddr(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func TestTCPConnectOnly(t *testing.T) {
	came := make(chan struct{}, 2)
	b := serve(t, "127.0.0.1:0", func(net.Conn, *bufio.Reader) { came <- struct{}{} })
	// Neither Send without Receive nor a PROXY header is ever written: connecting is all.
	p := testProbe(t, Config{ProxyProtocol: 1, Check: model.HealthCheck{ReuseConnection: true, TCP: &model.TCPCheck{Send: []byte("PING"), ProxyProtocol: 2}}}, b.addr)
	for range 2 {
		if o := check(t, p); o != pass {
			t.Fatalf("outcome %+v", o)
		}
	}
	<-came
	<-came
	b.stop()
	for _, h := range b.conns {
		if h.text.String() != "" || h.ended != "FIN" {
			t.Errorf("backend got %q and then %s, want nothing and FIN", h.text.String(), h.ended)
		}
	}
	if len(b.conns) != 2 {
		t.Errorf("%d connections, want 2", len(b.conns))
	}
	if o := check(t, testProbe(t, Config{Check: model.HealthCheck{TCP: &model.TCPCheck{}}}, unusedAddr(t))); o != failed(failedNetwork) {
		t.Errorf("nobody there: %+v", o)
	}
}

func TestTCPReceive(t *testing.T) {
	for _, c := range []struct {
		name   string
		handle func(net.Conn, *bufio.Reader)
		run    func(testing.TB, probe) outcome
		want   outcome
	}{
		{"split, with bytes around", answerEach(4, "xx+P", "O..N", "Gyy"), check, pass},
		{"wrong answer", answerEach(4, "-ERR"), overdue, failed(failedTimeout)},
		{"no answer", quiet, overdue, failed(failedTimeout)},
		{"closed", func(c net.Conn, r *bufio.Reader) { r.Peek(1); c.Close() }, check, failed(failedNetwork)},
		{"answered and closed", func(c net.Conn, r *bufio.Reader) { r.Peek(4); c.Write([]byte("+PONG")); c.(*net.TCPConn).CloseWrite() }, check, pass},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := serve(t, "127.0.0.1:0", c.handle)
			if o := c.run(t, testProbe(t, Config{Check: model.HealthCheck{TCP: &pingPong}}, b.addr)); o != c.want {
				t.Errorf("outcome %+v, want %+v", o, c.want)
			}
		})
	}
}

func TestTCPReuse(t *testing.T) {
	b := serve(t, "127.0.0.1:0", answerEach(4, "+PONG and more"))
	p := testProbe(t, Config{Check: model.HealthCheck{ReuseConnection: true, TCP: &pingPong}}, b.addr)
	for range 3 {
		if o := check(t, p); o != pass {
			t.Fatalf("outcome %+v", o)
		}
	}
	if got := b.texts(); !slices.Equal(got, []string{"PINGPINGPING"}) {
		t.Errorf("reusing, backend got %q", got)
	}
	b = serve(t, "127.0.0.1:0", answerEach(4, "+PONG"))
	p = testProbe(t, Config{Check: model.HealthCheck{TCP: &pingPong}}, b.addr)
	check(t, p)
	check(t, p)
	if got := b.texts(); !slices.Equal(got, []string{"PING", "PING"}) {
		t.Errorf("not reusing, backend got %q", got)
	}
}

func TestTCPLostIdleConnection(t *testing.T) {
	closed := make(chan struct{}, 2)
	b := serve(t, "127.0.0.1:0", func(c net.Conn, r *bufio.Reader) {
		r.Peek(4)
		c.Write([]byte("+PONG"))
		c.(*net.TCPConn).CloseWrite()
		closed <- struct{}{}
	})
	p := testProbe(t, Config{Check: model.HealthCheck{ReuseConnection: true, TCP: &pingPong}}, b.addr)
	if o := check(t, p); o != pass {
		t.Fatalf("outcome %+v", o)
	}
	<-closed
	waitIdle(t, p.(*tcpProbe).conn, idleClosed)
	if o := check(t, p); o != (outcome{ok: true, lostIdle: true}) {
		t.Errorf("outcome %+v, want a success after a lost connection", o)
	}
}

// waitIdle waits until a connection has come to a state.
func waitIdle(t testing.TB, c net.Conn, want idleState) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Second); lookIdle(c) != want; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("connection is %d, want %d", lookIdle(c), want)
		}
	}
}

func TestProxyHeaders(t *testing.T) {
	v2 := "\r\n\r\n\x00\r\nQUIT\n \x00\x00\x00"
	for _, c := range []struct {
		name          string
		cluster, self int // versions of the transport socket and of the check
		listen        string
		want          string // $ stands for the version 1 header
	}{
		{"check, version 1", 0, 1, "127.0.0.1:0", "$PINGPING"},
		{"check, version 2", 0, 2, "127.0.0.1:0", v2 + "PINGPING"},
		{"cluster, version 1, IPv6", 1, 0, "[::1]:0", "$PINGPING"},
		{"both", 2, 1, "127.0.0.1:0", v2 + "$PINGPING"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var peer string
			b := serve(t, c.listen, func(conn net.Conn, r *bufio.Reader) {
				from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
				to := conn.LocalAddr().(*net.TCPAddr).AddrPort()
				family := map[bool]string{true: "TCP4", false: "TCP6"}[from.Addr().Is4()]
				peer = strings.Join([]string{"PROXY", family, from.Addr().String(), to.Addr().String(), itoa(from.Port()), itoa(to.Port())}, " ") + "\r\n"
				header := len(strings.ReplaceAll(strings.TrimSuffix(c.want, "PINGPING"), "$", peer))
				io.ReadFull(r, make([]byte, header))
				answerEach(4, "+PONG")(conn, r)
			})
			tcp := pingPong
			tcp.ProxyProtocol = c.self
			p := testProbe(t, Config{ProxyProtocol: c.cluster, Check: model.HealthCheck{ReuseConnection: true, TCP: &tcp}}, b.addr)
			for range 2 {
				if o := check(t, p); o != pass {
					t.Fatalf("outcome %+v", o)
				}
			}
			if got, want := b.texts()[0], strings.ReplaceAll(c.want, "$", peer); got != want {
				t.Errorf("backend got %q, want %q", got, want)
			}
		})
	}
}

// itoa writes a port.
func itoa(p uint16) string {
	return netip.AddrPortFrom(netip.IPv4Unspecified(), p).String()[len("0.0.0.0:"):]
}
