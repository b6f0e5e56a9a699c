package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// The packets of the tests, built and judged by slow and obvious means that
// share nothing with the program: checksums are computed anew from their
// definition (RFC 1071), and what comes out is decoded by gopacket.

var (
	clientMAC  = [6]uint8{2, 0, 0, 0, 0, 0xc}
	ourMAC     = [6]uint8{2, 0, 0, 0, 0, 1}
	nextHopMAC = [6]uint8{2, 0, 0, 0, 0, 0xb}
)

const (
	tcpFIN, tcpSYN, tcpPSH, tcpACK = 1, 2, 8, 16

	kindTCP, kindUDP, kindICMP, kindICMPv6 = 6, 17, 1, 58
)

func sum16(b []byte) uint32 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
		s = s&0xffff + s>>16
	}
	if len(b)%2 == 1 {
		s += uint32(b[len(b)-1]) << 8
		s = s&0xffff + s>>16
	}
	return s
}

func checksum(parts ...[]byte) uint16 {
	return ^uint16(sum16(bytes.Join(parts, nil))) // every part but the last is of even length
}

func pseudo(src, dst netip.Addr, proto byte, n int) []byte {
	b := append(src.AsSlice(), dst.AsSlice()...)
	if src.Is4() {
		return append(b, 0, proto, byte(n>>8), byte(n))
	}
	return append(b, 0, 0, byte(n>>8), byte(n), 0, 0, 0, proto)
}

// l4sum puts the checksum into a layer 4 message; ICMP over IPv4 has no pseudo-header.
func l4sum(src, dst netip.Addr, proto byte, m []byte) []byte {
	at := map[byte]int{kindTCP: 16, kindUDP: 6, kindICMP: 2, kindICMPv6: 2}[proto]
	m[at], m[at+1] = 0, 0
	var c uint16
	if proto == kindICMP {
		c = checksum(m)
	} else {
		c = checksum(pseudo(src, dst, proto, len(m)), m)
	}
	if proto == kindUDP && c == 0 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(m[at:], c)
	return m
}

func tcp(src, dst netip.AddrPort, flags byte, payload string) []byte {
	m := binary.BigEndian.AppendUint16(nil, src.Port())
	m = binary.BigEndian.AppendUint16(m, dst.Port())
	m = append(m, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, flags, 0x20, 0, 0, 0, 0, 0)
	return l4sum(src.Addr(), dst.Addr(), kindTCP, append(m, payload...))
}

func udp(src, dst netip.AddrPort, payload string) []byte {
	m := binary.BigEndian.AppendUint16(nil, src.Port())
	m = binary.BigEndian.AppendUint16(m, dst.Port())
	m = binary.BigEndian.AppendUint16(m, uint16(8+len(payload)))
	return l4sum(src.Addr(), dst.Addr(), kindUDP, append(append(m, 0, 0), payload...))
}

func icmp(src, dst netip.Addr, typ, code byte, rest uint32, payload []byte) []byte {
	m := binary.BigEndian.AppendUint32([]byte{typ, code, 0, 0}, rest)
	proto := byte(kindICMP)
	if src.Is6() {
		proto = kindICMPv6
	}
	return l4sum(src, dst, proto, append(m, payload...))
}

// ip is an IPv4 or IPv6 header; the zero value of what is not named is usual.
type ip struct {
	src, dst netip.Addr
	proto    byte
	ttl      byte   // 0: 64
	tos      byte   // traffic class
	options  []byte // IPv4
	ext      []byte // IPv6: headers, the first of type extType, the last naming proto
	extType  byte
	id       uint16
	frag     uint16 // IPv4 flags and offset
}

