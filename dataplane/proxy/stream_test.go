package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane/accesslog"
)

// TestStreams moves megabytes both ways through one connection, with pauses and half-closes, and through
// every way in which bytes are moved.
func TestStreams(t *testing.T) {
	for _, size := range []int{1, 4 << 10, 64 << 10, 64<<10 + 1, 20 << 20} {
		for _, limit := range []uint32{0, 1 << 20, 100} {
			if limit == 100 && size > 1<<20 {
				continue
			}
			b := newBed(t)
			b.listener.BufferLimit, b.cluster.BufferLimit = limit, limit
			h := startHost(t, func(h *fakeHost, c *net.TCPConn) {
				sum := sha256.New()
				io.Copy(sum, c)
				io.WriteString(c, hex.EncodeToString(sum.Sum(nil)))
				r := rand.NewChaCha8([32]byte{7})
				io.CopyN(c, r, int64(size))
			})
			b.setHosts(h.addr())
			b.apply()
			c := b.dial()
			up := make([]byte, size)
			rand.NewChaCha8([32]byte{1}).Read(up)
			c.say(string(up))
			c.CloseWrite()
			got, then := c.hearOut()
			sum := sha256.Sum256(up)
			down := make([]byte, size)
			rand.NewChaCha8([32]byte{7}).Read(down)
			if want := hex.EncodeToString(sum[:]) + string(down); got != want || then != "end of stream" {
				t.Fatalf("size %d, limit %d: got %d bytes (want %d), then %s", size, limit, len(got), len(want), then)
			}
			b.idle()
			b.levelsAtZero()
			b.want(map[string]int64{
				"tcp.t.downstream_cx_rx_bytes_total":   int64(size),
				"tcp.t.downstream_cx_tx_bytes_total":   int64(size + 64),
				"cluster.c.upstream_cx_tx_bytes_total": int64(size),
				"cluster.c.upstream_cx_rx_bytes_total": int64(size + 64),
			})
		}
	}
}

// TestEchoStream moves bytes both ways at once.
func TestEchoStream(t *testing.T) {
	b := newBed(t)
	b.setHosts(startHost(t, echo).addr())
	b.apply()
	const size = 30 << 20
	c := b.dial()
	sent := make([]byte, size)
	rand.NewChaCha8([32]byte{3}).Read(sent)
	var wg sync.WaitGroup
	wg.Go(func() {
		for rest := sent; len(rest) > 0; {
			n := min(1+rand.IntN(300<<10), len(rest))
			if _, err := c.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
		c.CloseWrite()
	})
	got, then := c.hearOut()
	wg.Wait()
	if then != "end of stream" || !bytes.Equal([]byte(got), sent) {
		t.Fatalf("got %d bytes back, then %s", len(got), then)
	}
	c.Close()
	b.idle()
	b.levelsAtZero()
}

func TestBackPressure(t *testing.T) {
	b := newBed(t)
	var written atomic.Int64
	h := startHost(t, func(h *fakeHost, c *net.TCPConn) {
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Write(buf)
			written.Add(int64(n))
			if err != nil {
				h.ended(err)
				return
			}
		}
	})
	b.setHosts(h.addr())
	b.apply()
	c := b.dial()
	c.SetReadBuffer(64 << 10)
	// The backend gets stuck, since the client does not read.
	eventually(t, "the backend to be stopped", func() bool {
		n := written.Load()
		time.Sleep(50 * time.Millisecond)
		return n > 0 && n == written.Load() && b.tcpStats.TxBytesBuffered.Value() > 0
	})
	b.want(map[string]int64{"cluster.c.upstream_flow_control_paused_reading_total": 1})
	if n := b.cluster.Stats.FlowControlResumed.Value(); n != b.cluster.Stats.FlowControlPaused.Value()-1 {
		t.Errorf("resumed %d times", n)
	}
	stuck := written.Load()
	if _, err := io.CopyN(io.Discard, c, stuck+1<<20); err != nil {
		t.Fatal(err)
	}
	if b.cluster.Stats.FlowControlResumed.Value() == 0 {
		t.Error("reading was not resumed")
	}
	c.reset()
	_, ends := h.told(1)
	if len(ends) != 1 {
		t.Errorf("the backend's connection ended %v", ends)
	}
	b.idle()
	b.levelsAtZero()
}

func TestClientResetReachesBackend(t *testing.T) {
	b := newBed(t)
	h := startHost(t, echo)
	b.setHosts(h.addr())
	b.proxy.AccessLog = []*accesslog.Log{b.logTo(observedFormat)}
	b.apply()
	b.dial().say("hi").hear("hi").reset()
	if _, ends := h.told(1); ends[0] != "reset" {
		t.Errorf("the backend saw %q", ends[0])
	}
	// Recorded from Envoy 1.40.0.
	b.checkEnd([]string{"- - rx=2 tx=2 code=0 host=" + h.addr() + " cluster=c attempts=1 reason=- closed=-,Normal,-,RemoteReset"},
		map[string]int64{
			"cluster.c.upstream_cx_destroy": 1, "cluster.c.upstream_cx_destroy_local": 1,
			"cluster.c.upstream_cx_destroy_local_with_active_rq": 1, "cluster.c.upstream_cx_destroy_with_active_rq": 1,
			"cluster.c.upstream_cx_rx_bytes_total": 2, "cluster.c.upstream_cx_total": 1, "cluster.c.upstream_cx_tx_bytes_total": 2,
			"cluster.c.upstream_rq_pending_total": 1, "cluster.c.upstream_rq_total": 1,
			"listener.127.0.0.1_10000.downstream_cx_destroy": 1, "listener.127.0.0.1_10000.downstream_cx_total": 1,
			"tcp.t.downstream_cx_rx_bytes_total": 2, "tcp.t.downstream_cx_total": 1, "tcp.t.downstream_cx_tx_bytes_total": 2,
		})
}

