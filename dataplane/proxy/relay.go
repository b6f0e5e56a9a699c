package proxy

import (
	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane/stats"
)

// flow is one direction of a connection. Bytes that the receiver takes at once pass through the loop's
// shared buffer; only what it does not take is held here, and the sender is not read before it is gone.
type flow struct {
	hold     *hold // nil if nothing is held
	pipe     *pipe // nil if nothing is held
	read     uint64
	reported int32 // bytes held, as told to the gauge
	bulk     int8  // reads in a row that were large; from bulkReads on bytes are spliced
	ended    bool  // the sender's end was read
	shut     bool  // and passed on
	paused   bool  // the sender has bytes that are not read because of the receiver
}

const (
	// bulkRead is the size of a read, in bytes, that hints at a stream; bulkReads of them in a row make
	// the flow splice, and as many short splices make it read again.
	bulkRead  = 16 << 10
	bulkReads = 3
	// turnBytes bounds what a flow moves in one turn of the loop.
	turnBytes = 2 << 20
)

func (f *flow) holds() bool { return f.hold != nil || f.pipe != nil }

// held is the number of bytes held.
func (f *flow) held() int32 {
	n := int32(0)
	if f.hold != nil {
		n = int32(len(f.hold.rest))
	}
	if f.pipe != nil {
		n += int32(f.pipe.n)
	}
	return n
}

// keep holds bytes that the receiver did not take.
func (f *flow) keep(t *tcpState, b []byte) {
	f.hold = t.holds.get(len(b))
	f.hold.rest = f.hold.buf[:copy(f.hold.buf, b)]
}

// prepend puts bytes before those that are held.
func (f *flow) prepend(t *tcpState, b []byte) {
	var after []byte
	if f.hold != nil {
		after = append(after, f.hold.rest...)
		t.holds.put(f.hold)
	}
	all := append(append([]byte(nil), b...), after...)
	f.hold = &hold{buf: all, rest: all}
}

// discard drops what is held.
func (f *flow) discard(t *tcpState) {
	if f.hold != nil {
		t.holds.put(f.hold)
		f.hold = nil
	}
	if f.pipe != nil {
		t.pipes.drop(f.pipe)
		f.pipe = nil
	}
}

// outcome of moving bytes of one flow.
type outcome uint8

const (
	moved     outcome = iota
	srcFailed         // reading ended with an error: the sender reset
	dstFailed         // writing ended with an error: the receiver is gone
)

// push writes what is held; false if some is left or an error came up.
func (f *flow) push(t *tcpState, dst *side) (n int, e unix.Errno) {
	for f.hold != nil {
		m, e := sysWrite(int(dst.fd), f.hold.rest)
		if e != 0 {
			return n, e
		}
		n += m
		if f.hold.rest = f.hold.rest[m:]; len(f.hold.rest) == 0 {
			t.holds.put(f.hold)
			f.hold = nil
		}
	}
	for f.pipe != nil {
		m, e := sysSplice(f.pipe.r, int(dst.fd), f.pipe.n)
		if e != 0 {
			return n, e
		}
		n += m
		if f.pipe.n -= m; f.pipe.n == 0 {
			t.pipes.put(f.pipe)
			f.pipe = nil
		}
	}
	return n, 0
}

// meters are the stats of one direction: bytes read and written, how often the sender was left unread
// because the receiver did not keep up, and the bytes held.
type meters struct {
	in, out, paused, resumed *stats.Counter
	held                     *stats.Gauge
}

func (c *conn) upMeters() meters {
	t, u := c.chain.tcp, c.cluster.Stats
	return meters{t.RxBytesTotal, u.UpstreamCxTxBytesTotal, t.FlowPaused, t.FlowResumed, u.UpstreamCxTxBytesBuffered}
}

func (c *conn) downMeters() meters {
	t, u := c.chain.tcp, c.cluster.Stats
	return meters{u.UpstreamCxRxBytesTotal, t.TxBytesTotal, u.FlowControlPaused, u.FlowControlResumed, t.TxBytesBuffered}
}