func (h ip) bytes(payload []byte) []byte {
	if h.ttl == 0 {
		h.ttl = 64
	}
	if h.src.Is4() {
		n := 20 + len(h.options)
		b := []byte{0x40 | byte(n/4), h.tos}
		b = binary.BigEndian.AppendUint16(b, uint16(n+len(payload)))
		b = binary.BigEndian.AppendUint16(b, h.id)
		b = binary.BigEndian.AppendUint16(b, h.frag)
		b = append(b, h.ttl, h.proto, 0, 0)
		b = append(append(b, h.src.AsSlice()...), h.dst.AsSlice()...)
		b = append(b, h.options...)
		binary.BigEndian.PutUint16(b[10:], checksum(b))
		return append(b, payload...)
	}
	next := h.proto
	if len(h.ext) > 0 {
		next = h.extType
	}
	b := binary.BigEndian.AppendUint32(nil, 6<<28|uint32(h.tos)<<20|0x12345)
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.ext)+len(payload)))
	b = append(b, next, h.ttl)
	b = append(append(b, h.src.AsSlice()...), h.dst.AsSlice()...)
	return append(append(b, h.ext...), payload...)
}

// frame puts an IP packet into an Ethernet frame to us, with VLAN tags.
func frame(packet []byte, vlans ...uint16) []byte {
	b := append(append([]byte{}, ourMAC[:]...), clientMAC[:]...)
	for i, v := range vlans {
		typ := uint16(0x8100)
		if i == 0 && len(vlans) == 2 {
			typ = 0x88a8
		}
		b = binary.BigEndian.AppendUint16(b, typ)
		b = binary.BigEndian.AppendUint16(b, v)
	}
	typ := uint16(0x0800)
	if packet[0]>>4 == 6 {
		typ = 0x86dd
	}
	return append(binary.BigEndian.AppendUint16(b, typ), packet...)
}

// linkLen is the length of the Ethernet header with its tags.
func linkLen(f []byte) int {
	n := 14
	for n < len(f) && (binary.BigEndian.Uint16(f[n-2:]) == 0x8100 || binary.BigEndian.Uint16(f[n-2:]) == 0x88a8) {
		n += 4
	}
	return n
}

// hop returns the IP packet as a router sends it on: TTL one less.
func hop(packet []byte) []byte {
	p := bytes.Clone(packet)
	if p[0]>>4 == 6 {
		p[7]--
		return p
	}
	p[8]--
	n := int(p[0]&15) * 4
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], checksum(p[:n]))
	return p
}

// describe decodes a frame from the Ethernet header on, layer by layer, and
// returns an error for every checksum that is not what it should be.
func describe(f []byte) (string, error) {
	var out []string
	n := linkLen(f)
	if len(f) < n {
		return "", fmt.Errorf("a frame of %d bytes", len(f))
	}
	eth := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.NoCopy)
	e, ok := eth.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if !ok {
		return "", fmt.Errorf("no Ethernet")
	}
	out = append(out, fmt.Sprintf("%s > %s", e.SrcMAC, e.DstMAC))
	for _, l := range eth.Layers() {
		if v, ok := l.(*layers.Dot1Q); ok {
			out = append(out, fmt.Sprintf("vlan %d", v.VLANIdentifier))
		}
	}
	inner, err := describeIP(f[n:], false)
	return strings.Join(append(out, inner...), " | "), err
}

