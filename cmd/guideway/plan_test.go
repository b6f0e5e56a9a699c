package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
	"github.com/guideway/guideway/controlplane/plan"
)

const (
	plannedChanges = 100
	plannedFlows   = 150 // of each protocol
	plannedOthers  = 20  // on the listener whose chains change
)

// planConfig is the configuration of TestPlanIsWhatHappens: the members of two clusters, and what else
// changes now and then.
type planConfig struct {
	members membership
	prefix  int  // of the second TCP listener's chain
	move    bool // udp_draining: move
	small   bool // the UDP cluster has a smaller table
	closes  bool // the TCP cluster has close_after
	per     bool // the second UDP listener picks for each datagram
}

func (c *planConfig) bootstrap(r *rand.Rand) testbed.Message {
	b := c.members.config(r)
	static := b["static_resources"].(testbed.Message)
	static["listeners"] = append(static["listeners"].([]any),
		testbed.Listener("other", 15001, testbed.TCPProxy(fmt.Sprint("other", c.prefix), "tcp")))
	static["listeners"] = append(static["listeners"].([]any), testbed.UDPListener("second", 15002,
		testbed.UDPProxy("second", "udp", testbed.Message{"use_per_packet_load_balancing": c.per})))
	guideway := func(m testbed.Message) testbed.Message {
		return testbed.Message{"filter_metadata": testbed.Message{"guideway": m}}
	}
	for _, cluster := range static["clusters"].([]any) {
		m := cluster.(testbed.Message)
		switch {
		case m["name"] == "tcp" && c.closes:
			m["metadata"] = guideway(testbed.Message{"close_after": "1h"}) // so slow that nobody sees it here
		case m["name"] == "udp" && c.move:
			m["metadata"] = guideway(testbed.Message{"udp_draining": "move"})
		}
		if m["name"] == "udp" && c.small {
			m["maglev_lb_config"] = testbed.Message{"table_size": 10007}
		}
	}
	return b
}

func (c *planConfig) change(r *rand.Rand) string {
	switch r.IntN(12) {
	case 0:
		c.prefix++
		return "another chain"
	case 1:
		c.move = !c.move
		return fmt.Sprint("udp_draining: move is ", c.move)
	case 2:
		c.small = !c.small
		return fmt.Sprint("small table is ", c.small)
	case 3:
		c.closes = !c.closes
		return fmt.Sprint("close_after is ", c.closes)
	case 4:
		c.per = !c.per
		return fmt.Sprint("use_per_packet_load_balancing is ", c.per)
	}
	return c.members.change(r)
}

