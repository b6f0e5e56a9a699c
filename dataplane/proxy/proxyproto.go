package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// proxyHeader is a PROXY protocol header, of either version
// (https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt).
type proxyHeader struct {
	version int
	// size is the header's length in bytes.
	size int
	// src and dst are invalid where the header names none (UNKNOWN, LOCAL).
	src, dst netip.AddrPort
	tlvs     []byte // version 2: type-length-value elements as they came
}

var (
	errNoProxyHeader   = errors.New("no PROXY header")
	errMoreBytes       = errors.New("the PROXY header goes on")
	errBadProxyHeader1 = errors.New("malformed PROXY header of version 1")
	errBadProxyHeader2 = errors.New("malformed PROXY header of version 2, or a family that is not IP")
)

const (
	signature1  = "PROXY "
	signature2  = "\r\n\r\n\x00\r\nQUIT\n"
	maxHeader1  = 107 // with CR LF
	fixedPart2  = 16
	addresses4  = 12
	addresses6  = 36
	commandOK   = 0x21 // version 2, PROXY
	commandSelf = 0x20 // version 2, LOCAL
)

// parseProxyHeader reads the header at the begin of b. errMoreBytes asks for more bytes.
func parseProxyHeader(b []byte) (proxyHeader, error) {
	switch {
	case hasPrefix(b, signature1):
		return parseProxyHeader1(b)
	case hasPrefix(b, signature2):
		return parseProxyHeader2(b)
	case strings.HasPrefix(signature1, string(b[:min(len(b), len(signature1))])),
		strings.HasPrefix(signature2, string(b[:min(len(b), len(signature2))])):
		return proxyHeader{}, errMoreBytes
	}
	return proxyHeader{}, errNoProxyHeader
}

func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}

func parseProxyHeader1(b []byte) (proxyHeader, error) {
	bad := proxyHeader{version: 1}
	end := bytes.Index(b[:min(len(b), maxHeader1)], []byte("\r\n"))
	if end < 0 {
		if len(b) >= maxHeader1 {
			return bad, errBadProxyHeader1
		}
		return bad, errMoreBytes
	}
	h := proxyHeader{version: 1, size: end + 2}
	line := string(b[:end])
	if line == "PROXY UNKNOWN" || strings.HasPrefix(line, "PROXY UNKNOWN ") {
		return h, nil
	}
	f := strings.Split(line, " ")
	if len(f) != 6 || f[1] != "TCP4" && f[1] != "TCP6" {
		return bad, errBadProxyHeader1
	}
	var ok1, ok2 bool
	h.src, ok1 = parseAddress1(f[1] == "TCP4", f[2], f[4])
	h.dst, ok2 = parseAddress1(f[1] == "TCP4", f[3], f[5])
	if !ok1 || !ok2 {
		return bad, errBadProxyHeader1
	}
	return h, nil
}

func parseAddress1(v4 bool, ip, port string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(ip)
	if err != nil || a.Is4() != v4 || a.Zone() != "" {
		return netip.AddrPort{}, false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || port[0] == '+' {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a, uint16(n)), true
}

func parseProxyHeader2(b []byte) (proxyHeader, error) {
	bad := proxyHeader{version: 2}
	if len(b) > len(signature2) && b[12] != commandOK && b[12] != commandSelf {
		return bad, errBadProxyHeader2
	}
	if len(b) < fixedPart2 {
		return bad, errMoreBytes
	}
	length := int(binary.BigEndian.Uint16(b[14:16]))
	h := proxyHeader{version: 2, size: fixedPart2 + length}
	need := 0
	if b[12] == commandOK {
		switch b[13] {
		case 0x11, 0x12: // IPv4; a datagram is taken like a stream
			need = addresses4
		case 0x21, 0x22:
			need = addresses6
		default:
			return bad, errBadProxyHeader2
		}
		if length < need {
			return bad, errBadProxyHeader2
		}
	}
	if len(b) < h.size {
		return bad, errMoreBytes
	}
	body := b[fixedPart2:h.size]
	switch need {
	case addresses4:
		h.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(body)), binary.BigEndian.Uint16(body[8:]))
		h.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(body[4:])), binary.BigEndian.Uint16(body[10:]))
	case addresses6:
		h.src = netip.AddrPortFrom(netip.AddrFrom16([16]byte(body)), binary.BigEndian.Uint16(body[32:]))
		h.dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(body[16:])), binary.BigEndian.Uint16(body[34:]))
	default:
		return h, nil
	}
	h.tlvs = body[need:]
	if !eachTLV(h.tlvs, func(byte, []byte) {}) {
		return bad, errBadProxyHeader2
	}
	return h, nil
}

