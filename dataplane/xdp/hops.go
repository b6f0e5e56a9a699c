package xdp

import (
	"fmt"
	"net/netip"
	"time"
)

// hop is the way to a backend: what the kernel's routes and neighbours say.
type hop struct {
	// resolved: packets can be sent. A neighbour that stops answering keeps its MAC for a while (hasMAC), so
	// that flows go on while it is asked for again.
	resolved bool
	hasMAC   bool
	reason   string // why it is not resolved
	ifindex  uint32
	gateway  netip.Addr // who has the MAC: a router, or the backend itself
	dst, src [6]byte
	mtu      uint16 // of IP packets, in bytes
	source   netip.Addr
	onLink   bool
	// state of the neighbour by the kernel's name, and since when it has not answered (zero: it does).
	state string
	lost  time.Duration
	// version changes with anything above but state and lost.
	version uint64
}

// network is what the kernel knows of ways. The kernel's is in netlink.go.
type network interface {
	// route returns the way to an address: interface, gateway if any, source and MTU.
	route(netip.Addr) (hop, error)
	// neighbours returns those that the kernel knows of, by place.
	neighbours() (map[place]neighbour, error)
	// ask makes the kernel resolve a neighbour that it does not know, as a packet to it would.
	ask(ifindex uint32, a netip.Addr) error
	// probe makes the kernel find out whether a neighbour it knows still answers.
	probe(ifindex uint32, a netip.Addr) error
	// forget makes the kernel give a neighbour's MAC up and ask everybody for it.
	forget(ifindex uint32, a netip.Addr) error
}

// place is where a neighbour is.
type place struct {
	ifindex uint32
	addr    netip.Addr
}

// neighbour is an entry of the kernel's neighbour table.
type neighbour struct {
	place
	mac   [6]byte
	state neighbourState
}

// neighbourState is one of linux/neighbour.h's NUD_ states, 0 for none.
type neighbourState uint16

const (
	nudIncomplete neighbourState = 1 << iota
	nudReachable
	nudStale
	nudDelay
	nudProbe
	nudFailed
	nudNoARP
	nudPermanent

	nudValid  = nudReachable | nudStale | nudDelay | nudProbe | nudNoARP | nudPermanent
	nudStatic = nudNoARP | nudPermanent
)

func (s neighbourState) String() string {
	names := []string{"INCOMPLETE", "REACHABLE", "STALE", "DELAY", "PROBE", "FAILED", "NOARP", "PERMANENT"}
	for i, name := range names {
		if s&(1<<i) != 0 {
			return name
		}
	}
	return "NONE"
}

// patience is how long a neighbour that does not answer keeps its MAC and its place in tables: some rounds of
// being asked for by broadcast, one a second.
const patience = 5 * time.Second

// hops follows the next hops of addresses, and keeps their neighbours known: each is probed once a second
// (Linux would find out after half a minute or later that a MAC has moved), and asked for by broadcast as
// soon as a probe is not answered. So a backend or router with a new MAC is found within 3 s without having
// to send anything. Not safe for concurrent use.
type hops struct {
	net     network
	of      map[netip.Addr]*hop
	version uint64
}

func newHops(n network) *hops { return &hops{net: n, of: map[netip.Addr]*hop{}} }

// get returns the way to an address, and follows it from then on.
func (h *hops) get(a netip.Addr, now time.Duration) hop {
	if h.of[a] == nil {
		h.learn([]netip.Addr{a}, now)
	}
	return *h.of[a]
}

// learn begins to follow the ways to addresses, and returns those that were not followed yet. The neighbours are
// read once for all.
func (h *hops) learn(all []netip.Addr, now time.Duration) (fresh []netip.Addr) {
	var known map[place]neighbour
	var err error
	for _, a := range all {
		if h.of[a] != nil {
			continue
		}
		if fresh == nil {
			known, err = h.net.neighbours()
		}
		fresh = append(fresh, a)
		x := &hop{}
		h.of[a] = x
		h.find(a, x, known, err, now)
		if x.ifindex != 0 && !x.hasMAC {
			_ = h.net.ask(x.ifindex, x.gateway) // asked again by tick
		}
	}
	return fresh
}