// TestBackendResetAfterBytes: the client gets all of a backend's bytes before the reset, although a
// reset makes kernels drop what they hold.
func TestBackendResetAfterBytes(t *testing.T) {
	b := newBed(t)
	const size = 300 << 10
	h := startHost(t, func(h *fakeHost, c *net.TCPConn) {
		c.Read(make([]byte, 1))
		c.Write(make([]byte, size))
		// the proxy has taken all of it
		eventually(t, "the bytes to arrive", func() bool { return b.cluster.Stats.UpstreamCxRxBytesTotal.Value() == size })
		c.SetLinger(0)
	})
	b.setHosts(h.addr())
	b.apply()
	got, then := b.dial().say("x").hearOut()
	if len(got) != size || then != "reset" {
		t.Errorf("the client got %d bytes, then %s", len(got), then)
	}
	b.idle()
	b.levelsAtZero()
}

func TestUpstreamFlush(t *testing.T) {
	b := newBed(t)
	const size = 8_000_000
	release := make(chan struct{})
	h := startHost(t, func(h *fakeHost, c *net.TCPConn) {
		c.CloseWrite()
		<-release
		h.read(c, nil)
	})
	b.setHosts(h.addr())
	b.apply()
	c := b.dial()
	go func() {
		c.Write(make([]byte, size))
		c.Close()
	}()
	eventually(t, "bytes held for the backend", func() bool { return b.cluster.Stats.UpstreamCxTxBytesBuffered.Value() > 0 })
	close(release)
	got, ends := h.told(1)
	if len(got) != size || ends[0] != "end" {
		t.Errorf("the backend got %d bytes, then %s", len(got), ends[0])
	}
	b.idle()
	b.levelsAtZero()
	b.want(map[string]int64{
		"cluster.c.upstream_cx_destroy_local": 1, "tcp.t.downstream_cx_rx_bytes_total": size,
		"cluster.c.upstream_cx_tx_bytes_total": size,
	})
}

// TestUrgentData: the mark of urgent data makes reads end early; the bytes behind it must not wait for
// more to come. The urgent byte itself is not passed on, as in other proxies.
func TestUrgentData(t *testing.T) {
	b := newBed(t)
	h := startHost(t, sink)
	b.setHosts(h.addr())
	b.apply()
	c := b.dial().say("x")
	h.heard("x")
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		gate := make(chan struct{})
		b.srv.workers[0].post(func() { <-gate }) // all of it comes at once
		c.say("abc")
		raw.Write(func(fd uintptr) bool {
			if err := unix.Sendto(int(fd), []byte{'!'}, unix.MSG_OOB, nil); err != nil {
				t.Error(err)
			}
			return true
		})
		end := fmt.Sprint("def", i)
		c.say(end)
		close(gate)
		h.heard("abc" + end)
	}
}

// TestBackendResetAfterEnd: a backend may end its direction, and reset the connection later on.
func TestBackendResetAfterEnd(t *testing.T) {
	b := newBed(t)
	b.setHosts(startHost(t, func(h *fakeHost, c *net.TCPConn) {
		c.CloseWrite()
		c.Read(make([]byte, 1))
		c.SetLinger(0)
	}).addr())
	b.proxy.AccessLog = []*accesslog.Log{b.logTo("%RESPONSE_FLAGS%")}
	b.apply()
	c := b.dial()
	if got, then := c.hearOut(); got != "" || then != "end of stream" {
		t.Errorf("got %q, then %s", got, then)
	}
	c.say("x")
	b.idle() // without another byte of the client
	if l := b.lines(1); l[0] != "UR" {
		t.Errorf("line %q", l[0])
	}
	b.levelsAtZero()
}

// TestClientVanishesWhileBackendSends: a client that closed for good answers with resets to what still
// comes; the backend is told.
func TestClientVanishesWhileBackendSends(t *testing.T) {
	b := newBed(t)
	h := startHost(t, func(h *fakeHost, c *net.TCPConn) {
		if _, err := io.ReadAll(c); err != nil {
			h.ended(err)
			return
		}
		for {
			if _, err := c.Write(make([]byte, 4096)); err != nil {
				h.ended(err)
				return
			}
		}
	})
	b.setHosts(h.addr())
	b.apply()
	b.dial().say("x").Close()
	h.told(1)
	b.idle()
	b.levelsAtZero()
}
