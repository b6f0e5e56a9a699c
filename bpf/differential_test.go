package bpf

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/maglev"
)

// TestSameDecisionsAsConntrack plays random histories (flows, changes of
// tables, classes, backends, sweeps, time) to the program and to
// conntrack.Tracker: every packet must go to the same backend, and the same
// flows must be remembered. GUIDEWAY_HISTORIES sets how many.
func TestSameDecisionsAsConntrack(t *testing.T) {
	histories := 60
	if n, err := strconv.Atoi(os.Getenv("GUIDEWAY_HISTORIES")); err == nil {
		histories = n
	}
	if testing.Short() {
		histories = 10
	}
	b := newBed(t, nil)
	var packets, lookups uint64
	first := rand.Uint64N(1 << 32)
	if n, err := strconv.ParseUint(os.Getenv("GUIDEWAY_SEED"), 10, 64); err == nil {
		first = n
	}
	for i := range histories {
		h := newHistory(b, first+uint64(i))
		if err := h.play(400); err != nil {
			t.Fatalf("seed %d (%s): %v", first+uint64(i), h, err)
		}
		s := h.tracker.Stats()
		packets, lookups = packets+s.Packets, lookups+s.Lookups
	}
	t.Logf("%d histories from seed %d, %d packets, of which %d looked their flow up", histories, first, packets, lookups)
	if lookups*10 < packets {
		t.Errorf("%d of %d packets looked their flow up: the histories test little", lookups, packets)
	}
}

type history struct {
	*rand.Rand
	b       *bed
	tracker *conntrack.Tracker
	proto   conntrack.Proto
	track   conntrack.Track
	layout  int
	policy  uint8
	seed    uint64
	d       conntrack.Desired
	now     time.Duration

	service Service
	img     *conntrack.Image
	known   []memberState
	number  uint32 // of generations
	v6      bool
	started map[netip.AddrPort]bool
}

type memberState struct {
	gen    uint32
	serves bool
	number uint32
}

func (h *history) String() string {
	return fmt.Sprintf("protocol %d, track %d, layout %d, policy %d, IPv6 %v", h.proto, h.track, h.layout, h.policy, h.v6)
}

func newHistory(b *bed, seed uint64) *history {
	b.reset()
	b.closeTables()
	h := &history{
		Rand: rand.New(rand.NewPCG(seed, 1)), b: b, now: time.Hour,
		started: map[netip.AddrPort]bool{}, number: 1,
	}
	h.proto = []conntrack.Proto{conntrack.TCP, conntrack.UDP}[h.IntN(2)]
	h.track = []conntrack.Track{conntrack.TrackChanged, conntrack.TrackChanged, conntrack.TrackChanged, conntrack.TrackAll, conntrack.TrackOff}[h.IntN(5)]
	h.layout, h.policy, h.seed, h.v6 = h.IntN(4), uint8(h.IntN(3)), h.Uint64(), h.IntN(2) == 0
	if h.IntN(3) > 0 {
		h.policy = HashFiveTuple
	}
	var err error
	h.tracker, err = conntrack.NewTracker(h.proto, 1<<14, 1<<14)
	b.must(err)
	h.d = conntrack.Desired{Track: h.track, Idle: 50 * time.Second}
	if h.IntN(3) == 0 {
		h.d.LearningWindow = 20 * time.Second
	}
	for i := range 6 {
		h.d.Members = append(h.d.Members, conntrack.Member{Addr: addr(i), Serves: true})
	}
	h.service = Service{
		Id: 1, Seed: h.seed, ClassSeed: h.seed ^ 0x9e3779b97f4a7c15, Hash: h.policy, Arrays: 8, Backends: 0,
	}
	return h
}

func addr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), 80)
}

