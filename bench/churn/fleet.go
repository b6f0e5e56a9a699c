package churn

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/maglev"
)

// fleet is the backends of a service, as they come and go: a random one leaves, then a new one comes, and so
// on, as in a rolling update. One that leaves is drained: it gets no new flows, and serves those that it has.
type fleet struct {
	plan    *Plan
	random  *rand.Rand
	members []conntrack.Member
	in      []int // indices of those in the table
	slots   []conntrack.Backend
	track   conntrack.Track
	leave   bool // at the next change
	// movedSlots, of all changes.
	movedSlots int
}

func newFleet(p *Plan, track conntrack.Track) (*fleet, error) {
	f := &fleet{plan: p, random: rand.New(rand.NewPCG(p.Seed, 2)), track: track, leave: true}
	for range p.Backends {
		f.add()
	}
	return f, f.build()
}

func (f *fleet) add() {
	i := len(f.members)
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8080)
	f.members = append(f.members, conntrack.Member{Addr: addr, Serves: true})
	f.in = append(f.in, i)
}

// desired is what is to be in force now.
func (f *fleet) desired() conntrack.Desired {
	return conntrack.Desired{
		Members: f.members, Tables: []conntrack.Table{{ID: 1, Slots: f.slots}}, Top: 1,
		Track: f.track, Idle: f.plan.Idle, LearningWindow: f.plan.Window,
	}
}

// change has the next one leave or come.

func (f *fleet) change() error {
	if f.leave {
		i := f.random.IntN(len(f.in))
		f.in = slices.Delete(f.in, i, i+1)
	} else {
		f.add()
	}
	f.leave = !f.leave
	return f.build()
}

func (f *fleet) build() error {
	hosts := make([]maglev.Host, len(f.in))
	for i, m := range f.in {
		hosts[i] = maglev.Host{Key: maglev.HostKey(f.members[m].Addr), Weight: 1}
	}
	t, err := maglev.Build(f.plan.TableSize, hosts, nil)
	if err != nil {
		return fmt.Errorf("building the table of %d backends: %w", len(hosts), err)
	}
	f.slots = make([]conntrack.Backend, t.Size())
	for i := range f.slots {
		f.slots[i] = conntrack.Backend(f.in[t.Owner(uint32(i))])
	}
	return nil
}
