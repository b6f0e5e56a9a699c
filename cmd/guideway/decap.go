package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/controlplane/logging"
	"github.com/guideway/guideway/dataplane/xdp"
)

func newDecap() *cobra.Command {
	var (
		c         xdp.DecapConfig
		addresses []string
		generic   bool
		every     time.Duration
	)
	cmd := &cobra.Command{
		Use:   "decap --interface IF",
		Short: "On a backend: take the balancer's outer headers off (IPIP and GUE)",
		Long: `Take outer headers off in XDP, on a backend: IPv4 and IPv6 in IPv4 and IPv6, and GUE. What is inside goes up the
stack, so the VIP has to be on lo. Runs until SIGTERM or SIGINT and prints its counters then; the program stays
attached, so that a restart loses no packet. "guideway detach --xdp-pins ` + xdp.DefaultDecapPins + `" removes it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, a := range addresses {
				addr, err := netip.ParseAddr(a)
				if err != nil {
					return fmt.Errorf("--address %q: %w", a, err)
				}
				c.Addresses = append(c.Addresses, addr)
			}
			if generic {
				c.Modes = []xdp.Mode{xdp.Generic}
			}
			log, err := logging.New(logging.Options{Format: logging.DefaultFormat})
			if err != nil {
				return err
			}
			c.Log = log.For("xdp")
			d, err := xdp.OpenDecap(c)
			if err != nil {
				return err
			}
			defer d.Close()
			for name, mode := range d.On() {
				fmt.Fprintf(cmd.OutOrStdout(), "decapsulating on %s (%s)\n", name, mode)
			}
			return reportUntilSignal(cmd, d, every)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Interfaces, "interface", nil, "`names` of the interfaces that the balancer's packets come in by")
	f.StringSliceVar(&addresses, "address", nil, "`addresses` that tunnels end at; those of the interfaces unless given")
	f.Uint16Var(&c.GUEPort, "gue-port", 6080, "UDP `port` of GUE")
	f.BoolVar(&generic, "generic", false, "use generic XDP")
	f.DurationVar(&every, "report", 0, "print the counters each `interval`; 0 for at the end only")
	f.StringVar(&c.Pins, "xdp-pins", xdp.DefaultDecapPins, "`directory` in a bpffs for what outlives the process")
	cmd.MarkFlagRequired("interface")
	return cmd
}

// reportUntilSignal prints counters as JSON lines.
func reportUntilSignal(cmd *cobra.Command, d *xdp.Decapsulator, every time.Duration) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	var tick <-chan time.Time
	if every > 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		tick = t.C
	}
	for ended := false; !ended; {
		select {
		case <-signals:
			ended = true
		case <-tick:
		}
		n, err := d.Counts()
		if err != nil {
			return err
		}
		if err := json.NewEncoder(cmd.OutOrStdout()).Encode(n); err != nil {
			return err
		}
	}
	return nil
}
