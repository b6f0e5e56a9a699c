package hotrestart

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane/proxy"
	"github.com/guideway/guideway/dataplane/stats"
)

// Version of the protocol.
const Version = "guideway.1"

// What the newer process asks for.
const (
	doHello     = "hello"     // answer: Info
	doSockets   = "sockets"   // answer: sockets, whose descriptors follow
	doAdmin     = "admin"     // close the admin listener, which the newer process has by now
	doDrain     = "drain"     // stop accepting
	doStats     = "stats"     // answer: totals and the number of flows left
	doTerminate = "terminate" // end
)

type request struct {
	Do      string `json:"do"`
	Version string `json:"version,omitempty"`
	Epoch   uint32 `json:"epoch,omitempty"`
}

type answer struct {
	Error   string                `json:"error,omitempty"`
	Info    *Info                 `json:"info,omitempty"`
	Sockets []proxy.HandedSockets `json:"sockets,omitempty"`
	// Admin is the configured address of the admin listener, whose descriptor comes first.
	Admin string `json:"admin,omitempty"`
	Left  *Left  `json:"left,omitempty"`
}

// Info is what the newer process wants to know first.
type Info struct {
	Epoch uint32 `json:"epoch"`
	// Started is when the first epoch started.
	Started time.Time `json:"started"`
	// Drained are hosts taken out by hand.
	Drained []Drained `json:"drained,omitempty"`
}

// Drained is a host that is taken out.
type Drained struct {
	Cluster string         `json:"cluster"`
	Address netip.AddrPort `json:"address"`
}

// Left is what the older process still has.
type Left struct {
	Totals      stats.Totals `json:"totals"`
	Flows       int          `json:"flows"`
	Connections int          `json:"connections"`
}

// maxMessage bounds one message, in bytes.
const maxMessage = 64 << 20

// writeMessage sends v with its length before it.
func writeMessage(c *net.UnixConn, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text)))
	_, err = c.Write(append(b, text...))
	return err
}

// readMessage reads exactly one message: descriptors may follow it, which a read that takes more would lose.
func readMessage(c *net.UnixConn, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return fmt.Errorf("a message of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(c, text); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// atOnce is how many descriptors one message carries; the kernel's limit is 253 (SCM_MAX_FD).
const atOnce = 200

// sendDescriptors passes descriptors, a byte with each group of them.
func sendDescriptors(c *net.UnixConn, fds []int) error {
	for len(fds) > 0 {
		n := min(atOnce, len(fds))
		if _, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(fds[:n]...), nil); err != nil {
			return err
		}
		fds = fds[n:]
	}
	return nil
}

// receiveDescriptors takes n descriptors. On an error it closes those it got.
func receiveDescriptors(c *net.UnixConn, n int) (fds []int, err error) {
	defer func() {
		if err != nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
			fds = nil
		}
	}()
	oob := make([]byte, unix.CmsgSpace(4*atOnce))
	for len(fds) < n {
		var b [1]byte
		_, oobn, flags, _, err := c.ReadMsgUnix(b[:], oob)
		if err != nil {
			return fds, err
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return fds, err
		}
		before := len(fds)
		for i := range messages {
			more, err := unix.ParseUnixRights(&messages[i])
			if err != nil {
				return fds, err
			}
			for _, fd := range more {
				unix.CloseOnExec(fd)
			}
			fds = append(fds, more...)
		}
		if flags&unix.MSG_CTRUNC != 0 || len(fds) == before {
			return fds, errors.New("descriptors were lost under way: is the descriptor limit (ulimit -n) reached?")
		}
	}
	return fds, nil
}
