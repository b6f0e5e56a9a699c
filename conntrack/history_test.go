package conntrack

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// dice makes the choices of a history.
type dice interface{ roll(n int) int } // 0..n-1

type seeded struct{ *rand.Rand }

func (s seeded) roll(n int) int { return s.IntN(n) }

// steerer is what a history attacks.
type steerer interface {
	apply(d Desired, lost map[int]bool, now time.Duration) error
	sweep(now time.Duration)
	unsettled() int                                          // slots and classes that are not settled, and flows
	packet(id int, p Packet, now time.Duration) (int, error) // the backend, -1 for none
}

// setting is what stays the same in a history.
type setting struct {
	proto  Proto
	starts bool // a packet shows that it is a flow's first: TCP, or a proxy's UDP
	policy Policy
	track  Track
	learn  bool // LearningWindow is set
	flood  bool // floods of SYNs, beyond the room for half-open flows
	morph  bool // sizes of tables, and whether there are classes, change
	layout layout
	reuse  bool // indices of backends are given to other backends
}

type layout int

const (
	oneTable layout = iota
	priorities
	clusters
	prioritiesInClusters
	layouts
)

func (s setting) String() string {
	return fmt.Sprintf("proto %d starts %v policy %+v track %d learn %v flood %v morph %v layout %d reuse %v",
		s.proto, s.starts, s.policy, s.track, s.learn, s.flood, s.morph, s.layout, s.reuse)
}

func rollSetting(d dice) setting {
	coin := func(n int) bool { return d.roll(n) == 0 }
	s := setting{
		proto: TCP, starts: true,
		policy: Policy{CloseOnFailure: coin(2), MoveDraining: coin(2)},
		learn:  coin(5), flood: coin(5), morph: coin(3), reuse: coin(4),
		layout: layout(d.roll(int(layouts))),
	}
	if coin(2) {
		s.proto, s.starts, s.flood = UDP, coin(2), false
	}
	if coin(6) {
		s.track = TrackAll
	}
	return s
}

const (
	idle     = 50 * time.Second
	learning = 20 * time.Second
	halfRoom = 64 // for half-open flows, in histories with floods
)

// history is a service with its backends, and every flow there is.
type history struct {
	dice
	setting
	sut steerer

	now    time.Duration
	states []State
	epoch  []int // which backend an index stands for
	d      Desired
	before []Member         // at the last apply
	tables map[ID][]Backend // every table there ever was, as it was last
	to     map[ID][]ID      // the same of classes
	size   int

	seen  map[int]bool          // ids of flows that ever were
	home  map[int]int           // where a flow lives, while it must not move
	last  map[int]time.Duration // its last packet
	fresh map[int]bool          // nothing but a SYN so far
	alive []int
}

func play(d dice, set setting, sut steerer, steps int) error {
	h := &history{
		dice: d, setting: set, sut: sut,
		states: make([]State, 3+3*d.roll(2)), size: 5 + 6*d.roll(2),
		tables: map[ID][]Backend{}, to: map[ID][]ID{}, seen: map[int]bool{}, home: map[int]int{},
		last: map[int]time.Duration{}, fresh: map[int]bool{},
	}
	h.epoch = make([]int, len(h.states))
	h.before = make([]Member, len(h.states))
	if err := h.apply(); err != nil {
		return err
	}
	for step := range steps {
		if err := h.step(); err != nil {
			return fmt.Errorf("step %d at %v: %w", step, h.now, err)
		}
	}
	return h.calmDown()
}

func (h *history) percent(p int) bool { return h.roll(100) < p }

func (h *history) step() error {
	if h.percent(95) {
		h.now += []time.Duration{0, 1, 1, 2, 5}[h.roll(5)] * time.Second
	} else {
		h.now += h.alone() / 2
	}
	switch x := h.roll(100); {
	case x < 12:
		h.disturb()
		return h.apply()
	case x < 20:
		h.sut.sweep(h.now)
		return nil
	case x < 21 && h.flood:
		return h.floodOfSYNs()
	case x < 40 || len(h.alive) == 0:
		return h.begin(h.roll(4000))
	default:
		return h.goOn(h.roll(len(h.alive)))
	}
}

