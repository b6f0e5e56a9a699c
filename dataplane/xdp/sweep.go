package xdp

import (
	"context"
	"net/netip"
	"time"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
)

// scan is what the last reading of all remembered flows found.
type scan struct {
	remembered, halfOpen, nat int
	ended                     time.Duration // when it was over
	took                      time.Duration
}

// sweeping is a service in the middle of a sweep.
type sweeping struct {
	s      *service
	sweep  *conntrack.Sweeping
	policy dataplane.HashPolicy
	seed   uint64
	// members as the maps have them: a flow's generation is compared with these.
	members []placedMember
	alive   []int // live flows by member
	idle    time.Duration
	failed  bool
}

// sweep closes what has been open for long enough, settles what no flow keeps from it, and ends backends that
// nothing needs any more. The flows are read once for all services, while nothing is locked.
func (p *Plane) sweep(ctx context.Context) {
	p.mu.Lock()
	if p.closed || !p.started {
		p.mu.Unlock()
		return
	}
	now := p.now()
	of := map[serviceKey]*sweeping{}
	var all []*sweeping
	needed := now-p.scan.ended > time.Minute // for the numbers alone
	for _, s := range p.services {
		w := &sweeping{s: s, policy: s.policy(), seed: s.classSeed(), idle: s.idle(), sweep: s.steering.BeginSweep(now)}
		// What is closed must be so for packets, too, before flows are read.
		if s.failed == nil {
			s.failed = p.publish(s)
		}
		w.failed = s.failed != nil
		w.members, w.alive = s.placed.members, make([]int, len(s.placed.members))
		needed = needed || w.sweep.Needed()
		for _, m := range s.members {
			needed = needed || m != nil && !m.wanted
		}
		for _, k := range s.placed.keys {
			of[k] = w
		}
		all = append(all, w)
	}
	// Reading a million flows takes a while: no more than a twentieth of the time.
	read := needed && now-p.scan.ended >= 20*p.scan.took
	p.mu.Unlock()

	var found scan
	complete := read
	if read {
		err := p.flows.flows(func(f rememberedFlow) bool {
			found.count(f)
			if w := of[serviceKey{f.flow.Dst, uint8(f.flow.Proto)}]; w != nil {
				w.see(f)
				if !f.nat && now-time.Duration(f.entry.Last) > w.idle && now-time.Duration(f.entry.Last) > w.idle+time.Minute {
					// Over for long: it counts for nobody, and packets would not find it either.
					_ = p.flows.forget(f)
				}
			}
			return ctx.Err() == nil
		})
		if err != nil {
			p.log.Error("slots stay open: the remembered flows cannot be read", "reason", err)
		}
		complete = err == nil && ctx.Err() == nil
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range all {
		w.sweep.End(complete && !w.failed)
		if p.closed || p.services[w.s.name] != w.s {
			continue
		}
		if complete {
			w.s.age(w)
		}
		w.s.release(p.now())
		if w.s.failed == nil {
			w.s.failed = p.publish(w.s)
		}
	}
	if complete {
		found.ended = p.now()
		found.took = found.ended - now
		p.scan = found
	}
	p.stats.update(p)
}

func (s *scan) count(f rememberedFlow) {
	switch {
	case f.nat:
		s.nat++
	case f.halfOpen:
		s.halfOpen++
	default:
		s.remembered++
	}
}

// see tells conntrack of a flow, in its own generations.
func (w *sweeping) see(f rememberedFlow) {
	b := f.entry.Backend
	if int(b) >= len(w.members) {
		return
	}
	m := w.members[b]
	r := conntrack.Remembered{Backend: b, Generation: m.generation, Last: time.Duration(f.entry.Last)}
	if m.entry.Generation != f.entry.Generation {
		r.Generation-- // of another one than the present: void
	}
	r.Hash, r.ClassHash = hashes(w.policy, w.seed, f.flow)
	if w.sweep.See(r) {
		w.alive[b]++
	}
}

// hashes are those that the program computes for a flow.
func hashes(policy dataplane.HashPolicy, classSeed uint64, f conntrack.Flow) (hash, classHash uint64) {
	hash, _ = policy.HashOf(dataplane.Protocol(f.Proto), plain(f.Src), plain(f.Dst))
	return hash, conntrack.Hash5Tuple(classSeed, f)
}

func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// age counts, for members that are not wanted, how often no flow of theirs was found.
func (s *service) age(w *sweeping) {
	for i, m := range s.members {
		switch {
		case m == nil || i >= len(w.alive):
		case m.wanted || w.alive[i] > 0:
			m.idle = 0
		default:
			m.idle++
		}
	}
}
