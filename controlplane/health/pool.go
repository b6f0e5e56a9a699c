package health

import "sync"

// Pool bounds how many probes run at a time, over all checkers that share it. A probe costs a
// goroutine and a file descriptor while it runs, an idle host neither (but for a kept connection).
type Pool struct {
	mu      sync.Mutex
	free    int
	waiting []func()
}

// DefaultProbes is the size of a pool that leaves room for connections under common descriptor limits.
const DefaultProbes = 1024

// NewPool returns a pool of n probes at a time, DefaultProbes if n is not above 0.
func NewPool(n int) *Pool {
	if n <= 0 {
		n = DefaultProbes
	}
	return &Pool{free: n}
}

// run calls f in a goroutine, now or as soon as there is room, first come first served. It never blocks.
func (p *Pool) run(f func()) {
	p.mu.Lock()
	if p.free == 0 {
		p.waiting = append(p.waiting, f)
		p.mu.Unlock()
		return
	}
	p.free--
	p.mu.Unlock()
	go p.work(f)
}

// work runs f and whatever waits, then gives the room back.
func (p *Pool) work(f func()) {
	for f != nil {
		f()
		f = nil
		p.mu.Lock()
		if len(p.waiting) > 0 {
			f = p.waiting[0]
			p.waiting[0] = nil
			p.waiting = p.waiting[1:]
		} else {
			p.waiting = nil
			p.free++
		}
		p.mu.Unlock()
	}
}
