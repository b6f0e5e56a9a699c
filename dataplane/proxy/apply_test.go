package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// apply without the bed's own listener or with others beside it.
func (b *bed) snapshot(listeners ...*dataplane.Listener) *dataplane.Snapshot {
	return &dataplane.Snapshot{Listeners: listeners, Clusters: map[string]*dataplane.Cluster{"c": b.cluster}}
}

// another is a copy of the bed's listener under another name and address.
func (b *bed) another(name, addr string, hash uint64) *dataplane.Listener {
	l, p := b.listener, b.proxy
	l.Name, l.StatName = name, name
	l.Addresses = []dataplane.ListenAddress{{Addr: netip.MustParseAddrPort(addr)}}
	l.Hash, l.SocketHash = hash, hash
	l.Chains = []*dataplane.FilterChain{{Proxy: &p, Hash: hash}}
	return &l
}

func (b *bed) applySnapshot(s *dataplane.Snapshot) {
	b.t.Helper()
	if err := b.srv.Apply(context.Background(), s); err != nil {
		b.t.Fatal(err)
	}
}

func refuses(t *testing.T, addr string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to %s: %v, want a refusal", addr, err)
	}
}

func TestRemovedListener(t *testing.T) {
	for _, drain := range []time.Duration{-1, 300 * time.Millisecond, time.Hour} {
		b := newBed(t, func(c *Config) { c.DrainTime = drain })
		b.setHosts(startHost(t, echo).addr())
		a, z := b.another("a", "127.0.0.1:0", 1), b.another("z", "127.0.0.1:0", 1)
		b.applySnapshot(b.snapshot(a, z))
		at := b.srv.Listening()
		addrA, addrZ := at[0].Addresses[0].Addr.String(), at[1].Addresses[0].Addr.String()
		ca, cz := dial(t, addrA).say("x").hear("x"), dial(t, addrZ).say("x").hear("x")
		b.applySnapshot(b.snapshot(z))
		refuses(t, addrA)
		if n := len(b.srv.Listening()); n != 1 {
			t.Errorf("%d listeners", n)
		}
		cz.say("y").hear("y")
		if drain == time.Hour {
			ca.say("y").hear("y")
			continue
		}
		if got, then := ca.hearOut(); got != "" || then != "end of stream" {
			t.Errorf("the connection of the removed listener got %q, then %s", got, then)
		}
		cz.say("y").hear("y")
		dial(t, addrZ).say("x").hear("x")
	}
}

// TestChangedChain: connections of a chain that did not change live on over updates of their listener,
// those of a changed one are cut at the end of the drain time.
func TestChangedChain(t *testing.T) {
	b := newBed(t, func(c *Config) { c.DrainTime = 100 * time.Millisecond })
	b.setHosts(startHost(t, echo).addr())
	p, q := b.proxy, b.proxy
	one := &dataplane.FilterChain{Name: "one", Proxy: &p, Hash: 1}
	b.listener.DefaultChain = one
	b.apply()
	addr := b.addr()
	c := b.dial().say("x").hear("x")

	b.listener.Hash = 2 // something else changed, e.g. the chain's neighbour
	same := *one
	b.listener.DefaultChain = &same
	b.apply()
	d := b.dial().say("x").hear("x")

	q.StatPrefix = "other"
	b.listener.Hash = 3
	b.listener.DefaultChain = &dataplane.FilterChain{Name: "one", Proxy: &q, Hash: 3}
	b.apply()
	if b.addr() != addr {
		t.Errorf("the listener moved from %s to %s", addr, b.addr())
	}
	e := b.dial().say("x").hear("x")
	for _, old := range []*client{c, d} {
		if got, then := old.hearOut(); got != "" || then != "end of stream" {
			t.Errorf("an old chain's connection got %q, then %s", got, then)
		}
	}
	e.say("y").hear("y").Close()
	b.idle()
	b.levelsAtZero()
}

