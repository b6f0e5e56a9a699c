package peers

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
)

// message is the size of an echo, in bytes.
const message = 64

// datagram is the size of a datagram, in bytes.
const datagram = 100

// together runs f n times at once and returns the first error.
func together(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// sendBulk sends bytes over streams connections and waits until the backend has them all.
func sendBulk(to uint16, b *backends, streams int, bytes int64) error {
	start := b.received.Load()
	each := bytes / int64(streams)
	err := together(streams, func(int) error {
		c, err := net.Dial("tcp", address(to).String())
		if err != nil {
			return err
		}
		defer c.Close()
		buf := make([]byte, 256<<10)
		for left := each; left > 0; {
			n, err := c.Write(buf[:min(left, int64(len(buf)))])
			if err != nil {
				return err
			}
			left -= int64(n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return await(30*time.Second, func() bool { return b.received.Load()-start >= each*int64(streams) }, "the backend has not got all bytes")
}

// connections makes n connections, some at a time: connect, one echo, close.
func connections(to uint16, n, atOnce int) error {
	var next atomic.Int64
	return together(atOnce, func(int) error {
		buf := make([]byte, message)
		for next.Add(1) <= int64(n) {
			c, err := net.Dial("tcp", address(to).String())
			if err != nil {
				return err
			}
			err = echo(c, buf)
			c.Close()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func echo(c net.Conn, buf []byte) error {
	if _, err := c.Write(buf); err != nil {
		return err
	}
	for got := 0; got < len(buf); {
		n, err := c.Read(buf[got:])
		if err != nil {
			return err
		}
		got += n
	}
	return nil
}

// echoes sends n messages over open connections and returns how long each took.
func echoes(to uint16, n, open int) ([]time.Duration, error) {
	var next atomic.Int64
	var mu sync.Mutex
	all := make([]time.Duration, 0, n)
	err := together(open, func(int) error {
		c, err := net.Dial("tcp", address(to).String())
		if err != nil {
			return err
		}
		defer c.Close()
		buf := make([]byte, message)
		took := make([]time.Duration, 0, n/open)
		for next.Add(1) <= int64(n) {
			began := time.Now()
			if err := echo(c, buf); err != nil {
				return err
			}
			took = append(took, time.Since(began))
		}
		mu.Lock()
		all = append(all, took...)
		mu.Unlock()
		return nil
	})
	slices.Sort(all)
	return all, err
}

// hold opens n connections, has each carry one echo, and returns them.
func hold(to uint16, n int) ([]net.Conn, error) {
	conns := make([]net.Conn, 0, n)
	buf := make([]byte, message)
	for range n {
		c, err := net.Dial("tcp", address(to).String())
		if err == nil {
			conns = append(conns, c)
			c.SetDeadline(time.Now().Add(10 * time.Second))
			err = echo(c, buf)
		}
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			return nil, fmt.Errorf("connection %d: %w", len(conns), err)
		}
	}
	return conns, nil
}

// sendDatagrams sends at a rate (in datagrams a second) over flows for a time, and returns how many were
// sent and how many the backend got.
func sendDatagrams(to uint16, b *backends, flows int, rate float64, d time.Duration) (sent, got int64, err error) {
	conns := make([]*ipv4.PacketConn, flows)
	for i := range conns {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(address(to)))
		if err != nil {
			return 0, 0, err
		}
		defer c.Close()
		conns[i] = ipv4.NewPacketConn(c)
	}
	payload := make([]byte, datagram)
	one := []ipv4.Message{{Buffers: [][]byte{payload}}}
	// Each flow begins with one datagram, so that sessions are there.
	for _, c := range conns {
		if _, err := c.WriteBatch(one, 0); err != nil {
			return 0, 0, err
		}
	}
	time.Sleep(50 * time.Millisecond)
	start := b.datagrams.Load()
	began := time.Now()
	// Round after round, one datagram a flow: clients do not send in step, but a generator on one core must
	// wake up for more than one datagram at a time.
	for time.Since(began) < d {
		due := int64(rate * time.Since(began).Seconds())
		if sent >= due {
			time.Sleep(20 * time.Microsecond)
			continue
		}
		for _, c := range conns {
			if sent >= due {
				break
			}
			if _, err := c.WriteBatch(one, 0); err != nil {
				continue // refused, or no room: lost
			}
			sent++
		}
	}
	// What is under way arrives soon or never.
	last := b.datagrams.Load()
	for quiet := 0; quiet < 5; {
		time.Sleep(20 * time.Millisecond)
		if now := b.datagrams.Load(); now != last {
			last, quiet = now, 0
		} else {
			quiet++
		}
	}
	return sent, last - start, nil
}

func await(limit time.Duration, ok func() bool, what string) error {
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			return errors.New(what)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
