package proxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTrain holds the rules by which datagrams are glued against the obvious: what the kernel cuts a
// message into is what was put in.
func TestTrain(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var tr train
		lengths := []int{r.IntN(1500)}
		tr.begin(0, lengths[0], 0)
		for range r.IntN(100) {
			n := r.IntN(2000)
			if r.IntN(10) > 0 {
				n = lengths[0] // mostly they are equal
			}
			if !tr.extend(n) {
				break
			}
			lengths = append(lengths, n)
		}
		if tr.bytes > maxTrain || len(lengths) > maxSegments {
			t.Fatalf("%d datagrams, %d bytes", len(lengths), tr.bytes)
		}
		if tr.datagrams() != len(lengths) {
			t.Fatalf("%d datagrams counted, %v put in", tr.datagrams(), lengths)
		}
		rest := tr.bytes
		for i, n := range lengths {
			cut := min(tr.segment, rest)
			if !tr.split() {
				cut = rest
			}
			if cut != n {
				t.Fatalf("datagram %d of %v comes out with %d bytes", i, lengths, cut)
			}
			rest -= cut
		}
	}
}

func TestLimitLength(t *testing.T) {
	for _, c := range []struct {
		length, segment, limit             int
		rest, restSegment, dropped, offset int
	}{
		{0, 0, 1500, 0, 0, 0, 0},
		{1500, 0, 1500, 1500, 0, 0, 0},
		{1501, 0, 1500, -1, 0, 1, 0},
		{3000, 1500, 1500, 3000, 1500, 0, 0},
		{3002, 1501, 1500, -1, 0, 2, 0},
		{3003, 1501, 1500, 1, 0, 2, 3002},
		{100, 1501, 1500, 100, 1501, 0, 0},
	} {
		p := make([]byte, c.length)
		for i := range p {
			p[i] = byte(i >> 8)
		}
		rest, segment, dropped := limitLength(p, c.segment, c.limit)
		n := len(rest)
		if rest == nil {
			n = -1
		} else if n > 0 && &rest[0] != &p[c.offset] {
			t.Errorf("%+v: what is left begins elsewhere", c)
		}
		if n != c.rest || dropped != c.dropped || n >= 0 && segment != c.restSegment {
			t.Errorf("%+v: got %d bytes in pieces of %d, %d dropped", c, n, segment, dropped)
		}
	}
}

