package xdp

import (
	"net/netip"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
)

// serviceKey is a key of services4 or services6, by the address.
type serviceKey struct {
	vip   netip.AddrPort
	proto uint8 // an IP protocol number
}

const (
	protoICMP   = 1
	protoICMPv6 = 58
)

// vipKey returns the key of the entry that stands for a VIP itself.
func vipKey(a netip.Addr) serviceKey {
	k := serviceKey{vip: netip.AddrPortFrom(a, 0), proto: protoICMPv6}
	if a.Is4() {
		k.proto = protoICMP
	}
	return k
}

// identity says which backend an index of backends stands for, so that an agent finds those of the one
// before it. 40 bytes in a map of its own.
type identity struct {
	cluster uint64 // hash of its name
	addr    netip.AddrPort
	copy    uint8 // of hosts that a cluster names several times
}

// table is an inner map: an array of slots or classes, filled.
type table interface {
	// id tells it from all others in the kernel.
	id() uint32
	// read returns what is in it, and the digest that its head claims for that.
	read() (conntrack.Array, uint64, error)
	close()
}

// programMaps is all that a data plane does to the program's maps. The kernel's are in kernelmaps.go; a fake in the
// tests can fail any write.
type programMaps interface {
	services() (map[serviceKey]bpf.Service, error)
	service(serviceKey) (bpf.Service, bool, error)
	putService(serviceKey, bpf.Service) error
	deleteService(serviceKey) error

	makeTable(a conntrack.Array, version uint64) (table, error)
	putTable(index uint32, t table) error
	deleteTable(index uint32) error
	// tableID returns the id of the inner map at an index, 0 if there is none.
	tableID(index uint32) (uint32, error)
	openTable(index uint32) (table, error)
	// dropPins removes what keeps tables but those in force, by id, for the next agent.
	dropPins(inForce map[uint32]bool) error

	backend(index uint32) (bpf.Backend, error)
	// putBackend stores the words of an entry that differ: first addresses and MACs, then forwarding and
	// flags, then generation and interface.
	putBackend(index uint32, b bpf.Backend) error
	identity(index uint32) (identity, error)
	// putIdentity notes who an index is for from now on, and begins its counters anew.
	putIdentity(index uint32, id identity) error

	devices() ([]uint32, error)
	putDevice(ifindex uint32) error
	deleteDevice(ifindex uint32) error

	// barrier returns when no packet has in hand what was in a map before.
	barrier() error

	capacity() capacity
}

// capacity of the maps, in entries.
type capacity struct{ services, tables, backends uint32 }

// barrierTable is the index in tables that only barriers write; services begin behind it.
const barrierTable = 0
