package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// xdpFlow is a TCP connection or UDP exchange that stays open, and the backend that answers it.
type xdpFlow struct {
	net.Conn
	network string
	r       *bufio.Reader // nil for UDP
	backend string
	asked   int // datagrams sent
}

// ask sends a little and returns who answers.
func (f *xdpFlow) ask() (string, error) {
	// A datagram may be lost on the way (a queue overflows when 2,000 go out at once), so it is sent again; a
	// connection has TCP for that.
	tries, wait := 1, testbed.Patience
	if f.r == nil {
		tries, wait = 8, 500*time.Millisecond
	}
	var err error
	for range tries {
		f.SetDeadline(time.Now().Add(wait))
		f.asked++
		question := fmt.Sprintf("who? %d\n", f.asked)
		if _, err = f.Write([]byte(question)); err != nil {
			continue
		}
		if f.r != nil {
			var line string
			line, err = f.r.ReadString('\n')
			return strings.TrimSpace(line), err
		}
		// An answer to an earlier question, sent again in vain, tells who had the flow then, not now.
		buf := make([]byte, 64)
		var n int
		for {
			if n, err = f.Read(buf); err != nil {
				break
			}
			if name, ok := strings.CutSuffix(string(buf[:n]), " "+question); ok {
				return name, nil
			}
		}
	}
	return "", err
}

func (b *xdpBed) dial(network string) (*xdpFlow, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testbed.Patience)
	defer cancel()
	c, err := b.client.DialContext(ctx, network, b.target(xdpPort))
	if err != nil {
		return nil, err
	}
	f := &xdpFlow{Conn: c, network: network}
	if network == "tcp" {
		f.r = bufio.NewReader(c)
	}
	if f.backend, err = f.ask(); err != nil {
		c.Close()
		return nil, err
	}
	return f, nil
}

// hold opens n flows.
func (b *xdpBed) hold(t testing.TB, network string, n int) []*xdpFlow {
	t.Helper()
	flows := make([]*xdpFlow, n)
	everyFlow(n, func(i int) {
		f, err := b.dial(network)
		if err != nil {
			t.Errorf("%s flow %d: %v", network, i, err)
			return
		}
		flows[i] = f
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, f := range flows {
			f.Close()
		}
	})
	return flows
}

