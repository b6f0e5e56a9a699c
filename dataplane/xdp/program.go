package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/cilium/ebpf"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
)

// program is the loaded program, its pinned maps, and the interfaces it is attached to.
type program struct {
	dir        string
	log        *slog.Logger
	capacity   bpf.Capacity
	switches   bpf.Switches
	frags      bool
	xdp        *ebpf.Program
	maps       *kernelMaps
	all        bpf.Maps
	attached   []*attachment
	adopted    bool // links of a former agent are attached, with its program
	identities *ebpf.Map
}

// openProgram loads the program with the maps that are pinned in dir, or new ones.
// frags loads it for frames in several buffers.
func openProgram(dir string, capacity bpf.Capacity, switches bpf.Switches, frags bool, log *slog.Logger) (*program, error) {
	if err := CheckPrivileges(); err != nil {
		return nil, err
	}
	if err := openPins(dir); err != nil {
		return nil, err
	}
	spec, err := bpf.Spec(bpf.Options{})
	if err != nil {
		return nil, err
	}
	_, lost, err := checkSchema(dir, schemaOf(spec))
	if err != nil {
		return nil, explain(err)
	}
	if lost > 0 {
		log.Warn("the maps of the former version have another layout: the flows that it remembered follow the tables now", "flows", lost)
	}
	p := &program{dir: dir, log: log, capacity: pinnedCapacity(dir, capacity), switches: switches, frags: frags}
	loaded, err := p.load()
	if err != nil {
		return nil, err
	}
	p.xdp, p.all = loaded.XDP, loaded.Maps
	p.identities, err = ebpf.NewMapWithOptions(identitySpec(p.all.Backends.MaxEntries()), ebpf.MapOptions{PinPath: dir})
	if err != nil {
		p.close()
		return nil, fmt.Errorf("make the map of identities: %w", explain(err))
	}
	if p.maps, err = newKernelMaps(dir, &p.all, p.identities); err != nil {
		p.close()
		return nil, explain(err)
	}
	return p, nil
}

func (p *program) load() (*bpf.Program, error) {
	switches := p.switches
	loaded, err := bpf.Load(bpf.Options{Capacity: p.capacity, Switches: &switches, Frags: p.frags, PinPath: p.dir})
	return loaded, explain(err)
}

// reload replaces the program by one with other switches, on all interfaces: each goes from one to the other
// between two packets.
func (p *program) reload(switches bpf.Switches, frags bool) error {
	was, wasFrags := p.switches, p.frags
	p.switches, p.frags = switches, frags
	loaded, err := p.load()
	if err != nil {
		p.switches, p.frags = was, wasFrags
		return err
	}
	if err := loaded.Maps.Close(); err != nil {
		p.log.Debug("close maps", "reason", err)
	}
	for _, a := range p.attached {
		if err := a.link.Update(loaded.XDP); err != nil {
			loaded.XDP.Close()
			p.switches, p.frags = was, wasFrags
			return fmt.Errorf("replace the program on %s: %w", a.device.name, err)
		}
	}
	p.xdp.Close()
	p.xdp = loaded.XDP
	return nil
}

// takeOver replaces the program of a former agent. Until then what it forwards is none of our business.
func (p *program) takeOver() error {
	if !p.adopted {
		return nil
	}
	for _, a := range p.attached {
		if err := a.link.Update(p.xdp); err != nil {
			return fmt.Errorf("replace the program on %s: %w", a.device.name, err)
		}
	}
	p.adopted = false
	return nil
}

// attachAll puts the program on interfaces, in the first of the modes that works on all of them. Where a
// former agent's is attached, it stays.
func (p *program) attachAll(names []string, modes []Mode) error {
	if len(names) == 0 {
		return errors.New("no interface is named: list those that clients' packets come in by in node.metadata.guideway.interfaces")
	}
	var errs []error
	for _, mode := range modes {
		err := p.attachIn(names, mode)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		p.detachNew()
		if errors.Is(err, errForeign) || errors.Is(err, errRefused) {
			break // no mode changes that
		}
	}
	return errors.Join(errs...)
}

// errRefused says that an interface is none for XDP.
var errRefused = errors.New("not for XDP")

