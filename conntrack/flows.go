package conntrack

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// flowTable remembers flows in bounded LRUs, IPv4 and IPv6 apart, since size is
// cache misses. Each is cut into shards with a lock of their own.
type flowTable struct {
	v4   lru[Key4]
	v6   lru[Key6]
	seed uint64 // nobody outside can aim at one shard
}

// lru is the flows of one address family.
type lru[K comparable] struct {
	shards   []shard[K]
	overflow atomic.Uint64 // live flows forgotten for want of room
	halfOver atomic.Uint64 // the same of half-open ones
}

// shard keeps the flows that began with a SYN and have shown nothing else yet
// apart from all others, so that a flood of SYNs cannot evict these. A flow is
// in one of the two at most.
type shard[K comparable] struct {
	mu         sync.Mutex
	main, half *simplelru.LRU[K, Remembered]
	capacity   [2]int
}

// newFlowTable returns a table for about capacity flows and half half-open ones
// of either family.
func newFlowTable(capacity, half int) (*flowTable, error) {
	t := &flowTable{seed: rand.Uint64()}
	if err := t.v4.init(capacity, half); err != nil {
		return nil, err
	}
	if err := t.v6.init(capacity, half); err != nil {
		return nil, err
	}
	return t, nil
}

// Flows spread over the shards by hash, so that some shards fill before others:
// with at least this many in each, all but a few per cent of the capacity is of
// use.
const minShard = 4096

const maxShards = 64

func (l *lru[K]) init(capacity, half int) error {
	if capacity <= 0 || half <= 0 {
		return fmt.Errorf("conntrack: room for %d flows and %d half-open ones: both must be positive", capacity, half)
	}
	n := min(max(1, capacity/minShard), maxShards)
	l.shards = make([]shard[K], n)
	for i := range l.shards {
		s := &l.shards[i]
		s.capacity = [2]int{(capacity + n - 1) / n, (half + n - 1) / n}
		// The only error is a size that is not positive.
		s.main, _ = simplelru.NewLRU[K, Remembered](s.capacity[0], nil)
		s.half, _ = simplelru.NewLRU[K, Remembered](s.capacity[1], nil)
	}
	return nil
}

// clock is what the liveness of a remembered flow depends on.
type clock struct {
	v   *view
	now time.Duration
}

func (c clock) live(r Remembered) bool { return c.v.live(r.Backend, r.Generation, r.Last, c.now) }

// touch returns the backend of a flow that is remembered and alive, and notes
// that a packet of it came. A packet that is not its first (syn) makes a
// half-open flow a whole one.
func (t *flowTable) touch(f Flow, syn bool, c clock) (Backend, bool) {
	if k, ok := f.Key4(); ok {
		return t.v4.touch(k, xxh64(t.seed, k[:]), syn, c)
	}
	k := f.Key6()
	return t.v6.touch(k, xxh64(t.seed, k[:]), syn, c)
}

// remember puts a flow in the place of whatever was remembered of it.
func (t *flowTable) remember(f Flow, r Remembered, half bool, c clock) {
	if k, ok := f.Key4(); ok {
		t.v4.remember(k, xxh64(t.seed, k[:]), r, half, c)
		return
	}
	k := f.Key6()
	t.v6.remember(k, xxh64(t.seed, k[:]), r, half, c)
}

// expire forgets the flows that are idle or void.
func (t *flowTable) expire(c clock) {
	t.v4.expire(c)
	t.v6.expire(c)
}

// all yields every flow that is remembered, shard by shard; no lock is held
// while the caller looks at one.
func (t *flowTable) all() iter.Seq2[Flow, Remembered] {
	return func(yield func(Flow, Remembered) bool) {
		for k, r := range t.v4.all() {
			if !yield(k.Flow(), r) {
				return
			}
		}
		for k, r := range t.v6.all() {
			if !yield(k.Flow(), r) {
				return
			}
		}
	}
}

func (l *lru[K]) shard(hash uint64) *shard[K] { return &l.shards[hash%uint64(len(l.shards))] }

func (l *lru[K]) touch(k K, hash uint64, syn bool, c clock) (Backend, bool) {
	s := l.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.main.Peek(k); ok && c.live(r) {
		r.Last = c.now
		s.main.Add(k, r)
		return r.Backend, true
	}
	r, ok := s.half.Peek(k)
	if !ok || !c.live(r) {
		return NoBackend, false
	}
	r.Last = c.now
	l.add(s, k, r, syn, c)
	return r.Backend, true
}

func (l *lru[K]) remember(k K, hash uint64, r Remembered, half bool, c clock) {
	s := l.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	l.add(s, k, r, half, c)
}

// add puts the flow where it belongs and nowhere else. What has to go for it is
// an overflow, unless its time was over anyway.
func (l *lru[K]) add(s *shard[K], k K, r Remembered, half bool, c clock) {
	to, from, capacity, overflow := s.main, s.half, s.capacity[0], &l.overflow
	if half {
		to, from, capacity, overflow = s.half, s.main, s.capacity[1], &l.halfOver
	}
	from.Remove(k)
	if to.Len() == capacity && !to.Contains(k) {
		if _, oldest, ok := to.RemoveOldest(); ok && c.live(oldest) {
			overflow.Add(1)
		}
	}
	to.Add(k, r)
}

func (l *lru[K]) expire(c clock) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, m := range []*simplelru.LRU[K, Remembered]{s.main, s.half} {
			for _, k := range m.Keys() {
				if r, _ := m.Peek(k); !c.live(r) {
					m.Remove(k)
				}
			}
		}
		s.mu.Unlock()
	}
}

func (l *lru[K]) all() iter.Seq2[K, Remembered] {
	return func(yield func(K, Remembered) bool) {
		for i := range l.shards {
			s := &l.shards[i]
			s.mu.Lock()
			// Both are ordered from the oldest on.
			keys := append(s.main.Keys(), s.half.Keys()...)
			flows := append(s.main.Values(), s.half.Values()...)
			s.mu.Unlock()
			for j, k := range keys {
				if !yield(k, flows[j]) {
					return
				}
			}
		}
	}
}

func (l *lru[K]) len() (whole, half int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		whole, half = whole+s.main.Len(), half+s.half.Len()
		s.mu.Unlock()
	}
	return whole, half
}
