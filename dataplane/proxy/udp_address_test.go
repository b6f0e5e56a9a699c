package proxy

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/maglev"
)

func needIPv6(t *testing.T) {
	t.Helper()
	c, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 loopback: %v", err)
	}
	c.Close()
}

// TestUDPWildcard: answers leave from the address that the client has sent to, and each such address
// has a session of its own.
func TestUDPWildcard(t *testing.T) {
	for _, c := range []struct {
		name, listen string
		compat       bool
		from         string
		to           []string
	}{
		{"IPv4", "0.0.0.0:0", false, "127.0.0.1", []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}},
		{"IPv6", "[::]:0", false, "::1", []string{"::1"}},
		{"dual stack, IPv4 client", "[::]:0", true, "127.0.0.9", []string{"127.0.0.1", "127.0.0.2"}},
		{"dual stack, IPv6 client", "[::]:0", true, "::1", []string{"::1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.listen, "[") {
				needIPv6(t)
			}
			b := newUDPBed(t, 2)
			b.setHosts(b.host("A"))
			b.listener.Addresses[0] = dataplane.ListenAddress{Addr: netip.MustParseAddrPort(c.listen), IPv4Compat: c.compat}
			lines := b.logTo(&b.listener.UDP.AccessLog, "%DOWNSTREAM_REMOTE_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS%\n")
			b.apply()
			port := b.addr(0).Port()
			// One socket talks to all addresses; a datagram tells where it comes from.
			client, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 0)))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			u := &udpClient{b, client}
			for range 2 {
				for _, to := range c.to {
					want := netip.AddrPortFrom(netip.MustParseAddr(to), port)
					if _, err := client.WriteToUDPAddrPort([]byte("x"), want); err != nil {
						t.Fatal(err)
					}
					u.SetReadDeadline(deadline())
					p := make([]byte, 16)
					n, from, err := client.ReadFromUDPAddrPort(p)
					if err != nil {
						t.Fatal(err)
					}
					if string(p[:n]) != "A:x" || from != want {
						t.Errorf("got %q from %s, want it from %s", p[:n], from, want)
					}
				}
			}
			b.untilStat("udp.u.downstream_sess_total", int64(len(c.to)))
			b.srv.DrainListeners(nil, 0)
			local := client.LocalAddr().(*net.UDPAddr).AddrPort().String()
			b.until("all lines", func() bool { return strings.Count(lines(), "\n") == len(c.to) })
			for _, to := range c.to {
				if want := local + " " + netip.AddrPortFrom(netip.MustParseAddr(to), port).String() + "\n"; !strings.Contains(lines(), want) {
					t.Errorf("no line %q in %q", want, lines())
				}
			}
		})
	}
}

// TestUDPHash picks by Envoy's hash of the client's address; IPv4 clients of dual-stack sockets count as
// what they are.
func TestUDPHash(t *testing.T) {
	hosts := func(b *udpBed) []*dataplane.Host {
		var all []*dataplane.Host
		for _, name := range []string{"A", "B", "C", "D", "E"} {
			all = append(all, b.host(name))
		}
		return all
	}
	pick := func(hash uint64) string { return string(rune('A' + hash%5)) }
	t.Run("source_ip", func(t *testing.T) {
		needIPv6(t)
		b := newUDPBed(t, 2)
		b.setHosts(hosts(b)...)
		b.listener.Addresses[0] = dataplane.ListenAddress{Addr: netip.MustParseAddrPort("[::]:0"), IPv4Compat: true}
		b.listener.UDP.Hash.Kind = dataplane.HashSourceIP
		b.apply()
		for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.3.4", "127.9.9.9", "::1"} {
			ip := netip.MustParseAddr(from)
			to := netip.AddrPortFrom(ip, b.addr(0).Port())
			if ip.Is4() {
				to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), to.Port())
			}
			want := pick(maglev.SourceIPHash(ip))
			for range 3 { // of different ports
				if got := b.clientFrom(from, to).ask("x"); got != want+":x" {
					t.Errorf("%s: got %q, want %s", from, got, want)
				}
			}
		}
	})
	t.Run("key", func(t *testing.T) {
		b := newUDPBed(t, 1)
		b.setHosts(hosts(b)...)
		for _, key := range []string{"a", "key", "another key"} {
			b.listener.UDP.Hash = dataplane.HashPolicy{Kind: dataplane.HashKey, Key: key}
			b.apply()
			if got, want := b.client().ask("x"), pick(maglev.KeyHash(key)); got != want+":x" {
				t.Errorf("%q: got %q, want %s", key, got, want)
			}
		}
	})
	t.Run("five-tuple", func(t *testing.T) {
		b := newUDPBed(t, 1)
		b.setHosts(hosts(b)...)
		b.listener.UDP.Hash = dataplane.HashPolicy{Kind: dataplane.HashFiveTuple, Seed: 3}
		b.apply()
		for range 20 {
			c := b.client()
			if got, want := c.ask("x"), pick(fiveTuple(3, c)); got != want+":x" {
				t.Errorf("got %q, want %s", got, want)
			}
		}
	})
}

