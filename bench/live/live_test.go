package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/bench/live"
)

// patience bounds what a test waits for.
const patience = 60 * time.Second

// heldOnly is a plan without other flows than those held, so that a balancer knows which they are. Its times
// are long enough for a machine that is busy with other things.
func heldOnly(tcp, udp int) live.Plan {
	return live.Plan{
		TCP: tcp, UDP: udp, NewRate: -1, Interval: 100 * time.Millisecond,
		StallAfter: 3 * time.Second, BrokenAfter: patience, OpenTimeout: patience / 4,
	}
}

func measure(t *testing.T, plan live.Plan, script live.Script) *live.Results {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	r, err := live.Measure(ctx, plan, script)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// expectTheory compares with the share that theory predicts. Flows fall on either side independently, so
// their number is binomial: five standard deviations are exceeded once in 1.7 million runs.
func expectTheory(t *testing.T, what string, got, flows int, share float64) {
	t.Helper()
	mean := float64(flows) * share
	tolerance := 5 * math.Sqrt(mean*(1-share))
	if d := float64(got) - mean; math.Abs(d) > tolerance {
		t.Errorf("%s: %d of %d, theory says %.0f with a tolerance of %.0f", what, got, flows, mean, tolerance)
	}
}

func ids(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("b%d", i+1))
	}
	return out
}

// loopbacks are one address of each family.
var loopbacks = []string{"127.0.0.1:0", "[::1]:0"}

// TestSeesModuloMoveDatagrams changes backends of a balancer that hashes modulo their number. With 10 → 11 a
// flow stays if its hash has the same remainder by both, which 10 of 110 have: 1 of 11. With 11 → 10, the same.
func TestSeesModuloMoveDatagrams(t *testing.T) {
	const flows = 1000
	addrs, _ := startBackends(t, ids(11)...)
	b := startDatagrams(t, addrs[:10], loopbacks...)
	plan := heldOnly(0, flows)
	plan.UDPTargets = b.targets()
	var predicted []int
	r := measure(t, plan, func(ctx context.Context, m *live.Meter) error {
		for _, n := range []int{11, 10} {
			m.Step(fmt.Sprintf("to %d", n), "b11")
			predicted = append(predicted, b.change(addrs[:n]))
			if err := m.Settle(ctx, 2); err != nil {
				return err
			}
		}
		return nil
	})
	for i, s := range r.Steps[2:] {
		c := &s.Of[live.UDP]
		if c.Flows != flows || c.Moved.All != predicted[i] || c.Broken.All != 0 {
			t.Errorf("%s: of %d flows %d moved and %d broke, the balancer moved %d", s.Name, c.Flows, c.Moved.All, c.Broken.All, predicted[i])
		}
		expectTheory(t, s.Name, c.Moved.All, flows, 10.0/11)
	}
	// Those from b11 are no others' flows: with it gone, 1 of 11 has to move.
	gone := &r.Steps[3].Of[live.UDP]
	if gone.Affected != gone.Moved.All-gone.Moved.Elsewhere {
		t.Errorf("%d flows were on b11, of the %d that moved %d were elsewhere", gone.Affected, gone.Moved.All, gone.Moved.Elsewhere)
	}
	expectTheory(t, "on b11", gone.Affected, flows, 1.0/11)
	if got := r.Steps[1].Of[live.UDP]; got.Moved.All != 0 || got.Flows != flows {
		t.Errorf("before any change %d of %d moved", got.Moved.All, got.Flows)
	}
}

func TestSeesModuloBreakConnections(t *testing.T) {
	const flows = 600
	addrs, _ := startBackends(t, ids(11)...)
	b := startConnections(t, addrs[:10], loopbacks...)
	plan := heldOnly(flows, 0)
	plan.TCPTargets = b.targets()
	var predicted int
	r := measure(t, plan, func(ctx context.Context, m *live.Meter) error {
		m.Step("to 11", "b11")
		predicted = b.change(addrs)
		return m.Settle(ctx, 2)
	})
	c := &r.Steps[2].Of[live.TCP]
	if c.Broken.All != predicted || c.Broken.Elsewhere != predicted || c.Endings["reset"] != predicted || c.Moved.All != 0 {
		t.Errorf("%d broke (%v) and %d moved, the balancer reset %d", c.Broken.All, c.Endings, c.Moved.All, predicted)
	}
	expectTheory(t, "10 to 11", c.Broken.All, flows, 10.0/11)
	if c.Opened+c.Failed < predicted {
		t.Errorf("%d were opened again and %d could not be, of %d", c.Opened, c.Failed, predicted)
	}
}

