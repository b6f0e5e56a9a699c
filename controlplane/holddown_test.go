package controlplane

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane/lb"
)

// TestHoldDown: a host that fails and passes its checks again moves its slots once, and no slot comes back
// while it is held down; without hold-down each blip moves them twice.
func TestHoldDown(t *testing.T) {
	for _, test := range []struct {
		name  string
		hold  model.HoldDown
		stays bool
	}{
		{"held down", model.HoldDown{Base: time.Hour, Max: time.Hour}, true},
		{"off", model.HoldDown{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			steady, blips := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
			address := blips.Addr().String()
			m := plainCluster("c", 1009, assignment(endpoint(steady.Addr().String()), endpoint(address)))
			m.PanicThreshold = 0
			m.Guideway.HoldDown = test.hold
			every := 10 * time.Millisecond
			m.HealthChecks = []model.HealthCheck{{
				Timeout: 5 * time.Second, Interval: every, NoTrafficInterval: every, UnhealthyInterval: every,
				UnhealthyThreshold: 1, HealthyThreshold: 1, TCP: &model.TCPCheck{},
			}}
			plane := &notedPlane{}
			c := startLoop(t, plane, m)
			table := func() lb.Table { return lb.Tables(plane.newest().Clusters["c"].Balancer)[0] }
			hosts := func(n int) func() bool { return func() bool { return len(table().Hosts) == n } }
			eventually(t, "both hosts are in the table", hosts(2))
			whole := table().Digest()

			blips.Close()
			eventually(t, "the failed host leaves the table", hosts(1))
			out, changes := table().Digest(), len(c.Changes())
			again := listen(t, address)
			if !test.stays {
				eventually(t, "the host comes back", hosts(2))
				if table().Digest() != whole {
					t.Error("the table is not what it was")
				}
				return
			}
			// The checks pass again, and again after another blip.
			passes := c.Stats.Counter("cluster.c.health_check.success")
			for range 2 {
				want := passes.Value() + 10 // five of each host
				eventually(t, "checks pass", func() bool { return passes.Value() >= want })
				settled(c)
				if table().Digest() != out {
					t.Fatal("slots changed inside the hold-down")
				}
				again.Close()
				again = listen(t, address)
			}
			if now := len(c.Changes()); now > changes+1 { // the first may have been recorded late
				t.Errorf("%d changes were recorded inside the hold-down", now-changes)
			}
		})
	}
}

// listen accepts and closes connections until the test ends.
func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l
}

// eventually waits for a condition that must come.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) { // between looks
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// TestDrainedHostStaysDrained: over another assignment, and over a new incarnation of its cluster.
func TestDrainedHostStaysDrained(t *testing.T) {
	a, b := endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80")
	m := plainCluster("c", 251, assignment(a, b))
	plane := &notedPlane{}
	c := startLoop(t, plane, m)
	drained := func() int {
		n := 0
		for _, h := range plane.newest().Clusters["c"].Hosts {
			if h.Health.Draining() {
				n++
			}
		}
		return n
	}
	if _, err := c.DrainHost("", netip.MustParseAddrPort("10.0.0.1:80"), true); err != nil {
		t.Fatal(err)
	}
	if drained() != 1 {
		t.Fatal("not drained when DrainHost returned")
	}
	reload := func(change func(*model.Cluster)) {
		t.Helper()
		next := *m
		change(&next)
		config := *c.Config
		config.Clusters = []*model.Cluster{&next}
		if _, err := c.Reload(t.Context(), &config); err != nil {
			t.Fatal(err)
		}
	}
	reload(func(m *model.Cluster) { m.ContentHash, m.Assignment = 2, assignment(b, a, endpoint("10.0.0.3:80")) })
	if got := len(plane.newest().Clusters["c"].Hosts); got != 3 || drained() != 1 {
		t.Errorf("%d hosts, %d drained after another assignment", got, drained())
	}
	reload(func(m *model.Cluster) { m.ContentHash, m.SettingsHash, m.LB.TableSize = 3, 3, 509 })
	settled(c)
	if drained() != 1 || lb.Tables(plane.newest().Clusters["c"].Balancer)[0].Size() != 509 {
		t.Error("not drained in the cluster's next incarnation")
	}
	if got := c.DrainedHosts(); len(got) != 1 || got[0].Address != a.Address {
		t.Errorf("drained hosts %v", got)
	}
	if _, err := c.DrainHost("c", a.Address, false); err != nil || drained() != 0 {
		t.Errorf("undrain: %v, %d drained", err, drained())
	}
}
