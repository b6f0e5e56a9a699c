package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/guideway/guideway/controlplane/model"
)

// server is a DNS server on loopback that answers by the first label of the name, and notes queries.
type server struct {
	addr netip.AddrPort

	mu      sync.Mutex
	queries []string // "A udp ok.test."
	zone    map[string]func(m *mdns.Msg, qtype uint16) (silent bool)
}

// records answers with records in zone file form; those of another type than asked for are left out,
// but aliases.
func records(rrs ...string) func(*mdns.Msg, uint16) bool {
	return func(m *mdns.Msg, qtype uint16) bool {
		for _, s := range rrs {
			rr, err := mdns.NewRR(s)
			if err != nil {
				panic(err)
			}
			if t := rr.Header().Rrtype; t == qtype || t == mdns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
			}
		}
		return false
	}
}

// rcode answers queries of a type with an error, others as the next one says.
func rcode(code int, qtype uint16, next func(*mdns.Msg, uint16) bool) func(*mdns.Msg, uint16) bool {
	return func(m *mdns.Msg, q uint16) bool {
		if q == qtype || qtype == mdns.TypeANY {
			m.Rcode = code
			return false
		}
		return next(m, q)
	}
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{zone: map[string]func(*mdns.Msg, uint16) bool{}}
	tcp, udp := listenBoth(t)
	s.addr = netip.MustParseAddrPort(tcp.Addr().String())
	for _, d := range []*mdns.Server{{Listener: tcp, Handler: mdns.HandlerFunc(s.answer)}, {PacketConn: udp, Handler: mdns.HandlerFunc(s.answer)}} {
		started := make(chan struct{})
		d.NotifyStartedFunc = func() { close(started) }
		ended := make(chan struct{})
		go func() { defer close(ended); d.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { d.Shutdown(); <-ended })
	}
	return s
}

// listenBoth listens on one port for TCP and UDP. The port that TCP got may be taken for UDP: then another.
func listenBoth(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 20 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			return tcp, udp
		}
		tcp.Close()
	}
	t.Fatal("no port is free for both TCP and UDP")
	return nil, nil
}

func (s *server) answer(w mdns.ResponseWriter, q *mdns.Msg) {
	m := new(mdns.Msg)
	m.SetReply(q)
	question := q.Question[0]
	label, _, _ := strings.Cut(question.Name, ".")
	network := w.RemoteAddr().Network()
	s.mu.Lock()
	s.queries = append(s.queries, mdns.TypeToString[question.Qtype]+" "+network+" "+question.Name)
	f := s.zone[label]
	s.mu.Unlock()
	switch {
	case f == nil:
		m.Rcode = mdns.RcodeNameError
	case f(m, question.Qtype):
		return
	}
	if network == "udp" && m.Len() > 512 {
		m.Truncate(512)
	}
	w.WriteMsg(m)
}

func (s *server) set(label string, f func(*mdns.Msg, uint16) bool) {
	s.mu.Lock()
	s.zone[label] = f
	s.mu.Unlock()
}

// take returns the queries since the last call.
func (s *server) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queries
	s.queries = nil
	return q
}

// testZone is what both our resolver and Envoy are asked about.
func testZone(s *server) {
	both := records("both.test. 9 A 127.0.0.1", "both.test. 7 A 127.0.0.2", "both.test. 5 AAAA ::1")
	v4 := func(n string) func(*mdns.Msg, uint16) bool {
		return records(n+".test. 9 A 127.0.0.1", n+".test. 9 A 127.0.0.1")
	}
	s.set("both", both)
	s.set("v4", v4("v4"))
	s.set("nodata", records())
	s.set("servfail", rcode(mdns.RcodeServerFailure, mdns.TypeANY, nil))
	s.set("v6fail", rcode(mdns.RcodeServerFailure, mdns.TypeAAAA, v4("v6fail")))
	s.set("v4fail", rcode(mdns.RcodeServerFailure, mdns.TypeA, records()))
	s.set("alias", records("alias.test. 2 CNAME other.test.", "other.test. 60 A 127.0.0.3"))
}

