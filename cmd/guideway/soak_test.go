package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// The topology of the soak test, all in one network namespace:
//
//	2,000 TCP connections \             / 127.9.0.1:18080   each backend says its address on accept,
//	                       guideway  --+  ...               then echoes; UDP answers "address:datagram"
//	2,000 UDP flows       /             \ 127.9.0.30:18080
//
// while backends come, drain, go and change weight at random through the configuration file.

const (
	soakFlows = 2000
	soakPool  = 30 // backends there are; the configuration names a part of them
)

// soakTime is how long changes go on; testing.Short makes it short.
func soakTime() time.Duration {
	if testing.Short() {
		return 5 * time.Second
	}
	return time.Minute
}

// member is a backend as the configuration has it.
type member struct {
	weight   int
	draining bool
}

// membership is the configured set, by backend number.
type membership map[int]member

func soakAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 9, 0, byte(i + 1)}), 18080)
}

// config is the bootstrap for a membership; hosts in random order, which must not matter.
func (m membership) config(r *rand.Rand) testbed.Message {
	var hosts []any
	for i, b := range m {
		h := testbed.Message{
			"endpoint":              testbed.Message{"address": testbed.SocketAddress(soakAddr(i).Addr().String(), 18080)},
			"load_balancing_weight": b.weight,
		}
		if b.draining {
			h["health_status"] = "DRAINING"
		}
		hosts = append(hosts, h)
	}
	r.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	cluster := func(name string) testbed.Message {
		return testbed.Message{
			"name": name, "type": "STATIC", "connect_timeout": "5s", "lb_policy": "MAGLEV",
			"circuit_breakers": testbed.Message{"thresholds": []any{testbed.Message{"max_connections": 10000, "max_pending_requests": 10000}}},
			"load_assignment":  testbed.Message{"cluster_name": name, "endpoints": []any{testbed.Message{"lb_endpoints": hosts}}},
		}
	}
	return testbed.Bootstrap(
		[]any{
			testbed.Listener("tcp", 15000, testbed.TCPProxy("t", "tcp")),
			testbed.UDPListener("udp", 15000, testbed.UDPProxy("u", "udp")),
		},
		[]any{cluster("tcp"), cluster("udp")})
}

// change makes one random change that leaves at least two backends in the table.
func (m membership) change(r *rand.Rand) string {
	serving := 0
	for _, b := range m {
		if !b.draining {
			serving++
		}
	}
	for {
		i := r.IntN(soakPool)
		b, in := m[i]
		switch op := r.IntN(5); {
		case op == 0 && !in:
			m[i] = member{weight: 1 + r.IntN(4)}
			return fmt.Sprintf("add %d", i)
		case op == 1 && in && !b.draining && serving > 2:
			b.draining = true
			m[i] = b
			return fmt.Sprintf("drain %d", i)
		case op == 2 && in && b.draining:
			b.draining = false
			m[i] = b
			return fmt.Sprintf("undrain %d", i)
		case op == 3 && in && (b.draining || serving > 2):
			delete(m, i)
			return fmt.Sprintf("remove %d", i)
		case op == 4 && in:
			b.weight = 1 + r.IntN(4)
			m[i] = b
			return fmt.Sprintf("weigh %d", i)
		}
	}
}

// removals counts for each backend the beginnings and ends of its removals, so that a flow can tell whether
// its backend has been there all the time: the count is odd while a removal is under way.
type removals [soakPool]atomic.Int64

func TestFlowsSurviveChanges(t *testing.T) {
	r := newSeed(t)
	ns := testbed.NewNamespace(t)
	ns.MakeAllLocal(t)
	testbed.StartBackend(t, ns, backend.Config{}, netip.MustParseAddrPort("0.0.0.0:18080"))

	members := membership{}
	for i := range 10 {
		members[i] = member{weight: 1}
	}
	dir := t.TempDir()
	p := testbed.Guideway(t).StartIn(t, ns, dir, members.config(r), "--concurrency", "2").Ready()

	var left removals
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asking sync.WaitGroup
	var asked, moved atomic.Int64
	failures := make(chan string, soakFlows)
	fail := func(format string, args ...any) {
		select {
		case failures <- fmt.Sprintf(format, args...):
		default:
		}
	}
	// A few goroutines ask all flows in turn.
	const askers = 8
	for a := range askers {
		var tcp []*heldTCP
		var udp []*heldUDP
		for range soakFlows / askers {
			c, err := dialTCP(ns)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			tcp = append(tcp, c)
			u, err := dialUDP(ns, &left)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { u.Close() })
			udp = append(udp, u)
		}
		asking.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				for i := range tcp {
					if err := tcp[i].ask(); err != nil {
						fail("TCP connection %d.%d to %v broke: %v", a, i, tcp[i].backend, err)
						return
					}
					change, err := udp[i].ask(&left)
					if err != nil {
						fail("UDP flow %d.%d: %v", a, i, err)
						return
					}
					if change {
						moved.Add(1)
					}
					asked.Add(2)
				}
			}
		})
	}

	changes := 0
	began := time.Now()
	for time.Since(began) < soakTime() && len(failures) == 0 {
		before := clone(members)
		what := members.change(r)
		var leaving []int
		for i := range before {
			if _, in := members[i]; !in {
				leaving = append(leaving, i)
				left[i].Add(1) // from now on its UDP flows may move
			}
		}
		replaceConfig(t, dir, members.config(r))
		changes++
		want := int64(changes)
		if !testbed.Within(testbed.Patience, func() bool { return p.Stats()["guideway.config.reload_success"] == want }) {
			t.Fatalf("change %d (%s) is not in force", changes, what)
		}
		for _, i := range leaving {
			left[i].Add(1)
		}
	}
	cancel()
	asking.Wait()
	close(failures)
	for f := range failures {
		t.Error(f)
	}
	t.Logf("%d changes, %d answers, %d UDP flows moved because their backend was removed", changes, asked.Load(), moved.Load())
	if changes < 5 || asked.Load() < soakFlows {
		t.Errorf("only %d changes and %d answers: this shows nothing", changes, asked.Load())
	}

	newFlowsFollowTheTable(t, ns, p, members)
}

