package backend

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

const patience = 5 * time.Second

var loopbacks = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("[::1]:0")}

func start(t *testing.T, conf Config, addrs ...netip.AddrPort) *Backend {
	t.Helper()
	before := runtime.NumGoroutine()
	b, err := Start(context.Background(), conf, addrs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		if live := b.Counts().Live; live != 0 {
			t.Errorf("%d connections live after Close", live)
		}
		eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	})
	return b
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Errorf("not within %v: %s", patience, what)
			return
		}
		runtime.Gosched()
	}
}

func dial(t *testing.T, network string, to netip.AddrPort) net.Conn {
	t.Helper()
	c, err := net.DialTimeout(network, to.String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

func ask(t *testing.T, c net.Conn, what string) string {
	t.Helper()
	if _, err := io.WriteString(c, what); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestIdentifiesItselfOnEveryAddress(t *testing.T) {
	for _, id := range []string{"", "web-1"} {
		b := start(t, Config{ID: id}, loopbacks...)
		for _, a := range b.Addrs() {
			want := id
			if want == "" {
				want = a.String()
			}
			c := dial(t, "tcp", a)
			if line, _ := bufio.NewReader(c).ReadString('\n'); line != want+"\n" {
				t.Errorf("tcp %v: greeted with %q, want %q", a, line, want+"\n")
			}
			if got := ask(t, c, "ping"); got != "ping" {
				t.Errorf("tcp %v: echo is %q", a, got)
			}
			if got, want := ask(t, dial(t, "udp", a), "x"), want+":x"; got != want {
				t.Errorf("udp %v: answer is %q, want %q", a, got, want)
			}
		}
		if n := b.Counts(); n.Accepted != 2 || n.DatagramsIn != 2 || n.DatagramsOut != 2 || n.BytesIn != 8 {
			t.Errorf("counts are %+v", n)
		}
	}
}

func TestWildcardAnswersWithTheAddressItWasSentTo(t *testing.T) {
	b := start(t, Config{}, netip.MustParseAddrPort("0.0.0.0:0"), netip.MustParseAddrPort("[::]:0"))
	v4, v6 := b.Addrs()[0].Port(), b.Addrs()[1].Port()
	for _, to := range []netip.AddrPort{
		netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), v4),
		netip.AddrPortFrom(netip.MustParseAddr("127.9.8.7"), v4),
		netip.AddrPortFrom(netip.MustParseAddr("::1"), v6),
	} {
		if line, _ := bufio.NewReader(dial(t, "tcp", to)).ReadString('\n'); line != to.String()+"\n" {
			t.Errorf("tcp %v: greeted with %q", to, line)
		}
		// A connected socket takes datagrams only from the address it sent to.
		if got := ask(t, dial(t, "udp", to), "x"); got != to.String()+":x" {
			t.Errorf("udp %v: answer is %q", to, got)
		}
	}
}

func TestBehaviours(t *testing.T) {
	b := start(t, Config{ID: "b", Network: TCP}, loopbacks[0])
	at := b.Addrs()[0]
	set := func(how Behaviour) {
		t.Helper()
		if err := b.Set(how); err != nil {
			t.Fatal(err)
		}
		if how != Return && b.Behaviour() != how {
			t.Fatalf("behaviour is %v after Set(%v)", b.Behaviour(), how)
		}
	}

	set(HalfClose)
	c := dial(t, "tcp", at)
	io.WriteString(c, "req")
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "after the end: req" || err != nil {
		t.Errorf("half-close: got %q, %v", got, err)
	}

	set(CloseAtOnce)
	if got, err := io.ReadAll(dial(t, "tcp", at)); len(got) != 0 || err != nil {
		t.Errorf("close-at-once: got %q, %v", got, err)
	}

	set(Reset)
	c = dial(t, "tcp", at)
	io.WriteString(c, "req")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: got %v", err)
	}

	set(Hang)
	c = dial(t, "tcp", at)
	io.WriteString(c, "req")
	eventually(t, "the hanging backend has the connection", func() bool { return b.Counts().Live == 1 })
	c.Close()
	// Unread bytes lie before the end, which therefore stays unseen: only closing ends it.

	set(Echo)
	held := dial(t, "tcp", at)
	if got := ask(t, held, "one"); got != "one" {
		t.Errorf("echo: got %q", got)
	}
	set(Drain)
	if _, err := net.DialTimeout("tcp", at.String(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("drain: connect says %v", err)
	}
	if got := ask(t, held, "two"); got != "two" {
		t.Errorf("drain: the old connection got %q", got)
	}
	set(Return)
	if b.Behaviour() != Echo || b.Addrs()[0] != at {
		t.Errorf("return: %v on %v", b.Behaviour(), b.Addrs())
	}
	if got := ask(t, dial(t, "tcp", at), "three"); got != "three" {
		t.Errorf("return: got %q", got)
	}

	set(Refuse)
	if _, err := held.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("refuse: the old connection sees %v", err)
	}
	if _, err := net.DialTimeout("tcp", at.String(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refuse: connect says %v", err)
	}
	eventually(t, "no connection is live", func() bool { return b.Counts().Live == 0 })
	set(Return)
	if got := ask(t, dial(t, "tcp", at), "four"); got != "four" {
		t.Errorf("return after refuse: got %q", got)
	}
}

func TestStallNeverAnswersAConnect(t *testing.T) {
	b := start(t, Config{Network: TCP, Behaviour: Stall}, loopbacks...)
	for _, a := range b.Addrs() {
		// The SYN is dropped, so no wait is long enough to see that nothing comes; a kernel
		// whose queue still had room would answer within the round trip of loopback.
		c, err := net.DialTimeout("tcp", a.String(), 200*time.Millisecond)
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v: connect says %v, want a timeout", a, err)
		}
		if c != nil {
			c.Close()
		}
	}
	if err := b.Set(Identify); err != nil {
		t.Fatal(err)
	}
	dial(t, "tcp", b.Addrs()[0])
}

