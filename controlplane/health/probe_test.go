package health

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
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

func itoa(p uint16) string {
	return netip.AddrPortFrom(netip.IPv4Unspecified(), p).String()[len("0.0.0.0:"):]
}

// httpBackend answers each request with the same bytes.
func httpBackend(response string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			c.Write([]byte(response))
		}
	}
}

func httpCheck(h model.HTTPCheck) model.HealthCheck {
	return model.HealthCheck{ReuseConnection: true, HTTP: &h}
}

const ok200 = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"

func TestHTTPRequest(t *testing.T) {
	add := []model.Header{{Name: "X-A", Value: "b"}, {Name: "User-Agent", Value: "me"}, {Name: "x-a", Value: "c", Append: true}}
	for _, c := range []struct {
		name     string
		check    model.HTTPCheck
		hostname string
		want     string
	}{
		{"plain", model.HTTPCheck{Path: "/hz"}, "", "GET /hz HTTP/1.1\r\nhost: c\r\nuser-agent: Envoy/HC\r\n\r\n"},
		{"host", model.HTTPCheck{Path: "/hz", Host: "h.example"}, "", "GET /hz HTTP/1.1\r\nhost: h.example\r\nuser-agent: Envoy/HC\r\n\r\n"},
		{"endpoint's hostname", model.HTTPCheck{Path: "/", Host: "h.example"}, "e.example", "GET / HTTP/1.1\r\nhost: e.example\r\nuser-agent: Envoy/HC\r\n\r\n"},
		{"headers", model.HTTPCheck{Path: "/", Method: "POST", AddHeaders: add}, "", "POST / HTTP/1.1\r\nhost: c\r\nuser-agent: me\r\nx-a: b\r\nx-a: c\r\ncontent-length: 0\r\n\r\n"},
		{"removed", model.HTTPCheck{Path: "/", RemoveHeaders: []string{"User-Agent"}}, "", "GET / HTTP/1.1\r\nhost: c\r\n\r\n"},
	} {
		b := serve(t, "127.0.0.1:0", httpBackend(ok200))
		cfg := Config{Cluster: "c", Check: httpCheck(c.check)}
		p := newHTTPProber(&cfg, newDialer(&cfg)).open(&Target{Check: b.addr, Hostname: c.hostname})
		t.Cleanup(p.close)
		for range 2 {
			if o := check(t, p); o != pass {
				t.Fatalf("%s: outcome %+v", c.name, o)
			}
		}
		if got := b.texts(); !slices.Equal(got, []string{c.want + c.want}) {
			t.Errorf("%s: backend got %q, want twice %q on one connection", c.name, got, c.want)
		}
	}
}