// TestPlanIsWhatHappens: for each of 100 random changes, under traffic, what "guideway plan" says is what is
// recorded when the change is made, and what the flows' clients see.
func TestPlanIsWhatHappens(t *testing.T) {
	r := newSeed(t)
	ns := testbed.NewNamespace(t)
	ns.MakeAllLocal(t)
	testbed.StartBackend(t, ns, backend.Config{}, netip.MustParseAddrPort("0.0.0.0:18080"))
	config := &planConfig{members: membership{}}
	for i := range 10 {
		config.members[i] = member{weight: 1}
	}
	dir := t.TempDir()
	p := testbed.Guideway(t).StartIn(t, ns, dir, config.bootstrap(r), "--concurrency", "2").Ready()
	b := &planBed{t: t, ns: ns, p: p}
	for range plannedFlows {
		b.holdTCP("127.0.0.1:15000")
		b.holdUDP("127.0.0.1:15000")
	}
	for range plannedOthers {
		b.holdTCP("127.0.0.1:15001")
		b.holdUDP("127.0.0.1:15002")
	}
	stop := b.talk()
	defer stop()

	changes := plannedChanges
	if testing.Short() {
		changes = 20
	}
	var moved, remembered, broken uint64
	for n := range changes {
		sticky := !config.per
		what := config.change(r)
		sticky = sticky && !config.per // else datagrams follow the table, remembered by nobody
		next := config.bootstrap(r)
		b.round() // every UDP flow has its session
		before := b.backends()
		foreseen := b.plan(next)
		records := len(b.records())
		replaceConfig(t, dir, next)
		want := int64(n + 1)
		if !testbed.Within(testbed.Patience, func() bool { return p.Stats()["guideway.config.reload_success"] == want }) {
			t.Fatalf("change %d (%s) is not in force", n, what)
		}
		if foreseen.Empty() {
			continue
		}
		testbed.Eventually(t, "the change is recorded", func() bool { return len(b.records()) > records })
		happened := b.records()[0]
		b.compare(fmt.Sprintf("change %d (%s)", n, what), foreseen, &happened)
		b.round()
		moves := 0
		for flow, was := range before {
			if now := b.backend(flow); now != was {
				moves++
			}
		}
		if got := foreseen.Flows.Reasons["host_removed"] + foreseen.Flows.Reasons["host_draining"]; sticky && moves != got {
			t.Errorf("change %d (%s): clients saw %d UDP flows at another backend, the plan said %d", n, what, moves, got)
		}
		moved += foreseen.Slots.Moved
		remembered += uint64(foreseen.Flows.Remembered)
		broken += uint64(foreseen.Flows.Broken)
		if t.Failed() {
			break
		}
	}
	stop()
	t.Logf("%d changes: %d slots moved, %d flows remembered, %d broken", changes, moved, remembered, broken)
	if moved == 0 || remembered == 0 || broken == 0 {
		t.Error("this shows nothing")
	}
	s := p.Stats()
	if got := uint64(s["guideway.slots_moved"]); got != moved {
		t.Errorf("guideway.slots_moved is %d, planned were %d", got, moved)
	}
	if got := uint64(s["guideway.flows_broken"]); got != broken {
		t.Errorf("guideway.flows_broken is %d, planned were %d", got, broken)
	}
}

// planBed holds flows that never stop talking.
type planBed struct {
	t   *testing.T
	ns  *testbed.Namespace
	p   *testbed.Proxy
	tcp []*heldTCP
	udp []*namedUDP

	turns []*atomic.Int64 // of each talker
}

// namedUDP is a UDP flow that knows which backend answered last.
type namedUDP struct {
	net.Conn
	backend atomic.Pointer[string]
}

func (b *planBed) holdTCP(to string) {
	b.t.Helper()
	c, err := dialTCPTo(b.ns, to)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	b.tcp = append(b.tcp, c)
}

func (b *planBed) holdUDP(to string) {
	b.t.Helper()
	c, err := b.ns.DialContext(context.Background(), "udp", to)
	if err != nil {
		b.t.Fatal(err)
	}
	u := &namedUDP{Conn: c}
	b.t.Cleanup(func() { c.Close() })
	if err := u.ask(); err != nil {
		b.t.Fatal(err)
	}
	b.udp = append(b.udp, u)
}

// ask sends a datagram until it is answered.
func (u *namedUDP) ask() error {
	var buf [100]byte
	for try := 0; ; try++ {
		u.Write([]byte("x")) // an error is an earlier answer by ICMP
		u.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := u.Read(buf[:])
		if err == nil {
			name, _, _ := strings.Cut(string(buf[:n]), ":x")
			u.backend.Store(&name)
			return nil
		}
		if try == 10 {
			return err
		}
	}
}

// talk lets all flows talk until it is stopped.
func (b *planBed) talk() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	const talkers = 4
	var all sync.WaitGroup
	for i := range talkers {
		turns := &atomic.Int64{}
		b.turns = append(b.turns, turns)
		all.Go(func() {
			for ctx.Err() == nil {
				for j := i; j < len(b.tcp); j += talkers {
					if err := b.tcp[j].ask(); err != nil {
						b.t.Errorf("TCP connection %d to %s broke: %v", j, b.tcp[j].backend, err)
						return
					}
				}
				for j := i; j < len(b.udp); j += talkers {
					if err := b.udp[j].ask(); err != nil {
						b.t.Errorf("UDP flow %d: %v", j, err)
						return
					}
				}
				turns.Add(1)
			}
			turns.Add(1 << 40)
		})
	}
	return sync.OnceFunc(func() { cancel(); all.Wait() })
}