// move passes bytes from src to dst until one of them would block, the sender has ended, or it is the
// turn of others. any tells whether bytes moved.
func (c *conn) move(f *flow, src, dst *side, m meters) (any bool, _ outcome) {
	t := c.t
	var read, wrote int
	result := moved
	limit := c.readLimit(f)
loop:
	for {
		if f.holds() {
			if !dst.writable {
				break
			}
			n, e := f.push(t, dst)
			wrote += n
			if e == unix.EAGAIN {
				dst.writable = false
				break
			}
			if e != 0 {
				result = dstFailed
				break
			}
			if f.paused {
				f.paused = false
				m.resumed.Inc()
			}
		}
		if f.ended || !src.readable || !dst.writable {
			break
		}
		if read >= turnBytes {
			t.w.again(src)
			break
		}
		if f.bulk >= bulkReads {
			if p := t.pipes.get(); p != nil {
				n, e := sysSplice(int(src.fd), p.w, min(p.size, limit))
				if n <= 0 || e != 0 {
					t.pipes.put(p)
					switch {
					case e == 0:
						f.ended = true
					case e == unix.EAGAIN:
						src.readable = false
					case e == unix.EINVAL: // no socket that can be spliced
						f.bulk = -128
					default:
						result = srcFailed
						break loop
					}
					continue
				}
				read += n
				p.n, f.pipe = n, p
				if n >= bulkRead {
					f.bulk = bulkReads + 4
				} else {
					f.bulk--
				}
				continue
			}
		}
		b := t.buf[:min(readSize, limit)]
		n, e := sysRead(int(src.fd), b)
		if e != 0 {
			if e == unix.EAGAIN {
				src.readable = false
				break
			}
			result = srcFailed
			break
		}
		if n == 0 {
			f.ended = true
			break
		}
		read += n
		if n < bulkRead {
			f.bulk = min(f.bulk, 0)
		} else if f.bulk >= 0 {
			f.bulk++
		}
		took, e := sysWrite(int(dst.fd), b[:n])
		if e != 0 && e != unix.EAGAIN {
			result = dstFailed
			break
		}
		wrote += took
		if took < n {
			f.keep(t, b[took:n])
			dst.writable = e == 0
		}
		if n < len(b) && !src.ended && !src.urgent {
			// A short read has emptied a stream socket (epoll(7)), and its end will be another event.
			src.readable = false
		}
	}
	if read > 0 {
		f.read += uint64(read)
		m.in.Add(uint64(read))
	}
	if wrote > 0 {
		m.out.Add(uint64(wrote))
	}
	if read|wrote != 0 {
		c.last = t.since()
	}
	if h := f.held(); h != f.reported {
		m.held.Add(int64(h - f.reported))
		f.reported = h
	}
	if src.readable && !f.paused && f.holds() {
		f.paused = true
		m.paused.Inc()
	}
	return read|wrote != 0, result
}

// readLimit is how many bytes may be read at once: the buffer limit of the connection they come from.
func (c *conn) readLimit(f *flow) int {
	limit := c.ln.cfg.BufferLimit
	if f == &c.toDown {
		limit = c.cluster.BufferLimit
	}
	if limit == 0 || limit > 1<<30 {
		return 1 << 30
	}
	return int(limit)
}

// relay moves what can be moved in both directions and sees what follows from it.
func (c *conn) relay() {
	if c.checkRBAC && c.down.readable && !c.decideRBAC() {
		return
	}
	var up, down bool // whether any bytes moved
	var result outcome
	if !c.toUp.shut && !c.checkRBAC {
		up, result = c.move(&c.toUp, &c.down, &c.up, c.upMeters())
		switch result {
		case srcFailed:
			c.clientReset()
			return
		case dstFailed:
			// What the upstream sent before it went is still to be read, and the reset behind it.
			c.upstreamGone()
		}
		if c.down.failed && c.toUp.holds() {
			c.clientReset() // unsent bytes are dropped
			return
		}
		if c.toUp.ended && !c.toUp.shut && !c.toUp.holds() {
			c.toUp.shut = true
			c.upShutEnd = true
			if !c.toDown.shut {
				sysShutdownWrite(int(c.up.fd))
			}
		}
	}
	if !c.toDown.shut {
		down, result = c.move(&c.toDown, &c.up, &c.down, c.downMeters())
		switch result {
		case srcFailed:
			c.upstreamReset()
			return
		case dstFailed:
			c.clientReset()
			return
		}
		if c.down.failed && c.toUp.shut {
			c.clientReset()
			return
		}
		if c.toDown.ended && !c.toDown.holds() {
			if c.upFailed {
				c.upstreamReset()
				return
			}
			c.toDown.shut = true
			c.upShutEnd = false
			if !c.toUp.shut {
				sysShutdownWrite(int(c.down.fd))
			}
		}
	}
	switch {
	case c.toDown.shut && c.toUp.shut:
		c.finish()
	case c.toDown.shut && c.up.failed:
		c.upstreamReset() // behind its end, so that no read would tell
	case c.toDown.shut && c.toUp.ended:
		c.beginFlush()
	case (up || down) && c.chain.cfg.Proxy.CheckDrainClose:
		c.drainClose()
	}
}

// upstreamGone notes that the upstream does not take bytes any more.
func (c *conn) upstreamGone() {
	c.upFailed = true
	c.dropHeld(&c.toUp, c.cluster.Stats.UpstreamCxTxBytesBuffered)
	c.toUp.ended, c.toUp.shut = true, true
	c.up.readable, c.up.ended = true, true
}

func (c *conn) dropHeld(f *flow, g *stats.Gauge) {
	f.discard(c.t)
	if f.reported != 0 {
		g.Add(-int64(f.reported))
		f.reported = 0
	}
}

// beginFlush is for a client that is gone while bytes for the upstream are left ("upstream flush").
func (c *conn) beginFlush() {
	c.state = stateFlushing
	c.chain.tcp.UpstreamFlush.Inc()
	c.chain.tcp.UpstreamFlushing.Inc()
	c.endDownstream(reasonNone, typeNormal, typeNormal)
	c.down.close()
}

func (c *conn) flush() {
	if _, result := c.move(&c.toUp, &c.down, &c.up, c.upMeters()); result != moved {
		c.endUpstream(true)
		c.free()
		return
	}
	if !c.toUp.holds() {
		c.endUpstream(false)
		c.free()
	}
}
