package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane"
	"github.com/guideway/guideway/dataplane"
)

// wayOf is one of the ways to a management server.
type wayOf struct {
	name, api string
	separate  bool
}

var ways = []wayOf{
	{"sotw ads", "GRPC", false}, {"delta ads", "DELTA_GRPC", false},
	{"sotw separate", "GRPC", true}, {"delta separate", "DELTA_GRPC", true},
}

// bootstrap is one for that way.
func (w wayOf) bootstrap(port uint32) string {
	text := adsBootstrap(port, w.api)
	if !w.separate {
		return text
	}
	own := fmt.Sprintf("{api_config_source: %s, resource_api_version: V3, initial_fetch_timeout: 1s}", w.source())
	text = strings.ReplaceAll(text, "{ads: {}, resource_api_version: V3, initial_fetch_timeout: 1s}", own)
	lines := strings.Split(text, "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "  ads_config") })
	return strings.Join(lines, "\n")
}

func (w wayOf) source() string {
	return fmt.Sprintf(`{api_type: %s, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}`, w.api)
}

// cluster is an EDS cluster that gets its endpoints that way.
func (w wayOf) cluster(t testing.TB, name string, table int) proto.Message {
	source := `"ads": {}`
	if w.separate {
		source = fmt.Sprintf(`"api_config_source": {"api_type": %q, "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}]}`, w.api)
	}
	return resource(t, &clusterv3.Cluster{}, `{"name": %q, "type": "EDS", "lb_policy": "MAGLEV", "maglev_lb_config": {"table_size": %d},
		"eds_cluster_config": {"eds_config": {%s, "resource_api_version": "V3", "initial_fetch_timeout": "2s"}}}`, name, table, source)
}

// TestManagementServer lets go-control-plane's server drive an instance through a life.
func TestManagementServer(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			live(t, way)
		})
	}
}

func live(t *testing.T, way wayOf) {
	a, b, port, other := letter(t, "A"), letter(t, "B"), freePort(t), freePort(t)
	m := newManaged(t, !way.separate)
	listener := func(cluster string) proto.Message { return tcpListener(t, "l", port, cluster, "t") }
	in := func(name string, ports ...uint32) proto.Message { return assignmentOf(t, name, "127.0.0.1", ports...) }
	type list = []proto.Message
	one, two := way.cluster(t, "one", 1009), way.cluster(t, "two", 1009)

	m.publish("1", list{one}, list{in("one", a)}, list{listener("one")})
	i := start(t, way.bootstrap(m.port))
	see := func(what string, want string) {
		t.Helper()
		until(t, what, func() bool { return gets(port) == want })
	}
	see("the first state", "A")

	m.publish("2", list{one}, list{in("one", b)}, list{listener("one")})
	see("a changed endpoint", "B")

	m.publish("3", list{one, two}, list{in("one", b), in("two", a)}, list{listener("two")})
	see("an added cluster", "A")

	m.publish("4", list{one}, list{in("one", b)}, list{listener("one")})
	see("a removed cluster", "B")
	until(t, "cluster two goes", func() bool { return slices.Equal(i.clusters(), []string{"one", "xds"}) })

	// It comes back although the version of the endpoints may be known from before.
	m.publish("5", list{one, two}, list{in("one", b), in("two", a)}, list{listener("two")})
	see("a cluster that comes back", "A")

	// A cluster with another table warms and takes the place of the former; its endpoints are not sent
	// again by a server that has sent them.
	m.publishVersions([3]string{"6", "5", "5"}, list{one, way.cluster(t, "two", 5003)}, list{in("one", b), in("two", a)}, list{listener("two")})
	until(t, "the larger table", func() bool {
		for _, c := range i.control.State().Clusters {
			if c.Desired.Settings.Name == "two" {
				return c.Desired.LB.TableSize == 5003 && len(c.Active.Hosts) == 1
			}
		}
		return false
	})
	see("a changed cluster", "A")

	// Bad resources beside good ones: a table size that is no prime, an address that is none.
	bad := way.cluster(t, "bad", 1000)
	m.publish("7", list{one, way.cluster(t, "two", 5003), bad, way.cluster(t, "three", 1009)},
		list{in("one", b), in("two", a), in("three", b)}, list{listener("three"), tcpListener(t, "busy", a, "one", "b")})
	see("good ones beside bad ones", "B")
	until(t, "refusals that name the resources", func() bool {
		var clusters, listeners bool
		for _, x := range m.seen() {
			clusters = clusters || strings.Contains(x.Error, "Error adding/updating cluster(s) bad: ")
			listeners = listeners || strings.Contains(x.Error, "Error adding/updating listener(s) busy: cannot bind ")
		}
		return clusters && listeners
	})
	if s := i.control.State(); s.RefusedClusters["bad"].Details == "" || s.RefusedListeners["busy"].Details == "" {
		t.Errorf("what was refused does not show: %+v, %+v", s.RefusedClusters, s.RefusedListeners)
	}
	// The good one may wait for its endpoints; the bad one, refused, must not stay there.
	until(t, "nothing is warming", func() bool { return i.stat("cluster_manager.warming_clusters") == 0 })

	// The server dies; what is in force stays. It comes back with other content under versions that count
	// from the start.
	m.stop()
	until(t, "the stream is gone", func() bool { return i.stat("cluster_manager.cds.update_failure") > 0 })
	see("without a server", "B")
	m.renew()
	m.publish("1", list{one, two}, list{in("one", a), in("two", b)}, list{listener("one"), tcpListener(t, "m", other, "two", "m")})
	m.serve()
	see("after the server's return", "A")
	until(t, "a new listener", func() bool { return gets(other) == "B" })
	until(t, "cluster three goes", func() bool { return slices.Equal(i.clusters(), []string{"one", "two", "xds"}) })

	m.publish("2", nil, nil, nil)
	see("an empty state", "refused")
	until(t, "no cluster is left", func() bool { return slices.Equal(i.clusters(), []string{"xds"}) })
}

