package conntrack

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Every change of a slot, one a line: its state, its new owner, who keeps
// their flows, and the state that follows.
func TestSlotReassign(t *testing.T) {
	const a, b, c = 1, 2, 3
	none := uint16(NoBackend)
	for _, x := range []struct {
		name  string
		was   slot
		owner uint16
		keep  string // who keeps, of "abc"
		is    slot
	}{
		{"nothing changes", settledSlot(a), a, "a", settledSlot(a)},
		{"drained", settledSlot(a), b, "ab", openSlot(b, a)},
		{"the owner is dead", settledSlot(a), b, "b", settledSlot(b)},
		{"excepted, drained", exceptedSlot(a), b, "ab", openSlot(b, a)},
		{"excepted, the owner is dead", exceptedSlot(a), b, "b", exceptedSlot(b)},
		{"excepted, nothing changes", exceptedSlot(a), a, "a", exceptedSlot(a)},
		{"a second change", openSlot(b, a), c, "abc", openSlot(c, a)},
		{"a second change, the second owner is dead", openSlot(b, a), c, "ac", openSlot(c, a)},
		{"a second change, the former is dead", openSlot(b, a), c, "bc", exceptedSlot(c)},
		{"back to the former", openSlot(b, a), a, "ab", exceptedSlot(a)},
		{"the former dies", openSlot(b, a), b, "b", exceptedSlot(b)},
		{"nobody is left but for what there is", settledSlot(a), none, "a", openSlot(none, a)},
		{"nobody is left at all", settledSlot(a), none, "", settledSlot(none)},
		{"somebody comes", settledSlot(none), a, "a", settledSlot(a)},
		{"somebody comes while the last one drains", openSlot(none, a), b, "ab", openSlot(b, a)},
		{"the last one drains and dies", openSlot(none, a), none, "", exceptedSlot(none)},
	} {
		keeps := func(i uint16) bool { return strings.Contains(x.keep, string(rune('a'+i-1))) }
		if got := x.was.reassign(x.owner, keeps); got != x.is {
			t.Errorf("%s: %08x, want %08x", x.name, got, x.is)
		}
	}
}

// members returns n backends that serve.
func members(n int) []Member {
	m := make([]Member, n)
	for i := range m {
		m[i] = Member{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80), true}
	}
	return m
}

// table returns slots that the given backends own in turn.
func table(n int, owners ...Backend) []Backend {
	t := make([]Backend, n)
	for i := range t {
		t[i] = owners[i%len(owners)]
	}
	return t
}

// service returns a service of one table of n slots that the given backends
// own in turn, out of four.
func service(n int, owners ...Backend) Desired {
	return Desired{Members: members(4), Tables: []Table{{1, table(n, owners...)}}, Top: 1, Idle: time.Hour}
}

func newTracker(t testing.TB, proto Proto, d Desired) *Tracker {
	t.Helper()
	tr, err := NewTracker(proto, 1<<16, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, tr, d, 0)
	return tr
}

