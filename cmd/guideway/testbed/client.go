package testbed

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"
)

// What a client can see of a connection after the last bytes.
const (
	EndOfStream = "end of stream"
	Reset       = "reset"
	StaysOpen   = "stays open"
)

// Client is a TCP client of a proxy. Its methods fail the test rather than return errors.
type Client struct {
	*net.TCPConn
	Began time.Time // when the connection was there

	t testing.TB
}

// TryConnect connects from an address (zero: the kernel's choice) and gives the error, such as ECONNREFUSED.
func TryConnect(t testing.TB, ns *Namespace, from netip.Addr, to string) (*Client, error) {
	t.Helper()
	d := &net.Dialer{Timeout: Patience}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	c, err := ns.dial(context.Background(), d, "tcp", to)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return &Client{TCPConn: c.(*net.TCPConn), Began: time.Now(), t: t}, nil
}

// ConnectTo connects from an address (zero: the kernel's choice).
func ConnectTo(t testing.TB, ns *Namespace, from netip.Addr, to string) *Client {
	t.Helper()
	c, err := TryConnect(t, ns, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Say sends text. A connection that is closed under way is not an error: hearing tells.
func (c *Client) Say(text string) *Client {
	c.t.Helper()
	c.SetWriteDeadline(time.Now().Add(Patience))
	if _, err := io.WriteString(c.TCPConn, text); errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("nobody takes %q within %v", text, Patience)
	}
	return c
}

// Hear waits for exactly as many bytes as the text has and fails the test if they are others.
func (c *Client) Hear(text string) *Client {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(Patience))
	buf := make([]byte, len(text))
	if n, err := io.ReadFull(c.TCPConn, buf); err != nil || string(buf) != text {
		c.t.Fatalf("the client got %q (%v), want %q", buf[:n], err, text)
	}
	return c
}

// HearOut reads until the connection ends. It gives what came, what the connection did then, and how long
// after its beginning.
func (c *Client) HearOut() (got, then string, after time.Duration) {
	c.t.Helper()
	return c.HearUntilQuiet(0, Patience)
}

// HearUntilQuiet is HearOut for a connection that may stay open: it does so if, after the least number of
// bytes, nothing comes for a time.
func (c *Client) HearUntilQuiet(least int, quiet time.Duration) (got, then string, after time.Duration) {
	c.t.Helper()
	var all []byte
	buf := make([]byte, 64<<10)
	for {
		wait := quiet
		if len(all) < least {
			wait = Patience
		}
		c.SetReadDeadline(time.Now().Add(wait))
		n, err := c.Read(buf)
		all = append(all, buf[:n]...)
		after = time.Since(c.Began)
		switch {
		case err == nil:
		case err == io.EOF:
			return string(all), EndOfStream, after
		case errors.Is(err, syscall.ECONNRESET):
			return string(all), Reset, after
		case errors.Is(err, os.ErrDeadlineExceeded):
			return string(all), StaysOpen, after
		default:
			c.t.Fatal(err)
		}
	}
}

// DatagramClient is a UDP client of a proxy, on one port.
type DatagramClient struct {
	*net.UDPConn

	t testing.TB
}

// DatagramsTo makes a UDP client on an address (zero: the kernel's choice) that talks to one address.
func DatagramsTo(t testing.TB, ns *Namespace, from netip.Addr, to string) *DatagramClient {
	t.Helper()
	d := &net.Dialer{}
	if from.IsValid() {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	c, err := ns.dial(context.Background(), d, "udp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &DatagramClient{UDPConn: c.(*net.UDPConn), t: t}
}

// AnswerTime is how long to wait for the answer to a datagram: an answer that is expected may take its time; one that is
// not has to be given up soon.
func AnswerTime(expected bool) time.Duration {
	if expected {
		return Patience
	}
	return 300 * time.Millisecond
}

// Ask sends a datagram and waits for the answer; false means that there was none for a time.
func (c *DatagramClient) Ask(datagram string, quiet time.Duration) (string, bool) {
	c.t.Helper()
	if _, err := io.WriteString(c.UDPConn, datagram); err != nil {
		c.t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(quiet))
	buf := make([]byte, 64<<10)
	n, err := c.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", false
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return string(buf[:n]), true
}
