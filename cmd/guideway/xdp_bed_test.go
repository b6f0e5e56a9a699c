package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/cmd/guideway/testbed"
	"github.com/guideway/guideway/dataplane/xdp"
)

// The topology of the XDP tests. Each box is a network namespace, each line a cable (a veth pair):
//
//	                        router
//	client ------ .1 10.1.0.0/24   br0 .1 10.2.0.0/24 ------ balancer 10.2.0.2   (XDP on eth0)
//	10.1.0.2                        |        |         ------ b1 10.2.0.11
//	                                |        +---------------- b2 10.2.0.12
//	                        10.3.0.0/24 .1 ------------------ b3 10.3.0.13       (with l2: on br0, 10.2.0.13)
//
// and the same with fd00:1::/64 and so on. The router sends the VIPs, 10.9.0.1 and fd00:9::1, to the balancer.
// Backends have the VIPs on lo and answer clients themselves, except under nat.
type xdpBed struct {
	client, router, balancer *testbed.Namespace
	backends                 []*xdpBackend
	forwarding               string
	v6                       bool
	pins                     string
}

type xdpBackend struct {
	name string
	ns   *testbed.Namespace
	addr netip.Addr
}

const xdpPort = 8080

func (b *xdpBed) vip() netip.Addr {
	if b.v6 {
		return netip.MustParseAddr("fd00:9::1")
	}
	return netip.MustParseAddr("10.9.0.1")
}

// cable is both addresses of host h in network n.
func cable(n, h int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.%d.0.%d/24", n, h)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:%d::%x/64", n, h)),
	}
}

func inNS(t testing.TB, ns *testbed.Namespace, f func() error) {
	t.Helper()
	if err := ns.Do(f); err != nil {
		t.Fatal(err)
	}
}

// newXDPBed lays the cables and starts the backends.
func newXDPBed(t testing.TB, forwarding string, v6 bool) *xdpBed {
	t.Helper()
	if os.Geteuid() != 0 || os.Getenv("GUIDEWAY_TEST_IN_USER_NAMESPACE") != "" {
		testbed.Skip(t, "needs XDP: run as root")
	}
	if err := xdp.CheckPrivileges(); err != nil {
		testbed.Skip(t, err.Error())
	}
	b := &xdpBed{
		client: testbed.NewNamespace(t), router: testbed.NewNamespace(t), balancer: testbed.NewNamespace(t),
		forwarding: forwarding, v6: v6, pins: filepath.Join(t.TempDir(), "bpf"),
	}
	if err := os.Mkdir(b.pins, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := xdp.Detach(b.pins); err != nil && !errors.Is(err, unix.EBUSY) {
			t.Error(err)
		}
		if err := unix.Unmount(b.pins, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			t.Error(err)
		}
	})
	for i := range 3 {
		ns := testbed.NewNamespace(t)
		network, host := 2, 11+i
		if i == 2 && forwarding != "l2" {
			network = 3
		}
		x := &xdpBackend{name: fmt.Sprintf("b%d", i+1), ns: ns, addr: cable(network, host)[0].Addr()}
		if v6 {
			x.addr = cable(network, host)[1].Addr()
		}
		b.backends = append(b.backends, x)
		to := testbed.End{Namespace: b.router, Interface: x.name}
		if network == 3 {
			to.Addresses = cable(3, 1)
		}
		testbed.Connect(t, testbed.End{Namespace: ns, Interface: "eth0", Addresses: cable(network, host)}, to)
		inNS(t, ns, func() error {
			for _, s := range []string{"ipv4/conf/all/rp_filter=0", "ipv4/conf/eth0/rp_filter=0", "ipv4/conf/all/arp_ignore=1", "ipv4/conf/all/arp_announce=2"} {
				if err := sysctl(s); err != nil {
					return err
				}
			}
			return errors.Join(addAddress("lo", "10.9.0.1/32"), addAddress("lo", "fd00:9::1/128"),
				defaultRoute(cable(network, 1)), checksums("eth0"))
		})
	}
	testbed.Connect(t, testbed.End{Namespace: b.client, Interface: "eth0", Addresses: cable(1, 2)}, testbed.End{Namespace: b.router, Interface: "client", Addresses: cable(1, 1)})
	testbed.Connect(t, testbed.End{Namespace: b.balancer, Interface: "eth0", Addresses: cable(2, 2)}, testbed.End{Namespace: b.router, Interface: "lb"})
	inNS(t, b.client, func() error { return errors.Join(defaultRoute(cable(1, 1)), checksums("eth0")) })
	inNS(t, b.balancer, func() error { return defaultRoute(cable(2, 1)) })
	inNS(t, b.router, func() error { return b.setUpRouter(t) })
	for _, x := range b.backends {
		b.serve(t, x)
	}
	return b
}

