package health

import (
	"container/heap"
	"time"
)

// schedule holds the sessions that wait for their next check, the earliest first.
type schedule struct{ h sessionHeap }

// add makes s wait till due.
func (q *schedule) add(s *session, due time.Time) {
	s.due = due
	heap.Push(&q.h, s)
}

// remove takes s out if it waits.
func (q *schedule) remove(s *session) {
	if s.index >= 0 {
		heap.Remove(&q.h, s.index)
	}
}

// next returns when the earliest session is due.
func (q *schedule) next() (due time.Time, ok bool) {
	if len(q.h) == 0 {
		return time.Time{}, false
	}
	return q.h[0].due, true
}

// pop takes the earliest session out if it is due, else returns nil.
func (q *schedule) pop(now time.Time) *session {
	if len(q.h) == 0 || q.h[0].due.After(now) {
		return nil
	}
	return heap.Pop(&q.h).(*session)
}

// sessionHeap implements heap.Interface; a session knows its place.
type sessionHeap []*session

func (h sessionHeap) Len() int           { return len(h) }
func (h sessionHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h sessionHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *sessionHeap) Push(x any) {
	s := x.(*session)
	s.index = len(*h)
	*h = append(*h, s)
}
func (h *sessionHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	s.index = -1
	return s
}