// TestHandover: while a listener is replaced again and again, moved to another name even, no attempt to
// connect to its address fails.
func TestHandover(t *testing.T) {
	for _, reuse := range []bool{true, false} {
		b := newBed(t, func(c *Config) { c.Workers = 2 })
		b.listener.ReusePort = reuse
		b.setHosts(startHost(t, greet).addr())
		free := refused(t)
		b.applySnapshot(b.snapshot(b.another("a", free, 1)))
		var stop atomic.Bool
		var tried atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for !stop.Load() {
					c, err := net.Dial("tcp", free)
					if err != nil {
						t.Error(err)
						return
					}
					c.SetDeadline(time.Now().Add(20 * time.Second))
					if _, err := c.Read(make([]byte, 1)); err != nil {
						t.Error(err)
						return
					}
					c.(*net.TCPConn).SetLinger(0) // spares the port its TIME_WAIT
					c.Close()
					tried.Add(1)
				}
			})
		}
		for i := range 60 {
			l := b.another([]string{"a", "b"}[i/7%2], free, uint64(i+2))
			l.Backlog = 100 + i
			b.applySnapshot(b.snapshot(l))
			before := tried.Load()
			eventually(t, "a few connections", func() bool { return tried.Load() > before+2 || t.Failed() })
		}
		stop.Store(true)
		wg.Wait()
		b.idle()
		b.levelsAtZero()
	}
}

func TestBindErrors(t *testing.T) {
	b := newBed(t)
	b.setHosts(startHost(t, greet).addr())
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	taken := other.Addr().String()
	good := b.another("good", refused(t), 1)
	bad := b.another("bad", taken, 1)
	alien := b.another("alien", "192.0.2.1:80", 1)
	err = b.srv.Apply(context.Background(), b.snapshot(bad, good, alien))
	var failed *dataplane.ListenerError
	if !errors.As(err, &failed) || len(failed.Failed) != 2 {
		t.Fatalf("apply: %v", err)
	}
	for i, want := range []string{
		"bad: cannot bind '" + taken + "': Address already in use",
		"alien: cannot bind '192.0.2.1:80': Cannot assign requested address",
	} {
		if got := failed.Failed[i].Name + ": " + failed.Failed[i].Err.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Error("the cause is lost")
	}
	dial(t, good.Addresses[0].Addr.String()).hear("A")

	// A listener that cannot move stays where it is.
	moved := b.another("good", taken, 2)
	if err := b.srv.Apply(context.Background(), b.snapshot(moved)); err == nil {
		t.Error("moved to a port that is in use")
	}
	dial(t, good.Addresses[0].Addr.String()).hear("A")

	// Two of ours cannot have one address, although the kernel would let them share it.
	second := b.another("second", good.Addresses[0].Addr.String(), 3)
	err = b.srv.Apply(context.Background(), b.snapshot(good, second))
	if err == nil || !strings.HasPrefix(err.Error(), "cannot bind '") {
		t.Errorf("a second listener on one address: %v", err)
	}
	dial(t, good.Addresses[0].Addr.String()).hear("A")
}

func TestStopListeners(t *testing.T) {
	for _, grace := range []time.Duration{0, 50 * time.Millisecond} {
		b := newBed(t)
		b.setHosts(startHost(t, echo).addr())
		b.apply()
		addr := b.addr()
		c := b.dial().say("x").hear("x")
		b.srv.DrainListeners(nil, grace)
		if !b.srv.Listening()[0].Draining {
			t.Error("the listener is not shown as draining")
		}
		eventually(t, "the listener to stop", func() bool {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				c.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		})
		c.say("y").hear("y")
		// It stays stopped, whatever is applied.
		b.listener.Hash, b.listener.SocketHash = 7, 7
		b.apply()
		refuses(t, addr)
		c.say("z").hear("z")
		if n := len(b.srv.Listening()); n != 1 {
			t.Errorf("%d listeners", n)
		}
	}
}