// TestEqualContentChangesNothing sends everything again under new versions.
func TestEqualContentChangesNothing(t *testing.T) {
	t.Parallel()
	for _, way := range ways[:2] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			a, port := letter(t, "A"), freePort(t)
			s, server := newScripted(t)
			delta := way.api == "DELTA_GRPC"
			send := func(version string) {
				s.answer(delta, "cds", version, []proto.Message{way.cluster(t, "c", 1009)})
				s.answer(delta, "eds", version, []proto.Message{assignmentOf(t, "c", "127.0.0.1", a)})
				s.answer(delta, "lds", version, []proto.Message{tcpListener(t, "l", port, "c", "t")})
			}
			i := start(t, way.bootstrap(server))
			until(t, "live", func() bool { return i.control.State().Phase == controlplane.Live })
			send("1")
			until(t, "the first state", func() bool { return gets(port) == "A" })
			// The listener takes connections a moment before the state that has it is published.
			until(t, "the first state is published", func() bool { return len(i.control.State().Listeners) == 1 })
			generation := func() uint64 { return i.control.State().Generation }
			before := generation()
			balancer := i.active("c").Balancer
			for n := range 5 {
				send(fmt.Sprint(n + 2))
				want := int64(n + 2)
				until(t, "all types are taken", func() bool {
					return i.stat("cluster_manager.cds.update_success") >= want && i.stat("listener_manager.lds.update_success") >= want && i.stat("cluster.c.update_success") >= want
				})
			}
			for name, want := range map[string]int64{
				"listener_manager.listener_modified": 0, "listener_manager.listener_in_place_updated": 0, "cluster_manager.cluster_modified": 0,
				"listener_manager.total_listeners_draining": 0, "cluster.c.update_no_rebuild": 5, "cluster.c.membership_change": 1,
			} {
				if got := i.stat(name); got != want {
					t.Errorf("%s is %d, want %d", name, got, want)
				}
			}
			if i.active("c").Balancer != balancer {
				t.Error("the table was built again")
			}
			if generation() != before {
				t.Errorf("%d snapshots were applied for nothing", generation()-before)
			}
		})
	}
}

// active is a cluster in force.
func (i *instance) active(name string) *dataplane.Cluster {
	for _, c := range i.control.State().Clusters {
		if c.Desired.Settings.Name == name {
			return c.Active
		}
	}
	i.Fatalf("no cluster %q", name)
	return nil
}

// TestManyClusters takes 1,000 clusters of 100 endpoints, and a change of one.
func TestManyClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while")
	}
	for _, way := range ways[:2] {
		t.Run(way.name, func(t *testing.T) {
			m := newManaged(t, true)
			const clusters, endpoints = 1000, 100
			var cs, es []proto.Message
			for n := range clusters {
				name := fmt.Sprintf("c%d", n)
				cs = append(cs, way.cluster(t, name, 1009))
				a := &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{}}}
				for e := range endpoints {
					one := resource(t, &endpointv3.LbEndpoint{}, `{"endpoint": {"address": {"socket_address": {"address": "10.%d.%d.%d", "port_value": 80}}}}`, n/250, n%250, e+1)
					a.Endpoints[0].LbEndpoints = append(a.Endpoints[0].LbEndpoints, one)
				}
				es = append(es, a)
			}
			m.publish("1", cs, es, nil)
			i := start(t, strings.ReplaceAll(way.bootstrap(m.port), "initial_fetch_timeout: 1s", "initial_fetch_timeout: 60s"))
			began := time.Now()
			until(t, "live", func() bool { return i.control.State().Phase == controlplane.Live })
			t.Logf("live after %v", time.Since(began))
			total := 0
			for _, c := range i.control.State().Clusters {
				total += len(c.Active.Hosts)
			}
			if total != clusters*endpoints+1 {
				t.Errorf("%d hosts, want %d", total, clusters*endpoints+1)
			}
			last := proto.Clone(es[500]).(*endpointv3.ClusterLoadAssignment)
			last.Endpoints[0].LbEndpoints = last.Endpoints[0].LbEndpoints[1:]
			es[500] = last
			m.publishVersions([3]string{"1", "2", "1"}, cs, es, nil)
			began = time.Now()
			until(t, "the change", func() bool { return len(i.hosts("c500")) == endpoints-1 })
			t.Logf("one change after %v", time.Since(began))
		})
	}
}
