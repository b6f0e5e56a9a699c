package proxy

import (
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// handler gets the events of one file descriptor. It runs on the loop's goroutine and must not block.
type handler interface {
	// ready is called with the epoll events that occurred (EPOLLIN, EPOLLOUT, EPOLLRDHUP, ...).
	ready(events uint32)
}

// loop is one event loop: an epoll set, timers and a queue of functions from other goroutines. All
// methods but post and stop are for the loop's own goroutine only.
//
// File descriptors are registered edge-triggered or level-triggered as the caller says. A descriptor
// must be removed before it is closed; events already fetched for it are then discarded, because
// slots of the handler table carry a generation that travels in the epoll data.
type loop struct {
	epfd, wakefd int
	now          time.Time // refreshed once per turn
	timers       timerWheel
	slots        []slot
	free         []uint32
	later        []handler // to be called in the next turn, which does not wait
	due          []handler
	busy         bool     // the last wait brought several events
	ending       []func() // to be called at the end of this turn
	lull         time.Duration

	woken bool // functions have been posted

	mu     sync.Mutex
	posted []func()
	awake  bool // the wake descriptor has been written and not yet read
	quit   bool
}

type slot struct {
	h   handler
	gen uint32
}

// token identifies a registered descriptor.
type token uint32

func newLoop() (*loop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	wakefd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epfd)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l := &loop{epfd: epfd, wakefd: wakefd, now: time.Now()}
	l.timers.init(l.now)
	if _, err := l.add(wakefd, unix.EPOLLIN, wakeHandler{l}); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

type wakeHandler struct{ l *loop }

func (w wakeHandler) ready(uint32) {
	var b [8]byte
	sysRead(w.l.wakefd, b[:])
	w.l.woken = true
}

// add registers fd. events may hold EPOLLET.
func (l *loop) add(fd int, events uint32, h handler) (token, error) {
	var i uint32
	if n := len(l.free); n > 0 {
		i, l.free = l.free[n-1], l.free[:n-1]
	} else {
		i = uint32(len(l.slots))
		l.slots = append(l.slots, slot{})
	}
	ev := unix.EpollEvent{Events: events, Fd: int32(i), Pad: int32(l.slots[i].gen)}
	if e := l.control(unix.EPOLL_CTL_ADD, fd, &ev); e != 0 {
		l.free = append(l.free, i)
		return 0, fmt.Errorf("epoll add: %w", e)
	}
	l.slots[i].h = h
	return token(i), nil
}

// control is epoll_ctl, which does not block.
func (l *loop) control(op, fd int, ev *unix.EpollEvent) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(l.epfd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(ev)), 0, 0)
	return e
}

// remove unregisters a descriptor; the caller closes it afterwards.
func (l *loop) remove(fd int, t token) {
	l.control(unix.EPOLL_CTL_DEL, fd, nil)
	l.slots[t].h = nil
	l.slots[t].gen++
	l.free = append(l.free, uint32(t))
}

// forget gives a registration up whose descriptor is closed right afterwards. The kernel takes a closed
// descriptor out of the epoll set by itself, which saves a call.
func (l *loop) forget(t token) {
	l.slots[t].h = nil
	l.slots[t].gen++
	l.free = append(l.free, uint32(t))
}

// rebind gives the events of a registered descriptor to another handler.
func (l *loop) rebind(t token, h handler) { l.slots[t].h = h }

// again calls h.ready(0) in the next turn: for a handler that has more to do than is fair in one turn.
func (l *loop) again(h handler) { l.later = append(l.later, h) }

// post runs f on the loop's goroutine, soon. Safe from any goroutine; f is dropped once the loop ended.
func (l *loop) post(f func()) {
	l.mu.Lock()
	l.posted = append(l.posted, f)
	wake := !l.awake
	l.awake = true
	l.mu.Unlock()
	if wake {
		l.wake()
	}
}

// call runs f on the loop and waits until it has run. Not for the loop's own goroutine.
func (l *loop) call(f func()) {
	done := make(chan struct{})
	l.post(func() { f(); close(done) })
	<-done
}

// atEndOfTurn has f called once, before the loop sleeps again: for work that is cheaper done for many
// events at once.
func (l *loop) atEndOfTurn(f func()) { l.ending = append(l.ending, f) }

// rest makes the loop sleep for some microseconds before it looks for events again.
func (l *loop) rest(d time.Duration) { l.lull = d }

func (l *loop) endTurn() {
	for i := 0; i < len(l.ending); i++ { // one may add another
		l.ending[i]()
	}
	clear(l.ending)
	l.ending = l.ending[:0]
}

func (l *loop) wake() {
	one := [8]byte{1}
	unix.Write(l.wakefd, one[:])
}

// stop ends run after the present turn. Safe from any goroutine.
func (l *loop) stop() {
	l.post(func() { l.quit = true })
}

// run serves events until stop. It locks its goroutine to a thread, so that epoll_wait costs no
// rescheduling.
func (l *loop) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The thread's short sleeps are to be short (the kernel's default makes them up to 50 µs longer).
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0)
	events := make([]unix.EpollEvent, 256)
	for !l.quit {
		n, err := l.wait(events)
		l.now = time.Now()
		if err != nil && err != unix.EINTR {
			panic(fmt.Sprintf("epoll_wait: %v", err)) // the descriptor is ours: a bug
		}
		for i := range events[:max(n, 0)] {
			ev := &events[i]
			if s := &l.slots[ev.Fd]; s.h != nil && s.gen == uint32(ev.Pad) {
				s.h.ready(ev.Events)
			}
		}
		if len(l.later) > 0 {
			l.later, l.due = l.due[:0], l.later
			for i, h := range l.due {
				l.due[i] = nil
				h.ready(0)
			}
		}
		l.timers.advance(l.now)
		if l.woken {
			l.woken = false
			l.runPosted()
		}
		l.endTurn()
	}
	l.close()
}

// wait fetches events. A look that does not wait is cheaper than one that tells Go's scheduler that it
// may, and under load there mostly is something.
func (l *loop) wait(events []unix.EpollEvent) (int, error) {
	if l.lull > 0 && len(l.later) == 0 {
		// Shorter than epoll_wait can, and not worth telling Go's scheduler of.
		t := unix.NsecToTimespec(int64(l.lull))
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
	}
	l.lull = 0
	if more := len(l.later) > 0; more || l.busy {
		n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		l.busy = n > 1 && e == 0
		if e != 0 {
			return 0, e
		}
		if more || n > 0 {
			return int(n), nil
		}
	}
	n, err := unix.EpollWait(l.epfd, events, l.timers.next(l.now))
	l.busy = n > 1
	return n, err
}

func (l *loop) runPosted() {
	l.mu.Lock()
	fs := l.posted
	l.posted = nil
	l.awake = false
	l.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

func (l *loop) close() {
	unix.Close(l.epfd)
	unix.Close(l.wakefd)
}
