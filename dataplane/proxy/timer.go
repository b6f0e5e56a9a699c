package proxy

import "time"

// timer calls fire once, when its time has come; embed it in the thing that waits. The zero value is
// not armed. 40 bytes and no allocation to arm, disarm or move.
type timer struct {
	fire       func()
	at         int64 // tick
	prev, next *timer
}

// armed reports whether the timer is waiting.
func (t *timer) armed() bool { return t.next != nil }

const (
	tick       = time.Millisecond
	wheelBits  = 8
	wheelSlots = 1 << wheelBits
	wheelDepth = 4 // 2^32 ms, 49 days; later timers wait in the last wheel and are put in again
)

// timerWheel is a hierarchical timing wheel (Varghese and Lauck 1987): O(1) to arm and disarm.
type timerWheel struct {
	start  time.Time
	now    int64
	count  int
	wheels [wheelDepth][wheelSlots]timer // list heads
}

func (w *timerWheel) init(now time.Time) {
	w.start = now
	for i := range w.wheels {
		for j := range w.wheels[i] {
			h := &w.wheels[i][j]
			h.prev, h.next = h, h
		}
	}
}

// arm sets t to fire d from now (the wheel's clock), moving it if it is armed. A d of 0 or less fires
// on the next turn of the loop.
func (w *timerWheel) arm(t *timer, now time.Time, d time.Duration) {
	w.disarm(t)
	at := int64((now.Sub(w.start) + d + tick - 1) / tick)
	t.at = max(at, w.now+1)
	w.place(t)
	w.count++
}

// disarm takes t out; it may not be armed.
func (w *timerWheel) disarm(t *timer) {
	if t.next == nil {
		return
	}
	t.prev.next, t.next.prev = t.next, t.prev
	t.prev, t.next = nil, nil
	w.count--
}

func (w *timerWheel) place(t *timer) {
	d := t.at - w.now
	level := 0
	for level < wheelDepth-1 && d >= 1<<(wheelBits*(level+1)) {
		level++
	}
	at := t.at
	if d >= 1<<(wheelBits*wheelDepth) {
		at = w.now + 1<<(wheelBits*wheelDepth) - 1
	}
	head := &w.wheels[level][at>>(wheelBits*level)&(wheelSlots-1)]
	t.prev, t.next = head.prev, head
	head.prev.next, head.prev = t, t
}

// next returns the longest time in ms that a loop may sleep: -1 without timers.
func (w *timerWheel) next(now time.Time) int {
	if w.count == 0 {
		return -1
	}
	// The lowest wheel tells exactly; beyond it sleep to the wheel's end at most and cascade there.
	for i := int64(1); i <= wheelSlots; i++ {
		t := w.now + i
		head := &w.wheels[0][t&(wheelSlots-1)]
		if head.next != head || t&(wheelSlots-1) == 0 {
			ms := t - int64(now.Sub(w.start)/tick)
			return int(max(ms, 0))
		}
	}
	return wheelSlots
}

// advance fires everything that is due at now.
func (w *timerWheel) advance(now time.Time) {
	target := int64(now.Sub(w.start) / tick)
	if w.count == 0 {
		w.now = max(w.now, target)
		return
	}
	for w.now < target {
		w.now++
		for level := 1; level < wheelDepth && w.now&(1<<(wheelBits*level)-1) == 0; level++ {
			w.cascade(level)
		}
		head := &w.wheels[0][w.now&(wheelSlots-1)]
		for head.next != head {
			t := head.next
			w.disarm(t)
			t.fire()
		}
	}
}

// cascade spreads one slot of a higher wheel over the lower ones.
func (w *timerWheel) cascade(level int) {
	head := &w.wheels[level][w.now>>(wheelBits*level)&(wheelSlots-1)]
	first, last := head.next, head.prev
	if first == head {
		return
	}
	head.prev, head.next = head, head
	last.next = nil
	for t := first; t != nil; {
		next := t.next
		w.place(t)
		t = next
	}
}
