package churn

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/guideway/guideway/conntrack"
)

// simulation is one run: one rate of change, one way to track.
//
// Not every packet is simulated, and not every flow, but what is left out changes nothing:
//
//   - Slots are independent of each other: no flow has any part in the state of another slot than its own, and
//     the tracker has room for all. So a random sample of slots, each with all of its flows, stands for all. (A
//     sample of flows would not do: slots with fewer flows settle earlier.)
//   - Between two events (a change, a sweep) the states of slots stay. So all of a flow's packets in between do
//     look it up, or none does, and of these only the first can make it remembered, only the last decides when it is
//     idle. These two are sent, at random times of the distribution that they have among all packets, and with a
//     flow's very first packet. All packets in between are counted by their mean number, rate times time.
//   - So flows can be walked one by one from event to event.
type simulation struct {
	plan    *Plan
	random  *rand.Rand
	tracker *conntrack.Tracker
	fleet   *fleet
	flows   []flow
	slots   []uint32 // the sample
	words   []uint32 // of all slots, since the last event
	all     bool     // every packet looks its flow up

	begun, moved int
	sent         uint64 // packets given to the tracker, for looked
	looked       uint64 // of these, those that should have looked their flow up
	measuring    bool
	tally        []tally // by place in slots
	moments      moments
}

// flow is one that lives. It is followed by another when it ends, so that their number stays.
type flow struct {
	number  uint64
	place   int // in simulation.slots
	hash    uint64
	end     time.Duration
	backend conntrack.Backend
}

// tally counts packets of one slot.
type tally struct{ packets, lookups float64 }

// moments sums shares over time, by how long they lasted.
type moments struct {
	time, remembered, entries, open, excepted float64

	unseen time.Duration // since flows were counted
}

func simulate(ctx context.Context, p *Plan, track conntrack.Track, changes float64) (Point, error) {
	point := Point{Changes: changes, Track: track}
	// There is room for whatever is remembered, so that flows do not depend on each other; it is taken as needed.
	tracker, err := conntrack.NewTracker(p.Proto, math.MaxInt32, math.MaxInt32)
	if err != nil {
		return point, err
	}
	fleet, err := newFleet(p, track)
	if err != nil {
		return point, err
	}
	s := &simulation{
		plan: p, tracker: tracker, all: track == conntrack.TrackAll,
		// The same changes for all ways to track, and the same slots.
		random: rand.New(rand.NewPCG(p.Seed, 1)),
		fleet:  fleet, flows: make([]flow, p.sampled()), tally: make([]tally, p.Slots),
	}
	for _, slot := range s.random.Perm(int(p.TableSize))[:p.Slots] {
		s.slots = append(s.slots, uint32(slot))
	}
	if err := s.apply(0); err != nil {
		return point, err
	}
	for i := range s.flows {
		s.begin(&s.flows[i], 0)
	}
	end := p.WarmUp + p.Measured
	sweep, change := p.Sweep, time.Duration(math.MaxInt64)
	if changes > 0 {
		change = time.Duration(float64(time.Hour) / changes / 2)
	}
	done := 0
	for now := time.Duration(0); now < end; {
		if err := ctx.Err(); err != nil {
			return point, err
		}
		next := min(sweep, change, end)
		if now < p.WarmUp {
			next = min(next, p.WarmUp)
		}
		s.measuring = now >= p.WarmUp
		for i := range s.flows {
			s.walk(&s.flows[i], now, next)
		}
		s.observe(next-now, next == end)
		now = next
		if now == sweep {
			s.tracker.Sweep(now)
			sweep += p.Sweep
			if err := s.look(); err != nil {
				return point, err
			}
		}
		if now == change {
			if err := s.fleet.change(); err != nil {
				return point, err
			}
			if err := s.apply(now); err != nil {
				return point, err
			}
			done++
			change = time.Duration(float64(time.Hour) / changes * (float64(done) + 0.5))
		}
	}
	if err := s.audit(); err != nil {
		return point, err
	}
	s.result(&point)
	if done > 0 {
		point.ChangedSlots = float64(s.fleet.movedSlots) / float64(done)
	}
	return point, nil
}

// apply puts the backends that there are now in force.
func (s *simulation) apply(now time.Duration) error {
	change, err := s.tracker.Apply(s.fleet.desired(), now)
	if err != nil {
		return err
	}
	if now > 0 {
		s.fleet.movedSlots += change.Moved
	}
	return s.look()
}

// look takes the states of the slots.
func (s *simulation) look() error {
	v := s.tracker.View()
	if v.Only < 0 {
		return fmt.Errorf("the service has more than one table")
	}
	s.words = v.Arrays[v.Only].Slots
	return nil
}

// The high half of a slot's word, as conntrack.Array has it.
const (
	settled  = 0xffff
	excepted = 0xfffe
)

func (s *simulation) looksUp(place int) bool {
	return s.all || s.words[s.slots[place]]>>16 != settled
}

