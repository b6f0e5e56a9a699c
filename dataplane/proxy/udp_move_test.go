package proxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// TestUDPSessionsStay plays random histories of hosts that come, go, fail, return, drain and degrade
// against 2,000 flows, and compares each answer with a model that remembers every flow's host.
func TestUDPSessionsStay(t *testing.T) {
	for _, draining := range []dataplane.UDPDraining{dataplane.KeepSessions, dataplane.MoveSessions} {
		t.Run(map[dataplane.UDPDraining]string{dataplane.KeepSessions: "keep", dataplane.MoveSessions: "move"}[draining], func(t *testing.T) {
			flows, steps := 2000, 60
			if testing.Short() {
				flows, steps = 200, 20
			}
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			playHistory(t, draining, flows, steps, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

// udpModel is the obvious statement of what should happen.
type udpModel struct {
	move  bool
	hosts []*dataplane.Host // of the cluster
	names map[*dataplane.HostState]string
	of    map[int]*dataplane.HostState // each flow's host
}

func (m *udpModel) fit(s *dataplane.HostState) bool {
	h := s.Health()
	if h.Draining() && !m.move {
		h &^= dataplane.EDSStatusDraining | dataplane.AdminDraining
	}
	return !h.Failed()
}

func (m *udpModel) present(s *dataplane.HostState) bool {
	return slices.ContainsFunc(m.hosts, func(h *dataplane.Host) bool { return h.State == s })
}

// ask is a datagram of a flow; it returns the name of the host that gets it.
func (m *udpModel) ask(flow int, pick func() *dataplane.HostState) string {
	s := m.of[flow]
	switch {
	case s == nil || !m.present(s):
		s = pick()
	case !m.fit(s):
		if other := pick(); other != nil && m.fit(other) {
			s = other
		}
	}
	m.of[flow] = s
	return m.names[s]
}

func playHistory(t *testing.T, draining dataplane.UDPDraining, flows, steps int, r *rand.Rand) {
	b := newUDPBed(t, 2)
	b.cluster.UDPDraining = draining
	b.cluster.Breakers.Default.MaxConnections = 1 << 20
	b.listener.UDP.Hash = dataplane.HashPolicy{Kind: dataplane.HashFiveTuple, Seed: 7}
	m := &udpModel{move: draining == dataplane.MoveSessions, names: map[*dataplane.HostState]string{}, of: map[int]*dataplane.HostState{}}
	spare := []*dataplane.Host{}
	for i := range 8 {
		h := b.host(string(rune('A' + i)))
		m.names[h.State] = string(rune('A' + i))
		if i < 5 {
			m.hosts = append(m.hosts, h)
		} else {
			spare = append(spare, h)
		}
	}
	// The balancer offers the fit ones, or all in panic.
	apply := func() *testBalancer {
		table := &testBalancer{}
		for _, h := range m.hosts {
			if !h.State.Health().Failed() {
				table.hosts = append(table.hosts, h)
			}
		}
		if len(table.hosts) == 0 {
			table.hosts = slices.Clone(m.hosts)
		}
		b.cluster.Hosts, b.cluster.Balancer = slices.Clone(m.hosts), table
		b.apply()
		return table
	}
	table := apply()
	clients := make([]*udpClient, flows)
	hashes := make([]uint64, flows)
	for i := range clients {
		clients[i] = b.client()
		hashes[i] = fiveTuple(7, clients[i])
	}
	moved := 0
	for step := range steps {
		var did string
		i := r.IntN(len(m.hosts))
		h := m.hosts[i]
		switch r.IntN(7) {
		case 0:
			if len(spare) > 0 {
				did = "add " + m.names[spare[0].State]
				// It comes back as a new host, even if it was there before.
				fresh := hostOf(spare[0].Address)
				m.names[fresh.State] = m.names[spare[0].State]
				m.hosts = append(m.hosts, fresh)
				spare = spare[1:]
			}
		case 1:
			if len(m.hosts) > 2 {
				did = "remove " + m.names[h.State]
				h.State.Removed.Store(true)
				m.hosts = slices.Delete(m.hosts, i, i+1)
				spare = append(spare, h)
			}
		default:
			health := []dataplane.Health{0, 0, dataplane.FailedActiveHC, dataplane.FailedOutlierCheck, dataplane.FailedEDSHealth, dataplane.EDSStatusDraining,
				dataplane.AdminDraining, dataplane.DegradedEDSHealth, dataplane.EDSStatusDraining | dataplane.FailedActiveHC}[r.IntN(9)]
			did = fmt.Sprintf("%s %s", m.names[h.State], health)
			m.hosts[i] = b.setHealth(h, health)
		}
		table = apply()
		for range flows / 8 {
			f := r.IntN(flows)
			before := m.of[f]
			want := m.ask(f, func() *dataplane.HostState { return table.Pick(hashes[f], true).State })
			if before != nil && before != m.of[f] {
				moved++
			}
			got, _, _ := strings.Cut(clients[f].ask("x"), ":")
			if got != want {
				t.Fatalf("step %d (%s): flow %d went to %s, want %s", step, did, f, got, want)
			}
		}
	}
	if moved == 0 {
		t.Error("no flow has moved: the history tests nothing")
	}
}

// TestUDPRemovedHost ends sessions at once, even without a datagram.
func TestUDPRemovedHost(t *testing.T) {
	b := newUDPBed(t, 1)
	a, other := b.host("A"), b.host("B")
	b.setHosts(a)
	b.apply()
	c := b.client()
	c.ask("x")
	b.untilStat("udp.u.downstream_sess_active", 1)
	b.setHosts(other)
	b.apply()
	if n := b.value("udp.u.downstream_sess_active"); n != 0 {
		t.Fatalf("%d sessions after their host was removed", n)
	}
	if got := c.ask("x"); got != "B:x" {
		t.Fatalf("got %q", got)
	}
	// A host with the old one's address is another host.
	b.setHosts(hostOf(other.Address))
	b.apply()
	if n := b.value("udp.u.downstream_sess_active"); n != 0 {
		t.Fatalf("%d sessions after their host was exchanged", n)
	}
}

// TestUDPClusterReplaced: a cluster with other settings keeps the sessions whose host is still in it.
func TestUDPClusterReplaced(t *testing.T) {
	b := newUDPBed(t, 1)
	a, other := b.host("A"), b.host("B")
	b.setHosts(a, other)
	b.apply()
	first, second := b.client(), b.client()
	first.ask("x")
	second.ask("x")
	old := b.cluster.Live
	b.cluster.Incarnation++
	b.cluster.Live = &dataplane.ClusterLive{}
	b.setHosts(hostOf(other.Address))
	b.apply()
	if n := b.value("udp.u.downstream_sess_active"); n != 1 {
		t.Fatalf("%d sessions, want that of the host that stayed", n)
	}
	if o, n := old.Connections.Value(), b.cluster.Live.Connections.Value(); o != 0 || n != 1 {
		t.Errorf("the old cluster counts %d connections, the new one %d", o, n)
	}
	if got := second.ask("x"); got != "B:x" {
		t.Errorf("got %q", got)
	}
	b.untilStat("udp.u.downstream_sess_total", 2)

	b.cluster.Name = "gone"
	b.apply()
	if n := b.value("udp.u.downstream_sess_active"); n != 0 {
		t.Errorf("%d sessions of a cluster that is gone", n)
	}
	if n := b.cluster.Live.Connections.Value(); n != 0 {
		t.Errorf("the cluster counts %d connections", n)
	}
	second.unanswered(b, "x", "udp.u.downstream_sess_no_route")
}

// TestUDPUpdate changes the listener in place.
func TestUDPUpdate(t *testing.T) {
	b := newUDPBed(t, 2)
	b.setHosts(b.host("A"))
	b.more["d"] = &dataplane.Cluster{
		Name: "d", StatName: "d", Balancer: &testBalancer{hosts: []*dataplane.Host{b.host("D")}},
		Stats: dataplane.NewClusterStats(b.store, "d"), Live: &dataplane.ClusterLive{}, Breakers: b.cluster.Breakers,
	}
	b.apply()
	c := b.client()
	c.ask("x")
	b.listener.UDP.IdleTimeout = 2 * time.Minute
	b.listener.UDP.StatPrefix = "v"
	b.apply()
	c.ask("x")
	b.untilStat("udp.v.downstream_sess_rx_datagrams", 1)
	if n := b.store.Gauge("udp.v.downstream_sess_active").Value(); n != 1 {
		t.Errorf("%d sessions under the new prefix", n)
	}
	if n := b.store.Counter("udp.v.downstream_sess_total").Value(); n != 0 {
		t.Errorf("%d sessions have begun by the update", n)
	}
	// Another cluster: the session is over.
	b.listener.UDP.Route = routeTo("d")
	b.apply()
	if n := b.store.Gauge("udp.v.downstream_sess_active").Value(); n != 0 {
		t.Errorf("%d sessions to a cluster that is not routed to", n)
	}
	if got := c.ask("x"); got != "D:x" {
		t.Errorf("got %q", got)
	}
	// A shorter idle time holds for the sessions there are.
	b.listener.UDP.IdleTimeout = time.Millisecond
	b.apply()
	b.until("the end of the session", func() bool { return b.store.Gauge("udp.v.downstream_sess_active").Value() == 0 })
	// Per-packet mode and back.
	b.listener.UDP.IdleTimeout = time.Minute
	for i, perPacket := range []bool{false, true, false, true} {
		b.listener.UDP.PerPacket = perPacket
		b.apply()
		if n := b.store.Gauge("udp.v.downstream_sess_active").Value(); n != 0 {
			t.Errorf("step %d: %d sessions of the other kind", i, n)
		}
		c.ask("x")
		c.ask("x")
		b.until("one session", func() bool { return b.store.Gauge("udp.v.downstream_sess_active").Value() == 1 })
	}
	if n := b.more["d"].Live.Connections.Value(); n != 1 {
		t.Errorf("the cluster counts %d connections", n)
	}
}

// TestUDPStop: sessions of a stopped listener hear nothing more.
func TestUDPStop(t *testing.T) {
	b := newUDPBed(t, 1)
	answers := make(chan struct{})
	h := b.hostWith("127.0.0.1:0", func(p []byte) []byte { <-answers; return p })
	b.setHosts(h)
	b.apply()
	addr := b.addr(0)
	c := b.clientFrom("", addr)
	c.send("x")
	b.untilStat("cluster.c.udp.sess_tx_datagrams", 1)
	b.srv.DrainListeners([]string{"l"}, 0)
	if n := b.value("udp.u.downstream_sess_active"); n != 0 {
		t.Errorf("%d sessions", n)
	}
	close(answers)
	if n := b.cluster.Live.Connections.Value(); n != 0 {
		t.Errorf("%d connections", n)
	}
	// The port is free.
	b.hostAt("new", addr.String())
	if got := b.clientFrom("", addr).ask("y"); got != "new:y" {
		t.Errorf("got %q", got)
	}
	if n := b.value("udp.u.downstream_sess_tx_datagrams"); n != 0 {
		t.Errorf("%d answers passed on", n)
	}
}
