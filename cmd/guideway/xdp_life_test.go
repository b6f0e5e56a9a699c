package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/cmd/guideway/testbed"
	"github.com/guideway/guideway/dataplane/xdp"
)

// A backend gets another MAC and says nothing: its connections go on within 3 s, by 3 s of probing and asking and
// what TCP takes to send again.
func TestXDPFollowsMACs(t *testing.T) {
	b := newXDPBed(t, "l2", false)
	p := b.start(t, t.TempDir(), b.config("xdp", xdpHealth{"", "absent", "absent"}))
	flows := b.hold(t, "tcp", 20)
	inNS(t, b.backends[0].ns, func() error {
		// The kernel would tell everybody at once.
		if err := sysctl("ipv4/conf/eth0/arp_notify=0"); err != nil {
			return err
		}
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 77})
	})
	// The router talks to it directly, and would find out late, too: it is not what is tested.
	inNS(t, b.router, func() error {
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: br.Attrs().Index, IP: net.ParseIP("10.2.0.11"), State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 77}})
	})
	began := time.Now()
	await(t, "the balancer knows the new MAC", func() bool { return strings.Contains(b.ask(t, "backends"), "02:00:00:00:00:4d") })
	t.Logf("known after %v", time.Since(began))
	b.check(t, "with another MAC", flows, func(string) bool { return true })
	if n := p.Stats()["guideway.xdp.slots_moved"]; n != 0 {
		t.Errorf("%d slots have moved", n)
	}
}

// A host that nobody answers for has no share: every connection succeeds.
func TestXDPLeavesUnreachableHostsOut(t *testing.T) {
	b := newXDPBed(t, "ipip", false)
	ghost := &xdpBackend{name: "ghost", addr: cable(2, 99)[0].Addr()}
	b.backends[1] = ghost
	p := b.start(t, t.TempDir(), b.config("xdp", xdpHealth{}))
	flows := b.hold(t, "tcp", 200)
	seen := map[string]int{}
	for _, f := range flows {
		seen[f.backend]++
	}
	if seen["b1"] < 50 || seen["b3"] < 50 {
		t.Errorf("the connections went to %v", seen)
	}
	if n := p.Stats()["guideway.xdp.next_hops_unresolved"]; n != 3 { // one in each listener
		t.Errorf("%d next hops are called unresolved, want 3", n)
	}
	if got := b.ask(t, "backends"); !strings.Contains(got, "nobody answers for 10.2.0.99") {
		t.Errorf("backends:\n%s", got)
	}
}

