package live

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// opened is a new flow that has had its first answer.
type opened struct {
	conn   net.Conn
	reader *bufio.Reader // of TCP; nil for UDP
	flow   *flow
	// connect is how long TCP took to connect, first how long it took until the backend was known.
	connect, first time.Duration
}

// errNoIdentity says that something answers, but is no backend of ours.
var errNoIdentity = errors.New("the backend does not say who it is: run guideway bench backend")

// open begins a flow and learns who answers it.
func (m *Meter) open(ctx context.Context, network Network, n int) (*opened, error) {
	local, to := m.plan.path(network, n)
	ctx, cancel := context.WithTimeout(ctx, m.plan.OpenTimeout)
	defer cancel()
	start := m.now()
	conn, err := m.plan.Dial(ctx, network.String(), local, to)
	if err != nil {
		return nil, err
	}
	o := &opened{conn: conn, connect: m.now() - start}
	o.flow = &flow{network: network, stamp: stamp{run: m.run, flow: m.flows.Add(1)}}
	conn.SetReadDeadline(time.Now().Add(m.plan.OpenTimeout))
	// The end of the run does not wait for an answer.
	waiting := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	if network == TCP {
		o.reader = bufio.NewReaderSize(conn, MaxSize)
		err = o.greeting()
	} else {
		err = m.firstDatagram(o)
	}
	o.first = m.now() - start
	if !waiting() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return o, nil
}

// greeting reads the line that a backend begins a connection with.
func (o *opened) greeting() error {
	line, err := o.reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return errNoIdentity
	}
	if err != nil {
		return err
	}
	o.flow.moveTo(bytes.TrimRight(line, "\r\n"))
	return nil
}

// firstDatagram asks once and waits for the answer.
func (m *Meter) firstDatagram(o *opened) error {
	buf := make([]byte, 2*MaxSize)
	step := m.recorder.step()
	s := o.flow.send(m.now(), step)
	if _, err := o.conn.Write(appendMessage(buf[:0], s, m.plan.Size)); err != nil {
		return err
	}
	for {
		n, err := o.conn.Read(buf)
		if err != nil {
			return err
		}
		backend, message, ok := splitAnswer(buf[:n])
		if !ok {
			return errNoIdentity
		}
		if got, ok := parseMessage(message); ok && got == s {
			o.flow.arrive(got.seq, backend, m.now())
			return nil
		}
	}
}

// reason words an error in a few words, the same for all flows it happens to.
func reason(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer"
	case errors.Is(err, errNoIdentity):
		return errNoIdentity.Error()
	}
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	return fmt.Sprintf("%T", err)
}
