package health

import (
	"context"
	"net"
	"slices"

	"github.com/guideway/guideway/controlplane/model"
)

// tcpProber connects, and with something to receive sends and waits for it.
type tcpProber struct {
	check *model.TCPCheck
	dial  *dialer
	reuse bool
}

func (p *tcpProber) open(t *Target) probe { return &tcpProbe{prober: p, target: t} }

type tcpProbe struct {
	prober *tcpProber
	target *Target
	conn   net.Conn // kept from the last run, or nil
}

func (p *tcpProbe) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

func (p *tcpProbe) run(ctx context.Context) outcome {
	check := p.prober.check
	var lost bool
	if p.conn != nil {
		switch lookIdle(p.conn) {
		case idleClosed:
			lost = true
			p.close()
		case idleSpoke: // an answer longer than what was looked for
			p.drain()
		}
	}
	o := p.once(ctx, check)
	o.lostIdle = lost
	return o
}

func (p *tcpProbe) once(ctx context.Context, check *model.TCPCheck) outcome {
	var hello []byte
	if p.conn == nil {
		c, err := p.prober.dial.dial(ctx, p.target.Check)
		if err != nil {
			return broken(ctx, err)
		}
		if len(check.Receive) == 0 {
			// Connecting is all there is to it; Envoy sends nothing then, not even Send or a PROXY
			// header.
			c.Close()
			return outcome{ok: true}
		}
		p.conn = c
		// One header a connection, as the protocol has it. (Envoy repeats that of
		// proxy_protocol_config before each Send on a reused connection.)
		hello = append(proxyHeader(p.prober.dial.proxy, c), proxyHeader(check.ProxyProtocol, c)...)
	}
	release := bound(ctx, p.conn)
	err := p.exchange(slices.Concat(hello, check.Send), check.Receive)
	if !release() || err != nil {
		p.close()
	}
	if err != nil {
		return broken(ctx, err)
	}
	if !p.prober.reuse {
		p.close()
	}
	return outcome{ok: true}
}

// exchange sends and reads until all blocks were seen.
func (p *tcpProbe) exchange(send []byte, receive [][]byte) error {
	if _, err := p.conn.Write(send); err != nil {
		return err
	}
	m := newMatcher(receive)
	var buf [2048]byte
	for {
		n, err := p.conn.Read(buf[:])
		if m.write(buf[:n]) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// drain reads what is there.
func (p *tcpProbe) drain() {
	var buf [2048]byte
	for range 64 {
		if lookIdle(p.conn) != idleSpoke {
			return
		}
		if _, err := p.conn.Read(buf[:]); err != nil {
			p.close()
			return
		}
	}
	p.close() // it talks without end; begin anew
}