// alone is how long a flow may be silent and must not move.
func (h *history) alone() time.Duration {
	if h.learn {
		return learning
	}
	return idle
}

// disturb changes the state of a backend or two.
func (h *history) disturb() {
	for range 1 + h.roll(2) {
		b := h.roll(len(h.states))
		h.states[b] = []State{In, In, In, Degraded, Draining, FailedCheck, FailedOther, Panicking, Removed, RemovedFailing}[h.roll(10)]
		if h.reuse && h.percent(20) {
			h.epoch[b]++
		}
	}
	if h.morph && h.percent(15) {
		h.size = []int{5, 7, 11}[h.roll(3)]
	}
	if h.morph && h.percent(15) {
		h.layout = layout(h.roll(int(layouts)))
	}
	if h.morph && h.percent(10) {
		h.track = Track(h.roll(3))
	}
}

func (h *history) apply() error {
	h.desire()
	lost := map[int]bool{}
	for b, m := range h.d.Members {
		if was := h.before[b]; was.Serves && !m.Serves || was.Addr != m.Addr {
			lost[b] = true
		}
	}
	if err := h.sut.apply(h.d, lost, h.now); err != nil {
		return err
	}
	h.before = h.d.Members
	// A flow whose backend stopped serving is free to move, for ever.
	maps.DeleteFunc(h.home, func(_, b int) bool { return lost[b] || h.track == TrackOff })
	return nil
}

// desire makes a service for the states of the backends: tables and classes
// that are the old ones with some changes, or all new.
func (h *history) desire() {
	h.d = Desired{Idle: idle, Track: h.track}
	if h.learn {
		h.d.LearningWindow = learning
	}
	for b, s := range h.states {
		h.d.Members = append(h.d.Members, Member{
			Addr:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(h.epoch[b]), byte(b)}), 80),
			Serves: CanServe(h.proto, s, h.policy),
		})
	}
	switch h.layout {
	case oneTable:
		h.d.Top = 100
		h.table(100, 0, 1)
	case priorities:
		h.d.Top = 1
		for p := range 3 {
			h.table(ID(100+p), p, 3)
		}
		h.classes(1, ByHash, 4, 100, 101, 102)
	case clusters:
		h.d.Top = 2
		h.table(100, 0, 2)
		h.table(200, 1, 2)
		h.classes(2, ByClassHash, 7, 100, 200)
	case prioritiesInClusters:
		h.d.Top = 3
		for i, id := range []ID{100, 101, 200, 201} {
			h.table(id, i, 4)
		}
		h.classes(3, ByClassHash, 5, 4, 5)
		h.classes(4, ByHash, 4, 100, 101)
		h.classes(5, ByHash, 4, 200, 201)
	}
}

func (h *history) table(id ID, part, parts int) {
	var mine, any []Backend
	for b, s := range h.states {
		if s == In || s == Degraded || s == Panicking {
			any = append(any, Backend(b))
			if b%parts == part {
				mine = append(mine, Backend(b))
			}
		}
	}
	if len(mine) == 0 {
		mine = any
	}
	old := h.tables[id]
	anew := len(old) != h.size || h.percent(30)
	slots := make([]Backend, h.size)
	for i := range slots {
		switch {
		case len(mine) == 0:
			slots[i] = NoBackend
		case !anew && slices.Contains(mine, old[i]) && h.percent(90):
			slots[i] = old[i]
		default:
			slots[i] = mine[h.roll(len(mine))]
		}
	}
	h.tables[id] = slots
	h.d.Tables = append(h.d.Tables, Table{id, slots})
}

func (h *history) classes(id ID, by HashKind, n int, choice ...ID) {
	old := h.to[id]
	to := make([]ID, n)
	shift := h.percent(60)
	for i := range to {
		switch {
		case old == nil:
			to[i] = choice[0]
		case shift && h.percent(40):
			to[i] = choice[h.roll(len(choice))]
		default:
			to[i] = old[i]
		}
	}
	h.to[id] = to
	h.d.Classes = append(h.d.Classes, Classes{id, by, to})
}

