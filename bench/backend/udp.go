package backend

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// batch is how many datagrams one system call receives or sends at most; each
// takes a buffer of maxDatagram bytes, 1 MiB a socket in all.
const (
	batch       = 16
	maxDatagram = 64 << 10
)

// batchConn is what ipv4.PacketConn and ipv6.PacketConn have in common.
type batchConn interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

// answerer answers the datagrams of one socket.
type answerer struct {
	b    *Backend
	conn batchConn
	at   netip.AddrPort // the address bound
	// sentTo reads the address a datagram was sent to from its control message; nil unless at is a wildcard.
	sentTo func(oob []byte) (netip.Addr, error)
	// from makes the control message that sends an answer from an address.
	from func(netip.Addr) []byte
	id   string // the identity, or empty: the address of the datagram
}

// startAnswering sets the socket up and serves it until it is closed.
func (b *Backend) startAnswering(p *net.UDPConn, at netip.AddrPort) error {
	a := &answerer{b: b, at: at, id: b.conf.ID}
	wildcard := at.Addr().IsUnspecified()
	if at.Addr().Is4() {
		c := ipv4.NewPacketConn(p)
		a.conn = c
		if wildcard {
			if err := c.SetControlMessage(ipv4.FlagDst, true); err != nil {
				return fmt.Errorf("ask for destination addresses (IP_PKTINFO): %w", err)
			}
			a.sentTo = sentToIPv4
			a.from = func(ip netip.Addr) []byte { return (&ipv4.ControlMessage{Src: ip.AsSlice()}).Marshal() }
		}
	} else {
		c := ipv6.NewPacketConn(p)
		a.conn = c
		if wildcard {
			if err := c.SetControlMessage(ipv6.FlagDst, true); err != nil {
				return fmt.Errorf("ask for destination addresses (IPV6_RECVPKTINFO): %w", err)
			}
			a.sentTo = sentToIPv6
			a.from = func(ip netip.Addr) []byte { return (&ipv6.ControlMessage{Src: ip.AsSlice()}).Marshal() }
		}
	}
	if a.id == "" && !wildcard {
		a.id = at.String()
	}
	b.running.Go(a.run)
	return nil
}

func sentToIPv4(oob []byte) (netip.Addr, error) {
	var cm ipv4.ControlMessage
	if err := cm.Parse(oob); err != nil {
		return netip.Addr{}, err
	}
	ip, ok := netip.AddrFromSlice(cm.Dst)
	if !ok {
		return ip, errors.New("datagram without IP_PKTINFO")
	}
	return ip.Unmap(), nil
}

func sentToIPv6(oob []byte) (netip.Addr, error) {
	var cm ipv6.ControlMessage
	if err := cm.Parse(oob); err != nil {
		return netip.Addr{}, err
	}
	ip, ok := netip.AddrFromSlice(cm.Dst)
	if !ok {
		return ip, errors.New("datagram without IPV6_PKTINFO")
	}
	return ip, nil
}

// run answers batch after batch until the socket is closed. Errors of single datagrams (ICMP from a client
// that left) are no reason to stop.
func (a *answerer) run() {
	in, out := newMessages(), newMessages()
	for {
		n, err := a.conn.ReadBatch(in, 0)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		a.b.datagramsIn.Add(int64(n))
		how := a.b.Behaviour()
		if !how.answersDatagrams() {
			continue
		}
		k := 0
		for i := range in[:n] {
			if a.answer(&out[k], &in[i], how) {
				k++
			}
		}
		for sent := 0; sent < k; {
			m, err := a.conn.WriteBatch(out[sent:k], 0)
			a.b.datagramsOut.Add(int64(max(m, 0)))
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if m < 1 {
				m = 1 // this one cannot be sent
			}
			sent += m
		}
	}
}

// answer makes the answer to a datagram; false means that there is none.
func (a *answerer) answer(out, in *ipv4.Message, how Behaviour) bool {
	id := a.id
	out.OOB = nil
	if a.sentTo != nil {
		ip, err := a.sentTo(in.OOB[:in.NN])
		if err != nil {
			return false
		}
		if id == "" {
			id = netip.AddrPortFrom(ip, a.at.Port()).String()
		}
		out.OOB = a.from(ip)
	}
	got := in.Buffers[0][:in.N]
	buf := out.Buffers[0][:0]
	switch {
	case a.b.conf.Reply != nil:
		buf = a.b.conf.Reply(buf, id, got)
	case how == Echo:
		buf = append(buf, got...)
	default:
		buf = append(append(append(buf, id...), ':'), got...)
	}
	out.Buffers[0] = buf
	out.Addr = in.Addr
	return true
}

func newMessages() []ipv4.Message {
	ms := make([]ipv4.Message, batch)
	for i := range ms {
		ms[i].Buffers = [][]byte{make([]byte, maxDatagram)}
		ms[i].OOB = make([]byte, 128)
	}
	return ms
}
