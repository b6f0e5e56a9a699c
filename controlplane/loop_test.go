package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/guideway/guideway/controlplane/logging"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
	"github.com/guideway/guideway/dataplane/lb"
	"github.com/guideway/guideway/dataplane/stats"
	"github.com/guideway/guideway/maglev"
)

// notedPlane is a data plane that notes what it is given.
type notedPlane struct {
	applied atomic.Int64
	mu      sync.Mutex
	last    *dataplane.Snapshot
	// onApply, if set, is called before each Apply returns.
	onApply func(*dataplane.Snapshot)
}

func (p *notedPlane) Apply(_ context.Context, s *dataplane.Snapshot) error {
	p.mu.Lock()
	p.last = s
	p.mu.Unlock()
	p.applied.Add(1)
	if p.onApply != nil {
		p.onApply(s)
	}
	return nil
}

func (p *notedPlane) newest() *dataplane.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (*notedPlane) Listening() []dataplane.ListenerStatus  { return nil }
func (*notedPlane) DrainListeners([]string, time.Duration) {}
func (*notedPlane) SetDraining(bool)                       {}
func (*notedPlane) Close() error                           { return nil }

// startLoop runs a loop with clusters whose hosts the test discovers by itself.
func startLoop(t testing.TB, plane *notedPlane, clusters ...*model.Cluster) *Control {
	t.Helper()
	log, err := logging.New(logging.Options{Level: slog.LevelError, Path: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	store := stats.NewStore()
	files := accesslog.NewFiles(store, time.Second)
	c := New(Options{Config: &model.Config{Clusters: clusters}, Stats: store, Log: log, Files: files, Dataplane: plane, Workers: 1})
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		files.Close()
	})
	<-c.Live()
	return c
}

// settled waits until all that was sent to the loop is in force.
func settled(c *Control) {
	for clean := false; !clean; {
		c.do(func() { clean = !c.dirty && len(c.pressing) == 0 && len(c.events) == 0 })
	}
}

func plainCluster(name string, size uint32, a model.Assignment) *model.Cluster {
	return &model.Cluster{
		Discovery:      model.Static,
		Settings:       dataplane.Cluster{Name: name, StatName: name},
		LB:             model.LBPolicy{Policy: model.Maglev, TableSize: size},
		PanicThreshold: 50,
		Assignment:     a,
	}
}

// wanted is a host as the test wants it.
type wanted struct {
	weight                    uint32
	eds                       dataplane.Health
	checked, ejected, drained dataplane.Health
}

