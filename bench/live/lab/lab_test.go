package lab

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/live"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// TestSubjects takes every balancer that is installed through all changes. What it holds against them is
// what holds for each: connections live through everything but the death of their own backend.
func TestSubjects(t *testing.T) {
	testbed.NewNamespace(t) // skips where there are none
	options := Options{Program: testbed.Guideway(t).Exe, Envoy: os.Getenv("GUIDEWAY_ENVOY")}
	for _, s := range Subjects() {
		t.Run(s.Name, func(t *testing.T) {
			if s.Name == envoyProxy.Name {
				options.Envoy = testbed.FindEnvoy(t)
			}
			if s.XDP && os.Getenv("GUIDEWAY_TEST_IN_USER_NAMESPACE") != "" {
				testbed.Skip(t, "needs XDP: run as root")
			}
			if _, err := s.Find(options); err != nil {
				testbed.Skip(t, err.Error())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			c, err := Run(ctx, Plan{
				Options: options, Subjects: []string{s.Name},
				// Times that a busy machine does not reach by itself.
				Live: live.Plan{
					TCP: 60, UDP: 60, Interval: 200 * time.Millisecond, NewRate: 40,
					StallAfter: 2 * time.Second, BrokenAfter: 8 * time.Second, OpenTimeout: 10 * time.Second,
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			checkOutcome(t, &c.Outcomes[0])
			if mounts, err := os.ReadFile("/proc/mounts"); err != nil || strings.Contains(string(mounts), "guideway-lab-") {
				t.Errorf("a mount is left: %s, %v", mounts, err)
			}
			for _, format := range []string{"text", "json", "csv", "markdown"} {
				if err := c.Report().Write(io.Discard, format); err != nil {
					t.Errorf("report as %s: %v", format, err)
				}
			}
			if err := c.Report().WriteHTML(io.Discard); err != nil {
				t.Errorf("report as HTML: %v", err)
			}
		})
	}
}

func checkOutcome(t *testing.T, o *Outcome) {
	t.Helper()
	steps := o.Results.Steps
	if len(steps) != 2+len(script("b11")) {
		t.Fatalf("%d steps", len(steps))
	}
	for _, n := range o.Subject.Networks {
		for i, s := range steps[1:] {
			k := &s.Of[n]
			if k.Flows == 0 || k.Sent == 0 || k.Answered == 0 {
				t.Errorf("%s, %v: %d flows, %d messages, %d answers", s.Name, n, k.Flows, k.Sent, k.Answered)
			}
			// After the drain. XDP cannot tell UDP flows that begin from those that go on: until its learning window
			// ends, slots that changed leave them where they would have been.
			if i >= 2 && k.Backends["b1"] > 0 && (n == live.TCP || !o.Subject.XDP) {
				t.Errorf("%s, %v: %d new flows went to the drained backend", s.Name, n, k.Backends["b1"])
			}
		}
	}
	if o.Subject.Name == "guideway-xdp-off" {
		checkUntracked(t, steps)
		return
	}
	guideway := strings.HasPrefix(o.Subject.Name, "guideway")
	for _, s := range steps[1 : len(steps)-1] {
		if k := &s.Of[live.TCP]; k.Broken.All+k.Moved.All > 0 {
			t.Errorf("%s: %d connections broke (%v), %d moved", s.Name, k.Broken.All, k.Endings, k.Moved.All)
		}
		if k := &s.Of[live.UDP]; guideway && (k.Broken.All > 0 || k.Moved.Elsewhere > 0 || !strings.HasPrefix(s.Name, "remove") && k.Moved.All > 0) {
			t.Errorf("%s: %d UDP flows broke, %d moved, %d of them elsewhere", s.Name, k.Broken.All, k.Moved.All, k.Moved.Elsewhere)
		}
	}
	died := &steps[len(steps)-1].Of[live.TCP]
	if died.Broken.All != died.Affected || died.Broken.Elsewhere != 0 {
		t.Errorf("%d connections were on the backend that failed, %d broke, %d elsewhere", died.Affected, died.Broken.All, died.Broken.Elsewhere)
	}
}

// checkUntracked holds what is known of packets that go by the table alone: what is drained, removed or fails
// loses all its flows, since the packets go to backends that do not know them.
func checkUntracked(t *testing.T, steps []*live.Step) {
	t.Helper()
	for _, s := range steps[2:] {
		tcp, udp := &s.Of[live.TCP], &s.Of[live.UDP]
		if own := tcp.Broken.All - tcp.Broken.Elsewhere; own != tcp.Affected {
			t.Errorf("%s: %d connections were on it, %d of them broke", s.Name, tcp.Affected, own)
		}
		if own := udp.Moved.All - udp.Moved.Elsewhere; own != udp.Affected {
			t.Errorf("%s: %d UDP flows were on it, %d of them moved", s.Name, udp.Affected, own)
		}
	}
}

// TestLeavesNothingBehind runs a subject that has workers and looks for what is left of it.
func TestLeavesNothingBehind(t *testing.T) {
	ns := testbed.NewNamespace(t)
	if _, err := exec.LookPath("sleep"); err != nil {
		testbed.Skip(t, "no sleep")
	}
	dir := t.TempDir()
	p, err := start(Place{Dir: dir, Do: ns.Do}, "sh", "-c", "sleep 1000 & echo $!; trap '' TERM; wait; wait")
	if err != nil {
		t.Fatal(err)
	}
	var child string
	if err := p.until(t.Context(), "starting a child", func() bool {
		out, _ := os.ReadFile(p.log)
		child = strings.TrimSpace(string(out))
		return child != ""
	}); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, "the child is gone", func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", child, "stat"))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
	if err := p.until(t.Context(), "reviving", func() bool { return false }); err == nil || !strings.Contains(err.Error(), errEnded.Error()) {
		t.Errorf("a program that has ended: %v", err)
	}
}

func TestFleet(t *testing.T) {
	f := Fleet{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	g := f.draining("b")
	if f[1].Draining || !g[1].Draining || len(g.serving()) != 2 || len(g.without("a")) != 2 || len(g) != 3 {
		t.Errorf("fleets are %v and %v", f, g)
	}
	names := Names()
	if _, err := choose([]string{names[0], "nobody"}); err == nil {
		t.Error("an unknown subject is taken")
	}
	if got, err := choose(nil); err != nil || len(got) != len(names) {
		t.Errorf("no names mean %v, %v", got, err)
	}
}

func TestReadsHowThingsStand(t *testing.T) {
	at := func(i int) Member { return Member{ID: "x", Addr: nth(firstBackend, i)} }
	clusters := "tcp::10.77.1.11:8080::cx_active::0\ntcp::10.77.1.11:8080::health_flags::healthy\nudp::10.77.1.11:8080::health_flags::healthy\n" +
		"tcp::10.77.1.12:8080::health_flags::/eds_status_draining\nudp::10.77.1.12:8080::health_flags::/eds_status_draining\n"
	draining := at(1)
	draining.Draining = true
	for _, row := range []struct {
		fleet Fleet
		want  bool
	}{
		{Fleet{at(0), draining}, true},
		{Fleet{at(0), at(1)}, false},
		{Fleet{at(0)}, false},
		{Fleet{at(0), draining, at(2)}, false},
	} {
		if got := shows(clusters, row.fleet); got != row.want {
			t.Errorf("shows(%v) is %v", row.fleet, got)
		}
	}
	procs := "#<PID> <type> <reloads> <uptime>\n24956 master 1 [failed: 0] 0d00h\n# workers\n25283 worker 0 0d00h\n# old workers\n24959 worker 1 0d00h\n"
	if !reloaded(procs, 1) || reloaded(procs, 2) || reloaded(strings.Replace(procs, "25283 worker 0", "25283 worker 1", 1), 1) {
		t.Error("show proc is misread")
	}
	for line, want := range map[string]string{
		"/opt/x/envoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL":             "1.40.0",
		"guideway  version: unknown/0.1.0/Clean/RELEASE/none (go1.26, linux/amd64)": "0.1.0",
		"something else": "something else",
	} {
		if got, err := numberOf(line, nil); got != want || err != nil {
			t.Errorf("%q is version %q, %v", line, got, err)
		}
	}
	if !slices.Contains(Names(), "guideway-proxy") {
		t.Error("Guideway is no subject")
	}
}