// conf writes a resolv.conf without search list.
func conf(t testing.TB, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestLookup(t *testing.T) {
	s := newServer(t)
	testZone(s)
	for _, c := range []struct {
		name    string
		family  model.DNSFamily
		want    string // addresses, or "error"
		ttl     int    // seconds
		queries []string
	}{
		{"both", model.AutoFamily, "::1", 5, []string{"AAAA udp"}},
		{"both", model.V4Only, "127.0.0.1 127.0.0.2", 7, []string{"A udp"}},
		{"both", model.V6Only, "::1", 5, []string{"AAAA udp"}},
		{"both", model.V4Preferred, "127.0.0.1 127.0.0.2", 7, []string{"A udp"}},
		{"both", model.AllFamilies, "127.0.0.1 127.0.0.2 ::1", 5, []string{"A udp", "AAAA udp"}},
		{"v4", model.AutoFamily, "127.0.0.1", 9, []string{"AAAA udp", "A udp"}},
		{"v4", model.V6Only, "", 0, []string{"AAAA udp"}},
		{"v4", model.AllFamilies, "127.0.0.1", 9, []string{"A udp", "AAAA udp"}},
		{"nodata", model.AutoFamily, "", 0, []string{"AAAA udp", "A udp"}},
		{"missing", model.V4Preferred, "", 0, []string{"A udp", "AAAA udp"}},
		{"missing", model.AllFamilies, "", 0, []string{"A udp", "AAAA udp"}},
		{"servfail", model.V4Only, "error", 0, []string{"A udp", "A udp", "A udp"}},
		{"v6fail", model.AutoFamily, "127.0.0.1", 9, []string{"A udp", "AAAA udp", "AAAA udp", "AAAA udp"}},
		{"v6fail", model.AllFamilies, "127.0.0.1", 9, []string{"A udp", "AAAA udp", "AAAA udp", "AAAA udp"}},
		{"v4fail", model.AutoFamily, "error", 0, []string{"A udp", "A udp", "A udp", "AAAA udp"}},
		{"v4fail", model.AllFamilies, "error", 0, []string{"A udp", "A udp", "A udp", "AAAA udp"}},
		{"alias", model.V4Only, "127.0.0.3", 2, []string{"A udp"}},
	} {
		t.Run(c.name+"/"+string('0'+rune(c.family)), func(t *testing.T) {
			r := newClient(&model.DNS{Resolvers: []netip.AddrPort{s.addr}}, conf(t, ""))
			s.take()
			a, err := r.Lookup(t.Context(), c.name+".test", c.family)
			if got := text(a, err); got != c.want {
				t.Errorf("resolves to %q, want %q (error %v)", got, c.want, err)
			}
			if a.TTL != time.Duration(c.ttl)*time.Second {
				t.Errorf("TTL %v, want %d s", a.TTL, c.ttl)
			}
			var want []string
			for _, q := range c.queries {
				want = append(want, q+" "+c.name+".test.")
			}
			got := s.take()
			if c.family == model.AllFamilies || len(c.queries) > 2 { // order is not the point
				slices.Sort(got)
				slices.Sort(want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("queries %q, want %q", got, want)
			}
		})
	}
}

func text(a Answer, err error) string {
	if err != nil {
		return "error"
	}
	var b []string
	for _, a := range a.Addrs {
		b = append(b, a.String())
	}
	return strings.Join(b, " ")
}

func TestLookupTransport(t *testing.T) {
	s := newServer(t)
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("many.test. 9 A 10.0.0.%d", i))
	}
	s.set("many", records(many...))
	s.set("v4", records("v4.test. 9 A 127.0.0.1"))
	t.Run("truncated answer is asked for again by TCP", func(t *testing.T) {
		r := newClient(&model.DNS{Resolvers: []netip.AddrPort{s.addr}}, conf(t, ""))
		a, err := r.Lookup(t.Context(), "many.test", model.V4Only)
		if err != nil || len(a.Addrs) != 100 {
			t.Errorf("%d addresses, error %v; want 100", len(a.Addrs), err)
		}
		if q := s.take(); !slices.Equal(q, []string{"A udp many.test.", "A tcp many.test."}) {
			t.Errorf("queries %q", q)
		}
	})
	t.Run("use_tcp", func(t *testing.T) {
		r := newClient(&model.DNS{Resolvers: []netip.AddrPort{s.addr}, UseTCP: true}, conf(t, ""))
		if a, err := r.Lookup(t.Context(), "v4.test", model.V4Only); text(a, err) != "127.0.0.1" {
			t.Errorf("resolves to %q, error %v", text(a, err), err)
		}
		if q := s.take(); !slices.Equal(q, []string{"A tcp v4.test."}) {
			t.Errorf("queries %q", q)
		}
	})
	t.Run("second server when the first refuses", func(t *testing.T) {
		bad := newServer(t)
		bad.set("v4", rcode(mdns.RcodeRefused, mdns.TypeANY, nil))
		r := newClient(&model.DNS{Resolvers: []netip.AddrPort{bad.addr, s.addr}}, conf(t, ""))
		if a, err := r.Lookup(t.Context(), "v4.test", model.V4Only); text(a, err) != "127.0.0.1" {
			t.Errorf("resolves to %q, error %v", text(a, err), err)
		}
	})
	t.Run("server that knows no EDNS", func(t *testing.T) {
		old := newServer(t)
		first := true
		old.set("old", func(m *mdns.Msg, q uint16) bool {
			if first {
				first = false
				m.Rcode = mdns.RcodeFormatError
				return false
			}
			return records("old.test. 9 A 127.0.0.5")(m, q)
		})
		r := newClient(&model.DNS{Resolvers: []netip.AddrPort{old.addr}}, conf(t, ""))
		if a, err := r.Lookup(t.Context(), "old.test", model.V4Only); text(a, err) != "127.0.0.5" {
			t.Errorf("resolves to %q, error %v", text(a, err), err)
		}
	})
	t.Run("silent server is asked again and then given up", func(t *testing.T) {
		mute := newServer(t)
		asked := make(chan struct{}, 2*queryAttempts)
		mute.set("v4", func(*mdns.Msg, uint16) bool { asked <- struct{}{}; return true })
		r := newClient(&model.DNS{Resolvers: []netip.AddrPort{mute.addr}}, conf(t, ""))
		r.timeout = 5 * time.Millisecond
		if a, err := r.Lookup(t.Context(), "v4.test", model.V4Only); err == nil {
			t.Errorf("resolves to %q, want an error", text(a, err))
		}
		for range queryAttempts { // the server may be slower than the client is patient
			<-asked
		}
		if len(asked) > 0 {
			t.Errorf("asked more than %d times", queryAttempts)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		mute := newServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		mute.set("v4", func(*mdns.Msg, uint16) bool { cancel(); return true })
		r := newClient(&model.DNS{Resolvers: []netip.AddrPort{mute.addr}}, conf(t, ""))
		r.timeout = time.Minute // would outlast the test
		if a, err := r.Lookup(ctx, "v4.test", model.V4Only); err == nil {
			t.Errorf("resolves to %q, want an error", text(a, err))
		}
	})
}

func TestLookupSystem(t *testing.T) {
	s := newServer(t)
	s.set("short", func(m *mdns.Msg, q uint16) bool {
		if m.Question[0].Name != "short.b.test." {
			m.Rcode = mdns.RcodeNameError
			return false
		}
		return records("short.b.test. 9 A 127.0.0.6")(m, q)
	})
	r := newClient(&model.DNS{}, conf(t, "nameserver 127.0.0.1\nsearch a.test b.test\n"))
	servers := r.servers
	r.servers = func() (*mdns.ClientConfig, error) { // resolv.conf has no ports
		c, err := servers()
		c.Servers = []string{s.addr.String()}
		return c, err
	}
	if a, err := r.Lookup(t.Context(), "short", model.V4Only); text(a, err) != "127.0.0.6" {
		t.Errorf("by the search list: %q, error %v", text(a, err), err)
	}
	if q := s.take(); !slices.Equal(q, []string{"A udp short.a.test.", "A udp short.b.test."}) {
		t.Errorf("queries %q", q)
	}
	if a, err := r.Lookup(t.Context(), "localhost", model.V4Only); text(a, err) != "127.0.0.1" {
		t.Errorf("localhost is %q, error %v", text(a, err), err)
	}
	for _, literal := range []string{"192.0.2.1", "2001:db8::1"} {
		if a, err := r.Lookup(t.Context(), literal, model.V4Only); text(a, err) != literal {
			t.Errorf("%s resolves to %q, error %v", literal, text(a, err), err)
		}
	}
	if q := s.take(); len(q) != 0 {
		t.Errorf("asked %q of a server, want nothing", q)
	}
	if _, err := r.Lookup(t.Context(), strings.Repeat("x", 64)+".test", model.V4Only); err == nil {
		t.Error("a label of 64 bytes is no error")
	}
	missing := newClient(&model.DNS{}, filepath.Join(t.TempDir(), "none"))
	if _, err := missing.Lookup(t.Context(), "v4.test", model.V4Only); err == nil {
		t.Error("no resolv.conf and no servers is no error")
	}
}
