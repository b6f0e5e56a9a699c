package plan

import (
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
	"github.com/guideway/guideway/maglev"
)

// Change is what lies between two snapshots.
type Change struct {
	// Time and Generation are when and as what it came into force; zero for a plan.
	Time       time.Time `json:"time,omitzero"`
	Generation uint64    `json:"generation,omitempty"`
	// Milliseconds is how long the data plane took to apply it.
	Milliseconds float64 `json:"apply_ms,omitempty"`
	// Slots over all tables.
	Slots     Slots      `json:"slots"`
	Clusters  []Cluster  `json:"clusters"`
	Listeners []Listener `json:"listeners"`
	// Flows is nil where they were not counted.
	Flows *Flows `json:"flows,omitempty"`
	// Assumed is what a plan takes for granted, in words.
	Assumed []string `json:"assumed,omitempty"`
}

// Slots of one or several tables: how many there are, how many get another owner, and how many of these
// had to, whatever the hashing, for each host to have as many as it has afterwards.
type Slots struct {
	Size        uint64 `json:"size"`
	Moved       uint64 `json:"moved"`
	Unavoidable uint64 `json:"unavoidable"`
	Collateral  uint64 `json:"collateral"`
}

// Percent of the slots that move.
func (s Slots) Percent() float64 {
	if s.Size == 0 {
		return 0
	}
	return 100 * float64(s.Moved) / float64(s.Size)
}

func (s *Slots) add(o Slots) {
	s.Size += o.Size
	s.Moved += o.Moved
	s.Unavoidable += o.Unavoidable
	s.Collateral += o.Collateral
}

// Cluster is what changes in one cluster.
type Cluster struct {
	Name string `json:"name"`
	// Change is added, removed, replaced (other settings) or changed (hosts, weights, health).
	Change string  `json:"change"`
	Tables []Table `json:"tables,omitempty"`
	Hosts  []Host  `json:"hosts,omitempty"`
}

// Table is what changes in one priority's table.
type Table struct {
	Priority int `json:"priority"`
	Slots
	// FormerSize is set if the size is another one. What moves is then found by a sample of hashes.
	FormerSize uint32 `json:"former_size,omitempty"`
	// Digests are filled in by Identify.
	Digest       string `json:"digest,omitempty"`
	FormerDigest string `json:"former_digest,omitempty"`
}

// Host is what changes of one host.
type Host struct {
	Address  netip.AddrPort `json:"address"`
	Priority uint32         `json:"priority,omitempty"`
	// Change holds the words added, removed, weight and health, separated by blanks.
	Change       string `json:"change"`
	Weight       uint32 `json:"weight,omitempty"`
	FormerWeight uint32 `json:"former_weight,omitempty"`
	Health       string `json:"health,omitempty"`
	FormerHealth string `json:"former_health,omitempty"`
}

// Listener is a listener that is added, removed, or changed: in its socket, or in its chains only.
type Listener struct {
	Name   string `json:"name"`
	Change string `json:"change"`
}

// Empty reports whether there is no difference.
func (c *Change) Empty() bool { return len(c.Clusters)+len(c.Listeners) == 0 }

// MostMoved is the largest share of one table that moves, in percent.
func (c *Change) MostMoved() float64 {
	most := 0.0
	for _, cluster := range c.Clusters {
		for _, t := range cluster.Tables {
			most = max(most, t.Percent())
		}
	}
	return most
}

// Compare finds what changes from one snapshot to another; all but the flows.
func Compare(older, newer *dataplane.Snapshot) *Change {
	c := &Change{Clusters: []Cluster{}, Listeners: listeners(older.Listeners, newer.Listeners)}
	names := maps.Clone(older.Clusters)
	maps.Copy(names, newer.Clusters)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := older.Clusters[name], newer.Clusters[name]
		if was == is {
			continue
		}
		cluster := Cluster{Name: name, Change: "changed", Hosts: hosts(was, is)}
		switch {
		case was == nil:
			cluster.Change = "added"
		case is == nil:
			cluster.Change = "removed"
		default:
			if was.Incarnation != is.Incarnation {
				cluster.Change = "replaced"
			}
			cluster.Tables = tables(was.Balancer, is.Balancer)
		}
		for _, t := range cluster.Tables {
			c.Slots.add(t.Slots)
		}
		c.Clusters = append(c.Clusters, cluster)
	}
	return c
}

// Identify adds the digests of the tables, which take time.
func (c *Change) Identify(older, newer *dataplane.Snapshot) {
	for i := range c.Clusters {
		cluster := &c.Clusters[i]
		for j := range cluster.Tables {
			t := &cluster.Tables[j]
			t.FormerDigest = digestOf(older.Clusters[cluster.Name], t.Priority)
			t.Digest = digestOf(newer.Clusters[cluster.Name], t.Priority)
		}
	}
}

