package xdp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kernelNetwork asks the kernel over netlink. It implements network.
type kernelNetwork struct{}

func (kernelNetwork) route(a netip.Addr) (hop, error) {
	routes, err := netlink.RouteGet(a.Unmap().AsSlice())
	if err != nil {
		return hop{}, fmt.Errorf("no route to %s: %w", a, err)
	}
	r := routes[0]
	if r.Type == unix.RTN_LOCAL {
		return hop{}, fmt.Errorf("%s is an address of this host", a)
	}
	link, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return hop{}, fmt.Errorf("the way to %s: %w", a, err)
	}
	attrs := link.Attrs()
	if len(attrs.HardwareAddr) != 6 || attrs.Flags&net.FlagLoopback != 0 {
		return hop{}, fmt.Errorf("%s is reached through %s, which is no Ethernet interface", a, attrs.Name)
	}
	if parent := parentOf(link); parent != "" {
		return hop{}, fmt.Errorf("%s is reached through %s (%s), which packets cannot be redirected to: route it through %s", a, attrs.Name, link.Type(), parent)
	}
	if attrs.Flags&net.FlagUp == 0 {
		return hop{}, fmt.Errorf("%s is reached through %s, which is down", a, attrs.Name)
	}
	mtu := attrs.MTU
	if r.MTU > 0 {
		mtu = min(mtu, r.MTU)
	}
	h := hop{ifindex: uint32(r.LinkIndex), gateway: a, onLink: true, mtu: uint16(min(mtu, 0xffff)), src: [6]byte(attrs.HardwareAddr)}
	if gw, ok := netip.AddrFromSlice(r.Gw); ok && len(r.Gw) > 0 {
		h.gateway, h.onLink = gw.Unmap(), false
	}
	if r.Via != nil {
		if via, ok := r.Via.(*netlink.Via); ok {
			if gw, ok := netip.AddrFromSlice(via.Addr); ok {
				h.gateway, h.onLink = gw, false
			}
		}
	}
	if src, ok := netip.AddrFromSlice(r.Src); ok {
		h.source = src.Unmap()
	}
	return h, nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (kernelNetwork) neighbours() (map[place]neighbour, error) {
	known := map[place]neighbour{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := netlink.NeighList(0, family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list neighbours: %w", err)
		}
		for _, n := range list {
			if got, ok := neighbourOf(n); ok {
				known[got.place] = got
			}
		}
	}
	return known, nil
}

func neighbourOf(n netlink.Neigh) (neighbour, bool) {
	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return neighbour{}, false
	}
	out := neighbour{place: place{uint32(n.LinkIndex), a.Unmap()}, state: neighbourState(n.State)}
	if len(n.HardwareAddr) == 6 {
		out.mac = [6]byte(n.HardwareAddr)
	} else {
		out.state &^= nudValid
	}
	return out, true
}

func (kernelNetwork) set(ifindex uint32, a netip.Addr, state neighbourState, flags int) error {
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: int(ifindex), Family: familyOf(a), IP: a.AsSlice(), State: int(state), Flags: flags,
	})
}

func (k kernelNetwork) ask(ifindex uint32, a netip.Addr) error {
	return k.set(ifindex, a, 0, netlink.NTF_USE)
}

func (k kernelNetwork) probe(ifindex uint32, a netip.Addr) error {
	return k.set(ifindex, a, nudProbe, 0)
}

func (k kernelNetwork) forget(ifindex uint32, a netip.Addr) error {
	if err := k.set(ifindex, a, nudFailed, 0); err != nil {
		return err
	}
	return k.ask(ifindex, a)
}

// netEvent is a change in the kernel: of a neighbour, or (neighbour nil) of routes, links or addresses.
type netEvent struct{ neighbour *neighbour }

// watchNetwork sends changes until ctx ends. Changes that nobody takes become one refresh.
func watchNetwork(ctx context.Context, report func(error)) (<-chan netEvent, error) {
	out := make(chan netEvent, 1024)
	done := make(chan struct{})
	context.AfterFunc(ctx, func() { close(done) })
	send := func(e netEvent) {
		select {
		case out <- e:
		case <-done:
		}
	}
	neighbours := make(chan netlink.NeighUpdate, 1024)
	routes := make(chan netlink.RouteUpdate, 256)
	links := make(chan netlink.LinkUpdate, 256)
	addrs := make(chan netlink.AddrUpdate, 256)
	if err := netlink.NeighSubscribeWithOptions(neighbours, done, netlink.NeighSubscribeOptions{ErrorCallback: report}); err != nil {
		return nil, fmt.Errorf("follow neighbours: %w", err)
	}
	if err := netlink.RouteSubscribeWithOptions(routes, done, netlink.RouteSubscribeOptions{ErrorCallback: report}); err != nil {
		return nil, fmt.Errorf("follow routes: %w", err)
	}
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: report}); err != nil {
		return nil, fmt.Errorf("follow links: %w", err)
	}
	if err := netlink.AddrSubscribeWithOptions(addrs, done, netlink.AddrSubscribeOptions{ErrorCallback: report}); err != nil {
		return nil, fmt.Errorf("follow addresses: %w", err)
	}
	go func() {
		for {
			select {
			case u, ok := <-neighbours:
				if !ok {
					return
				}
				if n, ok := neighbourOf(u.Neigh); ok {
					if u.Type == unix.RTM_DELNEIGH {
						n.state = 0
					}
					send(netEvent{&n})
				}
			case _, ok := <-routes:
				if !ok {
					return
				}
				send(netEvent{})
			case _, ok := <-links:
				if !ok {
					return
				}
				send(netEvent{})
			case _, ok := <-addrs:
				if !ok {
					return
				}
				send(netEvent{})
			case <-done:
				return
			}
		}
	}()
	return out, nil
}
