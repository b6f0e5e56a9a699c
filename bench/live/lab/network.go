package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/guideway/guideway/bench/backend"
)

// Addresses of the lab.
var (
	vip           = netip.MustParseAddrPort("10.77.9.1:8080")
	clientAddress = netip.MustParsePrefix("10.77.0.2/24")
	clientSide    = netip.MustParsePrefix("10.77.0.1/24") // of the balancer
	backendSide   = netip.MustParsePrefix("10.77.1.1/24") // of the balancer
	firstBackend  = netip.MustParseAddrPort("10.77.1.11:8080")
)

// network is the lab's network with its backends; see the drawing in doc.go.
type network struct {
	client, balancer, server *namespace
	backends                 []*backend.Backend
	members                  []Member
}

// buildNetwork makes the network and starts backends in it, of TCP and UDP.
func buildNetwork(ctx context.Context, backends int) (_ *network, err error) {
	n := &network{}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	for _, ns := range []**namespace{&n.client, &n.balancer, &n.server} {
		if *ns, err = newNamespace(); err != nil {
			return nil, err
		}
	}
	addresses := []netip.Prefix{}
	for i := range backends {
		m := Member{ID: fmt.Sprintf("b%d", i+1), Addr: nth(firstBackend, i)}
		n.members = append(n.members, m)
		addresses = append(addresses, netip.PrefixFrom(m.Addr.Addr(), backendSide.Bits()))
	}
	err = errors.Join(
		cable(n.client, "client", n.balancer, "front"),
		cable(n.server, "servers", n.balancer, "back"),
		n.client.address("client", clientAddress),
		n.balancer.address("front", clientSide),
		n.balancer.address("back", backendSide),
		n.balancer.address("lo", netip.PrefixFrom(vip.Addr(), 32)),
		n.server.address("servers", addresses...),
		n.client.route(clientSide.Addr()),
		n.server.route(backendSide.Addr()),
		n.balancer.sysctl("ipv4/ip_forward", "1"),
	)
	if err != nil {
		return nil, err
	}
	for _, m := range n.members {
		b, err := backend.Start(context.WithoutCancel(ctx), backend.Config{ID: m.ID, Open: n.server.do}, m.Addr)
		if err != nil {
			return nil, err
		}
		n.backends = append(n.backends, b)
	}
	return n, nil
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
	for _, ns := range []*namespace{n.client, n.balancer, n.server} {
		if ns != nil {
			ns.close()
		}
	}
}
