package hotrestart

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/guideway/guideway/dataplane/proxy"
)

// Newer is the side of the process that takes over. Safe for concurrent use.
type Newer struct {
	mu   sync.Mutex
	conn *net.UnixConn
	info Info
}

// patience bounds each answer of the older process.
const patience = 30 * time.Second

// Take greets the older process at an address.
func Take(name string, epoch uint32) (*Newer, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("no process of the epoch before answers: %w", err)
	}
	n := &Newer{conn: c}
	a, err := n.ask(doHello, epoch)
	if err == nil && a.Info == nil {
		err = errors.New("the older process says nothing of itself")
	}
	if err == nil && a.Info.Epoch+1 != epoch {
		err = fmt.Errorf("the older process has epoch %d, not %d", a.Info.Epoch, epoch-1)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	n.info = *a.Info
	return n, nil
}

func (n *Newer) ask(do string, epoch uint32) (answer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.askLocked(do, epoch)
}

func (n *Newer) askLocked(do string, epoch uint32) (a answer, err error) {
	n.conn.SetDeadline(time.Now().Add(patience))
	if err = writeMessage(n.conn, &request{do, Version, epoch}); err == nil {
		err = readMessage(n.conn, &a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	return a, err
}

// Info is what the older process said of itself.
func (n *Newer) Info() Info { return n.info }

// Sockets are the listening sockets, and the admin listener with its configured address (nil if there is
// none).
func (n *Newer) Sockets() (sockets []proxy.HandedSockets, admin net.Listener, address string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, err := n.askLocked(doSockets, 0)
	if err != nil {
		return nil, nil, "", err
	}
	count := 0
	if a.Admin != "" {
		count++
	}
	for _, h := range a.Sockets {
		count += h.Count
	}
	fds, err := receiveDescriptors(n.conn, count)
	if err != nil {
		return nil, nil, "", err
	}
	if a.Admin != "" {
		f := os.NewFile(uintptr(fds[0]), "admin")
		fds = fds[1:]
		admin, err = net.FileListener(f)
		f.Close()
		if err != nil {
			admin = nil // it is bound anew
		}
	}
	for i := range a.Sockets {
		h := &a.Sockets[i]
		h.FDs, fds = fds[:h.Count:h.Count], fds[h.Count:]
	}
	return a.Sockets, admin, a.Admin, nil
}

// CloseAdmin has the older process close its admin listener.
func (n *Newer) CloseAdmin() error { _, err := n.ask(doAdmin, 0); return err }

// Drain has it stop accepting.
func (n *Newer) Drain() error { _, err := n.ask(doDrain, 0); return err }

// Left asks what it still has.
func (n *Newer) Left() (Left, error) {
	a, err := n.ask(doStats, 0)
	if err == nil && a.Left == nil {
		err = errors.New("the older process says nothing of what it has left")
	}
	if err != nil {
		return Left{}, err
	}
	return *a.Left, nil
}

// Terminate ends it.
func (n *Newer) Terminate() error {
	_, err := n.ask(doTerminate, 0)
	n.conn.Close()
	return err
}

// Close breaks the talk off. An older process that has not drained yet serves on.
func (n *Newer) Close() { n.conn.Close() }
