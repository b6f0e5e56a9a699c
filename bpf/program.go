package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Capacity is how many entries the maps have. A zero field keeps the default.
type Capacity struct {
	Services  uint32 // of either family, VIPs included: 1,024
	Tables    uint32 // arrays of slots and classes, of all services and versions: 4,096
	Backends  uint32 // of all services, those that linger included: 4,096
	Flows     uint32 // remembered, of either family: 1,048,576
	HalfOpen  uint32 // of either family: 65,536
	Fragments uint32 // packets in fragments under way: 16,384
	NATFlows  uint32 // 262,144
	Devices   uint32 // interfaces that packets leave by: 64
	Samples   uint32 // bytes of the ring buffer, a power of two: 1 MiB
}

// Options is what the program is loaded with.
type Options struct {
	Capacity Capacity
	// Switches, if set, replace DefaultSwitches: what a configuration does not use need not be in the program.
	Switches *Switches
	// Frags loads the program for frames in several buffers (xdp.frags, Linux
	// 5.18), as jumbo frames and generic XDP need. It reads headers from the first one.
	Frags bool
	// PinPath is a directory in a bpffs; what is pinned in Pinned is reused from there.
	PinPath string
	// Pinned names the maps to pin under their names in PinPath; nil is all of them.
	Pinned []string
}

// DefaultSwitches has everything on but capture.
func DefaultSwitches() Switches {
	return Switches{
		Ipv4: 1, Ipv6: 1, Vlan: 1, Fragments: 1, Icmp: 1, Ipip: 1, Gue: 1, L2: 1, Nat: 1,
		SourceIp: 1, Classes: 1, Tracking: 1, Redirect: 1,
		NatPortMin: 32768, NatPortMax: 60999,
		IcmpInterval: 1e6, IcmpBurst: 100,
	}
}

// Program is the loaded program with its maps.
type Program struct {
	XDP *ebpf.Program
	Maps
	clock *ebpf.Variable
}

// Maps are the maps that doc.go describes.
type Maps struct {
	Services4     *ebpf.Map `ebpf:"services4"`
	Services6     *ebpf.Map `ebpf:"services6"`
	Tables        *ebpf.Map `ebpf:"tables"`
	Backends      *ebpf.Map `ebpf:"backends"`
	Flows4        *ebpf.Map `ebpf:"flows4"`
	Flows6        *ebpf.Map `ebpf:"flows6"`
	HalfOpen4     *ebpf.Map `ebpf:"half_open4"`
	HalfOpen6     *ebpf.Map `ebpf:"half_open6"`
	Fragments     *ebpf.Map `ebpf:"fragments"`
	NATFlows      *ebpf.Map `ebpf:"nat_flows"`
	NATBacks      *ebpf.Map `ebpf:"nat_backs"`
	BackendCounts *ebpf.Map `ebpf:"backend_counts"`
	ServiceCounts *ebpf.Map `ebpf:"service_counts"`
	Events        *ebpf.Map `ebpf:"events"`
	Limits        *ebpf.Map `ebpf:"limits"`
	Devices       *ebpf.Map `ebpf:"devices"`
	Samples       *ebpf.Map `ebpf:"samples"`
}

// Spec returns the program and its maps as plain data, specialised as o says.
func Spec(o Options) (*ebpf.CollectionSpec, error) {
	spec, err := loadGuideway()
	if err != nil {
		return nil, fmt.Errorf("read the embedded XDP object: %w", err)
	}
	for _, c := range []struct {
		n    uint32
		maps []string
	}{
		{o.Capacity.Services, []string{"services4", "services6", "service_counts"}},
		{o.Capacity.Tables, []string{"tables"}},
		{o.Capacity.Backends, []string{"backends", "backend_counts"}},
		{o.Capacity.Flows, []string{"flows4", "flows6"}},
		{o.Capacity.HalfOpen, []string{"half_open4", "half_open6"}},
		{o.Capacity.Fragments, []string{"fragments"}},
		{o.Capacity.NATFlows, []string{"nat_flows", "nat_backs"}},
		{o.Capacity.Devices, []string{"devices"}},
		{o.Capacity.Samples, []string{"samples"}},
	} {
		for _, name := range c.maps {
			if c.n > 0 {
				spec.Maps[name].MaxEntries = c.n
			}
		}
	}
	if o.Switches != nil {
		if err := spec.Variables["config"].Set(*o.Switches); err != nil {
			return nil, fmt.Errorf("set the program's switches: %w", err)
		}
	}
	if o.Frags {
		spec.Programs["guideway"].Flags |= xdpHasFrags
	}
	if o.PinPath != "" {
		if o.Pinned == nil {
			for name := range spec.Maps {
				if name[0] != '.' && name != "texts" && name != "nat_scratches" { // these are of one packet
					o.Pinned = append(o.Pinned, name)
				}
			}
		}
		for _, name := range o.Pinned {
			m := spec.Maps[name]
			if m == nil {
				return nil, fmt.Errorf("the program has no map %q to pin", name)
			}
			m.Pinning = ebpf.PinByName
		}
	}
	return spec, nil
}

// BPF_F_XDP_HAS_FRAGS of linux/bpf.h.
const xdpHasFrags = 1 << 5

// Load loads the program. Errors of the verifier hold its whole log, which %+v prints.
func Load(o Options) (*Program, error) {
	spec, err := Spec(o)
	if err != nil {
		return nil, err
	}
	var objects struct {
		XDP *ebpf.Program `ebpf:"guideway"`
		Maps
		Clock *ebpf.Variable `ebpf:"clock_now"`
	}
	err = spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: o.PinPath}})
	if err != nil {
		return nil, fmt.Errorf("load the XDP program: %w", err)
	}
	return &Program{XDP: objects.XDP, Maps: objects.Maps, clock: objects.Clock}, nil
}

// Close closes program and maps. What is pinned or attached stays in force.
func (p *Program) Close() error {
	return errors.Join(p.XDP.Close(), p.Maps.Close())
}

// Close closes the maps.
func (m *Maps) Close() error {
	var errs []error
	for _, x := range []*ebpf.Map{
		m.Services4, m.Services6, m.Tables, m.Backends, m.Flows4, m.Flows6, m.HalfOpen4, m.HalfOpen6,
		m.Fragments, m.NATFlows, m.NATBacks, m.BackendCounts, m.ServiceCounts, m.Events, m.Limits, m.Devices, m.Samples,
	} {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}