// eachTLV calls f for each element; false if they do not fill b exactly.
func eachTLV(b []byte, f func(kind byte, value []byte)) bool {
	for len(b) > 0 {
		if len(b) < 3 {
			return false
		}
		n := int(binary.BigEndian.Uint16(b[1:3]))
		if len(b) < 3+n {
			return false
		}
		f(b[0], b[3:3+n])
		b = b[3+n:]
	}
	return true
}

// appendProxyHeader1 writes a header of version 1.
func appendProxyHeader1(b []byte, src, dst netip.AddrPort) []byte {
	if !src.IsValid() || !dst.IsValid() {
		return append(b, "PROXY UNKNOWN\r\n"...)
	}
	family := "TCP4 "
	if !src.Addr().Is4() || !dst.Addr().Is4() {
		family = "TCP6 "
	}
	b = append(append(b, signature1...), family...)
	b = append(appendAddress1(b, src.Addr(), family), ' ')
	b = append(appendAddress1(b, dst.Addr(), family), ' ')
	b = append(strconv.AppendUint(b, uint64(src.Port()), 10), ' ')
	b = strconv.AppendUint(b, uint64(dst.Port()), 10)
	return append(b, "\r\n"...)
}

// appendAddress1 writes an address; beside an IPv6 one an IPv4 address stands in its mapped form.
func appendAddress1(b []byte, a netip.Addr, family string) []byte {
	if family == "TCP6 " && a.Is4() {
		a = netip.AddrFrom16(a.As16())
	}
	return a.WithZone("").AppendTo(b)
}

// appendProxyHeader2 writes a header of version 2. Elements beyond its 65,535 bytes are left out.
func appendProxyHeader2(b []byte, src, dst netip.AddrPort, tlvs []dataplane.TLV) []byte {
	at := len(b)
	b = append(b, signature2...)
	switch {
	case !src.IsValid() || !dst.IsValid():
		b = append(b, commandSelf, 0, 0, 0)
	case src.Addr().Is4() && dst.Addr().Is4():
		s, d := src.Addr().As4(), dst.Addr().As4()
		b = append(b, commandOK, 0x11, 0, 0)
		b = append(append(b, s[:]...), d[:]...)
		b = binary.BigEndian.AppendUint16(b, src.Port())
		b = binary.BigEndian.AppendUint16(b, dst.Port())
	default:
		s, d := src.Addr().As16(), dst.Addr().As16()
		b = append(b, commandOK, 0x21, 0, 0)
		b = append(append(b, s[:]...), d[:]...)
		b = binary.BigEndian.AppendUint16(b, src.Port())
		b = binary.BigEndian.AppendUint16(b, dst.Port())
	}
	for _, t := range tlvs {
		if len(b)-at-fixedPart2+3+len(t.Value) > 0xffff {
			break
		}
		b = append(b, t.Type)
		b = binary.BigEndian.AppendUint16(b, uint16(len(t.Value)))
		b = append(b, t.Value...)
	}
	binary.BigEndian.PutUint16(b[at+14:], uint16(len(b)-at-fixedPart2))
	return b
}

// upstreamTLVs are the elements of the header to the upstream: those of the cluster, then those of the
// tcp_proxy, then those of the client's header that may pass; each type once, the first one counts.
// When the client sent a header with elements, the proxy's own meet them as merge says: they are left
// out (AddIfAbsent), take their place, or stand beside them.
func upstreamTLVs(u *dataplane.UpstreamProxyProtocol, p *dataplane.TCPProxy, client []dataplane.TLV, hadHeader bool) []dataplane.TLV {
	var own []dataplane.TLV
	add := func(list []dataplane.TLV) {
	next:
		for _, t := range list {
			for _, o := range own {
				if o.Type == t.Type {
					continue next
				}
			}
			own = append(own, t)
		}
	}
	add(u.Added)
	if !hadHeader || p.TLVMerge != dataplane.AddIfAbsent {
		add(p.TLVs)
	}
	out := own
	for _, t := range client {
		if !u.PassAllTLVs && bytes.IndexByte(u.PassTLVs, t.Type) < 0 {
			continue
		}
		taken := false
		for _, o := range own {
			taken = taken || o.Type == t.Type
		}
		if !taken || p.TLVMerge == dataplane.AppendIfExists {
			out = append(out, t)
		}
	}
	return out
}

