package controlplane

import (
	"net/netip"
	"testing"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

func endpoint(addr string, change ...func(*model.Endpoint)) model.Endpoint {
	e := model.Endpoint{Address: netip.MustParseAddrPort(addr), Weight: 1}
	for _, f := range change {
		f(&e)
	}
	return e
}

func assignment(endpoints ...model.Endpoint) model.Assignment {
	return model.Assignment{OverprovisioningFactor: 140, Localities: []model.LocalityEndpoints{{Endpoints: endpoints}}}
}

func testCluster(d model.Discovery, change ...func(*model.Cluster)) *cluster {
	m := &model.Cluster{
		Discovery:      d,
		Settings:       dataplane.Cluster{Name: "c", StatName: "c"},
		LB:             model.LBPolicy{Policy: model.Maglev, TableSize: 1009},
		PanicThreshold: 50,
	}
	for _, f := range change {
		f(m)
	}
	c := newCluster(m, 1, dataplane.Locality{}, stats.NewStore())
	c.panicAt = m.PanicThreshold
	return c
}

func checked(m *model.Cluster) { m.HealthChecks = []model.HealthCheck{{TCP: &model.TCPCheck{}}} }

func mustBuild(t *testing.T, c *cluster) *dataplane.Cluster {
	t.Helper()
	v, err := c.build()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEqualAssignmentBuildsNothing(t *testing.T) {
	c := testCluster(model.Static)
	c.assign(assignment(endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80")))
	first := mustBuild(t, c)
	if c.assign(assignment(endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80"))) {
		t.Error("an equal assignment counts as a change of members")
	}
	if second := mustBuild(t, c); second != first {
		t.Error("an equal assignment made a new version of the cluster")
	}
	c.assign(assignment(endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80", func(e *model.Endpoint) { e.Weight = 3 })))
	if third := mustBuild(t, c); third == first || third.Hosts[0] != first.Hosts[0] || third.Hosts[1].State != first.Hosts[1].State {
		t.Error("a changed weight must make a new version that shares what is equal and all states")
	}
}

func TestDuplicateAddresses(t *testing.T) {
	twice := assignment(endpoint("10.0.0.1:80"), endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80"))
	for _, test := range []struct {
		discovery model.Discovery
		want      int
	}{{model.Static, 3}, {model.EDS, 2}, {model.StrictDNS, 2}} {
		c := testCluster(test.discovery)
		c.assign(twice)
		if got := len(mustBuild(t, c).Hosts); got != test.want {
			t.Errorf("%v: %d hosts of an address named twice and another, want %d", test.discovery, got, test.want)
		}
	}
	c := testCluster(model.StrictDNS)
	named := func(name string) func(*model.Endpoint) { return func(e *model.Endpoint) { e.Host = name } }
	c.assign(assignment(endpoint("10.0.0.1:80", named("a")), endpoint("10.0.0.1:80", named("b"))))
	if got := len(mustBuild(t, c).Hosts); got != 2 {
		t.Errorf("%d hosts of one address that two names resolve to, want 2", got)
	}
}

func TestHostsThatLeave(t *testing.T) {
	failing := func(c *cluster) {
		for _, h := range c.hosts {
			h.checked = dataplane.FailedActiveHC
		}
	}
	passing := func(c *cluster) {
		for _, h := range c.hosts {
			h.checked = 0
		}
	}
	for _, test := range []struct {
		name  string
		c     *cluster
		state func(*cluster)
		stays bool
	}{
		{"passes its checks", testCluster(model.EDS, checked), passing, true},
		{"fails its checks", testCluster(model.EDS, checked), failing, false},
		{"ignore_health_on_host_removal", testCluster(model.EDS, checked, func(m *model.Cluster) { m.IgnoreHealthOnHostRemoval = true }), passing, false},
		{"no checks", testCluster(model.EDS), passing, false},
		{"static", testCluster(model.Static, checked), passing, false},
		{"marked unhealthy by EDS", testCluster(model.EDS, checked), func(c *cluster) {
			for _, h := range c.hosts {
				h.checked, h.endpoint.Health = 0, dataplane.FailedEDSHealth
			}
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.c.assign(assignment(endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80")))
			test.state(test.c)
			gone := test.c.find(netip.MustParseAddrPort("10.0.0.2:80"))[0]
			test.c.assign(assignment(endpoint("10.0.0.1:80")))
			hosts := mustBuild(t, test.c).Hosts
			if (len(hosts) == 2) != test.stays || gone.state.Removed.Load() == test.stays {
				t.Fatalf("%d hosts left, removed %v; want it to stay: %v", len(hosts), gone.state.Removed.Load(), test.stays)
			}
			if test.stays {
				if hosts[1].Health.String() != "/pending_dynamic_removal" {
					t.Errorf("flags %v", hosts[1].Health)
				}
				test.c.assign(assignment(endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80")))
				if h := mustBuild(t, test.c).Hosts[1]; h.Health != 0 || h.State != gone.state {
					t.Errorf("came back with flags %v", h.Health)
				}
			}
		})
	}
}

func TestInheritKeepsWhatIsKnown(t *testing.T) {
	old := testCluster(model.Static, checked)
	old.assign(assignment(endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80")))
	old.find(netip.MustParseAddrPort("10.0.0.1:80"))[0].checked = 0
	same := testCluster(model.Static, checked, func(m *model.Cluster) { m.LB.TableSize = 5003 })
	same.inherit(old)
	same.assign(assignment(endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80"), endpoint("10.0.0.3:80")))
	for addr, want := range map[string]dataplane.Health{"10.0.0.1:80": 0, "10.0.0.2:80": dataplane.FailedActiveHC, "10.0.0.3:80": dataplane.FailedActiveHC} {
		if h := same.find(netip.MustParseAddrPort(addr))[0]; h.health() != want {
			t.Errorf("%s is %v after the reload, want %v", addr, h.health(), want)
		}
	}
	other := testCluster(model.Static, checked, func(m *model.Cluster) { m.HealthChecks[0].TCP = &model.TCPCheck{Send: []byte("x")} })
	other.inherit(old)
	other.assign(old.assignment)
	if h := other.find(netip.MustParseAddrPort("10.0.0.1:80"))[0]; h.health() != dataplane.FailedActiveHC || h.state != old.find(h.endpoint.Address)[0].state {
		t.Errorf("with another check a host must be checked anew (%v) and keep its state", h.health())
	}
}

func TestMembershipCounts(t *testing.T) {
	c := testCluster(model.Static)
	with := func(h dataplane.Health, w uint32) func(*model.Endpoint) {
		return func(e *model.Endpoint) { e.Health, e.Weight = h, w }
	}
	c.assign(assignment(endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80", with(dataplane.FailedEDSHealth, 7)),
		endpoint("10.0.0.3:80", with(dataplane.EDSStatusDraining, 1)), endpoint("10.0.0.4:80", with(dataplane.DegradedEDSHealth, 1))))
	mustBuild(t, c)
	s := c.stats
	got := [...]int64{s.MembershipTotal.Value(), s.MembershipHealthy.Value(), s.MembershipDegraded.Value(), s.MembershipExcluded.Value(), s.MaxHostWeight.Value()}
	if want := [...]int64{4, 1, 1, 1, 7}; got != want {
		t.Errorf("total, healthy, degraded, excluded, weight = %v, want %v", got, want)
	}
}

func TestLocalityOrder(t *testing.T) {
	c := testCluster(model.Static, func(m *model.Cluster) { m.LB.LocalityWeighted = true })
	c.node = dataplane.Locality{Region: "m"}
	a := model.Assignment{OverprovisioningFactor: 140}
	for i, region := range []string{"z", "m", "a", "m"} {
		a.Localities = append(a.Localities, model.LocalityEndpoints{
			Locality: dataplane.Locality{Region: region}, HasLocality: i != 2, Weight: uint32(i + 1), HasWeight: true,
			Endpoints: []model.Endpoint{endpoint(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80).String())},
		})
	}
	c.assign(a)
	in, hosts := c.hostSets()
	if len(hosts) != 4 || hosts[0].Locality.Region != "z" {
		t.Error("hosts are not in the order of the assignment")
	}
	type place struct {
		region string
		weight uint32
		hosts  int
	}
	var got []place
	for _, l := range in.Priorities[0].Localities {
		got = append(got, place{l.Hosts[0].Locality.Region, l.Weight, len(l.Hosts)})
	}
	// The own one first, two entries of one locality together with the last weight, none without a locality message.
	want := []place{{"m", 4, 2}, {"a", 0, 1}, {"z", 1, 1}}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("localities %v, want %v", got, want)
	}
}
