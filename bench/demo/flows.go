package demo

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// answerTimeout bounds the wait for one answer on loopback.
const answerTimeout = 5 * time.Second

// flow is one held connection or UDP exchange and the backend it began with.
type flow struct {
	conn    net.Conn
	reader  *bufio.Reader
	udp     bool
	backend string
}

// open begins a flow and learns its backend.
func open(network string, to netip.AddrPort) (*flow, error) {
	c, err := net.DialTimeout(network, to.String(), answerTimeout)
	if err != nil {
		return nil, err
	}
	f := &flow{conn: c, reader: bufio.NewReader(c), udp: network == "udp"}
	if f.udp {
		f.backend, err = f.ask()
	} else {
		c.SetDeadline(time.Now().Add(answerTimeout))
		f.backend, err = f.reader.ReadString('\n') // backends greet with their name
		f.backend = strings.TrimSpace(f.backend)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("no answer through %s %v: %w", network, to, err)
	}
	return f, nil
}

// ask sends a message through the flow and returns the backend that answered.
func (f *flow) ask() (string, error) {
	f.conn.SetDeadline(time.Now().Add(answerTimeout))
	if _, err := f.conn.Write([]byte("still there?\n")); err != nil {
		return "", err
	}
	if !f.udp {
		echo, err := f.reader.ReadString('\n')
		if err == nil && echo != "still there?\n" {
			err = errors.New("the answer is garbled")
		}
		return f.backend, err // one connection, one backend
	}
	b := make([]byte, 256)
	n, err := f.conn.Read(b)
	if err != nil {
		return "", err
	}
	name, _, ok := strings.Cut(string(b[:n]), ":still there?")
	if !ok {
		return "", fmt.Errorf("the answer %q names no backend", b[:n])
	}
	return name, nil
}

// tally counts what became of held flows.
type tally struct{ held, broken, moved int }

// check asks every flow for its backend again.
func check(flows []*flow) tally {
	var t tally
	for _, f := range flows {
		switch now, err := f.ask(); {
		case err != nil:
			t.broken++
		case now != f.backend:
			t.moved++
		default:
			t.held++
		}
	}
	return t
}

// shares counts flows by backend.
func shares(flows []*flow) map[string]int {
	m := map[string]int{}
	for _, f := range flows {
		m[f.backend]++
	}
	return m
}

// openMany begins n flows.
func openMany(network string, to netip.AddrPort, n int) ([]*flow, error) {
	flows := make([]*flow, 0, n)
	for range n {
		f, err := open(network, to)
		if err != nil {
			closeAll(flows)
			return nil, err
		}
		flows = append(flows, f)
	}
	return flows, nil
}

func closeAll(flows []*flow) {
	for _, f := range flows {
		f.conn.Close()
	}
}