// everyFlow runs f for 0 to n-1, some at a time.
func everyFlow(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range 64 {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// check asks all flows, and counts those that are broken or have moved though keeps says that their backend
// was there all the time. A flow that had to move goes on from where it is; a connection that had to end is
// made again.
func (b *xdpBed) check(t testing.TB, what string, flows []*xdpFlow, keeps func(backend string) bool) {
	t.Helper()
	var mu sync.Mutex
	broken, moved := 0, 0
	var first error
	everyFlow(len(flows), func(i int) {
		f := flows[i]
		got, err := f.ask()
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			if keeps(f.backend) {
				broken++
				first = fmt.Errorf("flow %s on %s: %w", f.LocalAddr(), f.backend, err)
				return
			}
			f.Close()
			if next, err := b.dial(f.network); err != nil {
				broken++
				first = fmt.Errorf("again, after %s had to go: %w", f.backend, err)
			} else {
				*f = *next
			}
		case got != f.backend:
			if keeps(f.backend) {
				moved++
				first = fmt.Errorf("flow %s went from %s to %s", f.LocalAddr(), f.backend, got)
			}
			f.backend = got
		}
	})
	if broken > 0 || moved > 0 {
		t.Errorf("%s: %d of %d flows broken, %d moved; one of them: %v", what, broken, len(flows), moved, first)
	}
}

// xdpFlows is how many TCP connections, and how many UDP flows, are held.
const xdpFlows = 2000

// Flows stay on their backends while backends come, drain, fail and go, while the balancer is killed and
// started again, and while its program is replaced.
func TestXDPFlowsSurvive(t *testing.T) {
	for _, c := range []struct {
		mode, forwarding string
		v6               bool
	}{
		{"xdp", "ipip", false}, {"xdp", "ipip", true}, {"xdp", "nat", false}, {"xdp-generic", "ipip", false}, {"xdp-generic", "nat", true},
		{"xdp", "gue", true}, {"xdp", "l2", false},
	} {
		t.Run(fmt.Sprintf("%s/%s/v6=%v", c.mode, c.forwarding, c.v6), func(t *testing.T) { flowsSurvive(t, c.mode, c.forwarding, c.v6) })
	}
}

func flowsSurvive(t *testing.T, mode, forwarding string, v6 bool) {
	r := xdpSeed(t)
	b := newXDPBed(t, forwarding, v6)
	dir := t.TempDir()
	health := xdpHealth{}
	p := b.start(t, dir, b.config(mode, health))
	tcp := b.hold(t, "tcp", xdpFlows)
	udp := b.hold(t, "udp", xdpFlows)

	apply := func(next xdpHealth, change func(testbed.Message)) {
		t.Helper()
		before := p.Stats()["guideway.config.reload_success"]
		b.rewrite(t, dir, b.config(mode, next, change))
		await(t, "the change is in force", func() bool { return p.Stats()["guideway.config.reload_success"] > before })
		health = next
	}
	nothing := func(testbed.Message) {}
	all := func(string) bool { return true }
	// Who may keep its flows (see conntrack.CanServe): a UDP backend while it is there and well, a TCP one unless
	// it goes while it is failing.
	serving := func(was, is xdpHealth, udp bool) func(string) bool {
		return func(name string) bool {
			for i, x := range b.backends {
				if x.name == name {
					if udp {
						return is[i] == "" || is[i] == "DRAINING"
					}
					return !(was[i] == "UNHEALTHY" && is[i] == "absent")
				}
			}
			return false
		}
	}
	for step := range 12 {
		what, was := "nothing", health
		switch step {
		case 4:
			what = "kill -9 and restart"
			p.Signal(syscall.SIGKILL)
			await(t, "it is dead", p.Ended)
			b.check(t, "without an agent, TCP", tcp, all)
			b.check(t, "without an agent, UDP", udp, all)
			p = b.start(t, dir, b.config(mode, health))
		case 8:
			// With a new binary it would be the same: another program takes the place of the one that runs.
			what = "an upgrade: SIGTERM, and a program with other features"
			p.Signal(syscall.SIGTERM)
			p.Wait()
			b.check(t, "between two agents, TCP", tcp, all)
			p = b.start(t, dir, b.config(mode, health, b.otherFeatures))
		default:
			next := health
			next[r.IntN(len(next))] = []string{"", "", "absent", "DRAINING", "UNHEALTHY"}[r.IntN(5)]
			if next == (xdpHealth{}) || next == health || !anyServes(next) {
				next = xdpHealth{}
				next[r.IntN(len(next))] = []string{"absent", "DRAINING", "UNHEALTHY"}[r.IntN(3)]
			}
			if next == health {
				continue
			}
			what = fmt.Sprintf("%q to %q", health, next)
			apply(next, nothing)
		}
		b.check(t, what+", TCP", tcp, serving(was, health, false))
		b.check(t, what+", UDP", udp, serving(was, health, true))
		if t.Failed() {
			t.Logf("the balancer's log:\n%s", p.Stderr())
			return
		}
	}
	if n := p.Stats()["guideway.xdp.table_in_sync"]; n != 1 {
		t.Errorf("table_in_sync is %d", n)
	}
}

func anyServes(h xdpHealth) bool {
	for _, s := range h {
		if s == "" {
			return true
		}
	}
	return false
}

// otherFeatures makes a configuration need another program: one more listener, that hashes by source_ip, at the
// next VIP.
func (b *xdpBed) otherFeatures(c testbed.Message) {
	static := c["static_resources"].(testbed.Message)
	policy := testbed.Message{"hash_policy": []any{testbed.Message{"source_ip": testbed.Message{}}}}
	l := testbed.Listener("more", xdpPort+1, testbed.TCPProxy("m", "web", policy))
	l["address"] = testbed.SocketAddress(b.vip().Next().String(), xdpPort+1)
	static["listeners"] = append(static["listeners"].([]any), l)
}

// rewrite renames a new configuration into place.
func (b *xdpBed) rewrite(t testing.TB, dir string, config testbed.Message) {
	t.Helper()
	path := testbed.WriteConfig(t, t.TempDir(), config)
	if err := os.Rename(path, filepath.Join(dir, "boot.yaml")); err != nil {
		t.Fatal(err)
	}
}

// xdpSeed is chance that a failed test can have again: GUIDEWAY_TEST_SEED.
func xdpSeed(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("GUIDEWAY_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("GUIDEWAY_TEST_SEED: %v", err)
		}
	}
	t.Logf("GUIDEWAY_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