func TestHTTPOutcome(t *testing.T) {
	status := func(n int) outcome { return outcome{kind: failedActive, status: n} }
	ranges := model.HTTPCheck{Expected: []model.StatusRange{{Start: 200, End: 201}, {Start: 400, End: 405}}, Retriable: []model.StatusRange{{Start: 500, End: 600}}}
	hello := model.HTTPCheck{Receive: [][]byte{[]byte("he"), []byte("lo")}}
	for _, c := range []struct {
		name     string
		check    model.HTTPCheck
		response string
		want     outcome
		reused   bool
	}{
		{"200", model.HTTPCheck{}, ok200, pass, true},
		{"201", model.HTTPCheck{}, "HTTP/1.1 201 x\r\ncontent-length: 0\r\n\r\n", status(201), true},
		{"503", model.HTTPCheck{}, "HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n", status(503), true},
		{"expected range", ranges, "HTTP/1.1 404 x\r\ncontent-length: 0\r\n\r\n", pass, true},
		{"range is half-open", ranges, "HTTP/1.1 405 x\r\ncontent-length: 0\r\n\r\n", status(405), true},
		{"retriable", ranges, "HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n", outcome{kind: failedActive, status: 503, retriable: true}, true},
		{"degraded", model.HTTPCheck{}, "HTTP/1.1 200 OK\r\nx-envoy-degraded: 1\r\ncontent-length: 0\r\n\r\n", outcome{ok: true, degraded: true}, true},
		{"immediate fail on a 200", model.HTTPCheck{}, "HTTP/1.1 200 OK\r\nx-envoy-immediate-health-check-fail: 1\r\ncontent-length: 0\r\n\r\n", pass, true},
		{"immediate fail on a 503", model.HTTPCheck{}, "HTTP/1.1 503 x\r\nx-envoy-immediate-health-check-fail: 1\r\ncontent-length: 0\r\n\r\n", outcome{kind: failedActive, status: 503, excluded: true}, true},
		{"continue first", model.HTTPCheck{}, "HTTP/1.1 100 Continue\r\n\r\n" + ok200, pass, true},
		{"chunked body", hello, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n4\r\nllo!\r\n0\r\n\r\n", pass, true},
		{"body differs", hello, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhole", status(200), true},
		{"body is searched for 1024 bytes", hello, "HTTP/1.1 200 OK\r\ncontent-length: 1029\r\n\r\n" + strings.Repeat("x", 1024) + "hello", status(200), true},
		{"HEAD", model.HTTPCheck{Method: "HEAD"}, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", pass, true},
		{"closed after", model.HTTPCheck{}, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", pass, false},
		{"HTTP/1.0", model.HTTPCheck{}, "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", pass, false},
		{"not HTTP", model.HTTPCheck{}, "SSH-2.0-x\r\n", failed(failedNetwork), false},
		{"more than asked for", model.HTTPCheck{}, ok200 + "HTTP/1.1 ", pass, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := serve(t, "127.0.0.1:0", httpBackend(c.response))
			c.check.Path = "/"
			p := testProbe(t, Config{Check: httpCheck(c.check)}, b.addr)
			if o := check(t, p); o != c.want {
				t.Errorf("outcome %+v, want %+v", o, c.want)
			}
			if reused := p.(*httpProbe).conn != nil; reused != c.reused {
				t.Errorf("connection kept: %t, want %t", reused, c.reused)
			}
		})
	}
	t.Run("hangs", func(t *testing.T) {
		b := serve(t, "127.0.0.1:0", httpBackend("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi"))
		p := testProbe(t, Config{Check: httpCheck(model.HTTPCheck{Path: "/"})}, b.addr)
		if o := overdue(t, p); o != failed(failedTimeout) {
			t.Errorf("outcome %+v", o)
		}
	})
	t.Run("endless header", func(t *testing.T) {
		b := serve(t, "127.0.0.1:0", func(c net.Conn, r *bufio.Reader) {
			http.ReadRequest(r)
			c.Write([]byte("HTTP/1.1 200 OK\r\nx: "))
			for {
				if _, err := c.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		})
		p := testProbe(t, Config{Check: httpCheck(model.HTTPCheck{Path: "/"})}, b.addr)
		if o := check(t, p); o != failed(failedNetwork) {
			t.Errorf("outcome %+v", o)
		}
	})
	t.Run("closed between checks is no failure", func(t *testing.T) {
		b := serve(t, "127.0.0.1:0", func(c net.Conn, r *bufio.Reader) {
			http.ReadRequest(r)
			c.Write([]byte(ok200))
			c.(*net.TCPConn).CloseWrite()
		})
		p := testProbe(t, Config{Check: httpCheck(model.HTTPCheck{Path: "/"})}, b.addr)
		check(t, p)
		waitIdle(t, p.(*httpProbe).conn, idleClosed)
		if o := check(t, p); o != pass {
			t.Errorf("outcome %+v", o)
		}
	})
	t.Run("PROXY header of the cluster, once", func(t *testing.T) {
		b := serve(t, "127.0.0.1:0", func(c net.Conn, r *bufio.Reader) {
			io.ReadFull(r, make([]byte, 16))
			httpBackend(ok200)(c, r)
		})
		p := testProbe(t, Config{ProxyProtocol: 2, Check: httpCheck(model.HTTPCheck{Path: "/"})}, b.addr)
		check(t, p)
		if o := check(t, p); o != pass {
			t.Errorf("outcome %+v", o)
		}
	})
}

func TestHTTP2(t *testing.T) {
	type seen struct{ method, path, host, agent, proto string }
	requests := make(chan seen, 10)
	status := 200
	srv := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- seen{r.Method, r.URL.Path, r.Host, r.UserAgent(), r.Proto}
		w.WriteHeader(status)
	})}
	srv.Protocols.SetUnencryptedHTTP2(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	addr := netip.MustParseAddrPort(l.Addr().String())
	p := testProbe(t, Config{Check: httpCheck(model.HTTPCheck{Path: "/hz", Host: "h.example", HTTP2: true})}, addr)
	if o := check(t, p); o != pass {
		t.Fatalf("outcome %+v", o)
	}
	if got, want := <-requests, (seen{"GET", "/hz", "h.example", "Envoy/HC", "HTTP/2.0"}); got != want {
		t.Errorf("request %+v, want %+v", got, want)
	}
	kept := p.(*http2Probe).conn
	status = 503
	if o := check(t, p); o != (outcome{kind: failedActive, status: 503}) {
		t.Errorf("503: %+v", o)
	}
	if kept == nil || p.(*http2Probe).conn != kept {
		t.Error("the connection was not kept")
	}
	srv.Close()
	if o := check(t, p); o != failed(failedNetwork) {
		t.Errorf("server gone: %+v", o)
	}
}

func TestGRPC(t *testing.T) {
	srv := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if got := [3]string{first(md["user-agent"]), first(md[":authority"]), first(md["x-a"])}; got != [3]string{"Envoy/HC", "a.example", "b"} {
			t.Errorf("user-agent, authority, x-a are %q", got)
		}
		if d, ok := ctx.Deadline(); !ok || time.Until(d) > 5*time.Second {
			t.Errorf("deadline %v, %t", d, ok)
		}
		return next(ctx, req)
	}))
	hs := grpchealth.NewServer()
	healthpb.RegisterHealthServer(srv, hs)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(l)
	t.Cleanup(srv.Stop)
	addr := netip.MustParseAddrPort(l.Addr().String())
	probeOf := func(service string) probe {
		return testProbe(t, Config{Check: model.HealthCheck{ReuseConnection: true, GRPC: &model.GRPCCheck{
			Service: service, Authority: "a.example", Metadata: []model.Header{{Name: "X-A", Value: "b"}},
		}}}, addr)
	}
	hs.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	hs.SetServingStatus("unknown", healthpb.HealthCheckResponse_UNKNOWN)
	for _, c := range []struct {
		service string
		want    outcome
	}{
		{"", pass}, {"down", failed(failedActive)}, {"unknown", failed(failedActive)},
		{"nosuch", failed(failedActive)}, // status NOT_FOUND: the host answered
	} {
		p := probeOf(c.service)
		for range 2 {
			if o := check(t, p); o != c.want {
				t.Errorf("service %q: %+v, want %+v", c.service, o, c.want)
			}
		}
		if p.(*http2Probe).conn == nil {
			t.Errorf("service %q: the connection was not kept", c.service)
		}
	}
	p := probeOf("")
	check(t, p)
	srv.Stop()
	if o := check(t, p); o != failed(failedNetwork) {
		t.Errorf("server gone: %+v", o)
	}
	// A server that speaks HTTP/1.1 only is not there, as far as gRPC goes.
	b := serve(t, "127.0.0.1:0", httpBackend(ok200))
	p = testProbe(t, Config{Check: model.HealthCheck{GRPC: &model.GRPCCheck{}}}, b.addr)
	if o := overdue(t, p); o.ok {
		t.Errorf("HTTP/1.1 server: %+v", o)
	}
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

