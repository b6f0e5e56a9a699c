package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace without a name: it is gone when nothing uses it any more, also
// after a crash. A nil Namespace is the one the test runs in.
type Namespace struct {
	handle netns.NsHandle
}

// NewNamespace makes a network namespace whose loopback is up. It skips the test where that is not
// permitted; see [Main] for how users who are not root get there.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	n, err := newNamespace()
	if errors.Is(err, os.ErrPermission) {
		Skip(t, "needs a network namespace: run as root, or where users may create user namespaces")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.handle.Close() })
	return n
}

// fixedPorts is held by the test that uses the ports of the recordings outside a namespace of its own.
var fixedPorts sync.Mutex

// Isolated gives the test a namespace of its own, in which the fixed ports of recordings are free. Where namespaces
// are not permitted it gives the one the test runs in, to one test at a time.
func Isolated(t testing.TB) *Namespace {
	t.Helper()
	n, err := newNamespace()
	if err == nil {
		t.Cleanup(func() { n.handle.Close() })
		return n
	}
	if !errors.Is(err, os.ErrPermission) {
		t.Fatal(err)
	}
	fixedPorts.Lock()
	t.Cleanup(fixedPorts.Unlock)
	return nil
}

func newNamespace() (*Namespace, error) {
	n := &Namespace{}
	err := onOwnThread(func() (err error) {
		n.handle, err = netns.New() // of this thread
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	if err := n.with(loopbackUp); err != nil {
		n.handle.Close()
		return nil, err
	}
	return n, nil
}

func loopbackUp(h *netlink.Handle) error {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

// onOwnThread runs f on a thread whose network namespace f may change; it is put back afterwards.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		was, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer was.Close()
		err = f()
		if back := netns.Set(was); back == nil {
			runtime.UnlockOSThread()
		} // else the thread ends with this goroutine
		done <- err
	}()
	return <-done
}

// Do runs f inside the namespace. Sockets that f opens and processes that it starts, on its own goroutine,
// belong to the namespace and may be used from anywhere afterwards.
func (n *Namespace) Do(f func() error) error {
	if n == nil {
		return f()
	}
	return onOwnThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// DialContext is [net.Dialer.DialContext] inside the namespace, for IP addresses.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return n.dial(ctx, &net.Dialer{}, network, address)
}

func (n *Namespace) dial(ctx context.Context, d *net.Dialer, network, address string) (c net.Conn, err error) {
	err = n.Do(func() (err error) {
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// with runs f with a netlink handle of the namespace.
func (n *Namespace) with(f func(*netlink.Handle) error) error {
	h, err := netlink.NewHandleAt(n.handle, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink in the namespace: %w", err)
	}
	defer h.Close()
	return f(h)
}

// MakeAllLocal makes every IPv4 and IPv6 address local: it can be listened on, connected to and
// connected from.
func (n *Namespace) MakeAllLocal(t testing.TB) {
	t.Helper()
	err := n.with(func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, all := range []string{"0.0.0.0/0", "::/0"} {
			_, dst, _ := net.ParseCIDR(all)
			r := &netlink.Route{
				LinkIndex: lo.Attrs().Index, Dst: dst,
				Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
			}
			if err := h.RouteReplace(r); err != nil {
				return fmt.Errorf("route local %s: %w", all, err)
			}
		}
		return nil
	})
	if err == nil {
		err = n.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0)
		})
	}
	if err != nil {
		t.Fatalf("make all addresses local: %v", err)
	}
}

// End is one end of a virtual cable: an interface with its addresses.
type End struct {
	Namespace *Namespace
	Interface string
	Addresses []netip.Prefix
}

// Connect lays a cable (a veth pair) between two namespaces.
func Connect(t testing.TB, a, b End) {
	t.Helper()
	err := a.Namespace.with(func(h *netlink.Handle) error {
		return h.LinkAdd(&netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: a.Interface},
			PeerName:      b.Interface,
			PeerNamespace: netlink.NsFd(int(b.Namespace.handle)),
		})
	})
	if err != nil {
		t.Fatalf("make veth %s-%s: %v", a.Interface, b.Interface, err)
	}
	for _, e := range []End{a, b} {
		if err := e.Namespace.with(e.up); err != nil {
			t.Fatal(err)
		}
	}
}

func (e End) up(h *netlink.Handle) error {
	link, err := h.LinkByName(e.Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", e.Interface, err)
	}
	for _, p := range e.Addresses {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // usable at once
		}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add %s to %s: %w", p, e.Interface, err)
		}
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", e.Interface, err)
	}
	return nil
}
