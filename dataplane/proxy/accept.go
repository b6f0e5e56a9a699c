package proxy

import (
	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
)

// acceptor is a listening TCP socket on one worker.
type acceptor struct {
	w        *worker
	fd       int
	token    token
	addr     dataplane.ListenAddress
	listener *liveListener
}

func newAcceptor(w *worker, l *liveListener, fd int, addr dataplane.ListenAddress) (*acceptor, error) {
	a := &acceptor{w: w, fd: fd, addr: addr, listener: l}
	t, err := w.add(fd, unix.EPOLLIN, a)
	a.token = t
	return a, err
}

func (a *acceptor) stop() { a.w.remove(a.fd, a.token) }

func (a *acceptor) ready(uint32) {
	var rsa unix.RawSockaddrAny
	fd, e := sysAccept(a.fd, &rsa)
	if e == 0 {
		sysClose(fd)
	}
}
