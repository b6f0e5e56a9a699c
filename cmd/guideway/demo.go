package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/bench/demo"
)

func newDemo() *cobra.Command {
	var o demo.Options
	var admin string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: a balancer, three backends of its own, a drain",
		Long: `Start a balancer on loopback with three backends that say who they are, hold connections and UDP flows through
it, drain one backend, and show what moved. Then it serves on until Ctrl-C. Needs no privileges.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if admin != "" {
				if o.Admin, err = netip.ParseAddrPort(admin); err != nil {
					return fmt.Errorf("--admin %q is no address: write 127.0.0.1:9901", admin)
				}
			}
			if o.Flows < 1 || o.Flows > 2000 {
				return fmt.Errorf("--flows %d: use 1 to 2000", o.Flows)
			}
			if o.Program, err = os.Executable(); err != nil {
				return err
			}
			o.Out = cmd.OutOrStdout()
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			_, err = demo.Run(ctx, o)
			return err
		},
	}
	cmd.Flags().IntVar(&o.Flows, "flows", 300, "`number` of TCP connections, and of UDP flows")
	cmd.Flags().BoolVar(&o.Once, "once", false, "end after the drain")
	cmd.Flags().StringVar(&admin, "admin", "", "admin `address:port` of the balancer; port 0 is any (default: 127.0.0.1:9901 if it is free)")
	cmd.Flags().StringVar(&o.Dir, "dir", "", "`directory` for the configuration and log (default: a temporary one)")
	return cmd
}
