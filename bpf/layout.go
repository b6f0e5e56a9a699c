package bpf

import (
	"encoding/binary"
	"net/netip"
	"unsafe"
)

// The structures of maps.h. Ports and the words of addresses are in network
// byte order, as in packets; BigEndian makes such a port.
type (
	// Service is the value of services4 and services6.
	Service = guidewayService
	// ServiceKey4 is the key of services4, 8 bytes.
	ServiceKey4 = guidewayServiceKey4
	// ServiceKey6 is the key of services6, 24 bytes.
	ServiceKey6 = guidewayServiceKey6
	// TableHead is the first chunk of an array of slots or classes.
	TableHead = guidewayTableHead
	// TableChunk is any other one: 16 slots.
	TableChunk = guidewayTableChunk
	// Backend is the value of backends, one cache line.
	Backend = guidewayBackend
	// Flow is the value of flows4, flows6, half_open4 and half_open6. Their keys
	// are conntrack.Key4 and conntrack.Key6.
	Flow = guidewayFlow
	// Fragment is the value of fragments.
	Fragment = guidewayFragment
	// FragmentKey is the key of fragments, with IPv4 addresses mapped.
	FragmentKey = guidewayFragmentKey
	// NATFlow is the value of nat_flows, by the conntrack.Key6 of the flow as the
	// client sends it, IPv4 addresses mapped.
	NATFlow = guidewayNatFlow
	// NATBack is the value of nat_backs, by the conntrack.Key6 of the flow as the
	// backend sends it.
	NATBack = guidewayNatBack
	// BackendCounters is the value of backend_counts, one a CPU.
	BackendCounters = guidewayBackendCounters
	// ServiceCounters is the value of service_counts, one a CPU.
	ServiceCounters = guidewayServiceCounters
	// Device is the value of devices.
	Device = guidewayDevmapValue
	// Sample is what the ring buffer samples holds.
	Sample = guidewaySample
	// Switches specialise the program when it is loaded.
	Switches = guidewaySwitches
	// Event is an index in events.
	Event = guidewayEvent
)

// Values of Service.Flags.
const (
	// ServiceVIP marks the entry of a VIP itself: port 0, protocol ICMP or ICMPv6.
	ServiceVIP = uint16(guidewayServiceFlagSERVICE_VIP)
	// ServiceNAT says that a backend of the service at least is reached by NAT.
	ServiceNAT = uint16(guidewayServiceFlagSERVICE_NAT)
	// ServiceCapture sends packets of the service to samples.
	ServiceCapture = uint16(guidewayServiceFlagSERVICE_CAPTURE)
)

// Values of Service.Hash.
const (
	HashFiveTuple = uint8(guidewayHashPolicyHASH_FIVE_TUPLE) // conntrack.Hash5Tuple under Seed
	HashSourceIP  = uint8(guidewayHashPolicyHASH_SOURCE_IP)  // maglev.SourceIPHash
	HashConstant  = uint8(guidewayHashPolicyHASH_CONSTANT)   // Seed itself
)

// Values of Backend.Forwarding.
const (
	ForwardIPIP = uint8(guidewayForwardingFORWARD_IPIP)
	ForwardGUE  = uint8(guidewayForwardingFORWARD_GUE)
	ForwardL2   = uint8(guidewayForwardingFORWARD_L2)
	ForwardNAT  = uint8(guidewayForwardingFORWARD_NAT)
)

// Values of Backend.Flags.
const (
	// BackendIPv6 says that Addr and Source are IPv6; otherwise they are IPv4, in their first 4 bytes.
	BackendIPv6 = uint8(guidewayBackendFlagBACKEND_IPV6)
	// BackendResolved says that the MACs are known.
	BackendResolved = uint8(guidewayBackendFlagBACKEND_RESOLVED)
)