func TestBindAddress(t *testing.T) {
	from := make(chan string, 1)
	b := serve(t, "127.0.0.1:0", func(c net.Conn, _ *bufio.Reader) { from <- c.RemoteAddr().(*net.TCPAddr).IP.String() })
	check(t, testProbe(t, Config{BindAddress: netip.MustParseAddrPort("127.0.0.77:0"), Check: model.HealthCheck{TCP: &model.TCPCheck{}}}, b.addr))
	if got := <-from; got != "127.0.0.77" {
		t.Errorf("probe comes from %s, want 127.0.0.77", got)
	}
}

func TestNewTarget(t *testing.T) {
	addr := netip.MustParseAddrPort("10.0.0.1:80")
	for _, c := range []struct {
		ep   model.Endpoint
		want string
	}{
		{model.Endpoint{}, "10.0.0.1:80"},
		{model.Endpoint{HealthCheckPort: 81}, "10.0.0.1:81"},
		{model.Endpoint{HealthCheckAddress: netip.MustParseAddr("10.0.0.2")}, "10.0.0.2:80"},
		{model.Endpoint{HealthCheckAddress: netip.MustParseAddr("10.0.0.2"), HealthCheckPort: 81}, "10.0.0.2:81"},
	} {
		if got := NewTarget(nil, addr, dataplane.Locality{}, &c.ep); got.Check.String() != c.want || got.Address != addr {
			t.Errorf("%+v: probes go to %s of %s, want %s of %s", c.ep, got.Check, got.Address, c.want, addr)
		}
	}
}
