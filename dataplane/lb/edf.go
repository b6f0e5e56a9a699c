package lb

import "container/heap"

// edf is an earliest-deadline-first schedule: entries come up in proportion to their weights, evenly
// spread (Envoy: EDF scheduler). Not safe for concurrent use.
type edf struct {
	queue   edfQueue
	now     float64
	counter uint64
}

type edfEntry struct {
	deadline float64
	order    uint64 // first come, first served among equal deadlines
	index    int
}

type edfQueue []edfEntry

func (q edfQueue) Len() int { return len(q) }
func (q edfQueue) Less(i, j int) bool {
	if q[i].deadline != q[j].deadline {
		return q[i].deadline < q[j].deadline
	}
	return q[i].order < q[j].order
}
func (q edfQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *edfQueue) Push(x any)   { *q = append(*q, x.(edfEntry)) }
func (q *edfQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	return e
}

// newEDF schedules indexes 0..n-1 with the given weights; those without weight never come up.
func newEDF(n int, weight func(int) float64) *edf {
	s := &edf{queue: make(edfQueue, 0, n)}
	for i := range n {
		if w := weight(i); w > 0 {
			s.queue = append(s.queue, edfEntry{deadline: 1 / w, order: s.counter, index: i})
			s.counter++
		}
	}
	heap.Init(&s.queue)
	return s
}

// pick returns the next index and puts it back with its present weight; -1 if there is none.
func (s *edf) pick(weight func(int) float64) int {
	if len(s.queue) == 0 {
		return -1
	}
	e := &s.queue[0]
	s.now = e.deadline
	index := e.index
	e.deadline = s.now + 1/weight(index)
	e.order = s.counter
	s.counter++
	heap.Fix(&s.queue, 0)
	return index
}