func apply(t testing.TB, tr *Tracker, d Desired, now time.Duration) Change {
	t.Helper()
	c, err := tr.Apply(d, now)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestApplyRefusesContradictions(t *testing.T) {
	for want, bend := range map[string]func(*Desired){
		"idle timeout 0s":               func(d *Desired) { d.Idle = 0 },
		"cannot serve":                  func(d *Desired) { d.Members[0].Serves = false },
		"names backend 9":               func(d *Desired) { d.Tables[0].Slots[1] = 9 },
		"has no slots":                  func(d *Desired) { d.Tables[0].Slots = nil },
		"two tables":                    func(d *Desired) { d.Tables = append(d.Tables, d.Tables[0]) },
		"have the ID of others":         func(d *Desired) { d.Classes = append(d.Classes, Classes{ID: 1, To: []ID{1}}) },
		"are empty":                     func(d *Desired) { d.Classes = append(d.Classes, Classes{ID: 2}) },
		"there is no table":             func(d *Desired) { d.Top = 7 },
		"in a circle":                   func(d *Desired) { d.Classes = append(d.Classes, Classes{ID: 2, To: []ID{2}}) },
		"65535 backends":                func(d *Desired) { d.Members = members(65535) },
		"there are no classes with the": func(d *Desired) { d.Classes = append(d.Classes, Classes{ID: 2, To: []ID{1, 8}}) },
	} {
		tr := newTracker(t, TCP, service(5, 0, 1))
		before := tr.view.Load()
		d := service(5, 0, 1)
		bend(&d)
		if _, err := tr.Apply(d, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if tr.view.Load() != before {
			t.Errorf("%s: refused, and in force", want)
		}
	}
}

// Apply keeps nothing of what it was given.
func TestApplyCopies(t *testing.T) {
	d := service(5, 0)
	tr := newTracker(t, TCP, d)
	d.Tables[0].Slots[0], d.Members[0].Serves = 1, false
	if b := tr.Packet(Packet{}, 0); b != 0 {
		t.Errorf("backend %d, want 0", b)
	}
}

func TestBeforeTheFirstApply(t *testing.T) {
	tr, err := NewTracker(TCP, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	tr.Sweep(0)
	if b := tr.Packet(Packet{}, 0); b != NoBackend {
		t.Errorf("backend %d", b)
	}
	if s := tr.Stats(); s.Packets != 1 || s.SlotCounts != (SlotCounts{}) {
		t.Errorf("%+v", s)
	}
}

// The life of a slot: nothing is looked up before a change, what is needed is
// remembered during it, and nothing is looked up when it is over.
func TestLifeOfASlot(t *testing.T) {
	tr := newTracker(t, TCP, service(1, 0))
	old, young := packetOf(2, TCP), packetOf(4, TCP)
	expect := func(what string, got, want Backend) {
		t.Helper()
		if got != want {
			t.Errorf("%s: backend %d, want %d", what, got, want)
		}
	}
	expect("before", tr.Packet(old, 0), 0)
	if s := tr.Stats(); s.Lookups != 0 || s.Remembered != 0 {
		t.Errorf("settled: %+v", s)
	}
	if c := apply(t, tr, service(1, 1), time.Minute); c != (Change{Moved: 1, Opened: 1}) {
		t.Errorf("change %+v", c)
	}
	syn := young
	syn.New = true
	expect("old flow", tr.Packet(old, time.Minute), 0)
	expect("new flow", tr.Packet(syn, time.Minute), 1)
	if s := tr.Stats(); s.OpenSlots != 1 || s.Remembered != 1 || s.HalfOpen != 1 || s.Lookups != 2 {
		t.Errorf("open: %+v", s)
	}
	expect("new flow's second packet", tr.Packet(young, time.Minute), 1)
	if s := tr.Stats(); s.Remembered != 2 || s.HalfOpen != 0 {
		t.Errorf("the new flow is whole: %+v", s)
	}
	// The flow from before keeps the slot excepted, and goes on.
	for now := 30 * time.Minute; now <= 3*time.Hour; now += 30 * time.Minute {
		expect("old flow", tr.Packet(old, now), 0)
		tr.Sweep(now)
		if s, wantOpen := tr.Stats(), now <= 61*time.Minute; (s.OpenSlots == 1) != wantOpen || (s.ExceptedSlots == 1) == wantOpen {
			t.Errorf("at %v: %+v", now, s)
		}
	}
	other := packetOf(6, TCP)
	expect("unknown flow in an excepted slot", tr.Packet(other, 3*time.Hour), 1)
	tr.Sweep(4*time.Hour + time.Second)
	if s := tr.Stats(); s.SlotCounts != (SlotCounts{}) || s.Remembered != 0 {
		t.Errorf("after: %+v", s)
	}
}

func TestLearningWindow(t *testing.T) {
	for _, c := range []struct{ learning, closes time.Duration }{
		{0, time.Hour}, {time.Minute, time.Minute}, {2 * time.Hour, time.Hour},
	} {
		d := service(7, 0)
		d.LearningWindow = c.learning
		tr := newTracker(t, UDP, d)
		d.Tables = []Table{{1, table(7, 1)}}
		apply(t, tr, d, 0)
		tr.Sweep(c.closes)
		if n := tr.SlotCounts().OpenSlots; n != 7 {
			t.Errorf("window %v: %d slots open at its end", c.learning, n)
		}
		tr.Sweep(c.closes + 1)
		if n := tr.SlotCounts().OpenSlots; n != 0 {
			t.Errorf("window %v: %d slots open after it", c.learning, n)
		}
	}
}

// Without an idle timeout a slot stays open, however late it is.
func TestNoIdle(t *testing.T) {
	d := service(7, 0)
	d.Idle = NoIdle
	tr := newTracker(t, TCP, d)
	d.Tables = []Table{{1, table(7, 1)}}
	apply(t, tr, d, time.Hour)
	tr.Sweep(100 * 365 * 24 * time.Hour)
	if n := tr.SlotCounts().OpenSlots; n != 7 {
		t.Errorf("%d slots open", n)
	}
}

// A shift between priorities moves no flow, and opens classes, not slots.
func TestClassShift(t *testing.T) {
	d := service(11, 0, 1)
	d.Tables = append(d.Tables, Table{2, table(11, 2, 3)})
	to := make([]ID, 100)
	for i := range to {
		to[i] = 1
	}
	d.Classes, d.Top = []Classes{{ID: 9, To: to}}, 9
	tr := newTracker(t, TCP, d)
	home := map[int]Backend{}
	for id := range 1000 {
		home[id] = tr.Packet(packetOf(id, TCP), 0)
	}
	for i := range 30 {
		to[i] = 2
	}
	if c := apply(t, tr, d, 0); c != (Change{30, 30}) {
		t.Errorf("change %+v", c)
	}
	if n := tr.SlotCounts(); n != (SlotCounts{OpenClasses: 30}) {
		t.Errorf("%+v", n)
	}
	for id, b := range home {
		if got := tr.Packet(packetOf(id, TCP), 0); got != b {
			t.Errorf("flow %d moves from %d to %d", id, b, got)
		}
	}
	if s := tr.Stats(); s.Lookups != 300 {
		t.Errorf("%d lookups, want those of the 30 classes only", s.Lookups)
	}
}

// A table of another size, or classes where there were none, move no flow
// either, and are forgotten when they have settled.
func TestReshape(t *testing.T) {
	tr := newTracker(t, TCP, service(11, 0, 1, 2, 3))
	home := map[int]Backend{}
	for id := range 500 {
		home[id] = tr.Packet(packetOf(id, TCP), 0)
	}
	d := service(13, 3, 1, 0)
	apply(t, tr, d, 0)
	d.Classes, d.Top = []Classes{{ID: 5, To: []ID{1, 2, 2}}}, 5
	d.Tables = append(d.Tables, Table{2, table(17, 2)})
	apply(t, tr, d, 0)
	for id, b := range home {
		if got := tr.Packet(packetOf(id, TCP), time.Second); got != b {
			t.Errorf("flow %d moves from %d to %d", id, b, got)
		}
	}
	tr.Sweep(3 * time.Hour)
	v := tr.view.Load()
	n := 0
	for _, a := range v.arrays {
		if a != nil {
			n++
		}
	}
	if n != 4 {
		t.Errorf("%d arrays are left, want the root, the classes and two tables", n)
	}
	apply(t, tr, service(13, 3, 1, 0), 3*time.Hour)
	tr.Sweep(6 * time.Hour)
	if v := tr.view.Load(); v.only == nil {
		t.Error("one table is left and the way to it is still looked up")
	}
}

func TestTrackAll(t *testing.T) {
	d := service(5, 0, 1)
	d.Track = TrackAll
	tr := newTracker(t, TCP, d)
	for id := range 100 {
		p := packetOf(id, TCP)
		p.New = true
		tr.Packet(p, 0)
		tr.Packet(packetOf(id, TCP), 0)
	}
	if s := tr.Stats(); s.Remembered != 100 || s.Lookups != 200 || s.OpenSlots != 0 {
		t.Errorf("%+v", s)
	}
	seen := map[Flow]bool{}
	for f, r := range tr.Flows() {
		seen[f] = true
		if want := Backend(r.Hash % 5 % 2); r.Backend != want {
			t.Errorf("flow %v is listed with %d, want %d", f, r.Backend, want)
		}
	}
	for id := range 100 {
		if f := packetOf(id, TCP).Flow; !seen[f] {
			t.Errorf("flow %v is not listed", f)
		}
	}
}

// Untracked flows follow the table, and what was remembered before is no more
// when tracking is on again.
func TestTrackOff(t *testing.T) {
	tr := newTracker(t, UDP, service(1, 0))
	apply(t, tr, service(1, 1), 0)
	p := packetOf(8, UDP)
	if b := tr.Packet(p, 0); b != 0 {
		t.Fatalf("backend %d, want the former", b)
	}
	off := service(1, 1)
	off.Track = TrackOff
	apply(t, tr, off, 0)
	lookups := tr.Stats().Lookups
	if b := tr.Packet(p, 0); b != 1 || tr.Stats().Lookups != lookups {
		t.Errorf("backend %d after %d lookups", b, tr.Stats().Lookups-lookups)
	}
	apply(t, tr, service(1, 2), 0) // on again, and the flow lives on 1
	if b := tr.Packet(p, 0); b != 1 {
		t.Errorf("backend %d, want 1", b)
	}
}

// 99 % of the live flows, filling half of the room, keep their backend through
// a change under a flood of SYNs of ten times the room.
func TestSYNFlood(t *testing.T) {
	const room = 8192
	for _, halfOpen := range []int{room / 8, room} {
		tr, err := NewTracker(TCP, room, halfOpen)
		if err != nil {
			t.Fatal(err)
		}
		apply(t, tr, service(1009, 0, 1, 2), 0)
		var flows []Packet
		var home []Backend
		for id := range room / 2 {
			p := packetOf(2*id, TCP) // all of one family, for the worst case
			flows, home = append(flows, p), append(home, tr.Packet(p, 0))
		}
		apply(t, tr, service(1009, 3), time.Second)
		flood := func(now time.Duration) (kept int) {
			for i := range 10 * room {
				syn := packetOf(1<<22+2*i, TCP)
				syn.New = true
				tr.Packet(syn, now)
				if i%20 == 0 && i/20 < len(flows) && tr.Packet(flows[i/20], now) == home[i/20] {
					kept++
				}
			}
			return kept
		}
		// While the slots are open, and again when nothing but what is remembered
		// says where the flows are.
		for _, now := range []time.Duration{time.Second, 30 * time.Minute, time.Hour + 2*time.Second} {
			if kept := flood(now); kept*100 < len(flows)*99 {
				t.Errorf("room for %d half-open flows, at %v: %d of %d flows keep their backend", halfOpen, now, kept, len(flows))
			}
			tr.Sweep(now)
		}
		if s := tr.Stats(); s.OpenSlots != 0 || s.Overflow != 0 || s.HalfOpenOverflow == 0 {
			t.Errorf("%+v", s)
		}
		if kept := flood(time.Hour + 3*time.Second); kept*100 < len(flows)*99 {
			t.Errorf("room for %d half-open flows, closed: %d of %d flows keep their backend", halfOpen, kept, len(flows))
		}
	}
}

// Classes that keep their ID and size, but go by the other hash, are others.
func TestReshapeHash(t *testing.T) {
	d := service(11, 0)
	d.Tables = append(d.Tables, Table{2, table(11, 1)})
	d.Classes, d.Top = []Classes{{ID: 9, To: []ID{1, 2}}}, 9
	tr := newTracker(t, TCP, d)
	home := map[int]Backend{}
	for id := range 100 {
		home[id] = tr.Packet(packetOf(id, TCP), 0)
	}
	d.Classes = []Classes{{ID: 9, By: ByClassHash, To: []ID{1, 2}}}
	apply(t, tr, d, 0)
	moved := 0
	for id, b := range home {
		if got := tr.Packet(packetOf(id, TCP), 0); got != b {
			t.Errorf("flow %d moves from %d to %d", id, b, got)
		}
		p := packetOf(id+200, TCP)
		p.New, p.ClassHash = true, p.Hash+1
		if tr.Packet(p, 0) != home[id] {
			moved++
		}
	}
	if moved != 100 {
		t.Errorf("%d of 100 new flows go by the other hash", moved)
	}
}

// A changed timeout holds at once, also if nothing else changes.
func TestIdleChanges(t *testing.T) {
	tr := newTracker(t, TCP, service(1, 0))
	apply(t, tr, service(1, 1), 0)
	tr.Packet(packetOf(0, TCP), 0)
	d := service(1, 1)
	d.Idle = time.Minute
	if c := apply(t, tr, d, 0); c != (Change{}) {
		t.Errorf("change %+v", c)
	}
	tr.Sweep(61 * time.Second)
	if s := tr.Stats(); s.Remembered != 0 || s.SlotCounts != (SlotCounts{}) {
		t.Errorf("%+v", s)
	}
}

// Steering without a Tracker, as for a program that has flows of its own: what
// is over, void, or where it belongs lets a slot settle, a live exception does
// not.
func TestSweepOfOthersFlows(t *testing.T) {
	const now = 2 * time.Hour
	for name, c := range map[string]struct {
		flow  Remembered
		holds bool
	}{
		"live, elsewhere":   {Remembered{Backend: 0, Last: now - time.Hour}, true},
		"idle":              {Remembered{Backend: 0, Last: now - time.Hour - 1}, false},
		"void":              {Remembered{Backend: 2, Last: now}, false},
		"in its generation": {Remembered{Backend: 2, Last: now, Generation: 1}, true},
		"with the owner":    {Remembered{Backend: 1, Last: now}, false},
		"with nobody":       {Remembered{Backend: 77, Last: now}, false},
	} {
		var s Steering
		d := service(1, 0)
		dead := service(1, 1)
		dead.Members[2].Serves = false
		for i, d := range []Desired{d, dead, service(1, 1)} {
			if _, err := s.Apply(d, time.Duration(i)); err != nil {
				t.Fatal(err)
			}
		}
		s.Sweep(now, func(yield func(Remembered) bool) { yield(c.flow) })
		if n := s.SlotCounts(); n.OpenSlots != 0 || (n.ExceptedSlots == 1) != c.holds {
			t.Errorf("%s: %+v", name, n)
		}
	}
}
