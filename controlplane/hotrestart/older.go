package hotrestart

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane/proxy"
)

// Older is the process that is to be replaced, as its successor sees it.
type Older interface {
	// Info is asked for first: the successor is starting. An error refuses it.
	Info() (Info, error)
	// Sockets returns copies of the listening sockets.
	Sockets() ([]proxy.HandedSockets, error)
	// Admin returns a copy of the admin listener's descriptor and its configured address, "" if there is
	// none.
	Admin() (fd int, address string, err error)
	// CloseAdmin closes the admin listener; OpenAdmin opens it again, since the successor is gone.
	CloseAdmin()
	OpenAdmin()
	// Drain stops accepting; the successor serves.
	Drain()
	Left() Left
	// Terminate ends the process; orphaned tells that the successor did not ask for it but has gone.
	Terminate(orphaned bool)
}

// ErrInUse is the error of Listen if another process has the address.
var ErrInUse = errors.New("another process has this base id")

// Server waits for a successor.
type Server struct {
	listener *net.UnixListener
	log      *slog.Logger

	mu   sync.Mutex
	conn *net.UnixConn // of the successor
	done bool
}

// Name is the address of the process with a base id and epoch. path is --socket-path: "@" makes it an
// abstract address (unix(7)).
func Name(path string, baseID, epoch uint32) string {
	return fmt.Sprintf("%s_guideway_%d_%d", path, baseID, epoch%3) // no more than three live together
}

// Listen takes the address. mode is that of the file, if it is one.
func Listen(name string, mode fs.FileMode, log *slog.Logger) (*Server, error) {
	if !strings.HasPrefix(name, "@") {
		// A file that nobody listens on is left from a process that was killed.
		if c, err := net.Dial("unix", name); err == nil {
			c.Close()
			return nil, ErrInUse
		}
		os.Remove(name)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, ErrInUse
	}
	if err != nil {
		return nil, fmt.Errorf("the socket for hot restarts: %w", err)
	}
	if !strings.HasPrefix(name, "@") {
		if err := os.Chmod(name, mode); err != nil {
			l.Close()
			return nil, fmt.Errorf("the socket for hot restarts: %w", err)
		}
	}
	return &Server{listener: l, log: log}, nil
}

// Close gives the address up.
func (s *Server) Close() {
	s.mu.Lock()
	s.done = true
	if s.conn != nil {
		s.conn.Close()
	}
	s.mu.Unlock()
	s.listener.Close()
}

// Serve answers successors, one at a time, until Close.
func (s *Server) Serve(o Older) {
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		if err := samePrincipal(c); err != nil {
			s.log.Warn("a stranger at the socket for hot restarts", "reason", err)
			c.Close()
			continue
		}
		s.mu.Lock()
		if s.done {
			c.Close()
		}
		s.conn = c
		s.mu.Unlock()
		t := &talk{c: c, o: o}
		if err := t.serve(); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			s.log.Warn("the talk with the next process broke off", "reason", err)
		}
		c.Close()
		switch {
		case t.terminated:
			return
		case t.drained:
			s.log.Error("the process that took over is gone: this one ends when its flows have")
			o.Terminate(true)
			return
		case t.adminClosed:
			s.log.Error("the process that was to take over is gone: this one serves on")
			o.OpenAdmin()
		}
	}
}

// samePrincipal refuses processes of other users: an abstract address has no owner.
func samePrincipal(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		err = e
	}
	if err != nil {
		return err
	}
	if uid := uint32(os.Geteuid()); cred.Uid != uid && cred.Uid != 0 {
		return fmt.Errorf("process %d belongs to user %d, this one to %d", cred.Pid, cred.Uid, uid)
	}
	return nil
}

// talk is the older side of one connection.
type talk struct {
	c *net.UnixConn
	o Older

	greeted, adminClosed, drained, terminated bool
}

func (t *talk) serve() error {
	for !t.terminated {
		var r request
		if err := readMessage(t.c, &r); err != nil {
			return err
		}
		a, fds, err := t.answer(&r)
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := writeMessage(t.c, &a); err != nil {
			return err
		}
		if fds != nil {
			err := sendDescriptors(t.c, fds.list)
			fds.close()
			if err != nil {
				return err
			}
		}
		if t.terminated {
			t.o.Terminate(false)
		}
	}
	return nil
}

// descriptors are copies that are closed when they have been sent.
type descriptors struct {
	list  []int
	close func()
}

func (t *talk) answer(r *request) (a answer, fds *descriptors, err error) {
	if r.Do == doHello {
		if r.Version != Version {
			return a, nil, fmt.Errorf("hot restart versions differ: this process speaks %s, the next one %s", Version, r.Version)
		}
		info, err := t.o.Info()
		t.greeted = err == nil
		return answer{Info: &info}, nil, err
	}
	if !t.greeted {
		return a, nil, errors.New("no greeting")
	}
	switch r.Do {
	case doSockets:
		return t.sockets()
	case doAdmin:
		t.adminClosed = true
		t.o.CloseAdmin()
	case doDrain:
		t.drained = true
		t.o.Drain()
	case doStats:
		left := t.o.Left()
		a.Left = &left
	case doTerminate:
		t.terminated = true
	default:
		err = fmt.Errorf("unknown request %q", r.Do)
	}
	return a, nil, err
}

func (t *talk) sockets() (a answer, fds *descriptors, err error) {
	sockets, err := t.o.Sockets()
	if err != nil {
		return a, nil, err
	}
	admin, address, err := t.o.Admin()
	if err != nil {
		proxy.CloseHanded(sockets)
		return a, nil, err
	}
	fds = &descriptors{close: func() {
		proxy.CloseHanded(sockets)
		if address != "" {
			unix.Close(admin)
		}
	}}
	if address != "" {
		a.Admin = address
		fds.list = append(fds.list, admin)
	}
	for _, h := range sockets {
		fds.list = append(fds.list, h.FDs...)
	}
	a.Sockets = sockets
	return a, fds, nil
}
