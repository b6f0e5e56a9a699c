package maglev

import (
	"encoding/binary"
	"net/netip"
	"strconv"
)

// maxAddrText is the longest text AppendAddr produces for an address without a
// zone: an IPv4-mapped IPv6 address needs 22 bytes, a full IPv6 address 39.
const maxAddrText = 39

// AppendAddr appends the text of addr to dst and returns the extended slice.
//
// The text is the one glibc's inet_ntop(3) prints, because that is what Envoy
// hashes. It differs from [netip.Addr.String] for the IPv4-compatible
// addresses (::192.0.2.1, not ::c000:201), and from [net.IP.String] for the
// IPv4-mapped ones (::ffff:192.0.2.1, not 192.0.2.1). A caller that wants a
// mapped address treated as IPv4 unmaps it first.
//
// A zone is appended as "%zone". Envoy prints the number of the scope, never
// the name of the interface, so the zone should be that number; "0" is the
// same as no zone. The zero Addr has no text.
func AppendAddr(dst []byte, addr netip.Addr) []byte {
	switch {
	case addr.Is4():
		return appendIPv4(dst, addr.As4())
	case addr.Is6():
		dst = appendIPv6(dst, addr.As16())
		if zone := addr.Zone(); zone != "" && zone != "0" {
			dst = append(dst, '%')
			dst = append(dst, zone...)
		}
	}
	return dst
}

// AddrString returns the text of addr as [AppendAddr] defines it.
func AddrString(addr netip.Addr) string {
	var buf [maxAddrText + 11]byte
	return string(AppendAddr(buf[:0], addr))
}

// AppendHostKey appends the key that Maglev and ring hash use for a host with
// this address, unless its configuration names another one: "a.b.c.d:port", or
// "[address]:port" for IPv6, the address in the form of [AppendAddr].
func AppendHostKey(dst []byte, addr netip.AddrPort) []byte {
	if addr.Addr().Is6() {
		dst = append(dst, '[')
		dst = AppendAddr(dst, addr.Addr())
		dst = append(dst, ']')
	} else {
		dst = AppendAddr(dst, addr.Addr())
	}
	dst = append(dst, ':')
	return strconv.AppendUint(dst, uint64(addr.Port()), 10)
}

// HostKey returns the key of a host as [AppendHostKey] defines it.
func HostKey(addr netip.AddrPort) string {
	var buf [maxAddrText + 19]byte
	return string(AppendHostKey(buf[:0], addr))
}

func appendIPv4(dst []byte, ip [4]byte) []byte {
	for i, b := range ip {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return dst
}

// appendIPv6 follows the rules of RFC 5952, with two additions of inet_ntop:
// addresses whose first run of zero groups is exactly six long, or five long
// and followed by ffff, end in dotted decimal.
func appendIPv6(dst []byte, ip [16]byte) []byte {
	var groups [8]uint16
	for i := range groups {
		groups[i] = binary.BigEndian.Uint16(ip[2*i:])
	}
	start, length := longestZeroRun(groups)
	dotted := start == 0 && (length == 6 || length == 5 && groups[5] == 0xffff)
	for i := 0; i < 8; {
		if i == start {
			dst = append(dst, ':', ':')
			i += length
			continue
		}
		if i > 0 && i != start+length {
			dst = append(dst, ':')
		}
		if dotted && i == 6 {
			return appendIPv4(dst, [4]byte(ip[12:]))
		}
		dst = strconv.AppendUint(dst, uint64(groups[i]), 16)
		i++
	}
	return dst
}

// longestZeroRun finds the leftmost of the longest runs of at least two zero
// groups. Without one it returns a start of -1 and, so that start+length names
// no group either, a length of 0.
func longestZeroRun(groups [8]uint16) (start, length int) {
	start = -1
	for i := 0; i < 8; {
		if groups[i] != 0 {
			i++
			continue
		}
		end := i + 1
		for end < 8 && groups[end] == 0 {
			end++
		}
		if run := end - i; run >= 2 && run > length {
			start, length = i, run
		}
		i = end
	}
	return start, length
}