func TestDatagramBehaviours(t *testing.T) {
	b := start(t, Config{ID: "b", Network: UDP, Behaviour: Echo}, loopbacks[0])
	c := dial(t, "udp", b.Addrs()[0])
	if got := ask(t, c, "x"); got != "x" {
		t.Errorf("echo: got %q", got)
	}
	for _, how := range []Behaviour{HalfClose, CloseAtOnce, Reset, Hang} {
		b.Set(how)
		in := b.Counts().DatagramsIn
		io.WriteString(c, "unanswered")
		eventually(t, "the datagram is seen", func() bool { return b.Counts().DatagramsIn == in+1 })
	}
	b.Set(Drain)
	if got := ask(t, c, ""); got != "b:" {
		t.Errorf("drain: got %q", got)
	}
	b.Set(Refuse)
	io.WriteString(c, "x")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refuse: %v", err)
	}
	b.Set(Return)
	if b.Behaviour() != Hang {
		t.Errorf("return goes back to %v, want hang", b.Behaviour())
	}
}

func TestReplyAndHandler(t *testing.T) {
	b := start(t, Config{
		ID:      "b",
		Reply:   func(dst []byte, id string, got []byte) []byte { return append(dst, id+"/"+string(got)...) },
		Handler: func(c *net.TCPConn) { io.WriteString(c, "mine") },
	}, loopbacks[1])
	if got := ask(t, dial(t, "udp", b.Addrs()[0]), "x"); got != "b/x" {
		t.Errorf("reply is %q", got)
	}
	if got, err := io.ReadAll(dial(t, "tcp", b.Addrs()[0])); string(got) != "mine" || err != nil {
		t.Errorf("handler wrote %q, %v", got, err)
	}
}

func TestHearsHowConnectionsEnd(t *testing.T) {
	ends := make(chan error, 1)
	for _, how := range []Behaviour{Echo, HalfClose, Hang, Reset} {
		b := start(t, Config{ID: "b", Network: TCP, Behaviour: how, Ended: func(_ netip.AddrPort, err error) { ends <- err }}, loopbacks[0])
		c := dial(t, "tcp", b.Addrs()[0])
		eventually(t, "the connection is there", func() bool { return b.Counts().Live == 1 })
		c.Close()
		if err := <-ends; err != nil {
			t.Errorf("%v: the client's end is %v", how, err)
		}
		c = dial(t, "tcp", b.Addrs()[0])
		eventually(t, "the connection is there", func() bool { return b.Counts().Live == 1 })
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
		if err := <-ends; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v: the client's reset is %v", how, err)
		}
	}
}

func TestContextEndsTheBackend(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	b, err := Start(ctx, Config{}, loopbacks[0])
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, "tcp", b.Addrs()[0])
	bufio.NewReader(c).ReadString('\n')
	cancel()
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("the client sees %v, want an orderly end", err)
	}
	b.Close()
	if err := b.Set(Echo); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Set after the end: %v", err)
	}
}

func TestPortTakenIsAnError(t *testing.T) {
	b := start(t, Config{}, loopbacks[0])
	if _, err := Start(context.Background(), Config{}, b.Addrs()[0]); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second backend on one port: %v", err)
	}
	b.Set(Refuse)
	other, err := Start(context.Background(), Config{}, b.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Set(Return); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("return to a taken port: %v", err)
	}
	if b.Behaviour() != Refuse {
		t.Errorf("behaviour is %v after a failed return", b.Behaviour())
	}
	other.Close()
	if err := b.Set(Return); err != nil {
		t.Errorf("return to a free port: %v", err)
	}
}

func TestNames(t *testing.T) {
	for b := Identify; b <= Return; b++ {
		if got, err := ParseBehaviour(b.String()); got != b || err != nil {
			t.Errorf("ParseBehaviour(%q) = %v, %v", b.String(), got, err)
		}
	}
	if _, err := ParseBehaviour("explode"); err == nil {
		t.Error("unknown behaviour accepted")
	}
}

// TestHoldsManyConnections holds as many connections as a small descriptor limit allows; each takes two here.
func TestHoldsManyConnections(t *testing.T) {
	const many = 2000
	b := start(t, Config{ID: "b", Network: TCP}, loopbacks[0])
	var all sync.WaitGroup
	conns := make([]net.Conn, many)
	for w := range 8 {
		all.Go(func() {
			for i := w; i < many; i += 8 {
				c, err := net.DialTimeout("tcp", b.Addrs()[0].String(), patience)
				if err != nil {
					t.Error(err)
					return
				}
				conns[i] = c
			}
		})
	}
	all.Wait()
	eventually(t, "all are live", func() bool { return b.Counts().Live == many })
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
	eventually(t, "all have gone", func() bool { return b.Counts().Live == 0 })
}

func BenchmarkEchoTCP(b *testing.B) {
	s, err := Start(context.Background(), Config{Behaviour: Echo, Network: TCP}, loopbacks[0])
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c, err := net.Dial("tcp", s.Addrs()[0].String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	const size = 64 << 10
	b.SetBytes(size)
	buf := make([]byte, size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIdentifyUDP(b *testing.B) {
	s, err := Start(context.Background(), Config{Network: UDP}, loopbacks[0])
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		for range batch {
			c.Write(buf[:1])
		}
		for range batch {
			if _, err := c.Read(buf); err != nil {
				b.Fatal(err)
			}
		}
	}
}
