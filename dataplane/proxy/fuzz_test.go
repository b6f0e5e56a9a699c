package proxy

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// FuzzProxyHeader: no input crashes the parser or makes it read past the header; a prefix of a header
// asks for more, or for what the whole asks for; and what is written can be read.
func FuzzProxyHeader(f *testing.F) {
	for _, h := range proxyHeaders {
		f.Add([]byte(h))
	}
	f.Add([]byte("PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n"))
	f.Add([]byte(header2(0x21, 0x21, string(make([]byte, 24)))))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseProxyHeader(b)
		if err == nil && (h.size <= 0 || h.size > len(b) || h.version != 1 && h.version != 2) {
			t.Fatalf("header %+v of %d bytes", h, len(b))
		}
		if err == nil {
			// The bytes behind the header do not matter, and none of it can be spared.
			again, err := parseProxyHeader(b[:h.size])
			if err != nil || !reflect.DeepEqual(h, again) {
				t.Fatalf("%+v, without the rest %+v, %v", h, again, err)
			}
			for n := range h.size {
				if _, err := parseProxyHeader(b[:n]); err != errMoreBytes {
					t.Fatalf("%d of %d bytes: %v", n, h.size, err)
				}
			}
			if h.src.IsValid() != h.dst.IsValid() {
				t.Fatalf("one address: %+v", h)
			}
		}
		if err == nil && h.src.IsValid() {
			var tlvs []dataplane.TLV
			eachTLV(h.tlvs, func(kind byte, v []byte) { tlvs = append(tlvs, dataplane.TLV{Type: kind, Value: v}) })
			out := appendProxyHeader2(nil, h.src, h.dst, tlvs)
			back, err := parseProxyHeader(out)
			if err != nil || back.src != h.src || back.dst != h.dst || !bytes.Equal(back.tlvs, h.tlvs) {
				t.Fatalf("%+v came back as %+v, %v", h, back, err)
			}
			back, err = parseProxyHeader(appendProxyHeader1(nil, h.src, h.dst))
			if err != nil || back.src != h.src || back.dst != h.dst {
				t.Fatalf("%+v came back in version 1 as %+v, %v", h, back, err)
			}
		}
	})
}

func TestProxyHeader(t *testing.T) {
	src, dst := netip.MustParseAddrPort("1.2.3.4:1111"), netip.MustParseAddrPort("5.6.7.8:2222")
	none := netip.AddrPort{}
	long := "PROXY UNKNOWN " + string(bytes.Repeat([]byte("x"), 200))
	for _, c := range []struct {
		in       string
		size     int
		src, dst netip.AddrPort
		err      error
	}{
		{"PROXY TCP4 1.2.3.4 5.6.7.8 1111 2222\r\nmore", 38, src, dst, nil},
		{"PROXY TCP6 ::ffff:1.2.3.4 ::1 1 2\r\n", 35, netip.MustParseAddrPort("[::ffff:1.2.3.4]:1"), netip.MustParseAddrPort("[::1]:2"), nil},
		{"PROXY UNKNOWN\r\n", 15, none, none, nil},
		{"PROXY UNKNOWN ::1 anything\r\n", 28, none, none, nil},
		{"", 0, none, none, errMoreBytes},
		{"PRO", 0, none, none, errMoreBytes},
		{"\r\n\r", 0, none, none, errMoreBytes},
		{"PRX", 0, none, none, errNoProxyHeader},
		{"GET / HTTP/1.1\r\n", 0, none, none, errNoProxyHeader},
		{"PROXY TCP4 1.2.3.4 5.6.7.8 1111 65536\r\n", 0, none, none, errBadProxyHeader1},
		{"PROXY TCP4 1.2.3.4 5.6.7.8 +111 2222\r\n", 0, none, none, errBadProxyHeader1},
		{"PROXY TCP4 1.2.3.4 5.6.7.8 1111\r\n", 0, none, none, errBadProxyHeader1},
		{"PROXY TCP4  1.2.3.4 5.6.7.8 1111 2222\r\n", 0, none, none, errBadProxyHeader1},
		{"PROXY TCP4 ::1 5.6.7.8 1111 2222\r\n", 0, none, none, errBadProxyHeader1},
		{"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", 0, none, none, errBadProxyHeader1},
		{"PROXY UDP4 1.2.3.4 5.6.7.8 1111 2222\r\n", 0, none, none, errBadProxyHeader1},
		{long[:106], 0, none, none, errMoreBytes},
		{long, 0, none, none, errBadProxyHeader1},
		{header2(0x21, 0x11, "") + "more", 28, src, dst, nil},
		{header2(0x20, 0x11, ""), 28, none, none, nil},
		{header2(0x20, 0x00, ""), 16, none, none, nil},
		{header2(0x22, 0x11, ""), 0, none, none, errBadProxyHeader2},
		{header2(0x21, 0x00, ""), 0, none, none, errBadProxyHeader2},
		{header2(0x21, 0x31, ""), 0, none, none, errBadProxyHeader2},
		{header2(0x21, 0x21, ""), 0, none, none, errBadProxyHeader2}, // too short for IPv6
		{header2(0x21, 0x11, "\x01"), 0, none, none, errBadProxyHeader2},
		{header2(0x21, 0x11, "\x01\x00\x05abc"), 0, none, none, errBadProxyHeader2},
		{header2(0x21, 0x11, "\x01\x00\x03abc"), 34, src, dst, nil},
	} {
		h, err := parseProxyHeader([]byte(c.in))
		if err != c.err || err == nil && (h.size != c.size || h.src != c.src || h.dst != c.dst) {
			t.Errorf("%q: %+v, %v", c.in, h, err)
		}
	}
}

