package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Network is a set of transport protocols.
type Network uint8

// The protocols a backend can serve.
const (
	TCP Network = 1 << iota
	UDP
)

// Config describes a backend. The zero value echoes on TCP and UDP and
// identifies itself by the address it was reached at.
type Config struct {
	// ID is the identity. Empty: the address and port that the client's
	// connection or datagram was sent to, as netip.AddrPort prints it.
	ID string
	// Greeting replaces the identity and newline that Identify writes on accept.
	Greeting string
	// Network is what to serve; zero means TCP and UDP.
	Network Network
	// Behaviour is the first behaviour.
	Behaviour Behaviour
	// Handler, if set, has every accepted connection to itself instead of what
	// the behaviour would do. The connection is closed when it returns or when the backend closes.
	Handler func(c *net.TCPConn)
	// Reply, if set, makes the answer to a datagram by appending to dst, in
	// place of what Identify and Echo answer.
	Reply func(dst []byte, id string, datagram []byte) []byte
	// Ended, if set, hears how each connection without a Handler ended: nil after the client's end
	// of stream or ours, else the error, which is ECONNRESET for the client's reset.
	Ended func(client netip.AddrPort, err error)
	// Open, if set, runs the function it is given, which opens sockets on its own goroutine.
	// It is for callers that need the sockets elsewhere: in another network namespace.
	Open func(open func() error) error
}

// Counts is what a backend has seen since it started.
type Counts struct {
	Accepted     int64 // connections accepted
	Live         int64 // connections open now
	BytesIn      int64 // bytes read from connections
	BytesOut     int64 // bytes written to connections
	DatagramsIn  int64
	DatagramsOut int64
}

// Backend is one running backend. Its methods may be called from any goroutine.
type Backend struct {
	conf  Config
	addrs []netip.AddrPort

	accepted, live, bytesIn, bytesOut, datagramsIn, datagramsOut atomic.Int64

	behaviour atomic.Uint32 // Behaviour; never Return

	mu        sync.Mutex
	former    Behaviour // what Return goes back to
	closed    bool
	listeners []*net.TCPListener
	packets   []*net.UDPConn
	fillers   []net.Conn // own connections that keep a stalled accept queue full
	conns     map[*net.TCPConn]struct{}

	running sync.WaitGroup
	stop    func() bool
}

// Start opens a backend on the addresses, and serves until ctx is done or
// Close is called. With port 0 the kernel picks a port; Addrs tells which.
// A wildcard address serves its own family only.
func Start(ctx context.Context, conf Config, addrs ...netip.AddrPort) (*Backend, error) {
	if conf.Network == 0 {
		conf.Network = TCP | UDP
	}
	if conf.Open == nil {
		conf.Open = func(open func() error) error { return open() }
	}
	if len(addrs) == 0 {
		return nil, errors.New("a backend needs an address to listen on")
	}
	b := &Backend{
		conf:  conf,
		addrs: append([]netip.AddrPort(nil), addrs...),
		conns: make(map[*net.TCPConn]struct{}),
	}
	if err := b.Set(conf.Behaviour); err != nil {
		b.Close()
		return nil, err
	}
	b.stop = context.AfterFunc(ctx, b.shut)
	return b, nil
}

// Addrs gives the addresses, in the order of Start, with the ports that were picked.
func (b *Backend) Addrs() []netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]netip.AddrPort(nil), b.addrs...)
}

// Behaviour gives the behaviour in force.
func (b *Backend) Behaviour() Behaviour { return Behaviour(b.behaviour.Load()) }

// Counts reads the counters.
func (b *Backend) Counts() Counts {
	return Counts{
		Accepted: b.accepted.Load(), Live: b.live.Load(),
		BytesIn: b.bytesIn.Load(), BytesOut: b.bytesOut.Load(),
		DatagramsIn: b.datagramsIn.Load(), DatagramsOut: b.datagramsOut.Load(),
	}
}

// Set changes the behaviour. When it returns, connections and datagrams that arrive
// from then on meet the new one. It fails if a socket cannot be opened
// again, because someone else has the port by now; the backend then refuses.
func (b *Backend) Set(want Behaviour) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return net.ErrClosed
	}
	if want == Return {
		want = b.former
	} else if want.accepts() {
		b.former = want
	}
	was := Behaviour(b.behaviour.Swap(uint32(want)))
	if !want.accepts() || was == Stall {
		b.closeListeners()
	}
	if want == Refuse {
		b.closePackets()
		for c := range b.conns {
			c.SetLinger(0)
			c.Close()
		}
		return nil
	}
	err := b.conf.Open(func() error { return b.openLocked(want) })
	if err != nil {
		b.behaviour.Store(uint32(Refuse))
		b.closeListeners()
		b.closePackets()
		return fmt.Errorf("backend cannot %s: %w", want, err)
	}
	return nil
}

// openLocked opens what the behaviour needs and is not open.
func (b *Backend) openLocked(want Behaviour) error {
	tcp := b.conf.Network&TCP != 0 && want != Drain
	openTCP := tcp && len(b.listeners) == 0
	openUDP := b.conf.Network&UDP != 0 && len(b.packets) == 0
	for i, a := range b.addrs {
		if openTCP {
			l, err := net.ListenTCP(family("tcp", a), net.TCPAddrFromAddrPort(a))
			if err != nil {
				return err
			}
			b.listeners = append(b.listeners, l)
			a = netip.AddrPortFrom(a.Addr(), l.Addr().(*net.TCPAddr).AddrPort().Port())
			if want == Stall {
				if err := b.stall(l, a); err != nil {
					return err
				}
			} else {
				b.running.Go(func() { b.accept(l) })
			}
		}
		if openUDP {
			p, err := net.ListenUDP(family("udp", a), net.UDPAddrFromAddrPort(a))
			if err != nil {
				return err
			}
			b.packets = append(b.packets, p)
			a = netip.AddrPortFrom(a.Addr(), p.LocalAddr().(*net.UDPAddr).AddrPort().Port())
			if err := b.startAnswering(p, a); err != nil {
				return err
			}
		}
		b.addrs[i] = a
	}
	return nil
}

// family gives the name of the network of the address' own family, so that [::] leaves 0.0.0.0 alone.
func family(proto string, a netip.AddrPort) string {
	if a.Addr().Is4() {
		return proto + "4"
	}
	return proto + "6"
}

func (b *Backend) closeListeners() {
	for _, l := range b.listeners {
		l.Close()
	}
	for _, c := range b.fillers {
		c.Close()
	}
	b.listeners, b.fillers = nil, nil
}

func (b *Backend) closePackets() {
	for _, p := range b.packets {
		p.Close()
	}
	b.packets = nil
}

// shut closes every socket; goroutines end soon after.
func (b *Backend) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.closeListeners()
	b.closePackets()
	for c := range b.conns {
		c.Close()
	}
}

// Close closes every socket and waits until all the backend started has ended.
func (b *Backend) Close() {
	if b.stop != nil {
		b.stop()
	}
	b.shut()
	b.running.Wait()
}
