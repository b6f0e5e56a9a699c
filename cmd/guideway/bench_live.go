package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/bench/live"
	"github.com/guideway/guideway/bench/live/lab"
	"github.com/guideway/guideway/bench/report"
)

// liveFlags are those of bench live.
type liveFlags struct {
	report              reportFlags
	targets, udpTargets []string
	sources             []string
	scenario            string
	watch               bool
	limit               time.Duration
	lab                 bool
	labPlan             lab.Plan
	plan                live.Plan
}

func newBenchLive() *cobra.Command {
	f := liveFlags{plan: live.Plan{TCP: 1000, UDP: 1000}}
	cmd := &cobra.Command{
		Use:   "live",
		Short: "Count what a change does to flows through any balancer",
		Long: `Hold TCP connections and UDP flows through a balancer, whichever it is, to backends of "guideway bench backend",
and count the flows that break, move to another backend, stall or get answers out of order while something
changes: by a scenario file (--scenario), or by hand (--watch). docs/live.md explains the figures and the file.

With --lab it compares balancers: it builds a network of namespaces on this machine (needs root), runs one after
the other in it, and takes each through the same changes: drain, add, remove, fail. Those that are not installed
are left out and named.`,
		Example: `  guideway bench live --target 192.0.2.1:80 --scenario drain.yaml --html report.html
  guideway bench live --target 192.0.2.1:80 --target [2001:db8::1]:80 --tcp 5000 --udp 0 --watch
  guideway bench live --lab --html comparison.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.lab {
				return interrupted(cmd, f.compare)
			}
			return interrupted(cmd, f.run)
		},
	}
	f.report.register(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.targets, "target", nil, "`HOST:PORT` of the balancer; can be given several times, flows go to them in turn")
	flags.StringArrayVar(&f.udpTargets, "udp-target", nil, "`HOST:PORT` for UDP flows, if it is another")
	flags.StringSliceVar(&f.sources, "source", nil, "`addresses` that flows come from, in turn")
	flags.IntVar(&f.plan.TCP, "tcp", f.plan.TCP, "`number` of TCP connections")
	flags.IntVar(&f.plan.UDP, "udp", f.plan.UDP, "`number` of UDP flows")
	flags.DurationVar(&f.plan.Interval, "interval", 500*time.Millisecond, "how often each flow asks")
	flags.DurationVar(&f.plan.StallAfter, "stalled-after", time.Second, "a flow counts as stalled if nothing comes for this `time`")
	flags.DurationVar(&f.plan.BrokenAfter, "broken-after", 5*time.Second, "a flow counts as broken if nothing comes for this `time`")
	flags.DurationVar(&f.plan.OpenTimeout, "open-timeout", 2*time.Second, "a new flow has failed if nothing comes for this `time`")
	flags.Float64Var(&f.plan.NewRate, "new-rate", 20, "`number` of further flows of each protocol to open and close a second; below 0 none")
	flags.IntVar(&f.plan.Size, "size", 64, "`bytes` of a message")
	flags.IntVar(&f.plan.Settle, "settle", 2, "`number` of times flows ask again before a step is over")
	flags.StringVar(&f.scenario, "scenario", "", "what changes and when, from a YAML `file`")
	flags.BoolVar(&f.watch, "watch", false, "somebody makes the changes by hand; lines typed here name steps, Ctrl-C ends")
	flags.DurationVar(&f.limit, "for", 0, "end --watch after this `time`")
	flags.BoolVar(&f.lab, "lab", false, "compare balancers in a network of namespaces on this machine")
	flags.StringSliceVar(&f.labPlan.Subjects, "subject", nil, "with --lab: `names` of balancers to compare, of "+strings.Join(lab.Names(), ", ")+" (default: all)")
	flags.IntVar(&f.labPlan.Backends, "backends", 10, "with --lab: `number` of backends at first")
	flags.StringVar(&f.labPlan.Envoy, "envoy", os.Getenv("GUIDEWAY_ENVOY"), "with --lab: Envoy's `program` (default: $GUIDEWAY_ENVOY, or found in PATH or .venv/bin)")
	return cmd
}

// compare runs the lab.
func (f *liveFlags) compare(cmd *cobra.Command) error {
	if f.watch || f.scenario != "" || len(f.targets)+len(f.udpTargets)+len(f.sources) > 0 {
		return errors.New("--lab brings its own balancers and changes: leave out --target, --source, --scenario and --watch")
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	f.labPlan.Program, f.labPlan.Live = program, f.plan
	show, end := report.Progress(os.Stderr, "balancers compared")
	f.labPlan.Progress = func(_ string, done, total int) { show(done, total) }
	results, err := lab.Run(cmd.Context(), f.labPlan)
	end()
	if err != nil {
		return err
	}
	return f.report.write(cmd.OutOrStdout(), results.Report(), true)
}

// resolve turns HOST:PORT into addresses, the first one of each host.
func resolve(ctx context.Context, flag string, texts []string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, text := range texts {
		at, err := netip.ParseAddrPort(text)
		if err != nil {
			host, port, err := net.SplitHostPort(text)
			if err != nil {
				return nil, fmt.Errorf("--%s %q: write HOST:PORT, or [IPV6]:PORT", flag, text)
			}
			number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
			if err != nil {
				return nil, fmt.Errorf("--%s %q: %w", flag, text, err)
			}
			ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
			if err != nil {
				return nil, fmt.Errorf("--%s %q: %w", flag, text, err)
			}
			at = netip.AddrPortFrom(ips[0].Unmap(), uint16(number))
		}
		out = append(out, at)
	}
	return out, nil
}

func (f *liveFlags) run(cmd *cobra.Command) error {
	var err error
	ctx := cmd.Context()
	if f.plan.TCPTargets, err = resolve(ctx, "target", f.targets); err != nil {
		return err
	}
	if f.plan.UDPTargets, err = resolve(ctx, "udp-target", f.udpTargets); err != nil {
		return err
	}
	if len(f.udpTargets) == 0 {
		f.plan.UDPTargets = f.plan.TCPTargets
	}
	for _, text := range f.sources {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("--source %q: write an IP address", text)
		}
		f.plan.Sources = append(f.plan.Sources, a)
	}
	script, err := f.script(cmd)
	if err != nil {
		return err
	}
	end := f.progress()
	results, err := live.Measure(ctx, f.plan, script)
	end()
	if results != nil {
		if e := f.report.write(cmd.OutOrStdout(), results.Report(), true); err == nil {
			err = e
		}
	}
	return err
}

func (f *liveFlags) script(cmd *cobra.Command) (live.Script, error) {
	if f.watch == (f.scenario != "") {
		return nil, errors.New("say what changes: give --scenario FILE, or --watch and make the changes by hand")
	}
	if f.watch {
		return live.Watch(cmd.InOrStdin(), cmd.ErrOrStderr(), f.limit), nil
	}
	text, err := os.ReadFile(f.scenario)
	if err != nil {
		return nil, err
	}
	s, err := live.ParseScenario(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.scenario, err)
	}
	return s.Play(filepath.Dir(f.scenario)), nil
}

// progress shows bars on a terminal, while flows are opened and while steps are played. The
// function it returns takes the last one away.
func (f *liveFlags) progress() func() {
	var now string
	show, end := func(int, int) {}, func() {}
	f.plan.Progress = func(what string, done, total int) {
		if what != now {
			end()
			now = what
			show, end = report.Progress(os.Stderr, what)
		}
		show(done, total)
		if what == live.Opening && done == total {
			end() // what a watch prints comes next
		}
	}
	return func() { end() }
}
