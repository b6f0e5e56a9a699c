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
	"testing"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
)

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
