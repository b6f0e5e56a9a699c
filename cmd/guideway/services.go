package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/dataplane"
)

func newServices() *cobra.Command {
	var admin adminClient
	var output string
	cmd := &cobra.Command{
		Use:   "services",
		Short: "What a running instance serves: where each listener runs and why, packets, open slots",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []dataplane.ServiceStatus
			if err := admin.json(cmd.Context(), "/guideway/services", &list); err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), list)
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(t, "LISTENER\tADDRESS\tPROTOCOL\tRUNS IN\tBACKENDS\tPACKETS\tNEW FLOWS\tOPEN\tEXCEPTED\tIN SYNC\tWHY")
			for _, s := range list {
				var at []string
				for _, a := range s.Addresses {
					at = append(at, a.String())
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t", s.Listener, strings.Join(at, ","), s.Protocol, s.Dataplane)
				if x := s.XDP; x != nil {
					fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%v\t%s\n", len(x.Backends), x.Packets, x.Flows, x.Open, x.Excepted, x.InSync, cmp.Or(x.Error, s.Reason))
				} else {
					fmt.Fprintf(t, "-\t-\t-\t-\t-\t-\t%s\n", s.Reason)
				}
			}
			return t.Flush()
		},
	}
	admin.register(cmd)
	outputFlag(cmd, &output, "text", "json")
	return cmd
}
