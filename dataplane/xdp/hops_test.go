package xdp

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// A backend gets another MAC and says nothing of it. Each second the neighbour is probed; when a probe is not
// answered until the next second, it is asked for by broadcast. So it is found in the third second at the latest.
func TestMovedMACIsAskedForWithinThreeSeconds(t *testing.T) {
	n := newFakeNet()
	a := addr(1)
	n.answer(a, 1)
	h := newHops(n)
	now := time.Minute
	h.get(a, now)
	h.tick(now)
	if !slices.Equal(n.probed, []netip.Addr{a}) {
		t.Fatalf("probed %v, want %v", n.probed, a)
	}
	n.states[a] = nudProbe // the kernel sends to the old MAC, and nobody answers
	now += time.Second
	h.tick(now)
	if !slices.Equal(n.forgot, []netip.Addr{a}) {
		t.Fatalf("asked %v by broadcast a second after the probe, want %v", n.forgot, a)
	}
	if x := h.get(a, now); !x.resolved || x.dst[5] != 1 {
		t.Errorf("meanwhile packets have nowhere to go: %+v", x)
	}
	before := h.get(a, now).version
	n.answer(a, 9)
	h.heard(neighbour{place{3, a}, n.macs[a], nudReachable}, now)
	if x := h.get(a, now); x.dst[5] != 9 || x.version == before || x.lost != 0 {
		t.Errorf("the new MAC is not in use: %+v", x)
	}
}

// What only changes the kernel's opinion of a neighbour, and not the way, is no change: nothing is pushed for it.
func TestStatesOfANeighbourAreNoChange(t *testing.T) {
	n := newFakeNet()
	n.answer(addr(1), 1)
	h := newHops(n)
	before := h.get(addr(1), 0).version
	for _, s := range []neighbourState{nudStale, nudDelay, nudProbe, nudIncomplete, nudReachable} {
		h.heard(neighbour{place{3, addr(1)}, n.macs[addr(1)], s}, time.Second)
	}
	if v := h.get(addr(1), time.Second).version; v != before {
		t.Errorf("version %d, was %d", v, before)
	}
}

func TestRoutesAreFollowed(t *testing.T) {
	n := newFakeNet()
	router := netip.MustParseAddr("10.0.0.200")
	far := netip.MustParseAddr("192.168.7.7")
	n.unreachable[far] = true
	h := newHops(n)
	if x := h.get(far, 0); x.resolved || x.reason == "" {
		t.Fatalf("%+v", x)
	}
	delete(n.unreachable, far)
	n.gateway[far] = router
	n.answer(router, 200)
	h.refresh(0)
	if x := h.get(far, 0); !x.resolved || x.gateway != router || x.dst[5] != 200 || x.onLink {
		t.Fatalf("%+v", x)
	}
	other := netip.MustParseAddr("10.0.0.201")
	n.gateway[far] = other
	h.refresh(0)
	if x := h.get(far, 0); x.resolved {
		t.Fatalf("the old router's MAC stands for the new one: %+v", x)
	}
	n.answer(other, 201)
	h.heard(neighbour{place{3, other}, n.macs[other], nudReachable}, 0)
	if x := h.get(far, 0); !x.resolved || x.dst[5] != 201 {
		t.Fatalf("%+v", x)
	}
}

func TestSpans(t *testing.T) {
	s := spans{what: "tables", capacity: 10}
	a, err := s.take(4)
	if err != nil || a != (span{0, 4}) {
		t.Fatal(a, err)
	}
	b, _ := s.take(4)
	if _, err := s.take(3); err == nil {
		t.Error("12 of 10 were given")
	}
	s.free(a)
	if c, err := s.take(3); err != nil || c != (span{0, 3}) {
		t.Error(c, err)
	}
	if s.reserve(span{5, 2}) || s.reserve(span{2, 2}) || s.reserve(span{9, 2}) {
		t.Error("what is used, or beyond the end, was reserved")
	}
	if !s.reserve(span{8, 2}) || b != (span{4, 4}) {
		t.Error("the rest was not")
	}
}

func TestMissingPrivilegesAreNamed(t *testing.T) {
	for _, c := range []struct {
		has  uint64
		want string
	}{
		{0, "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN"},
		{1 << 39, "CAP_PERFMON, CAP_NET_ADMIN"},
		{1<<39 | 1<<38, "CAP_NET_ADMIN"},
		{1 << 21, "CAP_NET_ADMIN"},
		{1<<21 | 1<<12, ""},
		{1<<39 | 1<<38 | 1<<12, ""},
	} {
		err := missing(c.has)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error()[:len("not allowed to use XDP: ")+len(c.want)] != "not allowed to use XDP: "+c.want) {
			t.Errorf("with %x: %v, want %q", c.has, err, c.want)
		}
	}
}
