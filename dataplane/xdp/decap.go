package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/guideway/guideway/bpf"
)

// Decapsulator takes outer headers off on the interfaces of a backend.
type Decapsulator struct {
	program  *bpf.Decap
	attached []*attachment
}

// DecapConfig says where tunnels end.
type DecapConfig struct {
	Interfaces []string
	// Addresses that tunnels may end at; none means those of the interfaces.
	Addresses []netip.Addr
	// GUEPort is the UDP port of GUE; 0 is 6080.
	GUEPort uint16
	Modes   []Mode
	// Pins is a directory in a bpffs; what is pinned there goes on when the process ends.
	Pins string
	Log  *slog.Logger
}

// DefaultDecapPins is where a decapsulator is pinned.
const DefaultDecapPins = "/sys/fs/bpf/guideway-decap"

// DecapCounts are what a decapsulator has counted since it was loaded.
type DecapCounts struct {
	IPIP      uint64 `json:"ipip_packets"`
	IPIPBytes uint64 `json:"ipip_bytes"`
	GUE       uint64 `json:"gue_packets"`
	GUEBytes  uint64 `json:"gue_bytes"`
	Foreign   uint64 `json:"foreign_address"`
	Fragments uint64 `json:"outer_fragments"`
	Malformed uint64 `json:"malformed_dropped"`
}

// OpenDecap loads and attaches a decapsulator; one that is pinned there is replaced between two packets.
func OpenDecap(c DecapConfig) (*Decapsulator, error) {
	if err := CheckPrivileges(); err != nil {
		return nil, err
	}
	if len(c.Interfaces) == 0 {
		return nil, errors.New("no interface is named")
	}
	if len(c.Modes) == 0 {
		c.Modes = []Mode{Native, Generic}
	}
	if err := openPins(c.Pins); err != nil {
		return nil, err
	}
	program, err := bpf.LoadDecap(c.GUEPort)
	if err != nil {
		return nil, explain(err)
	}
	d := &Decapsulator{program: program}
	addresses := c.Addresses
	if len(addresses) == 0 {
		if addresses, err = addressesOf(c.Interfaces); err != nil {
			program.Close()
			return nil, err
		}
	}
	for _, a := range addresses {
		if err := program.Accept(a); err != nil {
			program.Close()
			return nil, err
		}
	}
	for _, name := range c.Interfaces {
		a, err := d.attach(c, name)
		if err != nil {
			d.Close()
			return nil, err
		}
		d.attached = append(d.attached, a)
	}
	return d, nil
}

func (d *Decapsulator) attach(c DecapConfig, name string) (*attachment, error) {
	dev, err := findDevice(name)
	if err != nil {
		return nil, err
	}
	l, err := adoptLink(c.Pins, dev)
	if err != nil {
		return nil, err
	}
	if l != nil {
		mode, _ := modeOf(dev.ifindex)
		if err := l.Update(d.program.XDP); err != nil {
			return nil, fmt.Errorf("replace the program on %s: %w", name, err)
		}
		return &attachment{device: dev, mode: mode, link: l}, nil
	}
	var errs []error
	for _, mode := range c.Modes {
		if err := dev.preflight(mode, c.Log); err != nil {
			errs = append(errs, err)
			continue
		}
		l, err := attach(c.Pins, dev, d.program.XDP, mode)
		if err == nil {
			return &attachment{device: dev, mode: mode, link: l}, nil
		}
		errs = append(errs, err)
		if errors.Is(err, errForeign) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// addressesOf returns the addresses of interfaces.
func addressesOf(names []string) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, name := range names {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %q: %w (see 'ip link')", name, err)
		}
		list, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", name, err)
		}
		for _, a := range list {
			if ip, ok := netip.AddrFromSlice(a.IP); ok {
				all = append(all, ip.Unmap())
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the interfaces have no address for tunnels to end at: give --address")
	}
	return all, nil
}

// On tells the interfaces, and the mode on each.
func (d *Decapsulator) On() map[string]Mode {
	on := map[string]Mode{}
	for _, a := range d.attached {
		on[a.device.name] = a.mode
	}
	return on
}

// Counts returns what has been counted.
func (d *Decapsulator) Counts() (c DecapCounts, err error) {
	for _, x := range []struct {
		into  *uint64
		event bpf.DecapEvent
	}{
		{&c.IPIP, bpf.DecapIPIP}, {&c.IPIPBytes, bpf.DecapIPIPBytes}, {&c.GUE, bpf.DecapGUE}, {&c.GUEBytes, bpf.DecapGUEBytes},
		{&c.Foreign, bpf.DecapForeign}, {&c.Fragments, bpf.DecapFragment}, {&c.Malformed, bpf.DecapMalformed},
	} {
		if *x.into, err = d.program.Count(x.event); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Close gives up what this process holds. The pinned program goes on.
func (d *Decapsulator) Close() {
	for _, a := range d.attached {
		a.link.Close()
	}
	d.program.Close()
}