// hello is the ClientHello of Go's TLS client.
func hello(t testing.TB, name string, protocols ...string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	go tls.Client(b, &tls.Config{ServerName: name, NextProtos: protocols, InsecureSkipVerify: true}).Handshake()
	a.SetDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 32<<10)
	n, err := a.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	return buf[:n]
}

// split puts a record's content into records of n bytes.
func split(record []byte, n int) (out []byte) {
	for part := range slices.Chunk(record[5:], n) {
		out = append(out, record[0], record[1], record[2], byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

func TestClientHello(t *testing.T) {
	h := hello(t, "Some.Example.COM", "h2", "http/1.1")
	for _, in := range [][]byte{h, split(h, 100), split(h, 1), append(slices.Clone(h), "rest"...)} {
		got, err := parseClientHello(in)
		if err != nil || got.serverName != "some.example.com" || !slices.Equal(got.protocols, []string{"h2", "http/1.1"}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if got, err := parseClientHello(hello(t, "")); err != nil || got.serverName != "" || got.protocols != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range h {
		if _, err := parseClientHello(h[:n]); err != errHelloGoesOn {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	for in, want := range map[string]error{
		"GET / HTTP/1.1\r\n":                   errNotTLS,
		"\x16\x03\x01\x00\x04\x02\x00\x00\x00": errNotTLS,       // a ServerHello
		"\x16\x03\x01\x00\x04\x01\x00\x50\x00": errHelloTooLong, // 20 kB
		"\x16\x03\x01\x00\x04\x01\x00\x00\x00": errNotTLS,       // empty
		"\x16\x03\x01\x00\x00":                 errNotTLS,
		"\x16\x02":                             errNotTLS,
	} {
		if _, err := parseClientHello([]byte(in)); err != want {
			t.Errorf("%q: %v, want %v", in, err, want)
		}
	}
}

// FuzzClientHello: no input crashes the parser, and its verdict on a hello does not hang on what follows
// or on how it is cut into records.
func FuzzClientHello(f *testing.F) {
	h := hello(f, "some.example.com", "h2")
	f.Add(h, uint16(1))
	f.Add(split(h, 50), uint16(7))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		got, err := parseClientHello(b)
		if err != nil {
			return
		}
		if more, err := parseClientHello(append(slices.Clone(b), 1, 2, 3)); err != nil || !reflect.DeepEqual(got, more) {
			t.Fatalf("%+v, with more bytes %+v, %v", got, more, err)
		}
		n := int(b[3])<<8 | int(b[4])
		if cut > 0 && len(b) == 5+n {
			if parts, err := parseClientHello(split(b, int(cut))); err != nil || !reflect.DeepEqual(got, parts) {
				t.Fatalf("%+v, in parts %+v, %v", got, parts, err)
			}
		}
	})
}

func TestTLSInspector(t *testing.T) {
	b := newBed(t)
	b.setHosts(startHost(t, sink).addr())
	b.listener.ListenerFilters = []dataplane.ListenerFilter{&dataplane.ProxyProtocolFilter{AllowWithoutHeader: true}, &dataplane.TLSInspector{}}
	var names []string
	b.filters = []dataplane.NetworkFilter{&dataplane.RBAC{StatPrefix: "rb.", Allowed: func(a dataplane.ConnAddrs) (bool, string) {
		names = append(names, a.ServerName)
		return true, ""
	}}}
	b.apply()
	h := string(hello(t, "a.example", "h2"))
	for _, parts := range [][]string{{h}, {h[:1], h[1:]}, {h[:20], h[20:200], h[200:]}, {"plain"}, {proxyHeaders["v1 UNKNOWN"][:15], h}, {proxyHeaders["v1 UNKNOWN"][:15] + h}} {
		c := b.dial()
		for i, p := range parts {
			if i > 0 {
				b.srv.everyWorker(func(*worker) {}) // the part before has been looked at
			}
			c.say(p)
		}
		c.CloseWrite()
		c.hearOut()
	}
	b.idle()
	if want := []string{"a.example", "a.example", "a.example", "", "a.example", "a.example"}; !slices.Equal(names, want) {
		t.Errorf("server names %q", names)
	}
	for name, want := range map[string]uint64{"tls_found": 5, "tls_not_found": 1, "sni_found": 5, "alpn_found": 5, "alpn_not_found": 0} {
		if n := b.store.Counter("tls_inspector." + name).Value(); n != want {
			t.Errorf("tls_inspector.%s is %d, want %d", name, n, want)
		}
	}
	// A client that leaves in the middle.
	c := b.dial().say(h[:50])
	c.Close()
	b.idle()
	if n := b.listenerStats.FilterClosed.Value(); n != 1 {
		t.Errorf("downstream_listener_filter_remote_close is %d", n)
	}
	if n := b.listenerStats.PreCxActive.Value(); n != 0 {
		t.Errorf("downstream_pre_cx_active is %d", n)
	}
	b.levelsAtZero()
}