// reference builds the table that hosts must have, by the rules for one priority written down plainly.
func reference(t testing.TB, size uint32, hosts map[netip.AddrPort]*wanted) *maglev.Table {
	t.Helper()
	healthy, counted := 0, 0
	flags := func(w *wanted) dataplane.Health { return w.eds | w.checked | w.ejected | w.drained }
	for _, w := range hosts {
		if flags(w)&(dataplane.EDSStatusDraining|dataplane.AdminDraining|dataplane.PendingActiveHC) == 0 {
			counted++
		}
		if flags(w).Healthy() {
			healthy++
		}
	}
	// In panic less than half of those that count are healthy; then all get traffic.
	panics := counted == 0 || 2*healthy < counted
	var in []maglev.Host
	for a, w := range hosts {
		if panics || flags(w).Healthy() {
			in = append(in, maglev.Host{Key: maglev.HostKey(a), Addr: maglev.HostKey(a), Weight: w.weight})
		}
	}
	table, err := maglev.Build(size, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestInterleavings: host changes and health changes come in any order, from several sides and faster than
// they are applied; what is in force at last is the table of the final state.
func TestInterleavings(t *testing.T) {
	const (
		steps    = 10_000
		clusters = 3
		pool     = 12
		size     = 251
	)
	plane := &notedPlane{}
	var models []*model.Cluster
	for i := range clusters {
		models = append(models, plainCluster(fmt.Sprint("c", i), size, assignment()))
	}
	c := startLoop(t, plane, models...)
	r := rand.New(rand.NewPCG(5, 10_000))
	state := make([]map[netip.AddrPort]*wanted, clusters)
	for i := range state {
		state[i] = map[netip.AddrPort]*wanted{}
	}
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80)
	}
	stateOf := func(name string, address netip.AddrPort) (s *dataplane.HostState) {
		c.do(func() { s = c.clusters[name].find(address)[0].state })
		return s
	}
	check := func(step int) {
		t.Helper()
		settled(c)
		s := plane.newest()
		for i := range state {
			name := fmt.Sprint("c", i)
			tables := lb.Tables(s.Clusters[name].Balancer)
			want := reference(t, size, state[i])
			switch {
			case len(state[i]) == 0:
				if len(tables) > 0 && !tables[0].Empty() {
					t.Fatalf("step %d: cluster %s has a table without hosts", step, name)
				}
			case len(tables) != 1 || tables[0].Digest() != want.Digest():
				t.Fatalf("step %d: cluster %s has not the table of its final state", step, name)
			}
		}
	}
	for step := range steps {
		i := r.IntN(clusters)
		name, hosts := fmt.Sprint("c", i), state[i]
		address := at(r.IntN(pool))
		w := hosts[address]
		switch op := r.IntN(6); {
		case op == 0: // another assignment: a host comes or goes, or has another weight or status
			switch {
			case w == nil:
				hosts[address] = &wanted{weight: 1 + r.Uint32N(5)}
			case r.IntN(3) == 0:
				delete(hosts, address)
			case r.IntN(2) == 0:
				w.weight = 1 + r.Uint32N(5)
			default:
				w.eds = []dataplane.Health{0, dataplane.FailedEDSHealth, dataplane.EDSStatusDraining}[r.IntN(3)]
			}
			var endpoints []model.Endpoint
			for a, w := range hosts {
				endpoints = append(endpoints, model.Endpoint{Address: a, Weight: w.weight, Health: w.eds})
			}
			a := assignment(endpoints...)
			// The assignment must come before news of its hosts, as from a checker that was told of them.
			c.do(func() { c.discovered(c.clusters[name], a) })
		case w == nil:
		case op == 5:
			w.drained ^= dataplane.AdminDraining
			if _, err := c.DrainHost(name, address, w.drained != 0); err != nil {
				t.Fatal(err)
			}
		case op >= 3:
			w.ejected ^= dataplane.FailedOutlierCheck
			flags, state := w.ejected, stateOf(name, address)
			c.urge(func() {
				// News of a host that has left meanwhile, or come anew at its address, is nobody's.
				if h := c.clusters[name].hostOf(state); h != nil {
					h.ejected = flags
					c.urgent(c.clusters[name])
				}
			})
		default:
			w.checked ^= dataplane.FailedActiveHC
			flags, state := w.checked, stateOf(name, address)
			c.urge(func() { c.checked(name, state, flags) })
		}
		if r.IntN(50) == 0 {
			check(step)
		}
	}
	check(steps)
	if len(c.Changes()) == 0 {
		t.Error("no change was recorded")
	}
}