func (b *xdpBed) setUpRouter(t testing.TB) error {
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	if err := netlink.LinkAdd(br); err != nil {
		return err
	}
	ports := []string{"lb", "b1", "b2"}
	if b.forwarding == "l2" {
		ports = append(ports, "b3")
	}
	for _, name := range ports {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(l, br); err != nil {
			return err
		}
	}
	for _, a := range cable(2, 1) {
		if err := addAddress("br0", a.String()); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(br); err != nil {
		return err
	}
	for _, s := range []string{"ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1", "ipv4/conf/all/rp_filter=0", "ipv4/conf/all/send_redirects=0", "ipv4/conf/br0/send_redirects=0"} {
		if err := sysctl(s); err != nil {
			return err
		}
	}
	for dst, gw := range map[string]string{"10.9.0.0/24": "10.2.0.2", "fd00:9::/64": "fd00:2::2"} {
		if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(dst), Gw: net.ParseIP(gw)}); err != nil {
			return fmt.Errorf("route %s: %w", dst, err)
		}
	}
	// What XDP sends back into a veth is lost unless the other end runs a program.
	pass, err := xdp.PassProgram()
	if err != nil {
		return err
	}
	defer pass.Close()
	for _, name := range append(ports, "client") {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		x, err := link.AttachXDP(link.XDPOptions{Program: pass, Interface: l.Attrs().Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		t.Cleanup(func() { x.Close() })
		_ = name
	}
	return nil
}

func ipNet(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return n
}

func addAddress(device, prefix string) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	p := netip.MustParsePrefix(prefix)
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return netlink.AddrAdd(l, a)
}

func defaultRoute(gateways []netip.Prefix) error {
	for i, dst := range []string{"0.0.0.0/0", "::/0"} {
		if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(dst), Gw: gateways[i].Addr().AsSlice()}); err != nil {
			return fmt.Errorf("default route: %w", err)
		}
	}
	return nil
}

func sysctl(s string) error {
	name, value, _ := strings.Cut(s, "=")
	return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)
}

// checksums makes an interface finish checksums before it sends, since XDP on the other end cannot.
func checksums(device string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(device, map[string]bool{"tx-checksum-ip-generic": false})
}

// serve starts a backend's servers on xdpPort: over TCP lines are answered by the backend's name, or HTTP is
// spoken on the next port; over UDP each datagram is answered by its name.
func (b *xdpBed) serve(t testing.TB, x *xdpBackend) {
	t.Helper()
	if b.forwarding == "ipip" || b.forwarding == "gue" {
		pins := b.pins + "-" + x.name
		if err := os.Mkdir(pins, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			xdp.Detach(pins)
			unix.Unmount(pins, 0)
		})
		p := testbed.Guideway(t).Exec(t, x.ns, t.TempDir(), "decap", "--interface", "eth0", "--xdp-pins", pins)
		await(t, "decap is attached", func() bool { return strings.Contains(p.Stdout(), "decapsulating") || p.Ended() })
		if p.Ended() {
			t.Fatalf("decap ended: %s", p.Stderr())
		}
	}
	var tcp, web net.Listener
	var udp net.PacketConn
	inNS(t, x.ns, func() (err error) {
		if tcp, err = net.Listen("tcp", ":"+strconv.Itoa(xdpPort)); err != nil {
			return err
		}
		if web, err = net.Listen("tcp", ":"+strconv.Itoa(xdpPort+1)); err != nil {
			return err
		}
		address := ":" + strconv.Itoa(xdpPort)
		if b.forwarding != "nat" {
			address = net.JoinHostPort(b.vip().String(), strconv.Itoa(xdpPort)) // so that answers come from it
		}
		udp, err = net.ListenPacket("udp", address)
		return err
	})
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					if _, err := r.ReadString('\n'); err != nil {
						return
					}
					if _, err := fmt.Fprintln(c, x.name); err != nil {
						return
					}
				}
			}()
		}
	}()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("bytes"))
		w.Header().Set("X-Backend", x.name)
		w.Header().Set("Content-Length", strconv.Itoa(n))
		io.CopyN(w, pattern{}, int64(n))
	})}
	go server.Serve(web)
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			udp.WriteTo(append([]byte(x.name+" "), buf[:n]...), from)
		}
	}()
	t.Cleanup(func() { tcp.Close(); server.Close(); udp.Close() })
}