// linkID is the id of the pinned link: while it stays, the program has never been off the interface.
func (b *xdpBed) linkID(t testing.TB) link.ID {
	t.Helper()
	l, err := link.LoadPinnedLink(filepath.Join(b.pins, "link-eth0"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

func TestXDPRestartAndDetach(t *testing.T) {
	b := newXDPBed(t, "ipip", false)
	dir := t.TempDir()
	config := b.config("xdp", xdpHealth{})
	p := b.start(t, dir, config)
	id := b.linkID(t)
	p.Signal(syscall.SIGKILL)
	p.Wait()
	if _, err := b.get(100); err != nil {
		t.Fatalf("without an agent: %v", err)
	}
	p = b.start(t, dir, config)
	if got := b.linkID(t); got != id {
		t.Errorf("the link is %d, was %d: the program was taken off", got, id)
	}
	if s := p.Stderr(); !strings.Contains(s, "services are taken over") {
		t.Errorf("the log does not say that services were taken over:\n%s", s)
	}
	p.Signal(syscall.SIGTERM)
	p.Wait()
	if got := b.ask(t, "detach", "--xdp-pins", b.pins); !strings.Contains(got, "detached from eth0") {
		t.Errorf("detach says %q", got)
	}
	inNS(t, b.balancer, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
			t.Errorf("program %d is still attached", l.Attrs().Xdp.ProgId)
		}
		return err
	})
	left, err := os.ReadDir(b.pins)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if !strings.HasSuffix(e.Name(), ".debug") {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// An agent with the capabilities that its page names, and no others, starts again and loses no flow. The bpffs is
// there already, as systemd mounts it.
func TestXDPWithFewPrivileges(t *testing.T) {
	drop, err := exec.LookPath("setpriv")
	if err != nil {
		testbed.Skip(t, "setpriv is not installed")
	}
	b := newXDPBed(t, "ipip", false)
	if err := unix.Mount("bpf", b.pins, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	few := testbed.Guideway(t)
	script := filepath.Join(t.TempDir(), "guideway")
	text := "#!/bin/sh\nexec " + drop + " --bounding-set -all,+bpf,+perfmon,+net_admin --inh-caps -all " + few.Exe + ` "$@"` + "\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	few.Exe = script
	dir := t.TempDir()
	start := func(h xdpHealth) *testbed.Proxy {
		return few.StartIn(t, b.balancer, dir, b.config("xdp", h), "--xdp-pins", b.pins).Ready()
	}
	p := start(xdpHealth{})
	flows := b.hold(t, "tcp", 200)
	b.rewrite(t, dir, b.config("xdp", xdpHealth{"DRAINING"}))
	await(t, "slots are open", func() bool { return p.Stats()["guideway.xdp.open_slots"] > 0 })
	b.check(t, "drained", flows, func(string) bool { return true })
	p.Signal(syscall.SIGKILL)
	p.Wait()
	p = start(xdpHealth{"DRAINING"})
	b.check(t, "started again", flows, func(string) bool { return true })
	if s := p.Stderr(); !strings.Contains(s, "taken over services=3") {
		t.Errorf("not all services were taken over:\n%s", s)
	}
}

// An interface that goes and comes back has the program again.
func TestXDPInterfaceComesBack(t *testing.T) {
	b := newXDPBed(t, "ipip", false)
	b.start(t, t.TempDir(), b.config("xdp-generic", xdpHealth{}))
	if _, err := b.get(100); err != nil {
		t.Fatal(err)
	}
	inNS(t, b.balancer, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	testbed.Connect(t, testbed.End{Namespace: b.balancer, Interface: "eth0", Addresses: cable(2, 2)}, testbed.End{Namespace: b.router, Interface: "lb"})
	inNS(t, b.balancer, func() error { return defaultRoute(cable(2, 1)) })
	inNS(t, b.router, func() error {
		l, err := netlink.LinkByName("lb")
		if err != nil {
			return err
		}
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(l, br)
	})
	await(t, "the program is attached again, and the backends answer", func() bool {
		return strings.Count(b.ask(t, "backends", "--listener", "web"), "REACHABLE") == 3
	})
	if _, err := b.get(100); err != nil {
		t.Fatal(err)
	}
}

// What is in the way is named, and left alone.
func TestXDPRefusals(t *testing.T) {
	b := newXDPBed(t, "ipip", false)
	inNS(t, b.balancer, func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for _, l := range []netlink.Link{
			&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "mac0", ParentIndex: eth.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE},
			&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br7"}},
			&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "taken"}, PeerName: "taken-peer"},
		} {
			if err := netlink.LinkAdd(l); err != nil {
				return err
			}
		}
		port, err := netlink.LinkByName("taken-peer")
		if err != nil {
			return err
		}
		br, err := netlink.LinkByName("br7")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(port, br); err != nil {
			return err
		}
		taken, err := netlink.LinkByName("taken")
		if err != nil {
			return err
		}
		other, err := xdp.PassProgram()
		if err != nil {
			return err
		}
		defer other.Close()
		x, err := link.AttachXDP(link.XDPOptions{Program: other, Interface: taken.Attrs().Index, Flags: link.XDPGenericMode})
		if err != nil {
			return err
		}
		t.Cleanup(func() { x.Close() })
		return nil
	})
	for _, c := range []struct{ device, want string }{
		{"mac0", `interface "mac0" is a macvlan: packets reach XDP on eth0; name that instead`},
		{"br7", `interface "br7" is a bridge: packets reach XDP on taken-peer; name that instead`},
		{"taken", `another XDP program is attached (id `},
		{"nowhere", `interface "nowhere"`},
	} {
		config := func(mode string) testbed.Message {
			return b.config(mode, xdpHealth{}, func(m testbed.Message) {
				m["node"].(testbed.Message)["metadata"].(testbed.Message)["guideway"].(testbed.Message)["interfaces"] = []any{c.device}
			})
		}
		t.Run(c.device, func(t *testing.T) {
			dir := t.TempDir()
			p := testbed.Guideway(t).StartIn(t, b.balancer, dir, config("xdp"), "--xdp-pins", b.pins)
			if code := p.Wait(); code == 0 || !strings.Contains(p.Stderr(), c.want) {
				t.Errorf("exit code %d, want another and %q:\n%s", code, c.want, p.Stderr())
			}
			// auto takes the proxy instead, and says why. It needs the VIP on this host.
			inNS(t, b.balancer, func() error { return replaceAddress("lo", "10.9.0.1/32") })
			p = b.start(t, t.TempDir(), config("auto"))
			if s := strings.ReplaceAll(p.Stderr(), `\"`, `"`); !strings.Contains(s, "listener runs in proxy") || !strings.Contains(s, c.want) {
				t.Errorf("the log does not say that the proxy is used and why:\n%s", s)
			}
			p.Signal(syscall.SIGTERM)
			p.Wait()
		})
	}
}

func replaceAddress(device, prefix string) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	return netlink.AddrReplace(l, a)
}

// Without privileges each missing one is named, and auto takes the proxy.
func TestXDPWithoutPrivileges(t *testing.T) {
	if os.Geteuid() != 0 {
		testbed.Skip(t, "needs to give up privileges: run as root")
	}
	drop, err := exec.LookPath("setpriv")
	if err != nil {
		testbed.Skip(t, "setpriv is not installed")
	}
	exe := testbed.Guideway(t).Exe
	dir := t.TempDir()
	testbed.WriteConfig(t, dir, testbed.Message{
		"node": testbed.Message{"id": "x", "cluster": "x", "metadata": testbed.Message{"guideway": testbed.Message{"interfaces": []any{"lo"}}}},
		"static_resources": testbed.Message{
			"listeners": []any{func() testbed.Message {
				l := testbed.Listener("l", 0, testbed.TCPProxy("t", "c"))
				l["address"] = testbed.SocketAddress("10.99.0.1", 8080)
				return l
			}()},
			"clusters": []any{testbed.Message{"name": "c", "type": "STATIC", "connect_timeout": "1s", "lb_policy": "MAGLEV",
				"load_assignment": testbed.Message{"cluster_name": "c", "endpoints": []any{testbed.Message{"lb_endpoints": []any{testbed.Message{
					"endpoint": testbed.Message{"address": testbed.SocketAddress("10.99.0.2", 8080)}}}}}}}},
		},
	})
	ns := testbed.NewNamespace(t)
	inNS(t, ns, func() error { return addAddress("lo", "10.99.0.1/32") })
	cmd := exec.Command(drop, "--bounding-set", "-all", "--inh-caps", "-all", exe, "-c", filepath.Join(dir, "boot.yaml"), "--mode", "init_only")
	var out strings.Builder
	cmd.Stderr = &out
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"listener runs in proxy", "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN missing"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log does not have %q:\n%s", want, out.String())
		}
	}
}
