package bpf

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -output-stem decap -type decap_event decap decap.c -- -Wall -Wextra -Werror -O2 -mcpu=v3 -std=gnu11 -fno-strict-aliasing -nostdinc

// DecapEvent is an index in the counters of the decapsulator.
type DecapEvent = decapDecapEvent

// What the decapsulator counts. Packets are followed by their bytes, without outer headers.
const (
	DecapIPIP      = decapDecapEventDECAP_IPIP
	DecapIPIPBytes = decapDecapEventDECAP_IPIP_BYTES
	DecapGUE       = decapDecapEventDECAP_GUE
	DecapGUEBytes  = decapDecapEventDECAP_GUE_BYTES
	DecapForeign   = decapDecapEventDECAP_FOREIGN
	DecapFragment  = decapDecapEventDECAP_FRAGMENT
	DecapMalformed = decapDecapEventDECAP_MALFORMED
	DecapEvents    = decapDecapEventDECAP_EVENTS
)

// Decap is the program for backends that takes outer headers off, with its maps.
type Decap struct {
	XDP       *ebpf.Program `ebpf:"guideway_decap"`
	Addresses *ebpf.Map     `ebpf:"decap_addresses"` // 16-byte addresses, IPv4 mapped, to a byte
	Counts    *ebpf.Map     `ebpf:"decap_counts"`    // by DecapEvent, u64 a CPU
}

// LoadDecap loads the program for backends. guePort is the UDP port of GUE; 0 is 6080.
func LoadDecap(guePort uint16) (*Decap, error) {
	spec, err := loadDecap()
	if err != nil {
		return nil, fmt.Errorf("read the embedded decapsulator: %w", err)
	}
	if guePort != 0 {
		if err := spec.Variables["gue_port"].Set(guePort); err != nil {
			return nil, fmt.Errorf("set the port of GUE: %w", err)
		}
	}
	var d Decap
	if err := spec.LoadAndAssign(&d, nil); err != nil {
		return nil, fmt.Errorf("load the decapsulator: %w", err)
	}
	return &d, nil
}

// Accept makes tunnels to an address of this host end here.
func (d *Decap) Accept(a netip.Addr) error {
	key := a.As16()
	if err := d.Addresses.Put(key[:], uint8(1)); err != nil {
		return fmt.Errorf("accept tunnels to %s: %w", a, err)
	}
	return nil
}

// Count returns what was counted of an event, over all CPUs.
func (d *Decap) Count(e DecapEvent) (uint64, error) {
	var cpus []uint64
	if err := d.Counts.Lookup(uint32(e), &cpus); err != nil {
		return 0, fmt.Errorf("read the decapsulator's counters: %w", err)
	}
	var sum uint64
	for _, n := range cpus {
		sum += n
	}
	return sum, nil
}

// Close closes program and maps.
func (d *Decap) Close() {
	d.XDP.Close()
	d.Addresses.Close()
	d.Counts.Close()
}
