package backend

import (
	"fmt"
	"strings"
)

// Behaviour says what a backend does with the connections and datagrams that
// reach it. A change holds for new connections; those there are keep what
// they began with, except that [Refuse] ends them.
type Behaviour uint8

// The behaviours. What is said of TCP holds for a connection, what is said of
// UDP for a datagram.
const (
	// Identify writes the greeting (the identity and a newline) as soon as a
	// connection is accepted, then echoes. UDP: the answer is identity, colon, datagram.
	Identify Behaviour = iota
	// Echo sends back what it gets.
	Echo
	// HalfClose answers only after the client's end of stream: with
	// "after the end: " and what it got. UDP: no answer.
	HalfClose
	// CloseAtOnce ends each connection as it is accepted. UDP: no answer.
	CloseAtOnce
	// Reset answers the first bytes of a connection with a reset. UDP: no answer.
	Reset
	// Hang accepts, and neither reads nor answers. UDP: no answer.
	Hang
	// Stall does not accept: the accept queue is full, so that the
	// kernel drops connection attempts and the client's connect does not end.
	// UDP: no answer.
	Stall
	// Refuse closes the sockets, as a host does whose program died: connections
	// are reset, new ones refused, datagrams answered by ICMP "port unreachable".
	Refuse
	// Drain refuses new connections and goes on with those it has. UDP, where
	// new and old cannot be told apart: it goes on.
	Drain
	// Return is no state: it takes back a Stall, Refuse or Drain, to the behaviour before it.
	Return
)

var behaviourNames = [...]string{
	Identify: "identify", Echo: "echo", HalfClose: "half-close", CloseAtOnce: "close-at-once",
	Reset: "reset", Hang: "hang", Stall: "stall", Refuse: "refuse", Drain: "drain", Return: "return",
}

// String gives the name that [ParseBehaviour] takes.
func (b Behaviour) String() string {
	if int(b) < len(behaviourNames) {
		return behaviourNames[b]
	}
	return fmt.Sprintf("behaviour(%d)", uint8(b))
}

// ParseBehaviour finds a behaviour by its name, such as "half-close".
func ParseBehaviour(name string) (Behaviour, error) {
	for b, n := range behaviourNames {
		if n == name {
			return Behaviour(b), nil
		}
	}
	return 0, fmt.Errorf("no behaviour %q: use one of %s", name, strings.Join(behaviourNames[:], ", "))
}

// accepts tells whether connections are taken from the listening socket.
func (b Behaviour) accepts() bool { return b < Stall }

// answersDatagrams tells whether a datagram gets an answer at all.
func (b Behaviour) answersDatagrams() bool { return b == Identify || b == Echo || b == Drain }
