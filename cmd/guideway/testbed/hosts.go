package testbed

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/backend"
)

// The ports of the fake hosts that behaviour was recorded with. Nobody listens on PortNobody.
const (
	PortEcho      = 20001 // echoes what it gets
	PortHalfClose = 20002 // answers after the client's end: "after the end: " and what it got
	PortFarewell  = 20003 // says "bye", ends its half, and listens on
	PortReset     = 20004 // resets after the first bytes
	PortClose     = 20005 // closes at once
	PortStall     = 20006 // never answers a connect
	PortNobody    = 20009
)

// Told is what a fake host tells of a connection: that it got something (PortFarewell only), or how it ended.
type Told struct {
	Got string
	How string // "end" or "reset"
}

// Hosts are the fake hosts of the recordings.
type Hosts struct {
	t    testing.TB
	told map[uint16]chan Told
}

// StartHosts starts the fake TCP hosts on 127.0.0.1 of a namespace; they end with the test.
func StartHosts(t testing.TB, ns *Namespace) *Hosts {
	t.Helper()
	h := &Hosts{t: t, told: make(map[uint16]chan Told)}
	for port, conf := range map[uint16]backend.Config{
		PortEcho:      {Behaviour: backend.Echo},
		PortHalfClose: {Behaviour: backend.HalfClose},
		PortFarewell:  {},
		PortReset:     {Behaviour: backend.Reset},
		PortClose:     {Behaviour: backend.CloseAtOnce},
		PortStall:     {Behaviour: backend.Stall},
	} {
		told := make(chan Told, 64)
		h.told[port] = told
		conf.Network = backend.TCP
		conf.Ended = func(_ netip.AddrPort, err error) { told <- Told{How: how(err)} }
		if port == PortFarewell {
			conf.Handler = func(c *net.TCPConn) {
				io.WriteString(c, "bye")
				c.CloseWrite()
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if err == io.EOF {
						err = nil
					}
					if n == 0 {
						told <- Told{How: how(err)}
						return
					}
					told <- Told{Got: string(buf[:n])}
				}
			}
		}
		StartBackend(t, ns, conf, netip.AddrPortFrom(Loopback, port))
	}
	return h
}

// Loopback is 127.0.0.1.
var Loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// StartBackend starts a backend in a namespace; it ends with the test.
func StartBackend(t testing.TB, ns *Namespace, conf backend.Config, at ...netip.AddrPort) *backend.Backend {
	t.Helper()
	conf.Open = ns.Do
	b, err := backend.Start(context.Background(), conf, at...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func how(err error) string {
	switch {
	case err == nil:
		return "end"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	}
	return err.Error()
}

// Told waits for what a host tells next.
func (h *Hosts) Told(port uint16) Told {
	h.t.Helper()
	select {
	case e := <-h.told[port]:
		return e
	case <-time.After(Patience):
		h.t.Fatalf("the host on port %d has nothing to tell for %v", port, Patience)
		panic("unreachable")
	}
}
