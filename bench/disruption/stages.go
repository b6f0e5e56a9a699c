package disruption

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/guideway/guideway/bench/scheme"
)

// maxStages bounds the steps of a case.
const maxStages = 10000

// stages returns the fleet at the start and after each step of a case. The same
// seed takes the same backends at random.
func stages(members []Member, c Case, seed uint64) ([]stage, error) {
	p := planner{fleet: newFleet(members), random: rand.New(rand.NewPCG(seed, changeStream))}
	p.step("before")
	for _, change := range c.Changes {
		p.apply(change)
	}
	if p.err != nil {
		return nil, fmt.Errorf("case %q: %w", c.Name, p.err)
	}
	return p.stages, nil
}

// planner plays changes on a fleet. The first error stays.
type planner struct {
	*fleet
	random *rand.Rand
	stages []stage
	err    error
}

func (p *planner) step(name string) {
	if p.err != nil {
		return
	}
	if len(p.stages) > maxStages {
		p.err = fmt.Errorf("more than %d steps: use fewer times, or a larger batch", maxStages)
		return
	}
	s, err := p.stage(name)
	if p.err = err; err == nil {
		p.stages = append(p.stages, s)
	}
}

func (p *planner) apply(c Change) {
	switch c.Kind {
	case "add":
		p.add(c)
	case "remove":
		p.gone("remove", p.chosen(c))
	case "drain":
		ids := p.chosen(c)
		for _, id := range ids {
			p.members[id].placed = false
		}
		p.step("drain " + p.list(ids))
	case "replace":
		ids := p.chosen(c)
		var fresh []int
		for _, id := range ids {
			old := &p.members[id]
			old.placed, old.serves = false, false
			m := old.Member
			m.Addr = p.fresh()
			fresh = append(fresh, p.join(m))
		}
		p.step("replace " + p.list(ids) + " by " + p.list(fresh))
	case "reweight":
		ids := p.chosen(c)
		for _, id := range ids {
			p.members[id].Weight = c.Weight
		}
		p.step(fmt.Sprintf("reweight %s to %d", p.list(ids), c.Weight))
	case "rolling-restart":
		for batch := range slices.Chunk(p.placed(), c.Batch) {
			p.gone("stop", batch)
			p.back("start", batch)
		}
	case "zone-loss":
		p.loseZone(c.Zone)
	case "flap":
		ids := p.chosen(c)
		for range c.Times {
			p.gone("fail", ids)
			p.back("return", ids)
		}
	}
}

func (p *planner) add(c Change) {
	addrs := c.Hosts
	for range c.Count {
		addrs = append(addrs, p.fresh())
	}
	var ids []int
	for _, addr := range addrs {
		if p.find(addr) >= 0 {
			p.fail("add: %v is there, or was", addr)
			return
		}
		ids = append(ids, p.join(Member{scheme.Backend{Addr: addr, Weight: max(c.Weight, 1)}, c.Zone}))
	}
	p.step("add " + p.list(ids))
}

func (p *planner) join(m Member) int {
	p.members = append(p.members, memberState{m, true, true})
	return len(p.members) - 1
}

func (p *planner) gone(verb string, ids []int) {
	for _, id := range ids {
		p.members[id].placed, p.members[id].serves = false, false
	}
	p.step(verb + " " + p.list(ids))
}

func (p *planner) back(verb string, ids []int) {
	for _, id := range ids {
		p.members[id].placed, p.members[id].serves = true, true
	}
	p.step(verb + " " + p.list(ids))
}

func (p *planner) loseZone(zone string) {
	var ids, all []int
	for _, id := range p.placed() {
		if p.members[id].Zone != "" {
			all = append(all, id)
		}
		if p.members[id].Zone == zone || zone == "" && len(all) > 0 && p.members[id].Zone == p.members[all[0]].Zone {
			ids = append(ids, id)
		}
	}
	switch {
	case len(all) == 0:
		p.fail("zone-loss: no backend has a zone: give them some")
	case len(ids) == 0:
		p.fail("zone-loss: no backend is in zone %q", zone)
	default:
		p.gone("lose", ids)
	}
}

// chosen are the backends of a change, which must be there.
func (p *planner) chosen(c Change) []int {
	placed := p.placed()
	if len(c.Hosts) == 0 {
		if c.Count > len(placed) {
			p.fail("%s: %d backends of %d", c.Kind, c.Count, len(placed))
			return nil
		}
		p.random.Shuffle(len(placed), func(i, j int) { placed[i], placed[j] = placed[j], placed[i] })
		ids := placed[:c.Count]
		slices.Sort(ids)
		return ids
	}
	var ids []int
	for _, addr := range c.Hosts {
		id := p.find(addr)
		// What is drained can still be removed.
		if id < 0 || !p.members[id].placed && !(c.Kind == "remove" && p.members[id].serves) {
			p.fail("%s: there is no backend %v", c.Kind, addr)
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

func (p *planner) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// list names backends, the first few of them.
func (p *planner) list(ids []int) string {
	const most = 4
	var names []string
	for _, id := range ids {
		if len(names) == most {
			names = append(names, fmt.Sprintf("%d more", len(ids)-most))
			break
		}
		names = append(names, p.name(id).String())
	}
	return strings.Join(names, ", ")
}

func (p *planner) name(id int) netip.AddrPort { return p.members[id].Addr }
