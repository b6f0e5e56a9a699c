package proxy

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// race is one connect attempt to a host with several addresses (happy eyeballs, RFC 8305): addresses are
// tried one after the other, the next as soon as one fails or has not answered for a while; the first
// to connect wins.
type race struct {
	c       *conn
	rest    []netip.AddrPort
	runners []*runner
	next    timer
	err     unix.Errno
}

// runner is one connect under way.
type runner struct {
	side
	r    *race
	addr netip.AddrPort
}

// raceDelay is RFC 8305's Connection Attempt Delay, at Envoy's value.
const raceDelay = 300 * time.Millisecond

// startRace begins the first connect; an error means that no address could be tried.
func (c *conn) startRace() unix.Errno {
	r := &race{c: c, rest: interleave(c.host.Address, c.host.AdditionalAddresses), err: unix.EADDRNOTAVAIL}
	r.next.fire = func() { r.start() }
	c.more().race = r
	r.start()
	if len(r.runners) == 0 {
		c.x.race = nil
		return r.err
	}
	return 0
}

// interleave orders addresses by alternating families, beginning with the family of the first.
func interleave(first netip.AddrPort, more []netip.AddrPort) []netip.AddrPort {
	all := append([]netip.AddrPort{first}, more...)
	var same, other []netip.AddrPort
	for _, a := range all {
		if a.Addr().Is4() == first.Addr().Is4() {
			same = append(same, a)
		} else {
			other = append(other, a)
		}
	}
	out := all[:0:0]
	for i := range max(len(same), len(other)) {
		if i < len(same) {
			out = append(out, same[i])
		}
		if i < len(other) {
			out = append(out, other[i])
		}
	}
	return out
}

// start begins connects until one is under way.
func (r *race) start() {
	t := r.c.t
	for len(r.rest) > 0 {
		run := &runner{r: r, addr: r.rest[0]}
		r.rest = r.rest[1:]
		run.side.c = r.c
		if e := t.dial(&run.side, r.c.cluster, run.addr); e != 0 {
			r.err = e
			continue
		}
		t.w.rebind(run.token, run)
		r.runners = append(r.runners, run)
		break
	}
	if len(r.rest) > 0 {
		t.w.timers.arm(&r.next, t.w.now, raceDelay)
	}
}

// ready implements handler for a connect under way.
func (run *runner) ready(ev uint32) {
	r := run.r
	c := r.c
	if ev&unix.EPOLLERR != 0 {
		if e := sysSocketError(int(run.fd)); e != 0 {
			r.err = e
			run.side.close()
			for i := range r.runners {
				if r.runners[i] == run {
					r.runners = append(r.runners[:i], r.runners[i+1:]...)
					break
				}
			}
			r.start()
			if len(r.runners) == 0 {
				r.stop()
				c.attemptFailed("delayed_connect_error:_", r.err, false)
			}
			return
		}
	}
	if ev&(unix.EPOLLOUT|unix.EPOLLIN|unix.EPOLLHUP) == 0 {
		return
	}
	c.up = side{c: c, fd: run.fd, token: run.token, open: true, watched: true, writable: true}
	c.t.w.rebind(c.up.token, &c.up)
	run.open = false
	if run.addr != c.host.Address {
		c.x.remoteUp = run.addr
	}
	r.stop()
	c.up.ready(ev)
}

// stop ends all connects that are still under way.
func (r *race) stop() {
	r.c.t.w.timers.disarm(&r.next)
	for _, run := range r.runners {
		run.side.close()
	}
	r.runners, r.rest = nil, nil
	r.c.x.race = nil
}
