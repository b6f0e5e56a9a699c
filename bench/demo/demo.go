package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/guideway/guideway/bench/backend"
)

// Options of a demo.
type Options struct {
	// Program is the guideway binary that becomes the balancer.
	Program string
	// Flows is how many TCP connections, and as many UDP flows, are held through the drain.
	Flows int
	// Once ends the demo after the drain instead of serving on until ctx ends.
	Once bool
	// Dir gets the configuration file; "" is a temporary directory, removed at the end.
	Dir string
	// Admin is the balancer's admin address; a port of 0 is any free one. The zero value is 127.0.0.1:9901,
	// or any free port if that is taken.
	Admin netip.AddrPort
	Out   io.Writer
}

// Result is what a demo saw.
type Result struct {
	TCP, UDP            tally
	NewOnDrained        int // new flows that went to the drained backend: 0
	Admin, TCPAt, UDPAt netip.AddrPort
}

// ErrDisturbed says that the drain disturbed flows, or that new ones went to the drained backend.
var ErrDisturbed = errors.New("the drain disturbed flows")

// Run plays the demo. It returns when ctx ends, or after the drain if Once is set; the balancer and the
// backends are gone then.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "guideway-demo-")
		if err != nil {
			return Result{}, err
		}
		defer os.RemoveAll(dir)
		o.Dir = dir
	} else if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return Result{}, err
	}
	d := &demo{Options: o, config: filepath.Join(o.Dir, "demo.yaml")}
	defer d.stop()
	return d.play(ctx)
}