// TestUDPFamilies: clients and hosts of different families.
func TestUDPFamilies(t *testing.T) {
	needIPv6(t)
	for _, c := range [][2]string{{"127.0.0.1:0", "[::1]:0"}, {"[::1]:0", "127.0.0.1:0"}, {"[::1]:0", "[::1]:0"}} {
		b := newUDPBed(t, 1)
		b.setHosts(b.hostAt("A", c[1]))
		b.listener.Addresses[0].Addr = netip.MustParseAddrPort(c[0])
		b.apply()
		if got := b.client().ask("x"); got != "A:x" {
			t.Errorf("%v: got %q", c, got)
		}
	}
}

// TestUDPBindAddress: the source address of upstream sockets.
func TestUDPBindAddress(t *testing.T) {
	b := newUDPBed(t, 1)
	h, from := b.hostSeeing()
	b.setHosts(h)
	b.cluster.BindAddress = netip.MustParseAddrPort("127.0.0.7:0")
	b.apply()
	c := b.client()
	c.ask("x")
	if got := (<-from).Addr().String(); got != "127.0.0.7" {
		t.Errorf("the host was asked from %s", got)
	}
	b.cluster.BindAddress = netip.MustParseAddrPort("203.0.113.7:0")
	b.apply()
	b.client().unanswered(b, "x", "cluster.c.udp.sess_tx_errors")
	b.untilStat("udp.u.downstream_sess_total", 2)
	if n := b.value("udp.u.downstream_sess_active"); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if !strings.Contains(b.log.String(), "203.0.113.7") {
		t.Errorf("nothing said about the address: %s", b.log)
	}
	c.ask("x") // unharmed
}

// hostSeeing starts a backend that echoes and tells who asked.
func (b *udpBed) hostSeeing() (*dataplane.Host, <-chan netip.AddrPort) {
	b.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	seen, done := make(chan netip.AddrPort, 1000), make(chan struct{})
	go func() {
		defer close(done)
		p := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFromUDPAddrPort(p)
			if err != nil {
				return
			}
			seen <- from
			c.WriteToUDPAddrPort(p[:n], from)
		}
	}()
	b.Cleanup(func() { c.Close(); <-done })
	return hostOf(c.LocalAddr().(*net.UDPAddr).AddrPort()), seen
}

// TestUDPOriginalSource: hosts see the client's address, which takes a privilege.
func TestUDPOriginalSource(t *testing.T) {
	b := newUDPBed(t, 1)
	h, from := b.hostSeeing()
	b.setHosts(h)
	b.listener.UDP.UseOriginalSrcIP = true
	if err := b.tryApply(); err != nil {
		if os.Geteuid() != 0 && strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Skipf("not allowed here, and said so: %v", err)
		}
		t.Fatal(err)
	}
	c := b.clientFrom("127.0.0.42", b.addr(0))
	c.ask("x")
	if got := (<-from).Addr().String(); got != "127.0.0.42" {
		t.Errorf("the host was asked from %s", got)
	}
}
