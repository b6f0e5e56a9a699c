package maglev

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// The recorded picks belong to the program; here they are replayed on paper:
// configuration to hosts, source address to hash, table to host.
const picksDir = "../cmd/guideway/testdata/picks"

// A recording is what the replay needs of a file of picks.
type recording struct {
	Bootstrap struct {
		StaticResources struct {
			Clusters []struct {
				LoadAssignment struct {
					Endpoints []struct {
						Priority    int
						Locality    *struct{ Region string }
						Weight      uint32 `json:"load_balancing_weight"`
						LBEndpoints []struct {
							Endpoint struct {
								Address struct {
									SocketAddress struct {
										Address   string
										PortValue uint16 `json:"port_value"`
									} `json:"socket_address"`
								}
							}
							Weight       uint32 `json:"load_balancing_weight"`
							HealthStatus string `json:"health_status"`
						} `json:"lb_endpoints"`
					}
				} `json:"load_assignment"`
				CommonLBConfig struct {
					LocalityWeighted  *struct{} `json:"locality_weighted_lb_config"`
					ConsistentHashing struct {
						BalanceFactor uint32 `json:"hash_balance_factor"`
					} `json:"consistent_hashing_lb_config"`
				} `json:"common_lb_config"`
				MaglevLBConfig struct {
					TableSize uint32 `json:"table_size"`
				} `json:"maglev_lb_config"`
			}
		} `json:"static_resources"`
	}
	Steps []struct {
		Clients []string
		Picks   []*string
	}
}

func readPicks(t *testing.T, name string) recording {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(picksDir, name))
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

// A paperCluster is as much of a cluster as it takes to pick.
type paperCluster struct {
	loads  []PriorityLoad
	hosts  [][]Host // of each priority, those in its table
	tables []*Table
	bound  *BoundedLoad
	active map[string]uint32
}

func newPaperCluster(t *testing.T, r recording) *paperCluster {
	t.Helper()
	config := r.Bootstrap.StaticResources.Clusters[0]
	size := config.MaglevLBConfig.TableSize
	if size == 0 {
		size = DefaultTableSize
	}
	type member struct {
		host   Host
		health Health
	}
	var members [][]member
	var localities [][]Locality
	for _, e := range config.LoadAssignment.Endpoints {
		for len(members) <= e.Priority {
			members = append(members, nil)
			localities = append(localities, nil)
		}
		p := e.Priority
		if e.Locality == nil {
			e.Weight = 0
		}
		localities[p] = append(localities[p], Locality{Weight: e.Weight, Empty: len(e.LBEndpoints) == 0})
		for _, l := range e.LBEndpoints {
			address := l.Endpoint.Address.SocketAddress
			key := HostKey(netip.AddrPortFrom(netip.MustParseAddr(address.Address), address.PortValue))
			health, known := map[string]Health{"": Healthy, "HEALTHY": Healthy, "UNHEALTHY": Unhealthy,
				"TIMEOUT": Unhealthy, "DEGRADED": Degraded, "DRAINING": Excluded}[l.HealthStatus]
			if !known {
				t.Fatalf("unknown health status %q", l.HealthStatus)
			}
			members[p] = append(members[p], member{
				Host{Key: key, Addr: key, Weight: max(l.Weight, 1), Locality: len(localities[p]) - 1}, health})
		}
	}
	c := &paperCluster{active: map[string]uint32{}}
	counted := make([]PriorityHosts, len(members))
	for p := range members {
		for _, m := range members[p] {
			counted[p].Add(m.health, m.host.Weight)
		}
	}
	c.loads = SplitLoad(counted, PriorityPolicy{Overprovisioning: DefaultOverprovisioning, PanicThreshold: DefaultPanicThreshold})
	for p := range members {
		var hosts []Host
		for _, m := range members[p] {
			if m.health == Healthy || c.loads[p].Panic {
				hosts = append(hosts, m.host)
			}
		}
		var weighted []Locality
		if config.CommonLBConfig.LocalityWeighted != nil {
			weighted = localities[p]
		}
		c.hosts = append(c.hosts, hosts)
		c.tables = append(c.tables, build(t, size, hosts, weighted))
	}
	if factor := config.CommonLBConfig.ConsistentHashing.BalanceFactor; factor != 0 {
		bound, err := NewBoundedLoad(factor, c.hosts[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		c.bound = bound
	}
	return c
}

// pick opens a connection that stays open.
func (c *paperCluster) pick(source netip.Addr) string {
	hash := SourceIPHash(source)
	priority, _ := PickPriority(c.loads, hash)
	hosts := c.hosts[priority]
	host := c.tables[priority].Lookup(hash)
	if c.bound != nil {
		var total uint32
		for _, n := range c.active {
			total += n
		}
		host = c.bound.Pick(host, hash, total, func(i int) uint32 { return c.active[hosts[i].Key] })
	}
	c.active[hosts[host].Key]++
	return hosts[host].Key
}

func TestRecordedPicks(t *testing.T) {
	for _, name := range []string{"01-flat.json", "02-weights-dual-stack.json", "03-localities.json",
		"04-priorities.json", "06-bounded-load.json"} {
		t.Run(name, func(t *testing.T) {
			r := readPicks(t, name)
			cluster := newPaperCluster(t, r)
			picks := 0
			for s, step := range r.Steps {
				if len(step.Clients) != len(step.Picks) {
					t.Fatalf("step %d: %d clients and %d picks", s, len(step.Clients), len(step.Picks))
				}
				for i, client := range step.Clients {
					// As it arrives at a dual-stack socket.
					got := cluster.pick(netip.MustParseAddr(client).Unmap())
					if want := step.Picks[i]; want == nil || got != *want {
						t.Errorf("step %d, client %d (%s): %s, want %v", s, i, client, got, want)
					}
					picks++
				}
			}
			if picks < 250 {
				t.Errorf("only %d picks", picks)
			}
		})
	}
}