type demo struct {
	Options
	config   string
	admin    netip.AddrPort
	tcp, udp netip.AddrPort
	names    []string
	backends []*backend.Backend
	addrs    []netip.AddrPort
	balancer *exec.Cmd
	log      *os.File
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

func (d *demo) play(ctx context.Context) (Result, error) {
	if err := d.start(ctx); err != nil {
		return Result{}, err
	}
	d.say("Three backends, and a balancer in front of them (its configuration: %s):", d.config)
	for i, a := range d.addrs {
		d.say("  backend %-5s  %v", d.names[i], a)
	}
	d.say("  balancer       TCP %v, UDP %v\n", d.tcp, d.udp)

	tcp, err := openMany("tcp", d.tcp, d.Flows)
	if err != nil {
		return Result{}, d.withLog(err)
	}
	defer closeAll(tcp)
	udp, err := openMany("udp", d.udp, d.Flows)
	if err != nil {
		return Result{}, d.withLog(err)
	}
	defer closeAll(udp)
	d.say("%d TCP connections and %d UDP flows are open through it:", len(tcp), len(udp))
	d.printShares(shares(tcp), shares(udp))

	const drained = 1
	d.say("Now backend %s is drained: health_status: DRAINING is written to the configuration.", d.names[drained])
	if err := d.drain(ctx, drained); err != nil {
		return Result{}, d.withLog(err)
	}
	r := Result{TCP: check(tcp), UDP: check(udp), Admin: d.admin, TCPAt: d.tcp, UDPAt: d.udp}
	d.say("The flows that were open:")
	tw := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\tstill on their backend\tmoved\tbroken\t")
	fmt.Fprintf(tw, "  TCP\t%d\t%d\t%d\t\n  UDP\t%d\t%d\t%d\t\n", r.TCP.held, r.TCP.moved, r.TCP.broken, r.UDP.held, r.UDP.moved, r.UDP.broken)
	tw.Flush()

	newTCP, err := openMany("tcp", d.tcp, d.Flows)
	if err != nil {
		return r, d.withLog(err)
	}
	defer closeAll(newTCP)
	newUDP, err := openMany("udp", d.udp, d.Flows)
	if err != nil {
		return r, d.withLog(err)
	}
	defer closeAll(newUDP)
	d.say("\nAs many new flows, after the drain:")
	d.printShares(shares(newTCP), shares(newUDP))
	r.NewOnDrained = shares(newTCP)[d.names[drained]] + shares(newUDP)[d.names[drained]]
	if r.NewOnDrained > 0 || r.TCP.held != d.Flows || r.UDP.held != d.Flows {
		return r, d.withLog(ErrDisturbed)
	}
	d.say("Nothing moved and nothing broke; new flows go to the others.")
	if d.Once {
		return r, nil
	}
	d.say("\nIt serves on until Ctrl-C. Look around:")
	d.say("  admin page      http://%v/", d.admin)
	d.say("  clusters        curl -s http://%v/clusters", d.admin)
	d.say("  a connection    nc %v %d      (the backend says its name, then echoes)", d.tcp.Addr(), d.tcp.Port())
	d.say("  a lookup        %s lookup -c %s --listener web --src 127.0.0.1:40000", d.Program, d.config)
	d.say("  change it       edit %s", d.config)
	<-ctx.Done()
	return r, nil
}

// start opens the backends and the balancer, and waits until it serves.
func (d *demo) start(ctx context.Context) error {
	d.names = []string{"alpha", "beta", "gamma"}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	for _, name := range d.names {
		b, err := backend.Start(context.WithoutCancel(ctx), backend.Config{ID: name}, netip.AddrPortFrom(loopback, 0))
		if err != nil {
			return fmt.Errorf("starting backend %s: %w", name, err)
		}
		d.backends = append(d.backends, b)
		d.addrs = append(d.addrs, b.Addrs()[0])
	}
	var err error
	if d.tcp, err = freePort("tcp", netip.AddrPortFrom(loopback, 0)); err != nil {
		return err
	}
	if d.udp, err = freePort("udp", netip.AddrPortFrom(loopback, 0)); err != nil {
		return err
	}
	if d.admin, err = adminPort(d.Admin); err != nil {
		return fmt.Errorf("the admin address: %w (choose another with --admin)", err)
	}
	if err := d.write(-1); err != nil {
		return err
	}
	if d.log, err = os.Create(filepath.Join(d.Dir, "balancer.log")); err != nil {
		return err
	}
	d.balancer = exec.Command(d.Program, "run", "-c", d.config)
	d.balancer.Stdout, d.balancer.Stderr = d.log, d.log
	// In a group of its own: Ctrl-C reaches it by us, after the held flows have been closed.
	d.balancer.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := d.balancer.Start(); err != nil {
		return fmt.Errorf("starting the balancer: %w", err)
	}
	return d.withLog(d.until(ctx, "/ready", func(body string) bool { return strings.HasPrefix(body, "LIVE") }))
}

func (d *demo) write(drained int) error {
	return replaceFile(d.config, configText(d.admin, d.tcp, d.udp, d.addrs, drained))
}

// drain writes the configuration with one backend draining and waits until both clusters show it.
func (d *demo) drain(ctx context.Context, i int) error {
	if err := d.write(i); err != nil {
		return err
	}
	for _, cluster := range []string{"web", "game"} {
		line := fmt.Sprintf("%s::%v::health_flags::/eds_status_draining", cluster, d.addrs[i])
		if err := d.until(ctx, "/clusters", func(body string) bool { return strings.Contains(body, line) }); err != nil {
			return err
		}
	}
	return nil
}

// until asks the admin API until ok says yes, for 10 s at most.
func (d *demo) until(ctx context.Context, path string, ok func(body string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := "http://" + d.admin.String() + path
	for {
		if body, err := get(ctx, url); err == nil && ok(body) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not say what it should: %w", url, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func (d *demo) printShares(tcp, udp map[string]int) {
	tw := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\t%s\t\n", strings.Join(d.names, "\t"))
	for _, row := range []struct {
		name   string
		counts map[string]int
	}{{"  TCP", tcp}, {"  UDP", udp}} {
		fmt.Fprint(tw, row.name, "\t")
		for _, name := range d.names {
			fmt.Fprintf(tw, "%d\t", row.counts[name])
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
	d.say("")
}

// withLog adds what the balancer logged to an error.
func (d *demo) withLog(err error) error {
	if err == nil || d.log == nil {
		return err
	}
	b, _ := os.ReadFile(d.log.Name())
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	lines = lines[max(0, len(lines)-10):]
	return fmt.Errorf("%w\nthe balancer said:\n  %s", err, strings.Join(lines, "\n  "))
}

func (d *demo) stop() {
	if d.balancer != nil && d.balancer.Process != nil {
		d.balancer.Process.Signal(syscall.SIGTERM)
		d.balancer.Wait()
	}
	if d.log != nil {
		d.log.Close()
	}
	for _, b := range slices.Backward(d.backends) {
		b.Close()
	}
}

// adminPort returns a free admin address: the one asked for, or Envoy's usual one if it is free.
func adminPort(asked netip.AddrPort) (netip.AddrPort, error) {
	if asked.IsValid() {
		return freePort("tcp", asked)
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if usual, err := freePort("tcp", netip.AddrPortFrom(loopback, 9901)); err == nil {
		return usual, nil
	}
	return freePort("tcp", netip.AddrPortFrom(loopback, 0))
}

// freePort returns at itself if its port is given and free, else the address with a free port.
func freePort(network string, at netip.AddrPort) (netip.AddrPort, error) {
	if network == "udp" {
		c, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
		if err != nil {
			return at, err
		}
		defer c.Close()
		return c.LocalAddr().(*net.UDPAddr).AddrPort(), nil
	}
	l, err := net.ListenTCP(network, net.TCPAddrFromAddrPort(at))
	if err != nil {
		return at, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort(), nil
}
