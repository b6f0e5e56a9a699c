package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/dataplane/xdp"
)

// Addresses of the lab.
var (
	vip           = netip.MustParseAddrPort("10.77.9.1:8080")
	clientAddress = netip.MustParsePrefix("10.77.0.2/24")
	clientSide    = netip.MustParsePrefix("10.77.0.1/24") // of the balancer
	backendSide   = netip.MustParsePrefix("10.77.1.1/24") // of the balancer
	firstBackend  = netip.MustParseAddrPort("10.77.1.11:8080")
)

// Interfaces of the balancer.
const (
	front = "front"
	back  = "back"
)

// network is the lab's network with its backends; see the drawing in doc.go.
type network struct {
	client, balancer, lan *namespace
	servers               []*namespace
	backends              []*backend.Backend
	members               []Member
	links                 []link.Link
}

// buildNetwork makes the network and starts backends in it, of TCP and UDP. forXDP sets interfaces up
// so that XDP programs can send packets on them.
func buildNetwork(ctx context.Context, backends int, forXDP bool) (_ *network, err error) {
	n := &network{}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	for _, ns := range []**namespace{&n.client, &n.balancer, &n.lan} {
		if *ns, err = newNamespace(); err != nil {
			return nil, err
		}
	}
	err = errors.Join(
		n.lan.netlink(func(h *netlink.Handle) error {
			return errors.Join(h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}), up(h, bridge))
		}),
		cable(n.client, "client", n.balancer, front),
		cable(n.lan, "balancer", n.balancer, back),
		n.lan.port("balancer"),
		n.client.address("client", clientAddress),
		n.balancer.address(front, clientSide),
		n.balancer.address(back, backendSide),
		n.balancer.address("lo", netip.PrefixFrom(vip.Addr(), vip.Addr().BitLen())),
		n.client.route(clientSide.Addr()),
		n.balancer.sysctl("ipv4/ip_forward", "1"),
		// Backends that got a client's packet as it was answer from the VIP, through the balancer.
		n.balancer.sysctl("ipv4/conf/back/accept_local", "1"),
		n.balancer.sysctl("ipv4/conf/back/rp_filter", "0"),
		n.balancer.sysctl("ipv4/conf/all/rp_filter", "0"),
	)
	if err != nil {
		return nil, err
	}
	for i := range backends {
		if err := n.addBackend(ctx, i); err != nil {
			return nil, err
		}
	}
	if forXDP {
		return n, n.prepareXDP()
	}
	return n, nil
}

// bridge joins the backends and the balancer.
const bridge = "lan"

// port makes an interface one of the bridge's.
func (n *namespace) port(name string) error {
	return n.netlink(func(h *netlink.Handle) error {
		br, err := h.LinkByName(bridge)
		if err != nil {
			return err
		}
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return h.LinkSetMaster(l, br)
	})
}

// addBackend makes the i-th backend's host, which has an address of its own and the VIP, and starts the backend on both.
func (n *network) addBackend(ctx context.Context, i int) error {
	m := Member{ID: fmt.Sprintf("b%d", i+1), Addr: nth(firstBackend, i)}
	server, err := newNamespace()
	if err != nil {
		return err
	}
	n.servers = append(n.servers, server)
	err = errors.Join(
		// Nobody is told on the LAN that the VIP is here, too.
		server.sysctl("ipv4/conf/all/arp_ignore", "1"),
		server.sysctl("ipv4/conf/all/arp_announce", "2"),
		cable(n.lan, m.ID, server, "eth0"),
		n.lan.port(m.ID),
		server.address("eth0", netip.PrefixFrom(m.Addr.Addr(), backendSide.Bits())),
		server.address("lo", netip.PrefixFrom(vip.Addr(), vip.Addr().BitLen())),
		server.route(backendSide.Addr()),
	)
	if err != nil {
		return err
	}
	b, err := backend.Start(context.WithoutCancel(ctx), backend.Config{ID: m.ID, Open: server.do}, m.Addr, vip)
	if err != nil {
		return err
	}
	n.backends, n.members = append(n.backends, b), append(n.members, m)
	return nil
}

// prepareXDP gives the other ends of the balancer's cables a program, without which what XDP sends into a veth
// is lost, and makes hosts finish their checksums, which XDP cannot do for them.
func (n *network) prepareXDP() error {
	pass, err := xdp.PassProgram()
	if err != nil {
		return err
	}
	defer pass.Close()
	for _, end := range []struct {
		in   *namespace
		name string
	}{{n.client, "client"}, {n.lan, "balancer"}} {
		err := end.in.do(func() error {
			i, err := net.InterfaceByName(end.name)
			if err != nil {
				return err
			}
			l, err := link.AttachXDP(link.XDPOptions{Program: pass, Interface: i.Index, Flags: link.XDPDriverMode})
			if err == nil {
				n.links = append(n.links, l)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("attaching a program to %s: %w", end.name, err)
		}
	}
	err = n.client.finishChecksums("client")
	for _, s := range n.servers {
		err = errors.Join(err, s.finishChecksums("eth0"))
	}
	return err
}

func (n *namespace) finishChecksums(name string) error {
	return n.do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		if err := e.Change(name, map[string]bool{"tx-checksum-ip-generic": false}); err != nil {
			return fmt.Errorf("turning checksum offload of %s off: %w", name, err)
		}
		return nil
	})
}

func nth(first netip.AddrPort, i int) netip.AddrPort {
	a := first.Addr()
	for range i {
		a = a.Next()
	}
	return netip.AddrPortFrom(a, first.Port())
}

// dial opens a socket of the client.
func (n *network) dial(ctx context.Context, proto string, _ netip.Addr, to netip.AddrPort) (conn net.Conn, err error) {
	err = n.client.do(func() error {
		var d net.Dialer
		conn, err = d.DialContext(ctx, proto, to.String())
		return err
	})
	return conn, err
}

func (n *network) close() {
	for _, b := range n.backends {
		b.Close()
	}
	for _, l := range n.links {
		l.Close()
	}
	for _, ns := range append([]*namespace{n.client, n.balancer, n.lan}, n.servers...) {
		if ns != nil {
			ns.close()
		}
	}
}
