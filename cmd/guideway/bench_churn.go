package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/bench/churn"
	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/conntrack"
)

func newBenchChurn() *cobra.Command {
	var f reportFlags
	var tracks []string
	var proto string
	var plan churn.Plan
	cmd := &cobra.Command{
		Use:   "churn",
		Short: "Count, on paper, packets looked up and flows remembered against changes an hour",
		Long: `Drive Guideway's flow tracking under a simulated clock while backends come and go: what share of the packets
has to look its flow up, and what share of the flows is remembered. Nothing is sent, and no time is measured:
for a seed the report is always the same. docs/xdp-performance.md explains the figures.`,
		Example: `  guideway bench churn
  guideway bench churn --changes 0,10,60 --protocol udp --html report.html
  guideway bench churn --learning-window 2m --track changed`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range tracks {
				t, err := churn.ParseTrack(name)
				if err != nil {
					return fmt.Errorf("--track: %w", err)
				}
				plan.Tracks = append(plan.Tracks, t)
			}
			switch proto {
			case "tcp":
				plan.Proto = conntrack.TCP
			case "udp":
				plan.Proto = conntrack.UDP
			default:
				return fmt.Errorf("--protocol: unknown protocol %q: use tcp or udp", proto)
			}
			if !cmd.Flags().Changed("idle") {
				plan.Idle = conntrack.DefaultIdle(plan.Proto)
			}
			return interrupted(cmd, func(cmd *cobra.Command) error {
				show, end := report.Progress(os.Stderr, "simulating rates of change")
				plan.Progress = show
				results, err := churn.Run(cmd.Context(), plan)
				end()
				if err != nil {
					return err
				}
				return f.write(cmd.OutOrStdout(), results.Report(), false)
			})
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.Float64SliceVar(&plan.Changes, "changes", []float64{0, 1, 2, 6, 12, 30, 60}, "rates to simulate, in `changes` an hour")
	flags.StringSliceVar(&tracks, "track", []string{"changed", "all"}, "`ways` to track: changed, all, off")
	flags.StringVar(&proto, "protocol", "tcp", "`tcp` or udp")
	flags.IntVar(&plan.Backends, "backends", 100, "`number` of backends")
	flags.Uint32Var(&plan.TableSize, "size", 65537, "`slots` of the table, a prime")
	flags.IntVar(&plan.Flows, "flows", 1_000_000, "`number` of flows that are alive at any time")
	flags.IntVar(&plan.Slots, "sample", 192, "`number` of slots whose flows are simulated; more are slower and more exact")
	flags.DurationVar(&plan.Life, "life", 5*time.Minute, "mean `time` that a flow lives")
	flags.Float64Var(&plan.Rate, "packets", 10, "mean `number` of packets a second of a flow")
	flags.DurationVar(&plan.Idle, "idle", 0, "idle `timeout` of flows (default: 1h for TCP, 1m for UDP)")
	flags.DurationVar(&plan.Window, "learning-window", 0, "`time` that slots stay open, if shorter than --idle")
	flags.DurationVar(&plan.Sweep, "sweep", time.Minute, "`time` between sweeps")
	flags.DurationVar(&plan.WarmUp, "warm-up", 2*time.Hour, "simulated `time` that is left out of the figures")
	flags.DurationVar(&plan.Measured, "time", 2*time.Hour, "simulated `time` that is measured")
	flags.Uint64Var(&plan.Seed, "seed", 1, "`number` that decides flows and changes")
	return cmd
}