// round waits until every flow has talked since now.
func (b *planBed) round() {
	b.t.Helper()
	for _, turns := range b.turns {
		want := turns.Load() + 2 // the turn under way may have begun before
		testbed.Eventually(b.t, "flows talk", func() bool { return turns.Load() >= want })
	}
}

func (b *planBed) backends() map[*namedUDP]string {
	m := map[*namedUDP]string{}
	for _, u := range b.udp {
		m[u] = *u.backend.Load()
	}
	return m
}

func (b *planBed) backend(u *namedUDP) string { return *u.backend.Load() }

// plan asks the program what a configuration would do.
func (b *planBed) plan(config any) *plan.Change {
	b.t.Helper()
	dir := b.t.TempDir()
	testbed.WriteConfig(b.t, dir, config)
	out := testbed.Guideway(b.t).Exec(b.t, b.ns, dir, "plan", "-c", filepath.Join(dir, "boot.yaml"), "-o", "json", "--admin", b.p.Admin().String())
	if code := out.Wait(); code != 0 {
		b.t.Fatalf("plan ended with %d: %s", code, out.Stderr())
	}
	c := &plan.Change{}
	if err := json.Unmarshal([]byte(out.Stdout()), c); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// records are the recorded changes, newest first.
func (b *planBed) records() []plan.Change {
	b.t.Helper()
	var list []plan.Change
	if err := json.Unmarshal([]byte(b.p.Get("/guideway/changes").Body), &list); err != nil {
		b.t.Fatal(err)
	}
	return list
}

// compare holds a plan against a record.
func (b *planBed) compare(what string, foreseen, happened *plan.Change) {
	b.t.Helper()
	for i := range foreseen.Clusters {
		for j := range foreseen.Clusters[i].Tables {
			table := &foreseen.Clusters[i].Tables[j]
			table.Digest, table.FormerDigest = "", "" // records do without
		}
	}
	text := func(v any) string {
		s, err := json.Marshal(v)
		if err != nil {
			b.t.Fatal(err)
		}
		return string(s)
	}
	if foreseen.Slots != happened.Slots || !reflect.DeepEqual(foreseen.Clusters, happened.Clusters) || !reflect.DeepEqual(foreseen.Listeners, happened.Listeners) {
		b.t.Errorf("%s: planned %s\nhappened %s", what, text(foreseen), text(happened))
	}
	if happened.Flows == nil || !reflect.DeepEqual(foreseen.Flows, happened.Flows) {
		b.t.Errorf("%s: planned for flows %s\nhappened %s", what, text(foreseen.Flows), text(happened.Flows))
	}
}

func TestPlanLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, ports ...int) string {
		c := testbed.Cluster("c", ports...)
		c["lb_policy"] = "MAGLEV"
		path := testbed.WriteConfig(t, dir, testbed.Bootstrap([]any{testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c"))}, []any{c}))
		to := filepath.Join(dir, name)
		if err := os.Rename(path, to); err != nil {
			t.Fatal(err)
		}
		return to
	}
	older, newer := write("old.yaml", 1, 2, 3, 4), write("new.yaml", 1, 2, 3)
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-c", newer, "--from", older}, 0, "removed (weight 1)"},
		{[]string{"-c", newer, "--from", older, "--max-moved", "5"}, 2, "slots move"},
		{[]string{"-c", newer, "--from", older, "--max-moved", "50"}, 0, "slots move"},
		{[]string{"-c", older, "--from", older}, 0, "nothing would change"},
		{[]string{"-c", newer, "--from", filepath.Join(dir, "none.yaml")}, 1, ""},
		{[]string{"-c", newer, "--admin", "127.0.0.1:1"}, 1, ""},
		{[]string{"-c", newer, "--from", older, "--max-moved", "101"}, 1, ""},
		{[]string{"-c", newer, "--from", older, "-o", "json"}, 0, `"unavoidable"`},
	} {
		p := testbed.Guideway(t).Exec(t, nil, dir, append([]string{"plan"}, test.args...)...)
		if code := p.Wait(); code != test.code || !strings.Contains(p.Stdout(), test.says) {
			t.Errorf("plan %q ended with %d, want %d:\n%s%s", test.args, code, test.code, p.Stdout(), p.Stderr())
		}
	}
}
