package proxy

import "golang.org/x/sys/unix"

// pipe is a kernel pipe through which bytes are spliced from one socket to another. It is held by a flow
// only while bytes are in it: two pipes for each connection would eat up the descriptors.
type pipe struct {
	r, w int
	size int // capacity in bytes
	n    int // bytes in it
}

// pipePool keeps empty pipes.
type pipePool struct{ free []*pipe }

const (
	// pipeSize is the capacity asked for. The kernel refuses it to a user who has many pipes already
	// (fs.pipe-user-pages-soft); then the pipe stays as it is.
	pipeSize = 1 << 20
	// maxPipes bounds the idle pipes of a worker (two descriptors each).
	maxPipes = 64
)

// get returns an empty pipe, nil if none can be had.
func (p *pipePool) get() *pipe {
	if n := len(p.free); n > 0 {
		x := p.free[n-1]
		p.free = p.free[:n-1]
		return x
	}
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	x := &pipe{r: fds[0], w: fds[1], size: 64 << 10}
	if n, err := unix.FcntlInt(uintptr(x.w), unix.F_SETPIPE_SZ, pipeSize); err == nil {
		x.size = n
	}
	return x
}

// put takes an empty pipe back.
func (p *pipePool) put(x *pipe) {
	if len(p.free) >= maxPipes {
		p.drop(x)
		return
	}
	p.free = append(p.free, x)
}

// drop closes a pipe, and with it what is in it.
func (p *pipePool) drop(x *pipe) {
	sysClose(x.r)
	sysClose(x.w)
}

func (p *pipePool) close() {
	for _, x := range p.free {
		p.drop(x)
	}
	p.free = nil
}

// trim closes all idle pipes, and tells whether there were any.
func (p *pipePool) trim() bool {
	any := len(p.free) > 0
	p.close()
	return any
}

// hold is a buffer for bytes that a receiver did not take yet.
type hold struct {
	buf  []byte
	rest []byte // what is still to be written
}

// holdPool keeps buffers of two sizes: most leftovers are either short messages or whole reads.
type holdPool struct{ small, large []*hold }

const (
	smallHold = 4 << 10
	maxHolds  = 32
)

// get returns a buffer for n bytes, at most readSize.
func (p *holdPool) get(n int) *hold {
	list, size := &p.small, smallHold
	if n > smallHold {
		list, size = &p.large, readSize
	}
	if k := len(*list); k > 0 {
		h := (*list)[k-1]
		*list = (*list)[:k-1]
		return h
	}
	return &hold{buf: make([]byte, size)}
}

func (p *holdPool) put(h *hold) {
	h.rest = nil
	var list *[]*hold
	switch len(h.buf) {
	case smallHold:
		list = &p.small
	case readSize:
		list = &p.large
	default:
		return
	}
	if len(*list) < maxHolds {
		*list = append(*list, h)
	}
}