// settled waits until a meter has counted what a test expects, or for as long as the test may take.
func settled(ctx context.Context, m *live.Meter, done func(live.Snapshot) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !done(m.Snapshot()) {
		if err := m.Settle(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

func TestSeesSilence(t *testing.T) {
	const flows = 200
	addrs, _ := startBackends(t, "b1", "b2")
	b := startDatagrams(t, addrs, loopbacks[0])
	plan := heldOnly(0, flows)
	plan.UDPTargets = b.targets()
	var stalled, broken int
	plan.BrokenAfter = 6 * time.Second
	r := measure(t, plan, func(ctx context.Context, m *live.Meter) error {
		m.Step("a quarter for a while")
		stalled = b.deafen(func(c netip.AddrPort) bool { return hash(c)%4 == 0 })
		// Flows that hear nothing do not settle, so this asks until they have been counted.
		for m.Snapshot().Sum[live.UDP].Stalled < stalled && ctx.Err() == nil {
			runtime.Gosched()
		}
		b.deafen(func(netip.AddrPort) bool { return false })
		if err := m.Settle(ctx, 2); err != nil {
			return err
		}
		m.Step("a tenth for good")
		broken = b.deafen(func(c netip.AddrPort) bool { return hash(c)%10 == 0 })
		return m.Settle(ctx, 2)
	})
	first, second := &r.Steps[2].Of[live.UDP], &r.Steps[3].Of[live.UDP]
	if first.Stalled.All != stalled || first.Broken.All != 0 || first.Silence < plan.StallAfter {
		t.Errorf("%d stalled, %d broke, for %v; the balancer dropped what %d sent", first.Stalled.All, first.Broken.All, first.Silence, stalled)
	}
	if second.Broken.All != broken || second.Endings["silent"] != broken || second.Stalled.All != broken {
		t.Errorf("%d broke (%v) and %d stalled; the balancer dropped what %d sent", second.Broken.All, second.Endings, second.Stalled.All, broken)
	}
	if first.Sent-first.Answered < stalled || stalled == 0 || broken == 0 {
		t.Errorf("%d of %d messages unanswered, of %d and %d flows", first.Sent-first.Answered, first.Sent, stalled, broken)
	}
}

func TestSeesReordering(t *testing.T) {
	const flows = 50
	addrs, _ := startBackends(t, "b1")
	b := startDatagrams(t, addrs, loopbacks[0])
	plan := heldOnly(0, flows)
	plan.UDPTargets = b.targets()
	r := measure(t, plan, func(ctx context.Context, m *live.Meter) error {
		m.Step("swap")
		b.mu.Lock()
		b.swap = true
		b.mu.Unlock()
		return m.Settle(ctx, 4)
	})
	c := &r.Steps[2].Of[live.UDP]
	if c.Reordered != flows || c.Broken.All+c.Moved.All != 0 || r.Steps[1].Of[live.UDP].Reordered != 0 {
		t.Errorf("%d of %d flows reordered, %d broke, %d moved", c.Reordered, flows, c.Broken.All, c.Moved.All)
	}
}

// TestSeesBackendsDie measures backends with nothing between: their flows break, and new ones are refused.
func TestSeesBackendsDie(t *testing.T) {
	addrs, all := startBackends(t, "b1", "b2")
	plan := heldOnly(100, 100)
	plan.TCPTargets, plan.UDPTargets = addrs, addrs
	plan.NewRate = 50
	plan.BrokenAfter = 4 * time.Second
	r := measure(t, plan, func(ctx context.Context, m *live.Meter) error {
		m.Step("b2 dies", "b2")
		if err := all[1].Set(backend.Refuse); err != nil {
			return err
		}
		if err := m.Settle(ctx, 2); err != nil {
			return err
		}
		m.Step("b2 is back", "b2")
		if err := all[1].Set(backend.Return); err != nil {
			return err
		}
		return settled(ctx, m, func(s live.Snapshot) bool { return s.Open == [2]int{100, 100} })
	})
	died, back := r.Steps[2], r.Steps[3]
	for _, n := range live.Networks {
		c := &died.Of[n]
		if c.Affected != 50 || c.Broken.All != 50 || c.Broken.Elsewhere != 0 || c.Failures["refused"] == 0 || c.Failed != c.Failures["refused"] {
			t.Errorf("%v: %d flows on b2, %d broke, %d elsewhere, new ones: %v", n, c.Affected, c.Broken.All, c.Broken.Elsewhere, c.Failures)
		}
		if c := &back.Of[n]; c.Flows != 50 || c.Broken.All != 0 || c.Opened < 50 {
			t.Errorf("%v: %d flows when b2 returned, then %d broke and %d were opened", n, c.Flows, c.Broken.All, c.Opened)
		}
	}
	if died.Of[live.TCP].Endings["reset"] != 50 || died.Of[live.UDP].Endings["silent"] != 50 || died.Of[live.UDP].Refused == 0 {
		t.Errorf("flows ended so: %v and %v; %d ICMP errors", died.Of[live.TCP].Endings, died.Of[live.UDP].Endings, died.Of[live.UDP].Refused)
	}
	if opening := r.Steps[0].Of[live.TCP]; opening.Opened != 100 || opening.Connect.TotalCount() != 100 || opening.FirstAnswer.TotalCount() != 100 {
		t.Errorf("%d opened at first, %d connect times", opening.Opened, opening.Connect.TotalCount())
	}
	for _, format := range []string{"text", "json", "csv", "markdown"} {
		if err := r.Report().Write(io.Discard, format); err != nil {
			t.Errorf("report as %s: %v", format, err)
		}
	}
	var page bytes.Buffer
	if err := r.Report().WriteHTML(&page); err != nil || strings.Count(page.String(), "<svg") != 3 {
		t.Errorf("report as HTML: %v, %d plots", err, strings.Count(page.String(), "<svg"))
	}
}

func TestTakesTurnsWithSources(t *testing.T) {
	addrs, _ := startBackends(t, "b1")
	seen := make(chan netip.Addr, 100)
	front := startConnections(t, addrs, loopbacks[0])
	plan := heldOnly(6, 0)
	plan.TCPTargets = front.targets()
	plan.Sources = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("::1")}
	measure(t, plan, func(context.Context, *live.Meter) error {
		front.mu.Lock()
		defer front.mu.Unlock()
		for c := range front.live {
			seen <- clientOf(c).Addr()
		}
		return nil
	})
	close(seen)
	counts := map[string]int{}
	for a := range seen {
		counts[a.String()]++
	}
	if len(counts) != 2 || counts["127.0.0.2"] != 3 || counts["127.0.0.3"] != 3 {
		t.Errorf("flows come from %v", counts)
	}
}

func TestSaysWhyNothingCanBeMeasured(t *testing.T) {
	nobody := netip.MustParseAddrPort("127.0.0.1:1")
	plan := heldOnly(3, 0)
	plan.TCPTargets = []netip.AddrPort{nobody}
	none := func(context.Context, *live.Meter) error { return nil }
	if _, err := live.Measure(context.Background(), plan, none); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody there: %v", err)
	}
	for what, change := range map[string]func(*live.Plan){
		"no flows":        func(p *live.Plan) { p.TCP = 0 },
		"no target":       func(p *live.Plan) { p.TCPTargets = nil },
		"ulimit":          func(p *live.Plan) { p.TCP = 1 << 40 },
		"family":          func(p *live.Plan) { p.Sources = []netip.Addr{netip.IPv6Loopback()} },
		"messages of":     func(p *live.Plan) { p.Size = 1 << 20 },
		"interval":        func(p *live.Plan) { p.Interval = -1 },
		"new flows":       func(p *live.Plan) { p.NewRate = 1e9 },
		"count as broken": func(p *live.Plan) { p.BrokenAfter = time.Millisecond },
	} {
		p := plan
		change(&p)
		if _, err := live.Measure(context.Background(), p, none); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestScriptErrorsAndInterruptsKeepWhatWasSeen(t *testing.T) {
	addrs, _ := startBackends(t, "b1")
	plan := heldOnly(5, 5)
	plan.TCPTargets, plan.UDPTargets = addrs, addrs
	failure := errors.New("the operator is out")
	r, err := live.Measure(context.Background(), plan, func(context.Context, *live.Meter) error { return failure })
	if !errors.Is(err, failure) || r == nil || r.Total(live.TCP).Flows != 5 {
		t.Errorf("failed script: %v, %+v", err, r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, err = live.Measure(ctx, plan, func(ctx context.Context, m *live.Meter) error {
		cancel()
		return m.Settle(ctx, 1000)
	})
	if err != nil || !r.Interrupted || r.Total(live.UDP).Flows != 5 {
		t.Errorf("interrupt: %v, %+v", err, r)
	}
}

func TestWatch(t *testing.T) {
	addrs, all := startBackends(t, "b1")
	plan := heldOnly(4, 0)
	plan.TCPTargets = addrs
	lines, typed := io.Pipe()
	shown, screen := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	said := make(chan string, 1)
	go func() { // the operator: reads, kills the backend, waits to see it, leaves
		defer cancel()
		defer io.Copy(io.Discard, shown)
		var text strings.Builder
		buf := make([]byte, 4096)
		for !strings.Contains(text.String(), "4 broken") {
			n, err := shown.Read(buf)
			if err != nil {
				break
			}
			if text.Len() == 0 {
				io.WriteString(typed, "kill it\n")
				all[0].Set(backend.Refuse)
			}
			text.Write(buf[:n])
		}
		said <- text.String()
		cancel()
	}()
	r, err := live.Measure(ctx, plan, live.Watch(lines, screen, patience))
	screen.Close()
	if text := <-said; err != nil || !strings.Contains(text, "4 TCP connections") || !strings.Contains(text, "4 broken") {
		t.Fatalf("%v; it said %q", err, text)
	}
	if last := r.Steps[len(r.Steps)-1]; last.Name != "kill it" || r.Total(live.TCP).Broken.All != 4 {
		t.Errorf("the last step is %q, %d broke", last.Name, r.Total(live.TCP).Broken.All)
	}
}
