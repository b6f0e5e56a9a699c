package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Plan says what flows to hold. Check fills in what is zero.
type Plan struct {
	// TCP and UDP are numbers of flows.
	TCP, UDP int
	// Targets are where TCP connections and UDP flows go, in turn; they may be of both families.
	TCPTargets, UDPTargets []netip.AddrPort
	// Sources, if any, are the addresses that flows come from, in turn. Those of
	// the target's family are used.
	Sources []netip.Addr
	// Interval is how often each flow asks. It decides how exactly times of events are known. Default 500 ms.
	Interval time.Duration
	// StallAfter and BrokenAfter are how long a flow may be silent, although it
	// asks, until it counts as stalled, and as broken. Defaults: 1 s and 5 s.
	StallAfter, BrokenAfter time.Duration
	// OpenTimeout bounds connecting and the wait for the first answer, each. Default 2 s.
	OpenTimeout time.Duration
	// NewRate is how many further flows of each protocol are opened a second, and closed at once. Negative: none. Default 20.
	NewRate float64
	// Size of messages in bytes, newline included. Default 64.
	Size int
	// Settle is how often flows ask again after each step before it ends. Default 2.
	Settle int
	// Bucket is the resolution of the timeline. Default 500 ms.
	Bucket time.Duration
	// Dial, if set, opens sockets in place of net.Dialer; local is invalid if any will do.
	Dial func(ctx context.Context, network string, local netip.Addr, to netip.AddrPort) (net.Conn, error)
	// Progress, if set, hears how many flows are open, until all are, and then how many steps are done.
	Progress func(what string, done, total int)
}

// Names of what Progress hears of.
const (
	Opening = "opening flows"
	Playing = "playing the steps"
)

// spareDescriptors are left for what a process opens besides flows.
const spareDescriptors = 128

// Check fills in defaults and refuses what cannot be done.
func (p *Plan) Check() error {
	for _, d := range []struct {
		value *time.Duration
		usual time.Duration
		name  string
	}{
		{&p.Interval, 500 * time.Millisecond, "interval"},
		{&p.StallAfter, time.Second, "time until a flow counts as stalled"},
		{&p.BrokenAfter, 5 * time.Second, "time until a silent flow counts as broken"},
		{&p.OpenTimeout, 2 * time.Second, "timeout for new flows"},
		{&p.Bucket, 500 * time.Millisecond, "resolution of the timeline"},
	} {
		if *d.value == 0 {
			*d.value = d.usual
		}
		if *d.value < time.Millisecond || *d.value > time.Hour {
			return fmt.Errorf("%s is %v: use 1ms to 1h", d.name, *d.value)
		}
	}
	if p.NewRate == 0 {
		p.NewRate = 20
	}
	if p.Size == 0 {
		p.Size = 64
	}
	if p.Settle == 0 {
		p.Settle = 2
	}
	switch {
	case p.TCP < 0 || p.UDP < 0 || p.TCP+p.UDP == 0:
		return errors.New("no flows: say how many TCP or UDP flows to hold")
	case p.TCP > 0 && len(p.TCPTargets) == 0 || p.UDP > 0 && len(p.UDPTargets) == 0:
		return errors.New("no target: say where the balancer listens")
	case p.Size > MaxSize:
		return fmt.Errorf("messages of %d bytes: use at most %d", p.Size, MaxSize)
	case p.NewRate > 10000:
		return fmt.Errorf("%v new flows a second: use at most 10000", p.NewRate)
	case p.BrokenAfter < p.StallAfter:
		return fmt.Errorf("flows count as broken after %v, before they count as stalled, after %v", p.BrokenAfter, p.StallAfter)
	}
	for _, t := range append(append([]netip.AddrPort(nil), p.TCPTargets...), p.UDPTargets...) {
		if len(p.Sources) > 0 && len(p.sources(t)) == 0 {
			return fmt.Errorf("no source address is of the family of target %v", t)
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && uint64(p.TCP+p.UDP+spareDescriptors) > limit.Cur {
		return fmt.Errorf("%d flows need as many file descriptors and %d more, the limit is %d: hold fewer, or raise it (ulimit -n)",
			p.TCP+p.UDP, spareDescriptors, limit.Cur)
	}
	return nil
}

// sources are the source addresses of the target's family.
func (p *Plan) sources(target netip.AddrPort) []netip.Addr {
	var out []netip.Addr
	for _, a := range p.Sources {
		if a.Is4() == target.Addr().Is4() {
			out = append(out, a)
		}
	}
	return out
}

// path is where the n-th flow of a protocol comes from and goes to.
func (p *Plan) path(network Network, n int) (local netip.Addr, to netip.AddrPort) {
	targets := p.TCPTargets
	if network == UDP {
		targets = p.UDPTargets
	}
	to = targets[n%len(targets)]
	if from := p.sources(to); len(from) > 0 {
		local = from[n/len(targets)%len(from)]
	}
	return local, to
}

// dial opens a socket as net.Dialer does.
func dial(ctx context.Context, network string, local netip.Addr, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	if local.IsValid() {
		if network == "tcp" {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
		} else {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
		}
	}
	return d.DialContext(ctx, network, to.String())
}
