package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/bench/tablecost"
)

func newBenchTable() *cobra.Command {
	var f reportFlags
	var sizes []uint
	var target string
	changes := tablecost.ChangesPlan{}
	plan := tablecost.Plan{Target: tablecost.Userspace}
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Measure the time to build tables and put them in force, and their memory",
		Long: `Measure what tables cost: the time to build them and to put them in force, and their memory; then how long it
takes from a change of the hosts to the data path. Targets:
  userspace     the steering table of the userspace data plane
  xdp           the map of tables of the XDP program: a new map, filled and swapped, with a barrier, read back
  xdp-per-slot  for comparison, a plain array map that is written slot by slot: all slots, and only those that changed
  all           all of these
All but userspace need root (CAP_BPF). Nothing is attached.`,
		Example: `  guideway bench table
  guideway bench table --target all --sizes 65537 --hosts 1000 --changes 1000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			inMaps, perSlot := []func() (tablecost.Target, error){tablecost.XDP}, []func() (tablecost.Target, error){
				func() (tablecost.Target, error) { return tablecost.PerSlot(false) },
				func() (tablecost.Target, error) { return tablecost.PerSlot(true) },
			}
			userspace := []func() (tablecost.Target, error){tablecost.Userspace}
			switch target {
			case "userspace":
				changes.Targets = userspace
			case "xdp":
				changes.Targets = inMaps
			case "xdp-per-slot":
				changes.Targets = perSlot
			case "all":
				changes.Targets = slices.Concat(userspace, inMaps, perSlot)
			default:
				return fmt.Errorf("--target: unknown target %q: use userspace, xdp, xdp-per-slot or all", target)
			}
			if changes.Changes < 0 {
				return fmt.Errorf("--changes %d: use 1 or more, or 0 to leave them out", changes.Changes)
			}
			for _, s := range sizes {
				if s > 1<<32-1 {
					return fmt.Errorf("--sizes: %d is too large", s)
				}
				plan.Sizes = append(plan.Sizes, uint32(s))
			}
			return interrupted(cmd, func(cmd *cobra.Command) error {
				var r *report.Report
				changes.Sizes, changes.Hosts, changes.Clock, plan.Clock = plan.Sizes, plan.Hosts, monotonic(), monotonic()
				if target == "userspace" || target == "all" {
					show, end := report.Progress(os.Stderr, "building tables")
					plan.Progress = show
					results, err := tablecost.Run(cmd.Context(), plan)
					end()
					if err != nil {
						return err
					}
					r = results.Report()
				} else {
					r = &report.Report{Title: "Cost of tables"}
				}
				if changes.Changes > 0 {
					show, end := report.Progress(os.Stderr, "changing hosts")
					changes.Progress = show
					rows, err := tablecost.RunChanges(cmd.Context(), changes)
					end()
					if err != nil {
						return err
					}
					r.Sections = append(r.Sections, tablecost.ChangesSection(rows))
				}
				return f.write(cmd.OutOrStdout(), r, true)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().UintSliceVar(&sizes, "sizes", []uint{65537, 655373}, "sizes of tables, which are primes")
	cmd.Flags().IntSliceVar(&plan.Hosts, "hosts", []int{10, 100, 1000, 10000}, "numbers of hosts")
	cmd.Flags().IntVar(&plan.Rounds, "rounds", 10, "each time is the shortest of this `number`")
	cmd.Flags().StringVar(&target, "target", "userspace", "where tables go: userspace, xdp, xdp-per-slot or all")
	cmd.Flags().IntVar(&changes.Changes, "changes", 100, "`number` of changes, from the hosts to the data path, that are measured for each target; 0 leaves them out")
	return cmd
}