// begin makes f a new flow, in any slot of the sample, and sends its first packet.
func (s *simulation) begin(f *flow, now time.Duration) {
	s.begun++
	place := s.random.IntN(len(s.slots))
	*f = flow{
		number: uint64(s.begun), place: place,
		hash:    uint64(s.slots[place]) + uint64(s.plan.TableSize)*uint64(s.random.Uint32()),
		end:     now + s.exponential(s.plan.Life),
		backend: conntrack.NoBackend,
	}
	s.send(f, now, s.plan.Proto == conntrack.TCP)
	s.count(f, 1)
}

// walk sends the packets of f, and of the flows that follow it, from one event to the next.
func (s *simulation) walk(f *flow, from, to time.Duration) {
	for {
		until := min(f.end, to)
		s.count(f, s.plan.Rate*(until-from).Seconds())
		gap := time.Duration(float64(time.Second) / s.plan.Rate)
		if first := from + s.exponential(gap); first < until {
			s.send(f, first, false)
			// What follows the first one is as random backwards as forwards.
			if last := until - s.exponential(gap); last > first {
				s.send(f, last, false)
			}
		}
		if f.end >= to {
			return
		}
		from = f.end
		s.begin(f, from)
	}
}

func (s *simulation) send(f *flow, now time.Duration, syn bool) {
	b := s.tracker.Packet(conntrack.Packet{Flow: s.key(f), Hash: f.hash, New: syn}, now)
	s.sent++
	if s.looksUp(f.place) {
		s.looked++
	}
	if f.backend != conntrack.NoBackend && f.backend != b {
		s.moved++ // every backend that was ever there can serve
	}
	f.backend = b
}

func (s *simulation) count(f *flow, packets float64) {
	if !s.measuring {
		return
	}
	t := &s.tally[f.place]
	t.packets += packets
	if s.looksUp(f.place) {
		t.lookups += packets
	}
}

var vip = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 443)

// key is the flow's addresses, which no other flow of the run has.
func (s *simulation) key(f *flow) conntrack.Flow {
	n := f.number
	src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), uint16(n>>32)+1024)
	return conntrack.Flow{Src: src, Dst: vip, Proto: s.plan.Proto}
}

func (s *simulation) exponential(mean time.Duration) time.Duration {
	return time.Duration(min(s.random.ExpFloat64()*float64(mean), math.MaxInt64/4))
}

// observe notes how the slots are in a stretch between two events, and, from time to time, which flows are
// remembered at its end.
func (s *simulation) observe(lasted time.Duration, last bool) {
	if !s.measuring || lasted <= 0 {
		return
	}
	m, w := &s.moments, lasted.Seconds()/float64(len(s.slots))
	m.time += lasted.Seconds()
	m.open += lasted.Seconds() * float64(s.tracker.SlotCounts().OpenSlots) / float64(len(s.words))
	for _, slot := range s.slots {
		if s.words[slot]>>16 == excepted {
			m.excepted += w
		}
	}
	if m.unseen += lasted; m.unseen < betweenCounts && !last {
		return
	}
	live := make(map[netip.AddrPort]bool, len(s.flows))
	for i := range s.flows {
		live[s.key(&s.flows[i]).Src] = true
	}
	var entries, remembered int
	for f := range s.tracker.Flows() {
		entries++
		if live[f.Src] {
			remembered++
		}
	}
	w = m.unseen.Seconds() / float64(len(s.flows))
	m.entries += w * float64(entries)
	m.remembered += w * float64(remembered)
	m.unseen = 0
}

// betweenCounts is the simulated time between two counts of remembered flows, since counting takes most of the
// time of a run otherwise.
const betweenCounts = 2 * time.Minute

// audit holds what was counted to what the tracker counted.
func (s *simulation) audit() error {
	n := s.tracker.Stats()
	if n.Packets != s.sent || n.Lookups != s.looked {
		return fmt.Errorf("%d of %d packets looked their flow up, but the tracker counted %d of %d", s.looked, s.sent, n.Lookups, n.Packets)
	}
	if n.Overflow+n.HalfOpenOverflow > 0 {
		return fmt.Errorf("%d flows were forgotten for want of room", n.Overflow+n.HalfOpenOverflow)
	}
	return nil
}

func (s *simulation) result(p *Point) {
	var sum tally
	for _, t := range s.tally {
		sum.packets, sum.lookups = sum.packets+t.packets, sum.lookups+t.lookups
	}
	if sum.packets > 0 {
		p.Lookups = sum.lookups / sum.packets
		var squares float64 // the standard error of a ratio
		for _, t := range s.tally {
			squares += math.Pow(t.lookups-p.Lookups*t.packets, 2)
		}
		p.Error = math.Sqrt(squares) / sum.packets
	}
	m := s.moments
	p.Remembered, p.Entries, p.Open, p.Excepted = m.remembered/m.time, m.entries/m.time, m.open/m.time, m.excepted/m.time
	p.Moved, p.Begun = s.moved, s.begun
}
