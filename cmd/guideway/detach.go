package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/dataplane/xdp"
)

func newDetach() *cobra.Command {
	var pins string
	cmd := &cobra.Command{
		Use:   "detach",
		Short: "Take the XDP program off all interfaces and remove its maps",
		Long: `Take the XDP program off all interfaces, and remove everything that it pinned: services, tables and
remembered flows. Packets for VIPs go up the stack from then on. Stop the agent first; one that runs notices
nothing and goes on without its program.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := xdp.Detach(pins)
			for _, name := range d.Interfaces {
				fmt.Fprintf(cmd.OutOrStdout(), "detached from %s\n", name)
			}
			if d.Maps > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "removed %d maps\n", d.Maps)
			} else if len(d.Interfaces) == 0 && err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "nothing is pinned in %s\n", pins)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&pins, "xdp-pins", xdp.DefaultPins, "`directory` in a bpffs")
	return cmd
}