// TestUrgentOvertakes: while the tables of many clusters wait to be built, news of failing hosts of other
// clusters is in force before them: what came with the burst, and what comes while it is built.
func TestUrgentOvertakes(t *testing.T) {
	const many = 50
	plane := &notedPlane{}
	c := startLoop(t, plane, crowd(many, 10, 65537, 1)...)
	fail := func(name string) {
		s := c.clusters[name].order[0].state
		c.urge(func() { c.checked(name, s, dataplane.FailedActiveHC) })
	}
	failed := func(s *dataplane.Snapshot, name string) bool { return s.Clusters[name].Hosts[0].Health != 0 }
	var order []string // what is newly in force, by the order of snapshots; only the loop applies
	plane.onApply = func(s *dataplane.Snapshot) {
		note := func(what string, in bool) {
			if in && !slices.Contains(order, what) {
				order = append(order, what)
			}
		}
		rest := 0
		for i := 2; i < many; i++ {
			if s.Clusters[fmt.Sprint("c", i)].Hosts[0].Weight == 2 {
				rest++
			}
		}
		if failed(s, "c0") && !slices.Contains(order, "first") {
			fail("c1") // while the burst waits
		}
		note("first", failed(s, "c0"))
		note("second", failed(s, "c1"))
		note("burst", rest > 0)
		if rest != 0 && rest != many-2 {
			t.Errorf("%d of %d clusters of the burst in one snapshot", rest, many-2)
		}
	}
	c.do(func() {
		for _, m := range crowd(many, 10, 65537, 2)[2:] {
			c.discovered(c.clusters[m.Settings.Name], m.Assignment)
		}
		fail("c0")
	})
	settled(c)
	if want := []string{"first", "second", "burst"}; !slices.Equal(order, want) {
		t.Errorf("in force in the order %v, want %v", order, want)
	}
	if got := c.counters.expedited.Value(); got != 2 {
		t.Errorf("%d changes were expedited, want 2", got)
	}
}

// crowd is so many clusters of so many hosts, all of one weight.
func crowd(clusters, hosts int, size, weight uint32) []*model.Cluster {
	var models []*model.Cluster
	for i := range clusters {
		var endpoints []model.Endpoint
		for j := range hosts {
			w := uint32(1)
			if j == 0 {
				w = weight
			}
			endpoints = append(endpoints, model.Endpoint{
				Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j + 1)}), 80), Weight: w,
			})
		}
		models = append(models, plainCluster(fmt.Sprint("c", i), size, assignment(endpoints...)))
	}
	return models
}

// BenchmarkUrgent measures the time from the news of a failing host to its being in force while 500
// clusters of 100 hosts change at once.
func BenchmarkUrgent(b *testing.B) {
	const many, hosts = 500, 100
	plane := &notedPlane{}
	c := startLoop(b, plane, crowd(many, hosts, 65537, 1)...)
	var all, whole []time.Duration
	weight := uint32(1)
	r := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		weight ^= 3 // 1 and 2
		models := crowd(many, hosts, 65537, weight)
		began := time.Now()
		c.post(func() {
			for _, m := range models {
				c.discovered(c.clusters[m.Settings.Name], m.Assignment)
			}
		})
		burst := make(chan struct{})
		go func() { settled(c); close(burst) }()
		for news := 0; ; news++ {
			name, host := fmt.Sprint("c", r.IntN(many)), r.IntN(hosts)
			done := make(chan time.Time, 1)
			want := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 0}), 80)
			var flags dataplane.Health
			plane.onApply = nil
			sent := time.Now()
			armed := make(chan struct{})
			c.urge(func() {
				cl := c.clusters[name]
				h := cl.order[host]
				want, flags = h.endpoint.Address, h.checked^dataplane.FailedActiveHC
				plane.onApply = func(s *dataplane.Snapshot) {
					for _, h := range s.Clusters[name].Hosts {
						if h.Address == want && h.Health == flags {
							select {
							case done <- time.Now():
							default:
							}
						}
					}
				}
				c.checked(name, h.state, flags)
				close(armed)
			})
			all = append(all, (<-done).Sub(sent))
			<-armed
			select {
			case <-burst:
				whole = append(whole, time.Since(began))
			default:
				continue
			}
			break
		}
	}
	slices.Sort(all)
	slices.Sort(whole)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(all[len(all)/2]), "p50-ms")
	b.ReportMetric(ms(all[len(all)*99/100]), "p99-ms")
	b.ReportMetric(ms(whole[len(whole)/2]), "burst-ms")
	b.ReportMetric(float64(len(all)), "samples")
}
