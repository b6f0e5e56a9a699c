package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/bench/packet"
	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/maglev"
)

func newBenchPacket() *cobra.Command {
	var f reportFlags
	var flows []uint
	var plan packet.Plan
	cmd := &cobra.Command{
		Use:   "packet",
		Short: "Measure the XDP packet path: ns a packet by kind, table state and number of flows",
		Long: `Measure what the XDP program takes for a packet, without a network: by running it on built packets in the
kernel, beside a no-op in the same run. Needs root (CAP_BPF, CAP_NET_ADMIN). Attaches nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, n := range flows {
				if n < 1 || n > 4<<20 {
					return fmt.Errorf("--flows: %d is not between 1 and 4,194,304", n)
				}
				plan.Flows = append(plan.Flows, uint32(n))
			}
			if err := maglev.CheckTableSize(uint64(plan.TableSize)); err != nil {
				return fmt.Errorf("--size: %w", err)
			}
			if len(plan.Flows) == 0 || plan.Backends < 2 || plan.Backends > 4000 || plan.Rounds < 1 {
				return fmt.Errorf("give at least one number of flows, 2 to 4,000 backends, and a round")
			}
			return interrupted(cmd, func(cmd *cobra.Command) error {
				show, end := report.Progress(os.Stderr, "measuring packets")
				plan.Progress = show
				figures, err := packet.Run(cmd.Context(), plan)
				end()
				if err != nil {
					return err
				}
				return f.write(cmd.OutOrStdout(), packet.Report(plan, figures), true)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().UintSliceVar(&flows, "flows", []uint{1, 100_000, 1_000_000}, "`numbers` of flows that take turns")
	cmd.Flags().Uint32Var(&plan.TableSize, "size", 65537, "`slots` of the table, a prime")
	cmd.Flags().IntVar(&plan.Backends, "backends", 100, "`number` of backends")
	cmd.Flags().IntVar(&plan.Rounds, "rounds", 10, "each figure is the shortest of this `number` of rounds")
	return cmd
}