func (h *history) play(steps int) error {
	if err := h.apply(); err != nil {
		return err
	}
	for step := range steps {
		var err error
		switch r := h.IntN(100); {
		case r < 80:
			err = h.packet()
		case r < 88:
			err = h.change()
		case r < 94:
			h.now += time.Duration(h.IntN(15)) * time.Second
		case r < 95:
			h.now += time.Duration(h.IntN(80)) * time.Second
		default:
			h.tracker.Sweep(h.now)
			h.mirror()
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return h.compareFlows()
}

func (h *history) change() error {
	switch h.IntN(6) {
	case 0: // another backend takes an index
		i := h.IntN(len(h.d.Members))
		h.d.Members[i].Addr = addr(1000 + h.IntN(60000))
	case 1:
		h.d.Track = []conntrack.Track{h.track, h.track, conntrack.TrackOff, conntrack.TrackAll}[h.IntN(4)]
	case 2:
		h.layout = h.IntN(4)
	default:
		m := &h.d.Members[h.IntN(len(h.d.Members))]
		m.Serves = !m.Serves
	}
	return h.apply()
}

// apply makes tables for the members that serve, at random, most slots as they were.
func (h *history) apply() error {
	old := h.d.Tables
	table := func(id conntrack.ID, size int) {
		t := conntrack.Table{ID: id, Slots: make([]conntrack.Backend, size)}
		var before []conntrack.Backend
		for _, o := range old {
			if o.ID == id && len(o.Slots) == size {
				before = o.Slots
			}
		}
		empty := h.IntN(20) == 0
		for i := range t.Slots {
			if before != nil && h.IntN(4) > 0 && before[i] != conntrack.NoBackend && h.d.Members[before[i]].Serves {
				t.Slots[i] = before[i]
				continue
			}
			t.Slots[i] = conntrack.NoBackend
			if n := h.IntN(len(h.d.Members)); h.d.Members[n].Serves && !empty {
				t.Slots[i] = conntrack.Backend(n)
			}
		}
		h.d.Tables = append(h.d.Tables, t)
	}
	h.d.Tables, h.d.Classes = nil, nil
	size := []int{11, 11, 11, 37}[h.IntN(4)]
	classes := func(id conntrack.ID, by conntrack.HashKind, n int, to ...conntrack.ID) {
		c := conntrack.Classes{ID: id, By: by}
		for range n {
			c.To = append(c.To, to[h.IntN(len(to))])
		}
		h.d.Classes = append(h.d.Classes, c)
	}
	switch h.layout {
	case 0:
		table(1, size)
		h.d.Top = 1
	case 1:
		table(1, size)
		table(2, 7)
		classes(10, conntrack.ByHash, 100, 1, 2)
		h.d.Top = 10
	case 2:
		table(1, size)
		table(3, 5)
		classes(20, conntrack.ByClassHash, 13, 1, 3)
		h.d.Top = 20
	case 3:
		table(1, size)
		table(2, 7)
		table(3, 5)
		classes(10, conntrack.ByHash, 100, 1, 2)
		classes(11, conntrack.ByHash, 100, 3)
		classes(20, conntrack.ByClassHash, 13, 10, 11)
		h.d.Top = 20
	}
	_, err := h.tracker.Apply(h.d, h.now)
	h.mirror()
	return err
}

// mirror puts the tracker's state into the maps, in place: nothing else reads them.
func (h *history) mirror() {
	img, _ := h.tracker.Image()
	for i := range img.Members() {
		m, gen := img.Member(conntrack.Backend(i))
		if i == len(h.known) {
			h.known = append(h.known, memberState{gen: gen - 1})
		}
		if k := &h.known[i]; k.gen != gen || k.serves != m.Serves {
			h.number++
			if m.Serves == (h.number%2 == 1) {
				h.number++
			}
			*k = memberState{gen, m.Serves, h.number}
		}
		be := way{forwarding: ForwardIPIP}.backend()
		be.Generation = h.known[i].number
		copy(be.Addr[:], []byte{10, 9, 9, byte(i)})
		h.b.must(h.b.Backends.Put(h.service.Backends+uint32(i), be))
	}
	h.service.Members, h.service.Idle, h.service.Track = uint32(img.Members()), uint64(img.Idle()), uint8(img.Track())
	h.b.pushTables(&h.service, img, h.img)
	h.img = &img
	h.b.putService(h.vip(), uint8(h.proto), h.service)
}

func (h *history) vip() netip.AddrPort {
	if h.v6 {
		return vip6
	}
	return vip4
}

func (h *history) flow(i int) conntrack.Flow {
	f := conntrack.Flow{Dst: h.vip(), Proto: h.proto}
	port := uint16(1024 + i)
	if h.v6 {
		f.Src = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i / 3)}), port)
	} else {
		f.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i / 3)}), port)
	}
	return f
}

