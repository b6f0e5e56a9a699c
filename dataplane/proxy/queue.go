package proxy

import (
	"sync"
	"sync/atomic"

	"github.com/guideway/guideway/dataplane"
)

// hostQueues holds the connections that wait for a host which has as many as it may have
// (per_host_thresholds.max_connections). They wait in the order in which they came, over all workers.
type hostQueues struct {
	waiting atomic.Int64 // all together; 0 spares the lock
	mu      sync.Mutex
	hosts   map[*dataplane.HostState][]*waiter
}

// waiter is one waiting connection. Its fields are the worker's; gone says that it does not wait any more.
type waiter struct {
	c    *conn
	t    *tcpState
	gone bool
}

// mustQueue puts the connection into its host's queue if the host is full. A host without connections
// takes one whatever the limit says, as in Envoy: nothing would ever wake the queue.
func (c *conn) mustQueue() bool {
	limit := c.cluster.Breakers.PerHostMaxConnections
	if limit == nil {
		return false
	}
	n := c.host.State.CxActive.Load()
	if n < int64(*limit) {
		return false
	}
	c.cluster.Stats.UpstreamCxOverflow.Inc()
	if n == 0 {
		return false
	}
	c.state = stateQueued
	w := &waiter{c: c, t: c.t}
	c.more().waiting = w
	q := &c.t.shared.queues
	q.mu.Lock()
	if q.hosts == nil {
		q.hosts = map[*dataplane.HostState][]*waiter{}
	}
	q.hosts[c.host.State] = append(q.hosts[c.host.State], w)
	q.waiting.Add(1)
	q.mu.Unlock()
	if c.host.State.CxActive.Load() == 0 {
		q.wake(c.host.State) // the last one ended meanwhile, on another worker
	}
	return true
}

// wake lets the first in a host's queue go on.
func (q *hostQueues) wake(h *dataplane.HostState) {
	q.mu.Lock()
	list := q.hosts[h]
	if len(list) == 0 {
		q.mu.Unlock()
		return
	}
	w := list[0]
	if len(list) == 1 {
		delete(q.hosts, h)
	} else {
		q.hosts[h] = list[1:]
	}
	q.waiting.Add(-1)
	q.mu.Unlock()
	w.t.w.post(func() {
		if w.gone {
			q.wake(h) // it left; the next one is due
			return
		}
		w.c.leaveQueue()
	})
}

// leaveQueue goes on with a connection that waited.
func (c *conn) leaveQueue() {
	c.x.waiting.gone = true
	c.x.waiting = nil
	if c.dial() || c.waitBackoff() {
		return
	}
	c.connect()
}

// abandon takes a connection that ends out of its queue.
func (q *hostQueues) abandon(h *dataplane.HostState, w *waiter) {
	w.gone = true
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.hosts[h]
	for i := range list {
		if list[i] == w {
			if len(list) == 1 {
				delete(q.hosts, h)
			} else {
				q.hosts[h] = append(list[:i:i], list[i+1:]...)
			}
			q.waiting.Add(-1)
			return
		}
	}
}