// newFlowsFollowTheTable opens new connections and compares each backend's part with its slots.
func newFlowsFollowTheTable(t *testing.T, ns *testbed.Namespace, p *testbed.Proxy, members membership) {
	var tables []struct {
		Hosts []string `json:"hosts"`
		Table []int    `json:"table"`
	}
	out := testbed.Guideway(t).Exec(t, nil, t.TempDir(), "table", "-c", filepath.Join(p.Dir, "boot.yaml"), "--cluster", "tcp", "-o", "json")
	if out.Wait() != 0 {
		t.Fatal(out.Stderr())
	}
	if err := json.Unmarshal([]byte(out.Stdout()), &tables); err != nil {
		t.Fatal(err)
	}
	share := map[string]float64{}
	for _, owner := range tables[0].Table {
		share[tables[0].Hosts[owner]] += 1 / float64(len(tables[0].Table))
	}
	const n = 4000
	got := map[string]float64{}
	for range n {
		c, err := dialTCP(ns)
		if err != nil {
			t.Fatal(err)
		}
		got[c.backend] += 1.0 / n
		c.Close()
	}
	for host, part := range got {
		if want := share[host]; math.Abs(part-want) > 5*math.Sqrt(want*(1-want)/n) {
			t.Errorf("%s has %.4f of the new connections and %.4f of the slots", host, part, want)
		}
	}
	for i, b := range members {
		if b.draining && got[soakAddr(i).String()] > 0 {
			t.Errorf("the draining backend %d got new connections", i)
		}
	}
}

// clone copies a membership.
func clone(m membership) membership {
	c := membership{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

// replaceConfig renames a new configuration into place.
func replaceConfig(t *testing.T, dir string, config any) {
	t.Helper()
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(dir, "new.yaml")
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, "boot.yaml")); err != nil {
		t.Fatal(err)
	}
}

// heldTCP is a connection that stays open.
type heldTCP struct {
	net.Conn
	r       *bufio.Reader
	backend string
}

func dialTCP(ns *testbed.Namespace) (*heldTCP, error) { return dialTCPTo(ns, "127.0.0.1:15000") }

func dialTCPTo(ns *testbed.Namespace, to string) (*heldTCP, error) {
	c, err := ns.DialContext(context.Background(), "tcp", to)
	if err != nil {
		return nil, err
	}
	h := &heldTCP{Conn: c, r: bufio.NewReaderSize(c, 64)}
	c.SetDeadline(time.Now().Add(testbed.Patience))
	line, err := h.r.ReadString('\n')
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("no greeting: %w", err)
	}
	h.backend = strings.TrimSpace(line)
	return h, nil
}

func (h *heldTCP) ask() error {
	h.SetDeadline(time.Now().Add(testbed.Patience))
	if _, err := h.Write([]byte("ping\n")); err != nil {
		return err
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(h.r, b); err != nil {
		return err
	}
	if string(b) != "ping\n" {
		return fmt.Errorf("garbled echo %q", b)
	}
	return nil
}

// heldUDP is a UDP flow.
type heldUDP struct {
	net.Conn
	backend int
	left    int64 // the count of its backend's removals when the flow began there
}

func dialUDP(ns *testbed.Namespace, left *removals) (*heldUDP, error) {
	c, err := ns.DialContext(context.Background(), "udp", "127.0.0.1:15000")
	if err != nil {
		return nil, err
	}
	h := &heldUDP{Conn: c, backend: -1}
	if _, err := h.ask(left); err != nil {
		c.Close()
		return nil, err
	}
	return h, nil
}

// ask sends a datagram, again if there is no answer: one may be lost as its session ends. It tells whether
// the flow has moved because its backend was removed; a move for no such reason is an error.
func (h *heldUDP) ask(left *removals) (bool, error) {
	b := make([]byte, 100)
	for try := 0; ; try++ {
		if _, err := h.Write([]byte("x")); err != nil && try == 5 {
			return false, err
		}
		h.SetReadDeadline(time.Now().Add(time.Second))
		n, err := h.Read(b)
		if err != nil {
			if try == 5 {
				return false, fmt.Errorf("no answer: %w", err)
			}
			continue
		}
		var i int
		if _, err := fmt.Sscanf(string(b[:n]), "127.9.0.%d:18080:x", &i); err != nil {
			return false, fmt.Errorf("garbled answer %q", b[:n])
		}
		i--
		if i == h.backend {
			return false, nil
		}
		was := h.backend
		h.backend = i
		if was >= 0 && h.left%2 == 0 && left[was].Load() == h.left {
			return false, fmt.Errorf("moved from %d, which was there all the time, to %d", was, i)
		}
		h.left = left[i].Load()
		return was >= 0, nil
	}
}
