package xdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
)

// target is what a service is to be in the maps.
type target struct {
	keys []serviceKey
	// entry without what placement decides (arrays, backends, members, only) and what the view says.
	entry bpf.Service
	view  conntrack.View
	// members by index: what the program needs to reach them. Their generations are the publisher's.
	members []reach
}

// reach is a backend's entry but for its generation, and whom it stands for.
type reach struct {
	id    identity
	entry bpf.Backend
}

// placed is what the maps hold of a service.
type placed struct {
	id       uint32 // index in service_counts
	keys     []serviceKey
	entry    bpf.Service
	arrays   span
	backends span
	tables   []placedTable // by index of the view's arrays
	members  []placedMember
	// unsure is set while a push is under way and stays if it fails: the maps may hold part of it.
	unsure bool
	// litter are ranges of pushes that failed, free once one succeeds.
	litterArrays, litterBackends []span
}

type placedTable struct {
	array conntrack.Array
	table table
}

type placedMember struct {
	id         identity
	generation uint32 // conntrack's
	serves     bool
	entry      bpf.Backend
}

// publisher writes services into the maps by the protocol of bpf/doc.go ("Changes"). Not safe for
// concurrent use.
type publisher struct {
	maps       programMaps
	arrays     spans
	backends   spans
	ids        spans
	generation uint32 // the last one that was given to a backend
	version    uint64
	vips       map[serviceKey]int // how many services need the entry of a VIP
	devices    map[uint32]bool
	// writes counts pushes that changed a map, for those who want to know that nothing happened.
	writes uint64
}

func newPublisher(m programMaps) *publisher {
	c := m.capacity()
	p := &publisher{
		maps:     m,
		arrays:   spans{what: "tables", capacity: c.tables},
		backends: spans{what: "backends", capacity: c.backends},
		ids:      spans{what: "services", capacity: c.services},
		vips:     map[serviceKey]int{},
		devices:  map[uint32]bool{},
	}
	p.arrays.reserve(span{barrierTable, 1})
	return p
}

// errMismatch says that a map does not hold what was written.
var errMismatch = errors.New("read back, a map does not hold what was written")

// attempts is how often a push is tried before it is given up for now.
const attempts = 3

// publish makes the maps hold a service as t has it, all or nothing for any packet. When it returns nil, no
// packet goes to a backend that does not serve. What fails is tried again as a whole.
func (p *publisher) publish(s *placed, t target) error {
	if !s.unsure && s.holds(t) {
		return nil
	}
	var err error
	for range attempts {
		if err = p.push(s, t); err == nil {
			if err = p.verify(s); err == nil {
				s.unsure = false
				return nil
			}
		}
		s.unsure = true
	}
	return err
}

// holds reports whether a push would change nothing.
func (s *placed) holds(t target) bool {
	if !slices.Equal(s.keys, t.keys) || len(s.members) != len(t.members) || len(s.tables) != len(t.view.Arrays) || s.entry != s.place(t) {
		return false
	}
	for i, a := range t.view.Arrays {
		if !a.Same(s.tables[i].array) {
			return false
		}
	}
	for i := range t.members {
		if s.members[i] != s.member(t, i, s.members[i].entry.Generation) {
			return false
		}
	}
	return true
}

// place returns the service's entry for t where the service is.
func (s *placed) place(t target) bpf.Service {
	e := t.entry
	e.Id = s.id
	e.Arrays, e.Backends, e.Members = s.arrays.first, s.backends.first, uint32(len(t.members))
	e.Only, e.OnlySlots = 0, 0
	if o := t.view.Only; o >= 0 {
		e.Only, e.OnlySlots = s.arrays.first+uint32(o), uint32(len(t.view.Arrays[o].Slots))
	}
	return e
}

// member returns member i as t has it, with a generation of the publisher's.
func (s *placed) member(t target, i int, generation uint32) placedMember {
	v := t.view.Members[i]
	m := placedMember{id: t.members[i].id, generation: v.Generation, serves: v.Serves, entry: t.members[i].entry}
	m.entry.Generation = generation
	return m
}

// next returns a generation that no backend ever had: an even one for a backend that serves, else odd.
func (p *publisher) next(serves bool) uint32 {
	p.generation++
	if (p.generation&1 == 0) != serves {
		p.generation++
	}
	return p.generation
}

func (p *publisher) push(s *placed, t target) error {
	p.version++
	p.writes++
	before := *s
	s.litterArrays, s.litterBackends = slices.Clone(s.litterArrays), slices.Clone(s.litterBackends)
	whole := s.unsure
	s.unsure = true
	if s.id == 0 {
		id, err := p.ids.take(1)
		if err != nil {
			return err
		}
		s.id = id.first + 1
	}

	// Where it is to be.
	backends, arrays := s.backends, s.arrays
	var err error
	if uint32(len(t.members)) > backends.n {
		// Some room to grow, since a move costs a barrier and loses the counts of packets under way.
		if backends, err = p.backends.take(uint32(max(8, len(t.members)+len(t.members)/4))); err != nil {
			return err
		}
		s.litterBackends = append(s.litterBackends, backends)
	}
	changed := 0
	for i, a := range t.view.Arrays {
		if i >= len(s.tables) || !a.Same(s.tables[i].array) {
			changed++
		}
	}
	here := placed{id: s.id, arrays: arrays, backends: backends}
	if whole || changed > 1 || len(t.view.Arrays) != len(s.tables) || changed == 1 && here.place(t) != s.entry {
		if arrays, err = p.arrays.take(uint32(len(t.view.Arrays))); err != nil {
			return err
		}
		s.litterArrays = append(s.litterArrays, arrays)
		here.arrays = arrays
	}
	moved := arrays != s.arrays

	// 1. Backends that packets may meet from step 3 on.
	members, lost, err := p.writeMembers(s, t, backends, whole)
	if err != nil {
		return err
	}

	// 2 and 3. Arrays, then what names them.
	tables, err := p.writeTables(s, t, arrays, moved, whole)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			closeNew(tables, s.tables)
		}
	}()
	entry := here.place(t)
	if err := p.writeServices(s, t, entry, whole); err != nil {
		return err
	}

	// 4. Each put of a table is a barrier, and each of a service has had one: nobody is in the old state now.
	// 5 and 6. What nobody may meet any more.
	for _, i := range lost {
		if err := p.maps.putBackend(backends.first+uint32(i), members[i].entry); err != nil {
			return fmt.Errorf("end the generation of backend %s: %w", members[i].id.addr, err)
		}
	}
	if len(lost) > 0 {
		if err := p.maps.barrier(); err != nil {
			return err
		}
	}
	done = true
	s.keys, s.entry, s.arrays, s.backends, s.tables, s.members = slices.Clone(t.keys), entry, arrays, backends, tables, members
	p.tidy(&before, s)
	return nil
}

