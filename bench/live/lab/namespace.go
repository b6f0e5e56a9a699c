package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace is a network namespace without a name: the kernel removes it, and the links in it, when
// no process and no socket is left in it, also after a crash.
type namespace struct{ handle netns.NsHandle }

func newNamespace() (*namespace, error) {
	n := &namespace{}
	err := onThread(func() (err error) {
		n.handle, err = netns.New()
		return err
	})
	if errors.Is(err, os.ErrPermission) {
		return nil, errors.New("the lab needs network namespaces: run as root")
	}
	if err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	if err := n.netlink(func(h *netlink.Handle) error { return up(h, "lo") }); err != nil {
		n.handle.Close()
		return nil, err
	}
	return n, nil
}

// onThread runs f on a thread whose namespace f may change; it is put back afterwards.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		err = f()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		} // else the thread ends with the goroutine, and nothing runs in the wrong namespace
		done <- err
	}()
	return <-done
}

// do runs f in the namespace. Sockets that it opens and processes that it starts stay in there.
func (n *namespace) do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("entering the network namespace: %w", err)
		}
		return f()
	})
}

func (n *namespace) netlink(f func(*netlink.Handle) error) error {
	h, err := netlink.NewHandleAt(n.handle, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink in the namespace: %w", err)
	}
	defer h.Close()
	return f(h)
}

func (n *namespace) close() { n.handle.Close() }

func up(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("setting %s up: %w", name, err)
	}
	return nil
}

// address gives an interface addresses.
func (n *namespace) address(name string, all ...netip.Prefix) error {
	return n.netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		for _, p := range all {
			if err := h.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p)}); err != nil {
				return fmt.Errorf("adding %v to %s: %w", p, name, err)
			}
		}
		return nil
	})
}

// route sends everything that is not local through a gateway.
func (n *namespace) route(gateway netip.Addr) error {
	return n.netlink(func(h *netlink.Handle) error {
		return h.RouteAdd(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), Gw: gateway.AsSlice()})
	})
}

// sysctl sets a value below /proc/sys/net, which shows each thread its own namespace.
func (n *namespace) sysctl(name, value string) error {
	return n.do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// cable lays a veth pair between two namespaces and sets both ends up.
func cable(a *namespace, aName string, b *namespace, bName string) error {
	err := a.netlink(func(h *netlink.Handle) error {
		return h.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: aName}, PeerName: bName, PeerNamespace: netlink.NsFd(int(b.handle)),
		})
	})
	if err != nil {
		return fmt.Errorf("laying the cable %s-%s: %w", aName, bName, err)
	}
	if err := a.netlink(func(h *netlink.Handle) error { return up(h, aName) }); err != nil {
		return err
	}
	return b.netlink(func(h *netlink.Handle) error { return up(h, bName) })
}