// TestHostChanges: connections live on when their host leaves the cluster or is marked by discovery, and
// are closed when it fails a check, if the cluster says so. New ones follow the snapshot at once.
func TestHostChanges(t *testing.T) {
	b := newBed(t)
	one, two := startHost(t, greet), startHost(t, echo)
	b.setHosts(one.addr())
	b.cluster.CloseOnHealthFailure = true
	b.apply()
	c := b.dial().hear("A")

	next := *b.cluster
	eds := *b.cluster.Hosts[0]
	eds.Health = dataplane.FailedEDSHealth
	next.Hosts = []*dataplane.Host{&eds}
	b.cluster = &next
	b.apply()
	c.say("1").hear("1")

	gone := next
	h2 := host(two.addr())
	gone.Hosts, gone.Balancer = []*dataplane.Host{h2}, &anyHost{[]*dataplane.Host{h2}}
	b.cluster = &gone
	b.apply()
	c.say("2").hear("2")
	b.dial().say("q").hear("q") // no greeting: the second host

	ill := gone
	sick := *b.cluster.Hosts[0]
	sick.Health = dataplane.FailedActiveHC
	ill.Hosts = []*dataplane.Host{&sick}
	d := b.dial().say("q").hear("q")
	b.cluster = &ill
	b.apply()
	if got, then := d.hearOut(); got != "" || then != "end of stream" {
		t.Errorf("the failed host's connection got %q, then %s", got, then)
	}
	c.say("3").hear("3")
	two.told(2)

	// A state that stands already closes nothing: connections in panic live on.
	e := b.dial().say("q").hear("q")
	again := ill
	b.cluster = &again
	b.apply()
	e.say("r").hear("r")
}

func TestSharedSocket(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Workers = 3 })
	b.listener.ReusePort = false
	b.setHosts(startHost(t, greet).addr())
	b.apply()
	for range 50 {
		b.dial().hear("A").Close()
	}
	b.idle()
	total := uint64(0)
	for i := range 3 {
		total += b.store.Counter(fmt.Sprintf("listener.127.0.0.1_10000.worker_%d.downstream_cx_total", i)).Value()
	}
	if total != 50 {
		t.Errorf("the workers count %d connections", total)
	}
}

// TestSoak holds 2,000 connections while snapshots with other hosts come and go: no connection breaks.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	before := descriptors(t)
	b := newBed(t, func(c *Config) { c.Workers = 2 })
	const hosts, held = 8, 2000
	var all []*dataplane.Host
	var backends []*fakeHost
	for range hosts {
		h := startHost(t, greet)
		backends = append(backends, h)
		all = append(all, host(h.addr()))
	}
	set := func(h []*dataplane.Host) {
		next := *b.cluster
		next.Hosts, next.Balancer = h, &anyHost{h}
		b.cluster = &next
		b.apply()
	}
	set(append([]*dataplane.Host(nil), all...))
	var conns []*client
	for range held {
		conns = append(conns, b.dial())
	}
	for _, c := range conns {
		c.hear("A")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		r.Shuffle(hosts, func(i, j int) { all[i], all[j] = all[j], all[i] })
		some := append([]*dataplane.Host(nil), all[:1+r.IntN(hosts)]...)
		for j := range some {
			h := *some[j]
			h.Health = []dataplane.Health{0, dataplane.EDSStatusDraining, dataplane.FailedActiveHC, dataplane.DegradedEDSHealth}[r.IntN(4)]
			some[j] = &h
		}
		if r.IntN(4) == 0 {
			b.listener.Hash++ // the listener's other chains changed
			p := b.proxy
			b.listener.Chains = []*dataplane.FilterChain{{Proxy: &p, Hash: 1}}
		}
		set(some)
		for range 50 {
			text := fmt.Sprint("round ", i)
			conns[r.IntN(held)].say(text).hear(text)
		}
	}
	for _, c := range conns {
		c.say("end").hear("end")
		c.Close()
	}
	b.idle()
	for _, h := range backends {
		h.stop()
	}
	b.cluster.Hosts = all
	b.levelsAtZero()
	b.srv.Close()
	eventually(t, "all descriptors to be closed", func() bool { return descriptors(t) <= before })
}

// descriptors is the number of open descriptors of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