// hashes are those that the program must come to on its own.
func (h *history) hashes(f conntrack.Flow) (hash, class uint64) {
	class = conntrack.Hash5Tuple(h.service.ClassSeed, f)
	switch h.policy {
	case HashFiveTuple:
		return conntrack.Hash5Tuple(h.seed, f), class
	case HashSourceIP:
		return maglev.SourceIPHash(f.Src.Addr()), class
	}
	return h.seed, class
}

func (h *history) packet() error {
	f := h.flow(h.IntN(80))
	p := conntrack.Packet{Flow: f, New: h.proto == conntrack.TCP && (!h.started[f.Src] || h.IntN(6) == 0)}
	h.started[f.Src] = h.IntN(10) > 0
	p.Hash, p.ClassHash = h.hashes(f)
	h.b.setClock(h.now)
	l4 := udp(f.Src, f.Dst, "x")
	if h.proto == conntrack.TCP {
		flags := byte(tcpACK)
		if p.New {
			flags = tcpSYN
		}
		l4 = tcp(f.Src, f.Dst, flags, "")
	}
	want := h.tracker.Packet(p, h.now)
	verdict, out := h.b.run(frame(ip{src: f.Src.Addr(), dst: f.Dst.Addr(), proto: byte(h.proto)}.bytes(l4)))
	got := conntrack.NoBackend
	switch verdict {
	case "tx":
		got = conntrack.Backend(out[33])
	case "drop":
		if n := h.b.newEvents(); n["no_backend"] != 1 {
			return fmt.Errorf("flow %v dropped: %v", f, n)
		}
	default:
		return fmt.Errorf("flow %v: %s", f, verdict)
	}
	if got != want {
		return fmt.Errorf("flow %v (new %v) at %v went to %d, by the rules %d", f, p.New, h.now, got, want)
	}
	return nil
}

// compareFlows compares what is remembered and alive.
func (h *history) compareFlows() error {
	want := map[conntrack.Flow]conntrack.Remembered{}
	h.tracker.Sweep(h.now)
	for f, r := range h.tracker.Flows() {
		want[f] = r
	}
	for _, half := range []bool{false, true} {
		m := h.b.Flows4
		switch {
		case h.v6 && half:
			m = h.b.HalfOpen6
		case h.v6:
			m = h.b.Flows6
		case half:
			m = h.b.HalfOpen4
		}
		var v Flow
		var k4 conntrack.Key4
		var k6 conntrack.Key6
		it := m.Iterate()
		for {
			var f conntrack.Flow
			if h.v6 {
				if !it.Next(&k6, &v) {
					break
				}
				f = k6.Flow()
			} else {
				if !it.Next(&k4, &v) {
					break
				}
				f = k4.Flow()
			}
			if v.Generation != h.known[v.Backend].number || h.now-time.Duration(v.Last) > h.d.Idle {
				continue // void
			}
			r, ok := want[f]
			if !ok || r.Backend != conntrack.Backend(v.Backend) || r.Last != time.Duration(v.Last) {
				return fmt.Errorf("flow %v is remembered as %+v, by the rules %v %+v", f, v, ok, r)
			}
			delete(want, f)
		}
		if err := it.Err(); err != nil {
			return err
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("%d flows are not remembered: %v", len(want), want)
	}
	return nil
}