func (p *program) attachIn(names []string, mode Mode) error {
	for _, name := range names {
		d, err := findDevice(name)
		if err != nil {
			return fmt.Errorf("%w: %w", errRefused, err)
		}
		l, err := adoptLink(p.dir, d)
		if err != nil {
			return err
		}
		if l != nil {
			if was, err := modeOf(d.ifindex); err == nil && was == mode {
				p.attached = append(p.attached, &attachment{device: d, mode: mode, link: l})
				p.adopted = true
				continue
			} else if err == nil && was != mode {
				p.log.Warn("the program changes its mode, which takes it off the interface for a moment", "interface", name, "from", was, "to", mode)
				if err := errors.Join(l.Unpin(), detachLink(l), l.Close()); err != nil {
					return fmt.Errorf("take the former program off %s: %w", name, err)
				}
			}
		}
		if err := d.preflight(mode, p.log); err != nil {
			return err
		}
		l, err = attach(p.dir, d, p.xdp, mode)
		if errors.Is(err, errMTU) && !p.frags {
			if err = p.reload(p.switches, true); err == nil {
				l, err = attach(p.dir, d, p.xdp, mode)
			}
		}
		if err != nil {
			return err
		}
		a := &attachment{device: d, mode: mode, link: l}
		p.attached = append(p.attached, a)
		if mode == Native {
			if a.peer, err = openPeer(p.dir, d, p.log); err != nil {
				return err
			}
		}
	}
	return nil
}

// attachAgain puts the program on an interface that has taken the place of the one that a was for.
func (p *program) attachAgain(a *attachment, d device) error {
	if err := d.preflight(a.mode, p.log); err != nil {
		return err
	}
	a.link.Close()
	if err := os.Remove(linkPin(p.dir, d.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the link of the former interface: %w", err)
	}
	l, err := attach(p.dir, d, p.xdp, a.mode)
	if err != nil {
		return err
	}
	a.link, a.device = l, d
	if a.mode == Native {
		if a.peer, err = openPeer(p.dir, d, p.log); err != nil {
			return err
		}
	}
	return nil
}

// detachNew takes back what attachIn did before it failed, but for what a former agent had attached.
func (p *program) detachNew() {
	for _, a := range p.attached {
		if !p.adopted {
			_ = a.link.Unpin()
			if a.peer != nil {
				_ = a.peer.Unpin()
				a.peer.Close()
			}
		}
		a.link.Close()
	}
	p.attached, p.adopted = nil, false
}

// close gives up what this process holds. What is pinned goes on.
func (p *program) close() {
	for _, a := range p.attached {
		a.link.Close()
		if a.peer != nil {
			a.peer.Close()
		}
	}
	if p.maps != nil {
		p.maps.close()
	}
	if p.identities != nil {
		p.identities.Close()
	}
	p.xdp.Close()
	p.all.Close()
}

// switchesFor returns what a program needs to have for some listeners.
func switchesFor(listeners []*dataplane.Listener, clusters map[string]*dataplane.Cluster) bpf.Switches {
	s := bpf.DefaultSwitches()
	s.Ipv4, s.Ipv6, s.Ipip, s.Gue, s.L2, s.Nat, s.SourceIp, s.Tracking, s.Redirect = 0, 0, 0, 0, 0, 0, 0, 0, 0
	for _, l := range listeners {
		for _, a := range l.Addresses {
			if a.Addr.Addr().Is4() {
				s.Ipv4 = 1
			} else {
				s.Ipv6 = 1
			}
		}
		_, of, _ := clustersOf(l, clusters)
		for _, c := range of {
			if c == nil {
				continue
			}
			if c.Track != "off" {
				s.Tracking = 1
			}
			policy := dataplane.HashPolicy{}
			if l.UDP != nil {
				policy = l.UDP.Hash
			} else if p, err := onlyProxy(l); err == nil {
				policy = p.Hash
			}
			if c.HashPolicy(policy).Kind == dataplane.HashSourceIP {
				s.SourceIp = 1
			}
			hows := []string{forwardingOf(c, &dataplane.Host{})}
			for _, h := range c.Hosts {
				hows = append(hows, forwardingOf(c, h))
			}
			for _, how := range hows {
				switch how {
				case "ipip":
					s.Ipip = 1
				case "gue":
					s.Gue = 1
				case "l2":
					s.L2 = 1
				case "nat":
					s.Nat = 1
				}
			}
			if len(lb.Tables(c.Balancer)) > 1 {
				s.Classes = 1
			}
		}
	}
	return s
}

// both returns the switches that either has on: features are added while the agent runs, and left out again
// when it is started anew.
func both(a, b bpf.Switches) bpf.Switches {
	for _, f := range []struct{ to, from *uint8 }{
		{&a.Ipv4, &b.Ipv4}, {&a.Ipv6, &b.Ipv6}, {&a.Vlan, &b.Vlan}, {&a.Fragments, &b.Fragments}, {&a.Icmp, &b.Icmp},
		{&a.Ipip, &b.Ipip}, {&a.Gue, &b.Gue}, {&a.L2, &b.L2}, {&a.Nat, &b.Nat}, {&a.SourceIp, &b.SourceIp},
		{&a.Classes, &b.Classes}, {&a.Tracking, &b.Tracking}, {&a.Redirect, &b.Redirect}, {&a.Capture, &b.Capture},
	} {
		*f.to |= *f.from
	}
	return a
}
