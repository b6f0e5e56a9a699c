package packet

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// payload makes frames long enough for the wrapper, and about as long as small packets of real traffic.
const payload = 60

var (
	client4 = netip.MustParseAddrPort("198.51.100.7:40000")
	client6 = netip.MustParseAddrPort("[2001:db8:1::7]:40000")
	vip4    = netip.MustParseAddrPort("192.0.2.1:443")
	vip6    = netip.MustParseAddrPort("[2001:db8:2::1]:443")
	// other is no VIP.
	other = netip.MustParseAddrPort("203.0.113.1:443")

	ours    = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	nextHop = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// frame builds an Ethernet frame from a client to dst.
func frame(dst netip.AddrPort, tcp bool) ([]byte, error) {
	src := client4
	eth := &layers.Ethernet{SrcMAC: nextHop, DstMAC: ours, EthernetType: layers.EthernetTypeIPv4}
	protocol := layers.IPProtocolUDP
	if tcp {
		protocol = layers.IPProtocolTCP
	}
	var ip gopacket.SerializableLayer
	var network gopacket.NetworkLayer
	if dst.Addr().Is4() {
		v4 := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: protocol, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
		ip, network = v4, v4
	} else {
		src = client6
		eth.EthernetType = layers.EthernetTypeIPv6
		v6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
		ip, network = v6, v6
	}
	stack := []gopacket.SerializableLayer{eth, ip}
	if tcp {
		l := &layers.TCP{SrcPort: layers.TCPPort(src.Port()), DstPort: layers.TCPPort(dst.Port()), ACK: true, Window: 512}
		l.SetNetworkLayerForChecksum(network)
		stack = append(stack, l)
	} else {
		l := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
		l.SetNetworkLayerForChecksum(network)
		stack = append(stack, l)
	}
	stack = append(stack, gopacket.Payload(make([]byte, payload)))
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		return nil, fmt.Errorf("building a packet: %w", err)
	}
	return b.Bytes(), nil
}

// arp is a frame of the length of others that says it is ARP.
func arp() ([]byte, error) {
	f, err := frame(other, true)
	if err == nil {
		f[12], f[13] = 0x08, 0x06
	}
	return f, err
}
