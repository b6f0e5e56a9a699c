package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
)

// device is an interface that clients' packets come in by, as it was found.
type device struct {
	name    string
	ifindex int
	mtu     int
	kind    string // veth, device, ...
	// peer of a veth in this namespace, 0 if it is elsewhere.
	peer int
	// program that somebody else has attached; 0 for none.
	foreign     uint32
	foreignName string
}

// parentOf returns what is to be named in place of an interface that packets only pass through: the device
// below a VLAN or macvlan, the ports of a bridge. "" for all others.
func parentOf(l netlink.Link) string {
	switch l.Type() {
	case "vlan", "macvlan", "macvtap", "ipvlan":
		if parent, err := netlink.LinkByIndex(l.Attrs().ParentIndex); err == nil {
			return parent.Attrs().Name
		}
		return "the interface below it"
	case "bridge":
		ports := ""
		if all, err := netlink.LinkList(); err == nil {
			for _, p := range all {
				if p.Attrs().MasterIndex == l.Attrs().Index {
					if ports != "" {
						ports += ", "
					}
					ports += p.Attrs().Name
				}
			}
		}
		if ports == "" {
			return "a port of it"
		}
		return ports
	}
	return ""
}

// findDevice looks an interface up and refuses those that XDP does not work on.
func findDevice(name string) (device, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return device{}, fmt.Errorf("interface %q: %w (see 'ip link')", name, err)
	}
	a := l.Attrs()
	if parent := parentOf(l); parent != "" {
		return device{}, fmt.Errorf("interface %q is a %s: packets reach XDP on %s; name that instead", name, l.Type(), parent)
	}
	if len(a.HardwareAddr) != 6 {
		return device{}, fmt.Errorf("interface %q has no Ethernet address: XDP needs Ethernet frames", name)
	}
	d := device{name: name, ifindex: a.Index, mtu: a.MTU, kind: l.Type()}
	if d.kind == "veth" && a.NetNsID < 0 {
		d.peer = a.ParentIndex
	}
	if a.Xdp != nil && a.Xdp.Attached {
		d.foreign = a.Xdp.ProgId
		d.foreignName = programName(d.foreign)
	}
	return d, nil
}

// errLRO refuses native mode.
var errLRO = errors.New("large receive offload is on")

// preflight looks at what the driver does with packets before XDP sees them, and says what to change. It
// refuses what would break packets in silence.
func (d device) preflight(mode Mode, log *slog.Logger) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return nil // nothing to be learned; attaching tells more
	}
	defer e.Close()
	f, err := e.Features(d.name)
	if err != nil {
		return nil
	}
	if mode == Native && (f["rx-lro"] || f["rx-gro-hw"]) {
		return fmt.Errorf("interface %s: %w, which merges packets before XDP sees them: run 'ethtool -K %s lro off rx-gro-hw off'", d.name, errLRO, d.name)
	}
	if mode == Generic && (f["rx-gro"] || f["rx-lro"]) {
		log.Warn("generic XDP sees packets that GRO has merged, which are too long to be sent on",
			"interface", d.name, "do", "ethtool -K "+d.name+" gro off lro off")
	}
	switch d.kind {
	case "veth", "tun", "tuntap", "virtio_net":
		log.Warn("senders on this host must finish checksums themselves: those left to the device cannot be finished here",
			"interface", d.name, "kind", d.kind, "do", "on the sending side: ethtool -K DEVICE tx off")
	}
	if c, err := e.GetChannels(d.name); err == nil && mode == Native && c.MaxCombined > 1 && int(c.CombinedCount) < min(runtime.NumCPU(), int(c.MaxCombined)) {
		log.Warn("fewer queues than CPUs: packets are handled by so many CPUs only", "interface", d.name, "queues", c.CombinedCount,
			"do", fmt.Sprintf("ethtool -L %s combined %d", d.name, min(runtime.NumCPU(), int(c.MaxCombined))))
	}
	return nil
}

// queueHint says what to do about drivers that keep queues of their own for sending from XDP.
func (d device) queueHint() string {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return ""
	}
	defer e.Close()
	c, err := e.GetChannels(d.name)
	if err != nil || c.MaxCombined < 2 || c.CombinedCount <= c.MaxCombined/2 {
		return ""
	}
	return fmt.Sprintf("; if the driver keeps queues for XDP, run 'ethtool -L %s combined %d'", d.name, c.MaxCombined/2)
}
