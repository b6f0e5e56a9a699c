package conntrack

import (
	"net/netip"
	"testing"
	"time"
)

func TestImageIsTheState(t *testing.T) {
	var s Steering
	if _, ok := s.Image(); ok {
		t.Fatal("an image before the first Apply")
	}
	addr := func(i byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, i}), 80) }
	d := Desired{
		Members: []Member{{addr(1), true}, {addr(2), true}},
		Tables:  []Table{{ID: 7, Slots: []Backend{0, 1, 0, 1, 1}}},
		Top:     7, Idle: time.Minute,
	}
	apply := func() Image {
		t.Helper()
		if _, err := s.Apply(d, 0); err != nil {
			t.Fatal(err)
		}
		i, ok := s.Image()
		if !ok {
			t.Fatal("no image after Apply")
		}
		return i
	}
	before := apply()
	only, ok := before.Only()
	if !ok || only != 1 || before.Arrays() != 2 || before.Members() != 2 || before.Idle() != time.Minute {
		t.Fatalf("only %d %v, %d arrays, %d members, idle %v", only, ok, before.Arrays(), before.Members(), before.Idle())
	}
	d.Tables[0].Slots = []Backend{0, 0, 0, 1, 1}
	opened := apply()
	a, _ := opened.Array(1)
	old, _ := before.Array(1)
	if a.Same(old) || !a.Leaf() || a.Len() != 5 {
		t.Fatal("a changed array is the same, or of another shape")
	}
	slots := make([]uint32, 5)
	a.Copy(slots)
	if want := uint32(openSlot(0, 1)); slots[1] != want || slots[0] != uint32(settledSlot(0)) {
		t.Errorf("slots %x, want %x in the second", slots, want)
	}
	old.Copy(slots)
	if slots[1] != uint32(settledSlot(1)) {
		t.Errorf("the older image has changed: %x", slots)
	}
	d.Members[1].Serves, d.Tables[0].Slots = false, []Backend{0, 0, 0, 0, 0}
	gone := apply()
	_, was := opened.Member(1)
	if m, is := gone.Member(1); m.Serves || was == is {
		t.Errorf("member %+v, generation %d, was %d", m, is, was)
	}
}