func describeIP(b []byte, quoted bool) ([]string, error) {
	var out []string
	var err error
	complain := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	first := layers.LayerTypeIPv4
	if b[0]>>4 == 6 {
		first = layers.LayerTypeIPv6
	}
	p := gopacket.NewPacket(b, first, gopacket.DecodeOptions{NoCopy: true})
	// It knows no mobility header and no HIP.
	if fail := p.ErrorLayer(); fail != nil && !quoted && !strings.Contains(fail.Error().Error(), "IPProtocol 13") {
		complain("decode: %v", fail.Error())
	}
	var src, dst netip.Addr
	var fragment bool
	payload := func(l gopacket.Layer) []byte {
		return append(bytes.Clone(l.LayerContents()), l.LayerPayload()...)
	}
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.IPv4:
			src, _ = netip.AddrFromSlice(l.SrcIP)
			dst, _ = netip.AddrFromSlice(l.DstIP)
			fragment = l.FragOffset != 0 || l.Flags&layers.IPv4MoreFragments != 0
			s := fmt.Sprintf("%s > %s ttl %d", src, dst, l.TTL)
			if l.Flags&layers.IPv4DontFragment != 0 {
				s += " df"
			}
			if fragment {
				s += fmt.Sprintf(" id %d offset %d", l.Id, l.FragOffset*8)
			}
			if l.TOS != 0 {
				s += fmt.Sprintf(" tos %#x", l.TOS)
			}
			out = append(out, s)
			if c := checksum(l.Contents); c != 0 {
				complain("IPv4 header checksum of %s is off by %#x", s, c)
			}
			if int(l.Length) != len(l.Contents)+len(l.Payload) && !quoted {
				complain("IPv4 length %d of %s, there are %d", l.Length, s, len(l.Contents)+len(l.Payload))
			}
		case *layers.IPv6:
			src, _ = netip.AddrFromSlice(l.SrcIP)
			dst, _ = netip.AddrFromSlice(l.DstIP)
			s := fmt.Sprintf("%s > %s ttl %d", src, dst, l.HopLimit)
			if l.TrafficClass != 0 {
				s += fmt.Sprintf(" tos %#x", l.TrafficClass)
			}
			out = append(out, s)
			if int(l.Length) != len(l.Payload) && !quoted && l.HopByHop == nil {
				complain("IPv6 length %d of %s, there are %d", l.Length, s, len(l.Payload))
			}
		case *layers.IPv6Fragment:
			fragment = true
			out = append(out, fmt.Sprintf("fragment id %d offset %d", l.Identification, l.FragmentOffset*8))
		case *layers.TCP:
			out = append(out, fmt.Sprintf("tcp %d > %d len %d", l.SrcPort, l.DstPort, len(l.Payload)))
			if m := payload(l); !quoted && !fragment && checksum(pseudo(src, dst, kindTCP, len(m)), m) != 0 {
				complain("TCP checksum of %v", out)
			}
		case *layers.UDP:
			out = append(out, fmt.Sprintf("udp %d > %d len %d", l.SrcPort, l.DstPort, int(l.Length)-8))
			m := payload(l)
			if l.Checksum != 0 && !quoted && !fragment && checksum(pseudo(src, dst, kindUDP, len(m)), m) != 0 {
				complain("UDP checksum of %v", out)
			}
			if l.DstPort == gue && !quoted {
				g := l.Payload
				if len(g) < 4 || g[0] != 0 || g[2] != 0 || g[3] != 0 || g[1] != 4 && g[1] != 41 {
					return out, fmt.Errorf("GUE header % x", g[:min(4, len(g))])
				}
				out = append(out, "gue")
				inner, fail := describeIP(g[4:], false)
				if fail != nil {
					complain("%w", fail)
				}
				return append(out, inner...), err
			}
		case *layers.ICMPv4:
			m := payload(l)
			if checksum(m) != 0 {
				complain("ICMP checksum of %v", out)
			}
			out = append(out, describeICMP(l.TypeCode.Type(), l.TypeCode.Code(), m))
			if t := l.TypeCode.Type(); t == 3 || t == 11 || t == 12 {
				inner, fail := describeIP(m[8:], true)
				if fail != nil {
					complain("quoted: %w", fail)
				}
				return append(append(out, "quotes"), inner...), err
			}
			return out, err
		case *layers.ICMPv6:
			m := payload(l)
			if checksum(pseudo(src, dst, kindICMPv6, len(m)), m) != 0 {
				complain("ICMPv6 checksum of %v", out)
			}
			out = append(out, describeICMP(l.TypeCode.Type(), l.TypeCode.Code(), m))
			if l.TypeCode.Type() < 128 {
				inner, fail := describeIP(m[8:], true)
				if fail != nil {
					complain("quoted: %w", fail)
				}
				return append(append(out, "quotes"), inner...), err
			}
			return out, err
		}
	}
	return out, err
}

func describeICMP(typ, code uint8, m []byte) string {
	return fmt.Sprintf("icmp %d/%d rest %#x len %d", typ, code, binary.BigEndian.Uint32(m[4:]), len(m)-8)
}

const gue = 6080
