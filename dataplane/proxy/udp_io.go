package proxy

import (
	"log/slog"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// udpIO is what all UDP listeners and sessions of one worker share: memory for datagrams, and what is
// left to do at the end of the present turn of its loop.
type udpIO struct {
	loop *loop
	log  *slog.Logger

	// requests are clients' datagrams; they leave for the hosts before the next ones are read.
	requests datagrams
	segments [udpBatch]int
	next     [udpBatch]uint8 // lists of each session's datagrams; slot+1, 0 is the end
	touched  [udpBatch]*udpSession
	inbound  outbox

	// replies are hosts' datagrams, from sessions of one listener, on their way to the clients. They
	// wait for those of other sessions, to leave with them.
	replies  datagrams
	used     int // slots
	owner    *udpListener
	outbound outbox

	// counted has the clusters with counts to add to the stats.
	counted []*udpCluster
	ending  bool // endTurn will be called

	received  int // messages in this turn
	gathering gathering

	endTurnFunc func()

	// canSplit: the kernel has UDP_SEGMENT (Linux 4.18).
	canSplit bool
	// What kept sessions from being made: said at once, then no more than once in reportEvery.
	reported   time.Time
	unreported int
}

const reportEvery = 10 * time.Second

func newUDPIO(l *loop, log *slog.Logger) *udpIO {
	io := &udpIO{loop: l, log: log, canSplit: kernelSplits()}
	io.requests.init(true)
	io.replies.init(false)
	io.inbound.init()
	io.outbound.init()
	io.outbound.toClient = true
	io.endTurnFunc = io.endTurn
	return io
}

// kernelSplits reports whether the kernel can cut a send into datagrams.
func kernelSplits() bool {
	fd, e := sysUDPSocket(unix.AF_INET)
	if e != 0 {
		return false
	}
	defer sysClose(fd)
	return sysSetInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0) == 0
}

// atEndOfTurn has what is gathered sent and counted before the loop sleeps.
func (io *udpIO) atEndOfTurn() {
	if !io.ending {
		io.ending = true
		io.loop.atEndOfTurn(io.endTurnFunc)
	}
}

func (io *udpIO) endTurn() {
	io.settle()
	io.loop.rest(io.gathering.turn(io.loop.now, time.Now(), io.received))
	io.ending, io.received = false, 0
}

// settle sends and counts what there is to send and to count.
func (io *udpIO) settle() {
	io.flushReplies()
	for _, c := range io.counted {
		c.addCounts()
	}
	io.counted = io.counted[:0]
}

// count notes that a cluster has counts to add to the stats at the end of the turn.
func (io *udpIO) count(c *udpCluster) {
	if !c.listed {
		c.listed = true
		io.counted = append(io.counted, c)
		io.atEndOfTurn()
	}
}

// replyRoom finds room for datagrams of hosts to sessions of l, some at least.
func (io *udpIO) replyRoom(l *udpListener) (first, limit int) {
	const read = 16
	if io.owner != l || io.used > udpBatch-read/2 {
		io.flushReplies()
		io.owner = l
	}
	io.atEndOfTurn()
	return io.used, min(read, udpBatch-io.used)
}

// flushReplies sends what has come from hosts on to the clients.
func (io *udpIO) flushReplies() {
	if io.owner != nil && io.outbound.n > 0 {
		io.outbound.flush(io.owner.fd)
	}
	io.used = 0
}

// forget drops what refers to a listener that has stopped.
func (io *udpIO) forget(l *udpListener) {
	if io.owner == l {
		io.owner = nil
	}
}

// report logs why a session could not be made.
func (io *udpIO) report(l *udpListener, e unix.Errno, err error) {
	io.unreported++
	if io.loop.now.Sub(io.reported) < reportEvery {
		return
	}
	hint := "check the address and route of the host"
	switch e {
	case unix.EMFILE, unix.ENFILE:
		hint = "each UDP session needs a file descriptor: raise the limit (LimitNOFILE, ulimit -n) or lower idle_timeout or max_connections"
	case unix.EAGAIN:
		hint = "no local port is left: widen net.ipv4.ip_local_port_range"
	case unix.EPERM, unix.EACCES:
		hint = "CAP_NET_ADMIN is needed for use_original_src_ip"
	case unix.EADDRNOTAVAIL:
		hint = "the source address is not an address of this machine"
	}
	io.log.Warn("datagrams dropped: no UDP session could be made", "listener", l.conf.Name, "error", err, "dropped", io.unreported, "hint", hint)
	io.reported, io.unreported = io.loop.now, 0
}

// addCounts adds what was counted in this turn to the shared stats.
func (c *udpCluster) addCounts() {
	n, st := &c.pending, c.c.Stats
	add := func(to interface{ Add(uint64) }, n uint64) {
		if n != 0 {
			to.Add(n)
		}
	}
	add(st.UDPSessTxDatagrams, n.upTx)
	add(st.UpstreamCxTxBytesTotal, n.upTxBytes)
	add(st.UDPSessTxErrors, n.upTxErrs)
	add(st.UDPSessRxDatagrams, n.upRx)
	add(st.UpstreamCxRxBytesTotal, n.upRxBytes)
	add(st.UDPSessRxErrors, n.upRxErrs)
	add(st.UDPSessRxDatagramsDropped, n.upRxTooBig)
	add(c.l.stats.SessRxDatagrams, n.rx)
	add(c.l.stats.SessRxBytes, n.rxBytes)
	add(c.l.stats.SessTxDatagrams, n.tx)
	add(c.l.stats.SessTxBytes, n.txBytes)
	add(c.l.stats.SessTxErrors, n.txErrs)
	c.l.total.add(n)
	*n = udpCounts{}
	c.listed = false
}

// setRaw takes over an address that the kernel gave.
func (s *sockaddr) setRaw(rsa *unix.RawSockaddrAny) {
	s.raw = *(*unix.RawSockaddrInet6)(unsafe.Pointer(rsa))
	s.family, s.len = unix.AF_INET6, unix.SizeofSockaddrInet6
	if rsa.Addr.Family == unix.AF_INET {
		s.family, s.len = unix.AF_INET, unix.SizeofSockaddrInet4
	}
}
