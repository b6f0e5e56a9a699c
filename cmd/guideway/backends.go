package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/dataplane"
)

func newBackends() *cobra.Command {
	var admin adminClient
	var output, listener string
	cmd := &cobra.Command{
		Use:   "backends",
		Short: "The backends of a running instance's XDP listeners: slots, next hops, packets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []dataplane.ServiceStatus
			if err := admin.json(cmd.Context(), "/guideway/services", &list); err != nil {
				return err
			}
			type row struct {
				Listener string `json:"listener"`
				dataplane.BackendInfo
			}
			rows := []row{}
			for _, s := range list {
				if s.XDP == nil || listener != "" && s.Listener != listener {
					continue
				}
				for _, b := range s.XDP.Backends {
					rows = append(rows, row{s.Listener, b})
				}
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), rows)
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(t, "LISTENER\tBACKEND\tBY\tHEALTH\tSLOTS\tPACKETS\tNEW FLOWS\tNEXT HOP\tMAC\tNEIGHBOUR\tPROBLEM")
			for _, r := range rows {
				health := cmp.Or(r.Health, "-")
				if r.Lingers {
					health = "removed, has flows"
				}
				hop := "-"
				if r.NextHop.IsValid() {
					hop = r.NextHop.String() + " on " + r.Interface
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", r.Listener, r.Address, r.Forwarding, health, r.Slots, r.Packets, r.Flows, hop, cmp.Or(r.MAC, "-"), cmp.Or(r.Neighbour, "-"), r.Problem)
			}
			return t.Flush()
		},
	}
	admin.register(cmd)
	cmd.Flags().StringVar(&listener, "listener", "", "only those of a `listener`")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}