// sendProxyHeader writes the header to the upstream, before any byte of the client.
func (c *conn) sendProxyHeader() {
	u := c.cluster.ProxyProtocol
	var b []byte
	if u.Version == 1 {
		b = appendProxyHeader1(c.t.header[:0], c.remoteAddr(), c.localAddr())
	} else {
		var client []dataplane.TLV
		had := false
		if c.x != nil {
			client, had = c.x.tlvs, c.x.remote.IsValid()
		}
		b = appendProxyHeader2(c.t.header[:0], c.remoteAddr(), c.localAddr(), upstreamTLVs(u, c.chain.cfg.Proxy, client, had))
	}
	c.t.header = b
	n, _ := sysWrite(int(c.up.fd), b) // an error shows at the next write
	c.cluster.Stats.UpstreamCxTxBytesTotal.Add(uint64(n))
	if n < len(b) {
		c.toUp.prepend(c.t, b[n:])
	}
}

// proxyProtocol is the listener filter that reads a client's PROXY header.
type proxyProtocol struct {
	cfg                               *dataplane.ProxyProtocolFilter
	anyError                          *stats.Counter
	notFoundAllowed, notFoundRefused  *stats.Counter
	found, disallowed, versionErrored [3]*stats.Counter // by version
}

func newProxyProtocol(store *stats.Store, cfg *dataplane.ProxyProtocolFilter) (*proxyProtocol, []*stats.Scope) {
	prefix := "proxy_proto."
	if cfg.StatPrefix != "" {
		prefix += cfg.StatPrefix + "."
	}
	global, scope := store.Scope(""), store.Scope(prefix)
	f := &proxyProtocol{
		cfg:             cfg,
		anyError:        global.Counter("downstream_cx_proxy_proto_error"),
		notFoundAllowed: scope.Counter("not_found_allowed"),
		notFoundRefused: scope.Counter("not_found_disallowed"),
	}
	for v := 1; v <= 2; v++ {
		p := "versions.v" + strconv.Itoa(v) + "."
		f.found[v] = scope.Counter(p + "found")
		f.disallowed[v] = scope.Counter(p + "disallowed")
		f.versionErrored[v] = scope.Counter(p + "error")
	}
	return f, []*stats.Scope{global, scope}
}

// run implements listenerFilter.
func (f *proxyProtocol) run(c *conn, b []byte) (take int, v verdict) {
	h, err := parseProxyHeader(b)
	switch err {
	case nil:
	case errMoreBytes:
		if len(b) == len(c.t.buf) {
			break // no header of either version is that long
		}
		return 0, filterMore
	case errNoProxyHeader:
		if f.cfg.AllowWithoutHeader {
			f.notFoundAllowed.Inc()
			return 0, filterDone
		}
		f.notFoundRefused.Inc()
		f.anyError.Inc()
		return 0, filterRefuse
	}
	if err != nil {
		f.versionErrored[h.version].Inc()
		f.anyError.Inc()
		return 0, filterRefuse
	}
	f.found[h.version].Inc()
	if h.version == 1 && f.cfg.DisallowV1 || h.version == 2 && f.cfg.DisallowV2 {
		f.disallowed[h.version].Inc()
		return 0, filterRefuse
	}
	c.x.remote, c.x.local = h.src, h.dst
	eachTLV(h.tlvs, func(kind byte, value []byte) {
		if f.cfg.KeepAllTLVs || bytes.IndexByte(f.cfg.KeepTLVs, kind) >= 0 {
			c.x.tlvs = append(c.x.tlvs, dataplane.TLV{Type: kind, Value: bytes.Clone(value)})
		}
	})
	return h.size, filterDone
}
