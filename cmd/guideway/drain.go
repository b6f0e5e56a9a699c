package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/controlplane/admin"
	"github.com/guideway/guideway/dataplane"
)

// exitNotDrained is the exit code of drain --wait when flows are left: at --timeout, or because somebody
// took the backend back in.
const exitNotDrained exitCode = 2

type drainFlags struct {
	admin    adminClient
	cluster  string
	wait     bool
	timeout  time.Duration
	interval time.Duration
	output   string
}

func newDrain() *cobra.Command {
	var f drainFlags
	cmd := &cobra.Command{
		Use:   "drain HOST:PORT [--cluster NAME] [--wait]",
		Short: "Take a backend out for new flows; those it has stay",
		Long: `Take a backend of the running instance out for new flows: its slots go to others, TCP connections and UDP
sessions that it has stay. It remains drained, over reloads too, until "guideway undrain" or until it leaves
the configuration. --wait shows how many flows are left and ends when there are none.

Exit codes: 0 drained (with --wait: no flow is left), 1 error, 2 flows are left (--timeout is over, or the
backend was taken back in).`,
		Example: `  guideway drain 10.0.0.1:80 --wait --timeout 10m && systemctl restart backend
  guideway undrain 10.0.0.1:80`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, "/guideway/drain", args[0]) },
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until no flow is left")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "with --wait: give up after this `time` (exit code 2)")
	cmd.Flags().DurationVar(&f.interval, "interval", 500*time.Millisecond, "with --wait: `time` between looks")
	return cmd
}

func newUndrain() *cobra.Command {
	var f drainFlags
	cmd := &cobra.Command{
		Use:   "undrain HOST:PORT [--cluster NAME]",
		Short: "Take a drained backend back in",
		Long: `Take a backend that was drained back in: it gets new flows again. Flows that live elsewhere meanwhile stay
there.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, "/guideway/undrain", args[0]) },
	}
	f.register(cmd)
	return cmd
}

func (f *drainFlags) register(cmd *cobra.Command) {
	f.admin.register(cmd)
	cmd.Flags().StringVar(&f.cluster, "cluster", "", "only in the cluster of this `name`; otherwise wherever the backend is")
	outputFlag(cmd, &f.output, "text", "json")
}

func (f *drainFlags) run(cmd *cobra.Command, path, host string) error {
	address, err := netip.ParseAddrPort(host)
	if err != nil {
		return fmt.Errorf("%q is not an address with a port, such as 10.0.0.1:80 or [2001:db8::1]:80", host)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	query := url.Values{"host": {address.String()}}
	if f.cluster != "" {
		query.Set("cluster", f.cluster)
	}
	var found []admin.ClusterHosts
	if err := f.admin.ask(ctx, http.MethodPost, path, query, nil, &found); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if !f.wait {
		if f.output == "json" {
			return printJSON(out, found)
		}
		for _, c := range found {
			for _, h := range c.Hosts {
				fmt.Fprintf(out, "%s in cluster %s: %s, %s\n", h.Address, c.Cluster, h.Health, left(h.Connections, h.Sessions))
			}
		}
		return nil
	}
	if err := f.canCount(ctx, address); err != nil {
		return err
	}
	return f.await(ctx, cmd, query)
}

// canCount refuses to wait for flows that nobody counts: those of listeners in XDP.
func (f *drainFlags) canCount(ctx context.Context, address netip.AddrPort) error {
	var services []dataplane.ServiceStatus
	if err := f.admin.json(ctx, "/guideway/services", &services); err != nil {
		return err
	}
	for _, s := range services {
		if s.XDP == nil {
			continue
		}
		for _, b := range s.XDP.Backends {
			if b.Address == address && (f.cluster == "" || f.cluster == b.Cluster) {
				return fmt.Errorf("%s is drained, and there is nothing to wait for: listener %q runs in XDP, which does not count the flows a backend has; \"guideway flows --listener %s\" lists those it remembers", address, s.Listener, s.Listener)
			}
		}
	}
	return nil
}

func left(connections, sessions int64) string {
	return fmt.Sprintf("%s and %s", plural(connections, "TCP connection"), plural(sessions, "UDP session"))
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// await polls until no flow is left.
func (f *drainFlags) await(ctx context.Context, cmd *cobra.Command, query url.Values) error {
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	show := newProgress(cmd.ErrOrStderr())
	began := time.Now()
	tick := time.NewTicker(max(f.interval, 10*time.Millisecond))
	defer tick.Stop()
	var connections, sessions int64
	end := func(drained bool, why string) error {
		show.end()
		if f.output == "json" {
			if err := printJSON(cmd.OutOrStdout(), drainResult{drained, connections, sessions, time.Since(began).Seconds(), why}); err != nil {
				return err
			}
		} else if drained {
			fmt.Fprintf(cmd.OutOrStdout(), "drained after %v: no flow is left\n", time.Since(began).Round(100*time.Millisecond))
		} else {
			fmt.Fprintf(cmd.ErrOrStderr(), "error: %s with %s left; it stays as it is\n", why, left(connections, sessions))
		}
		if drained {
			return nil
		}
		return exitNotDrained
	}
	for {
		var found []admin.ClusterHosts
		switch err := f.admin.ask(ctx, http.MethodGet, "/guideway/hosts", query, nil, &found); {
		case ctx.Err() != nil:
			return end(false, ended(ctx))
		case err != nil:
			show.end()
			return err
		}
		connections, sessions = 0, 0
		drained, known := true, false
		for _, c := range found {
			for _, h := range c.Hosts {
				known = true
				drained = drained && strings.Contains(h.Health, "/guideway_draining")
				connections += h.Connections
				sessions += h.Sessions
			}
		}
		switch {
		case !known:
			return end(false, "the backend has left the configuration")
		case !drained:
			return end(false, "the backend was taken back in")
		case connections+sessions == 0:
			return end(true, "")
		}
		show.left(connections, sessions)
		select {
		case <-ctx.Done():
			return end(false, ended(ctx))
		case <-tick.C:
		}
	}
}

// drainResult is the JSON of drain --wait.
type drainResult struct {
	Drained     bool    `json:"drained"`
	Connections int64   `json:"connections"`
	Sessions    int64   `json:"sessions"`
	Seconds     float64 `json:"seconds"`
	Reason      string  `json:"reason,omitempty"`
}

func ended(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "the time is over"
	}
	return "interrupted"
}

// progress shows how many flows are left: as a bar on a terminal, else as a line whenever it changes.
type progress struct {
	w        io.Writer
	terminal bool
	most     int64 // flows at first: the bar's length
	last     int64
	shown    bool
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, last: -1}
	if f, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.terminal = err == nil
	}
	return p
}

const barWidth = 30

func (p *progress) left(connections, sessions int64) {
	n := connections + sessions
	p.most = max(p.most, n)
	if p.terminal {
		done := int(barWidth * (p.most - n) / p.most)
		fmt.Fprintf(p.w, "\r\x1b[K[%s%s] %s left", strings.Repeat("#", done), strings.Repeat("-", barWidth-done), left(connections, sessions))
		p.shown = true
	} else if n != p.last {
		fmt.Fprintf(p.w, "%s left\n", left(connections, sessions))
	}
	p.last = n
}

// end leaves the line.
func (p *progress) end() {
	if p.shown {
		fmt.Fprintln(p.w)
	}
}