// writeTables puts the arrays that changed, or all if they move, and returns what then is in force. After a push
// that failed (whole) none of those that are there is trusted.
func (p *publisher) writeTables(s *placed, t target, at span, moved, whole bool) ([]placedTable, error) {
	tables := make([]placedTable, len(t.view.Arrays))
	for i, a := range t.view.Arrays {
		if !whole && i < len(s.tables) && s.tables[i].table != nil && a.Same(s.tables[i].array) {
			tables[i] = s.tables[i]
		} else if len(a.Slots) > 0 {
			made, err := p.maps.makeTable(a, p.version)
			if err != nil {
				closeNew(tables, s.tables)
				return nil, err
			}
			tables[i] = placedTable{a, made}
		} else {
			continue
		}
		if moved || i >= len(s.tables) || tables[i].table != s.tables[i].table {
			if err := p.maps.putTable(at.first+uint32(i), tables[i].table); err != nil {
				closeNew(tables, s.tables)
				return nil, fmt.Errorf("put a table of %d slots in force: %w", len(a.Slots), err)
			}
		}
	}
	return tables, nil
}

// closeNew closes those of tables that are not among old.
func closeNew(tables, old []placedTable) {
	for _, t := range tables {
		if t.table != nil && !slices.ContainsFunc(old, func(o placedTable) bool { return o.table == t.table }) {
			t.table.close()
		}
	}
}

// writeServices writes the entries of the service's keys, and of its VIPs.
func (p *publisher) writeServices(s *placed, t target, entry bpf.Service, whole bool) error {
	for _, k := range t.keys {
		vip := vipKey(k.vip.Addr())
		if p.vips[vip] == 0 || whole {
			if err := p.maps.putService(vip, bpf.Service{Flags: bpf.ServiceVIP}); err != nil {
				return fmt.Errorf("make %s a VIP: %w", k.vip.Addr(), err)
			}
			if err := p.maps.barrier(); err != nil {
				return err
			}
		}
		there := slices.Contains(s.keys, k)
		if entry == s.entry && there && !whole {
			continue
		}
		if err := p.maps.putService(k, entry); err != nil {
			return fmt.Errorf("put service %s in force: %w", k.vip, err)
		}
		if !there {
			p.vips[vip]++
			s.keys = append(slices.Clone(s.keys), k)
		}
		// The entry that this one replaced is the next one's memory.
		if err := p.maps.barrier(); err != nil {
			return err
		}
	}
	for _, k := range slices.Clone(s.keys) {
		if slices.Contains(t.keys, k) {
			continue
		}
		if err := p.dropKey(k); err != nil {
			return err
		}
		s.keys = slices.DeleteFunc(slices.Clone(s.keys), func(o serviceKey) bool { return o == k })
	}
	return nil
}

// dropKey takes a service's key out of force, and its VIP if no other service has it.
func (p *publisher) dropKey(k serviceKey) error {
	if err := p.maps.deleteService(k); err != nil {
		return fmt.Errorf("take service %s out of force: %w", k.vip, err)
	}
	if err := p.maps.barrier(); err != nil {
		return err
	}
	vip := vipKey(k.vip.Addr())
	if p.vips[vip] > 1 {
		p.vips[vip]--
		return nil
	}
	delete(p.vips, vip)
	if err := p.maps.deleteService(vip); err != nil {
		return fmt.Errorf("end the VIP %s: %w", k.vip.Addr(), err)
	}
	return p.maps.barrier()
}

// remove takes a service out of the maps.
func (p *publisher) remove(s *placed) error {
	p.writes++
	s.unsure = true
	for len(s.keys) > 0 {
		if err := p.dropKey(s.keys[0]); err != nil {
			return err
		}
		s.keys = s.keys[1:]
	}
	before := *s
	p.tidy(&before, &placed{})
	p.ids.free(span{s.id - 1, 1})
	*s = placed{}
	return nil
}

// tidy frees what a push left behind: nothing names it any more. What cannot be deleted now is found by
// the next reconciliation.
func (p *publisher) tidy(before, now *placed) {
	for _, x := range append(now.litterArrays, before.arrays) {
		if x != now.arrays && x.n > 0 {
			for i := x.first; i < x.end(); i++ {
				_ = p.maps.deleteTable(i)
			}
			p.arrays.free(x)
		}
	}
	for _, x := range append(now.litterBackends, before.backends) {
		if x != now.backends {
			p.backends.free(x)
		}
	}
	now.litterArrays, now.litterBackends = nil, nil
	closeNew(before.tables, now.tables)
}
