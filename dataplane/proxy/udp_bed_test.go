package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// patience bounds every wait for something that must come.
const patience = 20 * time.Second

// udpBed is a proxy with one UDP listener "l" and one cluster "c", on loopback.
type udpBed struct {
	testing.TB
	srv      *Server
	store    *stats.Store
	log      *lockedBuffer
	listener dataplane.Listener
	cluster  dataplane.Cluster
	gen      uint64
	more     map[string]*dataplane.Cluster
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newUDPBed prepares a bed; change listener and cluster, then apply.
func newUDPBed(t testing.TB, workers int) *udpBed {
	t.Helper()
	b := &udpBed{TB: t, store: stats.NewStore(), log: &lockedBuffer{}, more: map[string]*dataplane.Cluster{}}
	var err error
	b.srv, err = New(Config{Workers: workers, Stats: b.store, Log: slog.New(slog.NewTextHandler(b.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.srv.Close() })
	b.listener = dataplane.Listener{
		Name: "l", StatName: "l", Protocol: dataplane.UDP, ReusePort: true,
		Addresses: []dataplane.ListenAddress{{Addr: netip.MustParseAddrPort("127.0.0.1:0")}},
		UDP: &dataplane.UDPProxy{
			StatPrefix: "u", Route: routeTo("c"), Clusters: []string{"c"}, IdleTimeout: time.Minute,
			MaxRxDownstream: 1500, MaxRxUpstream: 1500, UpstreamGRO: true,
			Hash: dataplane.HashPolicy{Kind: dataplane.HashNone},
		},
		SocketHash: 1,
	}
	b.cluster = dataplane.Cluster{
		Name: "c", StatName: "c", Balancer: &testBalancer{}, Incarnation: 1,
		Stats: dataplane.NewClusterStats(b.store, "c"), Live: &dataplane.ClusterLive{},
	}
	b.cluster.Breakers.Default.MaxConnections = 1024
	return b
}

func routeTo(name string) func(src, dst netip.AddrPort) string {
	return func(_, _ netip.AddrPort) string { return name }
}

// apply puts listener and cluster in force as they are now.
func (b *udpBed) apply() {
	b.Helper()
	if err := b.tryApply(); err != nil {
		b.Fatal(err)
	}
}

func (b *udpBed) tryApply() error {
	b.gen++
	l, c := b.listener, b.cluster
	proxy := *b.listener.UDP
	l.UDP, l.Hash = &proxy, b.gen
	s := &dataplane.Snapshot{Generation: b.gen, Listeners: []*dataplane.Listener{&l}, Clusters: map[string]*dataplane.Cluster{}}
	if c.Name != "" {
		s.Clusters[c.Name] = &c
	}
	for name, c := range b.more {
		s.Clusters[name] = c
	}
	return b.srv.Apply(context.Background(), s)
}

// setHosts gives the cluster these hosts, round robin or by hash.
func (b *udpBed) setHosts(hosts ...*dataplane.Host) {
	b.cluster.Hosts = hosts
	b.cluster.Balancer = &testBalancer{hosts: hosts}
}

// testBalancer goes round without a hash, and by the hash modulo the number of hosts with one.
type testBalancer struct {
	hosts []*dataplane.Host
	mu    sync.Mutex
	turn  int
}

func (b *testBalancer) Pick(hash uint64, hashed bool) *dataplane.Host {
	if len(b.hosts) == 0 {
		return nil
	}
	if hashed {
		return b.hosts[hash%uint64(len(b.hosts))]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn++
	return b.hosts[(b.turn-1)%len(b.hosts)]
}

// addr is where the listener listens; n is the index of the address.
func (b *udpBed) addr(n int) netip.AddrPort { return b.srv.Listening()[0].Addresses[n].Addr }

// host starts a backend that answers with its name, a colon and what it got, and returns it as a host.
func (b *udpBed) host(name string) *dataplane.Host { return b.hostAt(name, "127.0.0.1:0") }

func (b *udpBed) hostAt(name, at string) *dataplane.Host {
	b.Helper()
	return b.hostWith(at, func(p []byte) []byte { return append([]byte(name+":"), p...) })
}

// hostWith starts a backend that answers as answer says; nil is no answer.
func (b *udpBed) hostWith(at string, answer func([]byte) []byte) *dataplane.Host {
	b.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
	if err != nil {
		b.Fatal(err)
	}
	c.SetReadBuffer(4 << 20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFromUDPAddrPort(p)
			if err != nil {
				return
			}
			if a := answer(p[:n]); a != nil {
				c.WriteToUDPAddrPort(a, from)
			}
		}
	}()
	b.Cleanup(func() { c.Close(); <-done })
	return hostOf(c.LocalAddr().(*net.UDPAddr).AddrPort())
}

func hostOf(a netip.AddrPort) *dataplane.Host {
	return &dataplane.Host{Address: a, Key: a.String(), Weight: 1, State: &dataplane.HostState{}}
}

// setHealth changes a host's health the way a control plane does it: for those that look, at once, and
// in the next snapshot.
func (b *udpBed) setHealth(h *dataplane.Host, health dataplane.Health) *dataplane.Host {
	next := *h
	next.Health = health
	h.State.CurrentHealth.Store(uint32(health))
	return &next
}

// udpClient is a client with a port of its own.
type udpClient struct {
	testing.TB
	*net.UDPConn
}

func (b *udpBed) client() *udpClient { b.Helper(); return b.clientFrom("", b.addr(0)) }

func (b *udpBed) clientFrom(from string, to netip.AddrPort) *udpClient {
	b.Helper()
	var local *net.UDPAddr
	if from != "" {
		local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
	}
	c, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(to))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return &udpClient{b, c}
}

func (c *udpClient) send(s string) {
	c.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		c.Fatal(err)
	}
}

func (c *udpClient) receive() string {
	c.Helper()
	s, ok := c.receiveWithin(patience)
	if !ok {
		c.Fatal("no answer")
	}
	return s
}

func (c *udpClient) receiveWithin(d time.Duration) (string, bool) {
	c.Helper()
	c.SetReadDeadline(time.Now().Add(d))
	p := make([]byte, 1<<16)
	n, err := c.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", false
	}
	if err != nil {
		c.Fatal(err)
	}
	return string(p[:n]), true
}

// ask sends a datagram that must be answered.
func (c *udpClient) ask(s string) string {
	c.Helper()
	c.send(s)
	return c.receive()
}

// silent reports that nothing waits to be read.
func (c *udpClient) silent() bool {
	_, ok := c.receiveWithin(time.Millisecond)
	return !ok
}

// until waits for a condition.
func (b *udpBed) until(what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%s did not come about; log:\n%s", what, b.log)
		}
	}
}

// value is a stat's value by its full name.
func (b *udpBed) value(name string) int64 {
	if name == "udp.u.downstream_sess_active" || name == "cluster.c.circuit_breakers.default.cx_open" {
		return b.store.Gauge(name).Value()
	}
	return int64(b.store.Counter(name).Value())
}

func (b *udpBed) untilStat(name string, want int64) {
	b.Helper()
	b.until(fmt.Sprintf("%s = %d", name, want), func() bool { return b.value(name) == want })
}

// fiveTuple is the hash of a client's flow.
func fiveTuple(seed uint64, c *udpClient) uint64 {
	return conntrack.Hash5Tuple(seed, conntrack.Flow{
		Src: c.LocalAddr().(*net.UDPAddr).AddrPort(), Dst: c.RemoteAddr().(*net.UDPAddr).AddrPort(), Proto: conntrack.UDP,
	})
}

func deadline() time.Time { return time.Now().Add(patience) }
