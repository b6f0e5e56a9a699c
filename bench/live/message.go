package live

import (
	"bytes"
	"strconv"
)

// Network is the transport protocol of a flow.
type Network uint8

// The protocols that flows have.
const (
	TCP Network = iota
	UDP
)

// Networks are all of them.
var Networks = [...]Network{TCP, UDP}

// String gives the name as package net writes it.
func (n Network) String() string { return [...]string{"tcp", "udp"}[n] }

// mark begins every message, and no identity of a backend.
const mark = "gw "

// MaxSize is the most bytes a message may have; a reader holds a buffer of it for each flow.
const MaxSize = 1400

// stamp is what a message says: whose it is and which.
type stamp struct {
	run  uint32 // tells the answers to an earlier run apart
	flow uint64
	seq  uint64
}

// appendMessage appends a message as text, filled up with dots to a size in bytes
// with the newline at its end. Backends send it back as it is.
func appendMessage(dst []byte, s stamp, size int) []byte {
	start := len(dst)
	dst = append(dst, mark...)
	dst = strconv.AppendUint(dst, uint64(s.run), 16)
	dst = strconv.AppendUint(append(dst, ' '), s.flow, 10)
	dst = strconv.AppendUint(append(dst, ' '), s.seq, 10)
	dst = append(dst, ' ')
	for len(dst)-start < size-1 {
		dst = append(dst, '.')
	}
	return append(dst, '\n')
}

// parseMessage reads a message, with its newline or without.
func parseMessage(line []byte) (s stamp, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	if !ok {
		return s, false
	}
	var words [3]uint64
	for i := range words {
		word, after, found := bytes.Cut(rest, []byte(" "))
		base, bits := 10, 64
		if i == 0 {
			base, bits = 16, 32
		}
		n, err := strconv.ParseUint(string(word), base, bits)
		if !found || err != nil {
			return s, false
		}
		words[i], rest = n, after
	}
	return stamp{run: uint32(words[0]), flow: words[1], seq: words[2]}, true
}

// splitAnswer takes a datagram from a backend apart: its identity, a colon, the message.
// Identities may hold colons.
func splitAnswer(datagram []byte) (backend, message []byte, ok bool) {
	i := bytes.Index(datagram, []byte(":"+mark))
	if i <= 0 {
		return nil, nil, false
	}
	return datagram[:i], datagram[i+1:], true
}
