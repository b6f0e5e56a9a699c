package xdp

import (
	"fmt"

	"github.com/guideway/guideway/bpf"
)

// writeMembers writes the entries of backends, but for those that cease to serve: these, whose indices it
// returns, follow when no slot names them.
func (p *publisher) writeMembers(s *placed, t target, at span, whole bool) (members []placedMember, lost []int, err error) {
	members = make([]placedMember, len(t.members))
	moved := at != s.backends
	for i := range t.members {
		index := at.first + uint32(i)
		var old placedMember
		if i < len(s.members) {
			old = s.members[i]
		}
		had := i < len(s.members)
		v := t.view.Members[i]
		generation := old.entry.Generation
		if !had || old.generation != v.Generation || old.serves != v.Serves {
			generation = p.next(v.Serves)
		}
		m := s.member(t, i, generation)
		members[i] = m
		if had && m == old && !moved && !whole {
			continue
		}
		if !had || old.id != m.id || moved || whole {
			if err := p.maps.putIdentity(index, m.id); err != nil {
				return nil, nil, fmt.Errorf("note who backend %d is: %w", index, err)
			}
		}
		if err := p.device(m.entry); err != nil {
			return nil, nil, err
		}
		if had && old.serves && !v.Serves && old.entry.Generation != generation {
			// It may still be met. Its last entry goes where the service will look.
			lost = append(lost, i)
			if !moved && !whole {
				continue
			}
			m.entry = old.entry
		}
		if err := p.writeBackend(index, m.entry); err != nil {
			return nil, nil, fmt.Errorf("write backend %s: %w", m.id.addr, err)
		}
	}
	return members, lost, nil
}

// writeBackend writes the entry of a backend that packets may be using. Words that have to change together do
// so while the packets go up the stack.
func (p *publisher) writeBackend(index uint32, e bpf.Backend) error {
	old, err := p.maps.backend(index)
	if err != nil || old == e {
		return err
	}
	if serves := old.Generation&1 == 0; serves && old.Flags&bpf.BackendResolved != 0 && wordsDiffer(old, e) > 1 {
		old.Flags &^= bpf.BackendResolved
		if err := p.maps.putBackend(index, old); err != nil {
			return err
		}
		if err := p.maps.barrier(); err != nil {
			return err
		}
	}
	return p.maps.putBackend(index, e)
}

// device makes sure that a backend's interface is in the device map.
func (p *publisher) device(e bpf.Backend) error {
	if e.Ifindex == 0 || p.devices[e.Ifindex] {
		return nil
	}
	if err := p.maps.putDevice(e.Ifindex); err != nil {
		return fmt.Errorf("add interface %d to the device map: %w", e.Ifindex, err)
	}
	p.devices[e.Ifindex] = true
	return nil
}

// verify reads back what the maps hold of a service.
func (p *publisher) verify(s *placed) error {
	for _, k := range s.keys {
		got, ok, err := p.maps.service(k)
		if err != nil {
			return fmt.Errorf("read service %s back: %w", k.vip, err)
		}
		if !ok || got != s.entry {
			return fmt.Errorf("service %s: %w", k.vip, errMismatch)
		}
	}
	for i, t := range s.tables {
		if t.table == nil {
			continue
		}
		got, err := p.maps.tableID(s.arrays.first + uint32(i))
		if err != nil {
			return fmt.Errorf("read table %d back: %w", s.arrays.first+uint32(i), err)
		}
		if got != t.table.id() {
			return fmt.Errorf("table %d: %w", s.arrays.first+uint32(i), errMismatch)
		}
		if err := checkTable(t); err != nil {
			return fmt.Errorf("table %d: %w", s.arrays.first+uint32(i), err)
		}
	}
	for i, m := range s.members {
		got, err := p.maps.backend(s.backends.first + uint32(i))
		if err != nil {
			return fmt.Errorf("read backend %s back: %w", m.id.addr, err)
		}
		if got != m.entry {
			return fmt.Errorf("backend %s: %w", m.id.addr, errMismatch)
		}
	}
	return nil
}

// checkTable reads a table and compares it, and its digest, with what it should be.
func checkTable(t placedTable) error {
	got, claimed, err := t.table.read()
	if err != nil {
		return err
	}
	if want := digest(t.array.Slots); claimed != want || digest(got.Slots) != want {
		return errMismatch
	}
	return nil
}