// owner returns what the tables say, -1 for nobody.
func (h *history) owner(p Packet) int {
	for id := h.d.Top; ; {
		for _, t := range h.d.Tables {
			if t.ID == id {
				if b := t.Slots[p.Hash%uint64(len(t.Slots))]; b != NoBackend {
					return int(b)
				}
				return -1
			}
		}
		for _, c := range h.d.Classes {
			if c.ID == id {
				hash := p.Hash
				if c.By == ByClassHash {
					hash = p.ClassHash
				}
				id = c.To[hash%uint64(len(c.To))]
				break
			}
		}
	}
}

func packetOf(id int, proto Proto) Packet {
	src := netip.AddrFrom4([4]byte{10, byte(id >> 16), byte(id >> 8), byte(id)})
	dst := addrPort("192.0.2.1:443")
	if id%2 == 1 {
		a := src.As16()
		a[0] = 0x20
		src, dst = netip.AddrFrom16(a), addrPort("[2001:db8::1]:443")
	}
	return Packet{
		Flow: Flow{Proto: proto, Src: netip.AddrPortFrom(src, 1), Dst: dst},
		Hash: uint64(id), ClassHash: uint64(id) * 2654435761 >> 7,
	}
}

// held reports whether a flow is alive and its backend could serve all along.
func (h *history) held(id int) bool {
	_, ok := h.home[id]
	return ok && h.now-h.last[id] <= h.alone()
}

// begin sends the first packet of a flow, or a SYN of one that has sent nothing
// else once more.
func (h *history) begin(id int) error {
	if h.held(id) && !(h.fresh[id] && h.proto == TCP) {
		return nil
	}
	p := packetOf(id, h.proto)
	p.New = h.starts
	b, err := h.sut.packet(id, p, h.now)
	if err != nil {
		return err
	}
	if !h.seen[id] && h.starts && b != h.owner(p) {
		return fmt.Errorf("new flow %d goes to %d, the table says %d", id, b, h.owner(p))
	}
	h.fresh[id] = true
	h.alive = append(h.alive, id)
	return h.arrive(id, p, b)
}

// goOn sends one more packet of a flow, unless it has been silent for too long.
func (h *history) goOn(i int) error {
	id := h.alive[i]
	if h.now-h.last[id] > h.alone() {
		h.alive = slices.Delete(h.alive, i, i+1)
		delete(h.home, id)
		return nil
	}
	p := packetOf(id, h.proto)
	b, err := h.sut.packet(id, p, h.now)
	if err != nil {
		return err
	}
	// A flood may push a flow out that has shown its SYN only: an attempt, not
	// a connection.
	if home, ok := h.home[id]; ok && b != home && !(h.flood && h.fresh[id]) {
		return fmt.Errorf("flow %d moves from %d to %d", id, home, b)
	}
	h.fresh[id] = false
	return h.arrive(id, p, b)
}

// arrive checks what holds for every packet, and notes where the flow lives.
func (h *history) arrive(id int, p Packet, b int) error {
	owner := h.owner(p)
	switch {
	case b >= 0 && !h.d.Members[b].Serves:
		return fmt.Errorf("a packet of flow %d goes to %d, which cannot serve", id, b)
	case b < 0 && owner >= 0:
		return fmt.Errorf("a packet of flow %d is dropped, the table says %d", id, owner)
	case h.track == TrackOff && b != owner:
		return fmt.Errorf("a packet of flow %d goes to %d, untracked, the table says %d", id, b, owner)
	}
	delete(h.home, id)
	if b >= 0 {
		h.home[id] = b
	}
	h.seen[id], h.last[id] = true, h.now
	return nil
}

func (h *history) floodOfSYNs() error {
	for range 3 * halfRoom {
		p := packetOf(1<<16+h.roll(1<<22), h.proto)
		p.New = true
		if _, err := h.sut.packet(-1, p, h.now); err != nil {
			return err
		}
	}
	return nil
}

// calmDown lets every flow end: nothing may be left to look up.
func (h *history) calmDown() error {
	h.now += 2*idle + time.Second
	h.sut.sweep(h.now)
	if n := h.sut.unsettled(); n != 0 {
		return fmt.Errorf("%d slots, classes and flows are left when all flows are over", n)
	}
	return nil
}
