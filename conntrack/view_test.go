package conntrack

import (
	"net/netip"
	"testing"
	"time"
)

// A Steering that is restored from its own view goes on as the one it came from.
func TestRestoreGoesOn(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
	var s Steering
	desired := func(slots ...Backend) Desired {
		return Desired{
			Members: []Member{{Addr: a, Serves: true}, {Addr: b, Serves: true}},
			Tables:  []Table{{ID: 7, Slots: slots}}, Top: 7, Idle: time.Minute,
		}
	}
	for _, d := range []Desired{desired(0, 0, 1), desired(1, 0, 1)} {
		if _, err := s.Apply(d, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	was := s.View()
	if n := was.Arrays[was.Only].Open; n != 1 {
		t.Fatalf("%d slots are open, want 1", n)
	}
	r, err := Restore(was, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := r.Apply(desired(1, 0, 1), 11*time.Second); err != nil || c != (Change{}) {
		t.Fatalf("the same tables again changed %+v, error %v", c, err)
	}
	if c, err := r.Apply(desired(1, 1, 1), 11*time.Second); err != nil || c.Opened != 1 {
		t.Fatalf("another slot: %+v, error %v; want one opened", c, err)
	}
	is := r.View()
	if f, open := Former(is.Arrays[is.Only].Slots[0]); !open || f != 0 {
		t.Errorf("the slot that was open has the former owner %d, open %v", f, open)
	}
	r.Sweep(71*time.Second, func(func(Remembered) bool) {})
	if v := r.View(); v.Arrays[v.Only].Open != 1 {
		t.Errorf("open since the restore at 10 s, with a window of 60 s: at 71 s %d are open, want the one opened at 11 s", v.Arrays[v.Only].Open)
	}
}

func TestRestoreRefusesNonsense(t *testing.T) {
	settled := func(owner uint32) uint32 { return 0xffff0000 | owner }
	rootOf := func(w uint32) Array { return Array{Slots: []uint32{w}} }
	for name, v := range map[string]View{
		"nothing":             {Idle: 1},
		"a root to nowhere":   {Idle: 1, Arrays: []Array{rootOf(settled(1))}},
		"a circle":            {Idle: 1, Arrays: []Array{rootOf(settled(1)), {Slots: []uint32{settled(1)}}}},
		"a former to nowhere": {Idle: 1, Arrays: []Array{rootOf(5<<16 | 1), {Leaf: true, Slots: []uint32{settled(0xffff)}}}},
		"an unknown backend":  {Idle: 1, Arrays: []Array{rootOf(settled(1)), {Leaf: true, Slots: []uint32{settled(3)}}}},
		"no idle timeout":     {Arrays: []Array{rootOf(settled(1)), {Leaf: true, Slots: []uint32{settled(0xffff)}}}},
	} {
		if _, err := Restore(v, 0); err == nil {
			t.Errorf("%s: restored", name)
		}
	}
}