// pattern is an endless stream of bytes.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i)
	}
	return len(p), nil
}

// await waits for a condition.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(testbed.Patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", testbed.Patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// xdpHealth is what the configuration says of each backend: "", absent, DRAINING or UNHEALTHY.
type xdpHealth [3]string

// config is the balancer's configuration.
func (b *xdpBed) config(mode string, health xdpHealth, more ...func(testbed.Message)) testbed.Message {
	vip := b.vip().String()
	cluster := func(name string, port int) testbed.Message {
		var hosts []any
		for i, x := range b.backends {
			if health[i] == "absent" {
				continue
			}
			h := testbed.Message{"endpoint": testbed.Message{"address": testbed.SocketAddress(x.addr.String(), port)}}
			if health[i] != "" {
				h["health_status"] = health[i]
			}
			hosts = append(hosts, h)
		}
		return testbed.Message{
			"name": name, "type": "STATIC", "connect_timeout": "5s", "lb_policy": "MAGLEV",
			"common_lb_config": testbed.Message{"healthy_panic_threshold": testbed.Message{"value": 0}},
			"load_assignment":  testbed.Message{"cluster_name": name, "endpoints": []any{testbed.Message{"lb_endpoints": hosts}}},
			"metadata":         testbed.Message{"filter_metadata": testbed.Message{"guideway": testbed.Message{"forwarding": b.forwarding}}},
		}
	}
	at := func(l testbed.Message, port int) testbed.Message {
		l["address"] = testbed.SocketAddress(vip, port)
		if l["name"] == "udp" {
			l["address"].(testbed.Message)["socket_address"].(testbed.Message)["protocol"] = "UDP"
		}
		return l
	}
	c := testbed.Bootstrap(
		[]any{
			at(testbed.Listener("tcp", xdpPort, testbed.TCPProxy("t", "tcp")), xdpPort),
			at(testbed.Listener("web", xdpPort+1, testbed.TCPProxy("w", "web")), xdpPort+1),
			at(testbed.UDPListener("udp", xdpPort, testbed.UDPProxy("u", "udp")), xdpPort),
		},
		[]any{cluster("tcp", xdpPort), cluster("web", xdpPort+1), cluster("udp", xdpPort)})
	c["node"] = testbed.Message{"id": "lb", "cluster": "lb", "metadata": testbed.Message{"guideway": testbed.Message{"dataplane": mode, "interfaces": []any{"eth0"}}}}
	for _, f := range more {
		f(c)
	}
	return c
}

// start starts the balancer.
func (b *xdpBed) start(t testing.TB, dir string, config testbed.Message, args ...string) *testbed.Proxy {
	t.Helper()
	return testbed.Guideway(t).StartIn(t, b.balancer, dir, config, append([]string{"--xdp-pins", b.pins}, args...)...).Ready()
}

func (b *xdpBed) target(port int) string {
	return net.JoinHostPort(b.vip().String(), strconv.Itoa(port))
}

// get fetches so many bytes over HTTP and returns who sent them.
func (b *xdpBed) get(n int) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testbed.Patience)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: b.client.DialContext, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://%s/?bytes=%d", b.target(xdpPort+1), n), nil)
	if err != nil {
		return "", err
	}
	a, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	got, err := io.Copy(io.Discard, a.Body)
	if err != nil || got != int64(n) {
		return "", fmt.Errorf("got %d of %d bytes: %w", got, n, err)
	}
	return a.Header.Get("X-Backend"), nil
}