// keep follows only these addresses from then on.
func (h *hops) keep(wanted map[netip.Addr]bool) {
	for a := range h.of {
		if !wanted[a] {
			delete(h.of, a)
		}
	}
}

// find asks the kernel for the way to an address. known are its neighbours, if err is nil.
func (h *hops) find(a netip.Addr, x *hop, known map[place]neighbour, err error, now time.Duration) {
	r, noRoute := h.net.route(a)
	if noRoute != nil {
		h.update(x, hop{reason: noRoute.Error()})
		return
	}
	n := known[place{r.ifindex, r.gateway}]
	if err != nil {
		r.reason = err.Error()
		h.update(x, r)
		return
	}
	h.update(x, settleNeighbour(r, *x, n, now))
}

// settleNeighbour completes the route r by what is known of the neighbour; old is the hop before.
func settleNeighbour(r, old hop, n neighbour, now time.Duration) hop {
	r.state, r.reason, r.lost = n.state.String(), "", 0
	if n.state&nudValid != 0 {
		r.dst, r.hasMAC, r.resolved = n.mac, true, true
		return r
	}
	if old.hasMAC && old.ifindex == r.ifindex && old.gateway == r.gateway {
		r.lost = old.lost
		if r.lost == 0 {
			r.lost = now
		}
		if now-r.lost < patience {
			r.dst, r.hasMAC, r.resolved = old.dst, true, true
			return r
		}
	}
	r.dst, r.hasMAC, r.resolved = [6]byte{}, false, false
	r.reason = fmt.Sprintf("nobody answers for %s (%s)", r.gateway, r.state)
	return r
}

func (h *hops) update(x *hop, next hop) {
	next.version = x.version
	was, is := *x, next
	was.state, was.lost, is.state, is.lost = "", 0, "", 0
	if was != is || x.version == 0 {
		h.version++
		next.version = h.version
	}
	*x = next
}

// refresh asks for all ways anew: routes, links or addresses have changed.
func (h *hops) refresh(now time.Duration) {
	known, err := h.net.neighbours()
	for a, x := range h.of {
		h.find(a, x, known, err, now)
	}
}

// heard takes a change of a neighbour into account.
func (h *hops) heard(n neighbour, now time.Duration) {
	for _, x := range h.of {
		if (place{x.ifindex, x.gateway}) == n.place {
			h.update(x, settleNeighbour(*x, *x, n, now))
		}
	}
}

// tick is called once a second.
func (h *hops) tick(now time.Duration) {
	seen := map[place]bool{}
	known, err := h.net.neighbours()
	if err != nil {
		return // until the next second
	}
	for a, x := range h.of {
		if x.ifindex == 0 {
			h.find(a, x, known, nil, now) // there was no route
			continue
		}
		p := place{x.ifindex, x.gateway}
		n := known[p]
		h.update(x, settleNeighbour(*x, *x, n, now))
		if seen[p] {
			continue
		}
		seen[p] = true
		switch {
		case n.state&nudStatic != 0 || n.state == nudIncomplete:
		case n.state == nudProbe: // since the last tick at least
			_ = h.net.forget(p.ifindex, p.addr)
		case n.state&nudValid != 0:
			_ = h.net.probe(p.ifindex, p.addr)
		default:
			_ = h.net.ask(p.ifindex, p.addr)
		}
	}
}

// seed makes known what a former agent used as the way to an address, so that flows need not wait for its
// neighbour to answer again.
func (h *hops) seed(a netip.Addr, ifindex uint32, mac [6]byte) {
	if h.of[a] != nil {
		return
	}
	r, err := h.net.route(a)
	if err != nil || r.ifindex != ifindex {
		return
	}
	r.dst, r.hasMAC, r.resolved = mac, true, true
	x := &hop{}
	h.update(x, r)
	h.of[a] = x
}
