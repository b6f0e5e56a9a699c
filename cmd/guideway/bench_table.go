package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/bench/tablecost"
)

func newBenchTable() *cobra.Command {
	var f reportFlags
	var sizes []uint
	plan := tablecost.Plan{Target: tablecost.Userspace}
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Measure the time to build tables and put them in force, and their memory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range sizes {
				if s > 1<<32-1 {
					return fmt.Errorf("--sizes: %d is too large", s)
				}
				plan.Sizes = append(plan.Sizes, uint32(s))
			}
			return interrupted(cmd, func(cmd *cobra.Command) error {
				show, end := report.Progress(os.Stderr, "building tables")
				plan.Progress, plan.Clock = show, monotonic()
				results, err := tablecost.Run(cmd.Context(), plan)
				end()
				if err != nil {
					return err
				}
				return f.write(cmd.OutOrStdout(), results.Report(), true)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().UintSliceVar(&sizes, "sizes", []uint{65537, 655373}, "sizes of tables, which are primes")
	cmd.Flags().IntSliceVar(&plan.Hosts, "hosts", []int{10, 100, 1000, 10000}, "numbers of hosts")
	cmd.Flags().IntVar(&plan.Rounds, "rounds", 10, "each time is the shortest of this `number`")
	return cmd
}