func digestOf(c *dataplane.Cluster, priority int) string {
	for _, t := range lb.Tables(c.Balancer) {
		if t.Priority == priority && !t.Empty() {
			d := t.Digest()
			return hex.EncodeToString(d[:])
		}
	}
	return ""
}

func listeners(older, newer []*dataplane.Listener) []Listener {
	found := []Listener{}
	was := map[string]*dataplane.Listener{}
	for _, l := range older {
		was[l.Name] = l
	}
	for _, l := range newer {
		switch old := was[l.Name]; {
		case old == nil:
			found = append(found, Listener{l.Name, "added"})
		case old == l || old.Hash == l.Hash:
		case old.SocketHash == l.SocketHash:
			found = append(found, Listener{l.Name, "chains"})
		default:
			found = append(found, Listener{l.Name, "socket"})
		}
		delete(was, l.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		found = append(found, Listener{name, "removed"})
	}
	return found
}

// hosts compares the hosts of two versions of a cluster, either of which may be nil. Hosts are told apart
// by address and priority, and by their order where these are equal.
func hosts(was, is *dataplane.Cluster) []Host {
	type place struct {
		address  netip.AddrPort
		priority uint32
		copy     int
	}
	list := func(c *dataplane.Cluster) ([]place, map[place]*dataplane.Host) {
		if c == nil {
			return nil, nil
		}
		var order []place
		m := make(map[place]*dataplane.Host, len(c.Hosts))
		for _, h := range c.Hosts {
			p := place{h.Address, h.Priority, 0}
			for m[p] != nil {
				p.copy++
			}
			m[p] = h
			order = append(order, p)
		}
		return order, m
	}
	formerOrder, former := list(was)
	order, now := list(is)
	var found []Host
	for _, p := range formerOrder {
		if h := former[p]; now[p] == nil {
			found = append(found, Host{Address: p.address, Priority: p.priority, Change: "removed", FormerWeight: h.Weight, FormerHealth: h.Health.String()})
		}
	}
	for _, p := range order {
		h, old := now[p], former[p]
		v := Host{Address: p.address, Priority: p.priority, Weight: h.Weight, Health: h.Health.String()}
		if old == nil {
			v.Change = "added"
			found = append(found, v)
			continue
		}
		var what []string
		if old.Weight != h.Weight {
			what = append(what, "weight")
			v.FormerWeight = old.Weight
		}
		if old.Health != h.Health {
			what = append(what, "health")
			v.FormerHealth = old.Health.String()
		}
		if v.Change = strings.Join(what, " "); v.Change != "" {
			found = append(found, v)
		}
	}
	return found
}

// tables compares the tables of two balancers, priority by priority; a priority that only one has moves
// nothing, since what it had or gets is a shift between priorities.
func tables(older, newer dataplane.Balancer) []Table {
	was := map[int]lb.Table{}
	for _, t := range lb.Tables(older) {
		was[t.Priority] = t
	}
	var found []Table
	for _, t := range lb.Tables(newer) {
		old, there := was[t.Priority]
		if !there {
			continue
		}
		v := Table{Priority: t.Priority}
		v.Size = uint64(t.Size())
		if old.Table != t.Table {
			if d, err := maglev.Disrupt(old.Table, t.Table); err == nil {
				v.Moved, v.Unavoidable, v.Collateral = uint64(d.Moved), uint64(d.Minimum), uint64(d.Collateral())
			} else {
				v.FormerSize = old.Size()
				v.Moved = sampled(old, t)
				v.Collateral = v.Moved
			}
		}
		found = append(found, v)
	}
	return found
}

// sampleSize is enough for the share that moves between tables of different sizes to be right within half
// a percent.
const sampleSize = 1 << 17

// sampled estimates how many slots' worth of hashes two tables of different sizes give to different hosts.
func sampled(older, newer lb.Table) uint64 {
	r := rand.New(rand.NewPCG(uint64(older.Size()), uint64(newer.Size()))) // the same for plan and record
	owner := func(t lb.Table, hash uint64) netip.AddrPort {
		if i := t.Lookup(hash); i >= 0 {
			return t.Hosts[i].Address
		}
		return netip.AddrPort{}
	}
	moved := 0
	for range sampleSize {
		if hash := r.Uint64(); owner(older, hash) != owner(newer, hash) {
			moved++
		}
	}
	return uint64(float64(moved) / sampleSize * float64(newer.Size()))
}
