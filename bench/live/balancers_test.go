package live_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/guideway/guideway/bench/backend"
)

// startBackends starts backends on loopback and returns where they are.
func startBackends(t *testing.T, ids ...string) (addrs []netip.AddrPort, all []*backend.Backend) {
	t.Helper()
	for _, id := range ids {
		b, err := backend.Start(context.Background(), backend.Config{ID: id}, netip.MustParseAddrPort("127.0.0.1:0"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		addrs, all = append(addrs, b.Addrs()[0]), append(all, b)
	}
	return addrs, all
}

// hash spreads clients evenly.
func hash(client netip.AddrPort) uint64 {
	sum := sha256.Sum256([]byte(client.String()))
	return binary.BigEndian.Uint64(sum[:8])
}

// datagrams is a balancer that is bad in ways of our choice: it chooses a backend for each datagram anew, by
// the client's hash modulo the number of backends, and keeps no track of flows.
type datagrams struct {
	t      *testing.T
	fronts []*net.UDPConn

	mu       sync.Mutex
	backends []netip.AddrPort
	clients  map[netip.AddrPort]*client
	// deaf are clients whose datagrams are dropped.
	deaf map[netip.AddrPort]bool
	// swap hands the answers of each client over in pairs, the later one first.
	swap bool
}

type client struct {
	upstream map[netip.AddrPort]*net.UDPConn
	held     []byte
}

func startDatagrams(t *testing.T, backends []netip.AddrPort, at ...string) *datagrams {
	d := &datagrams{t: t, backends: backends, clients: map[netip.AddrPort]*client{}, deaf: map[netip.AddrPort]bool{}}
	var running sync.WaitGroup
	for _, a := range at {
		front, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(a)))
		if err != nil {
			t.Fatal(err)
		}
		front.SetReadBuffer(4 << 20)
		d.fronts = append(d.fronts, front)
		running.Go(func() { d.serve(front, &running) })
	}
	t.Cleanup(func() {
		for _, f := range d.fronts {
			f.Close()
		}
		d.mu.Lock()
		for _, c := range d.clients {
			for _, u := range c.upstream {
				u.Close()
			}
		}
		d.mu.Unlock()
		running.Wait()
	})
	return d
}

func (d *datagrams) targets() (out []netip.AddrPort) {
	for _, f := range d.fronts {
		out = append(out, f.LocalAddr().(*net.UDPAddr).AddrPort())
	}
	return out
}

func (d *datagrams) serve(front *net.UDPConn, running *sync.WaitGroup) {
	buf := make([]byte, 2048)
	for {
		n, from, err := front.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		d.mu.Lock()
		c := d.clients[from]
		if c == nil {
			c = &client{upstream: map[netip.AddrPort]*net.UDPConn{}}
			d.clients[from] = c
		}
		to := d.backends[hash(from)%uint64(len(d.backends))]
		up := c.upstream[to]
		if up == nil {
			if up, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)); err != nil {
				d.mu.Unlock()
				d.t.Error(err)
				return
			}
			c.upstream[to] = up
			running.Go(func() { d.answers(front, from, c, up) })
		}
		deaf := d.deaf[from]
		d.mu.Unlock()
		if !deaf {
			up.Write(buf[:n])
		}
	}
}

func (d *datagrams) answers(front *net.UDPConn, to netip.AddrPort, c *client, up *net.UDPConn) {
	buf := make([]byte, 2048)
	for {
		n, err := up.Read(buf)
		if err != nil {
			return
		}
		d.mu.Lock()
		switch {
		case d.swap && c.held == nil:
			c.held = append([]byte(nil), buf[:n]...)
			d.mu.Unlock()
			continue
		case c.held != nil:
			front.WriteToUDPAddrPort(buf[:n], to)
			n = copy(buf, c.held)
			c.held = nil
		}
		front.WriteToUDPAddrPort(buf[:n], to)
		d.mu.Unlock()
	}
}

// change takes other backends, and returns how many clients that moves, exactly.
func (d *datagrams) change(backends []netip.AddrPort) (moved int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.clients {
		if d.backends[hash(c)%uint64(len(d.backends))] != backends[hash(c)%uint64(len(backends))] {
			moved++
		}
	}
	d.backends = backends
	return moved
}

// deafen drops what some of the clients send, and returns how many those are.
func (d *datagrams) deafen(which func(netip.AddrPort) bool) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.deaf)
	for c := range d.clients {
		if which(c) {
			d.deaf[c] = true
		}
	}
	return len(d.deaf)
}

// connections is a balancer of TCP that resets, at each change, what is no longer where the client's hash
// modulo the number of backends would have it.
type connections struct {
	listeners []net.Listener

	mu       sync.Mutex
	backends []netip.AddrPort
	live     map[net.Conn]net.Conn // client's and backend's
}

func startConnections(t *testing.T, backends []netip.AddrPort, at ...string) *connections {
	b := &connections{backends: backends, live: map[net.Conn]net.Conn{}}
	var running sync.WaitGroup
	for _, a := range at {
		l, err := net.Listen("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		b.listeners = append(b.listeners, l)
		running.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				running.Go(func() { b.serve(c) })
			}
		})
	}
	t.Cleanup(func() {
		for _, l := range b.listeners {
			l.Close()
		}
		b.mu.Lock()
		for c, up := range b.live {
			c.Close()
			up.Close()
		}
		b.mu.Unlock()
		running.Wait()
	})
	return b
}

func (b *connections) targets() (out []netip.AddrPort) {
	for _, l := range b.listeners {
		out = append(out, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return out
}

func clientOf(c net.Conn) netip.AddrPort { return c.RemoteAddr().(*net.TCPAddr).AddrPort() }

func (b *connections) serve(c net.Conn) {
	b.mu.Lock()
	up, err := net.Dial("tcp", b.backends[hash(clientOf(c))%uint64(len(b.backends))].String())
	if err != nil {
		b.mu.Unlock()
		c.Close()
		return
	}
	b.live[c] = up
	b.mu.Unlock()
	go func() {
		io.Copy(up, c)
		up.Close()
	}()
	io.Copy(c, up)
	c.Close()
	b.mu.Lock()
	delete(b.live, c)
	b.mu.Unlock()
}

// change takes other backends, resets connections, and returns how many.
func (b *connections) change(backends []netip.AddrPort) (reset int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.live {
		if b.backends[hash(clientOf(c))%uint64(len(b.backends))] != backends[hash(clientOf(c))%uint64(len(backends))] {
			reset++
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}
	b.backends = backends
	return reset
}