// TestUDPTrains sends bursts of datagrams of all lengths both ways, with the kernel's help in cutting
// and gluing, without it, and with a kernel that refuses to help; every datagram must arrive as it was
// sent and in order.
func TestUDPTrains(t *testing.T) {
	for _, mode := range []string{"on", "off", "refused"} {
		t.Run(mode, func(t *testing.T) {
			b := newUDPBed(t, 1)
			b.listener.UDP.MaxRxDownstream = 4000
			b.setHosts(b.hostWith("127.0.0.1:0", func(p []byte) []byte { return p }))
			b.apply()
			w := b.srv.workers[0]
			if mode == "off" {
				w.call(func() { w.udpIO.canSplit = false })
			}
			clients := []*udpClient{b.client(), b.client(), b.client()}
			for _, c := range clients {
				c.SetReadBuffer(4 << 20)
				c.ask("hello")
			}
			if mode == "refused" {
				// A socket without checksums cannot send what has to be cut (udp_send_skb).
				w.call(func() {
					for _, e := range w.udp {
						l := e.(*udpListener)
						for s := range l.sessions.All {
							sysSetInt(s.Value.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
						}
						sysSetInt(l.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
					}
				})
			}
			r := rand.New(rand.NewPCG(3, 4))
			for round := range 60 {
				var want [3][][]byte
				for range 1 + r.IntN(3) {
					i := r.IntN(3)
					train := burst(r)
					want[i] = append(want[i], train...)
					sendBurst(t, clients[i], train, round%2 == 0)
				}
				for i, c := range clients {
					for k, p := range want[i] {
						if got := c.receive(); got != string(p) {
							t.Fatalf("round %d, client %d: datagram %d has %d bytes, want %d", round, i, k, len(got), len(p))
						}
					}
				}
			}
			b.until("all counted", func() bool {
				return b.value("udp.u.downstream_sess_rx_datagrams") == b.value("udp.u.downstream_sess_tx_datagrams")
			})
			for _, name := range []string{"udp.u.downstream_sess_tx_errors", "cluster.c.udp.sess_tx_errors", "cluster.c.udp.sess_rx_errors"} {
				if n := b.value(name); n != 0 {
					t.Errorf("%s: %d", name, n)
				}
			}
			w.call(func() {
				for _, e := range w.udp {
					for s := range e.(*udpListener).sessions.All {
						if want := mode != "on"; s.Value.noHostTrains != want {
							t.Errorf("trains to the host given up: %t, want %t", s.Value.noHostTrains, want)
						}
					}
				}
			})
		})
	}
}

// burst is some datagrams, many of the same length, each different from the others.
func burst(r *rand.Rand) [][]byte {
	length := r.IntN(1400)
	var out [][]byte
	for range 1 + r.IntN(40) {
		if r.IntN(8) == 0 {
			length = r.IntN(1400)
		}
		p := bytes.Repeat([]byte{byte(r.Uint32())}, length)
		if length >= 4 {
			binary.BigEndian.PutUint32(p, r.Uint32())
		}
		out = append(out, p)
	}
	return out
}

// sendBurst sends datagrams one by one, or those of equal length as one message for the kernel to cut.
func sendBurst(t *testing.T, c *udpClient, train [][]byte, cut bool) {
	t.Helper()
	for len(train) > 0 {
		n := 1
		if cut && len(train[0]) > 0 {
			for n < len(train) && len(train[n]) == len(train[0]) && n < maxSegments && (n+1)*len(train[0]) < maxTrain {
				n++
			}
		}
		var ctl []byte
		if n > 1 {
			ctl = make([]byte, unix.CmsgSpace(2))
			putSegment(ctl, 0, len(train[0]))
		}
		if _, _, err := c.WriteMsgUDP(bytes.Join(train[:n], nil), ctl, nil); err != nil {
			t.Fatalf("%d datagrams of %d bytes: %v", n, len(train[0]), err)
		}
		train = train[n:]
	}
}

// TestUDPTooLongInTrain: the limit holds for each datagram, also when the kernel has glued them.
func TestUDPTooLongInTrain(t *testing.T) {
	b := newUDPBed(t, 1)
	b.setHosts(b.host("A"))
	b.apply()
	c := b.client()
	ctl := make([]byte, unix.CmsgSpace(2))
	putSegment(ctl, 0, 1600)
	// Four of 1600 bytes are too long, the last, of 7, is not.
	if _, _, err := c.WriteMsgUDP(append(make([]byte, 4*1600), "the end"...), ctl, nil); err != nil {
		t.Fatal(err)
	}
	if got := c.receive(); got != "A:the end" {
		t.Errorf("got %q", got)
	}
	b.untilStat("listener.l.udp.downstream_rx_datagram_dropped", 4)
	b.untilStat("udp.u.downstream_sess_rx_datagrams", 1)
}

// TestUDPBacklog: a session with more to read than its share of a turn gets the rest in later turns.
func TestUDPBacklog(t *testing.T) {
	const answers = 1000
	b := newUDPBed(t, 1)
	h, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	b.setHosts(hostOf(h.LocalAddr().(*net.UDPAddr).AddrPort()))
	b.apply()
	c := b.client()
	c.SetReadBuffer(4 << 20)
	c.send("x")
	p := make([]byte, 10)
	h.SetReadDeadline(time.Now().Add(patience))
	_, from, err := h.ReadFromUDPAddrPort(p)
	if err != nil {
		t.Fatal(err)
	}
	// The worker is busy elsewhere meanwhile.
	w := b.srv.workers[0]
	sent := 0
	w.call(func() {
		for fd := range sessionSockets(w) {
			sysSetInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
			sysSetInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20)
		}
		for i := range answers {
			h.WriteToUDPAddrPort(fmt.Appendf(nil, "%d", i), from)
			sent++
		}
	})
	b.until("the answers", func() bool { return b.value("udp.u.downstream_sess_tx_datagrams") > 8*16 })
	for i := range answers {
		if got := c.receive(); got != fmt.Sprint(i) {
			t.Fatalf("answer %d is %q", i, got)
		}
	}
}

func sessionSockets(w *worker) func(func(int) bool) {
	return func(yield func(int) bool) {
		for _, e := range w.udp {
			for s := range e.(*udpListener).sessions.All {
				if !yield(s.Value.fd) {
					return
				}
			}
		}
	}
}