// Indices in events. From EventDrops on, each is a reason why packets are dropped.
const (
	EventEcho          = guidewayEventEVENT_ECHO
	EventICMPError     = guidewayEventEVENT_ICMP_ERROR
	EventFragment      = guidewayEventEVENT_FRAGMENT
	EventTooBigSent    = guidewayEventEVENT_TOO_BIG_SENT
	EventTTLSent       = guidewayEventEVENT_TTL_SENT
	EventUnresolved    = guidewayEventEVENT_UNRESOLVED
	EventNATBack       = guidewayEventEVENT_NAT_BACK
	EventNATICMPBack   = guidewayEventEVENT_NAT_ICMP_BACK
	EventSampleLost    = guidewayEventEVENT_SAMPLE_LOST
	EventDrops         = guidewayEventEVENT_DROPS
	DropNoBackend      = guidewayEventDROP_NO_BACKEND
	DropNoTable        = guidewayEventDROP_NO_TABLE
	DropTooBig         = guidewayEventDROP_TOO_BIG
	DropTTL            = guidewayEventDROP_TTL
	DropFragmentFirst  = guidewayEventDROP_FRAGMENT_FIRST
	DropMalformed      = guidewayEventDROP_MALFORMED
	DropExtension      = guidewayEventDROP_EXTENSION
	DropICMPUnmatched  = guidewayEventDROP_ICMP_UNMATCHED
	DropUnreachable    = guidewayEventDROP_UNREACHABLE
	DropNoInterface    = guidewayEventDROP_NO_INTERFACE
	DropHeadroom       = guidewayEventDROP_HEADROOM
	DropNATFamily      = guidewayEventDROP_NAT_FAMILY
	DropNATPort        = guidewayEventDROP_NAT_PORT
	DropRate           = guidewayEventDROP_RATE
	EventCount         = guidewayEventEVENT_MAX
	slotsPerChunk      = len(TableChunk{}.Slot)
	headChunks         = 1
	protoICMP, protoV6 = 1, 58
)

var eventNames = [EventCount]string{
	EventEcho:         "echo_answered",
	EventICMPError:    "icmp_error_forwarded",
	EventFragment:     "fragment_forwarded",
	EventTooBigSent:   "too_big_sent",
	EventTTLSent:      "time_exceeded_sent",
	EventUnresolved:   "next_hop_unresolved",
	EventNATBack:      "nat_answer",
	EventNATICMPBack:  "nat_icmp_error_answer",
	EventSampleLost:   "sample_lost",
	DropNoBackend:     "no_backend",
	DropNoTable:       "no_table",
	DropTooBig:        "too_big",
	DropTTL:           "ttl",
	DropFragmentFirst: "fragment_before_first",
	DropMalformed:     "malformed",
	DropExtension:     "extension_header",
	DropICMPUnmatched: "icmp_unmatched",
	DropUnreachable:   "unreachable",
	DropNoInterface:   "no_interface",
	DropHeadroom:      "no_headroom",
	DropNATFamily:     "nat_family",
	DropNATPort:       "nat_no_port",
	DropRate:          "icmp_rate",
}

// EventName returns the name of an event or drop reason for metrics, "" if there is none.
func EventName(e Event) string {
	if int(e) < len(eventNames) {
		return eventNames[e]
	}
	return ""
}

// BigEndian returns the port as the maps hold it.
func BigEndian(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}

// Key4 returns the key of a service at an IPv4 address. proto is an IP protocol number.
func Key4(vip netip.AddrPort, proto uint8) ServiceKey4 {
	a := vip.Addr().Unmap().As4()
	return ServiceKey4{Vip: binary.NativeEndian.Uint32(a[:]), Port: BigEndian(vip.Port()), Proto: proto}
}

// Key6 returns the key of a service at an IPv6 address.
func Key6(vip netip.AddrPort, proto uint8) ServiceKey6 {
	return ServiceKey6{Vip: vip.Addr().As16(), Port: BigEndian(vip.Port()), Proto: proto}
}

// VIPKey4 returns the key of the entry that stands for an IPv4 VIP itself.
func VIPKey4(vip netip.Addr) ServiceKey4 { return Key4(netip.AddrPortFrom(vip, 0), protoICMP) }

// VIPKey6 returns the key of the entry that stands for an IPv6 VIP itself.
func VIPKey6(vip netip.Addr) ServiceKey6 { return Key6(netip.AddrPortFrom(vip, 0), protoV6) }

// Chunks returns the max_entries of the inner map for an array of n slots or
// classes: its head, and 16 slots to each 64 bytes. 65,537 slots take 262,272 bytes.
func Chunks(slots int) uint32 { return uint32(headChunks + (slots+slotsPerChunk-1)/slotsPerChunk) }

// Table is the memory of an inner map, as mmap(2) gives it.
type Table []byte

// Head returns the first chunk. The table must not be shorter than one.
func (t Table) Head() *TableHead {
	return (*TableHead)(unsafe.Pointer(&t[:unsafe.Sizeof(TableHead{})][0]))
}

// Slots returns the n slots or classes after the head, as conntrack counts
// them: the owner in the low half, in the high half the former one, or 0xffff
// for a settled and 0xfffe for an excepted slot.
func (t Table) Slots(n int) []uint32 {
	b := t[unsafe.Sizeof(TableHead{}):][: 4*n : 4*n]
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), n)
}
