package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/bench/peers"
	"github.com/guideway/guideway/bench/report"
)

func newBenchPeers() *cobra.Command {
	var f reportFlags
	var o peers.Options
	var names []string
	for _, m := range peers.Measurements {
		names = append(names, m.Name)
	}
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Compare this proxy with HAProxy, nginx and Envoy, each alone on one core",
		Long: `Run Guideway, HAProxy, nginx (stream), Envoy (on the same bootstrap file as Guideway) and no proxy at all, in
turn, each proxy alone on the last CPU with clients and backends on the first, and print the medians of
several rounds with their ranges and ratios. "make bench-peers" installs the peers first. Those that are not
installed are named and left out. Nothing else should run meanwhile.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range o.Only {
				if !slices.Contains(names, name) {
					return fmt.Errorf("--only: there is no measurement %q; there are %s", name, strings.Join(names, ", "))
				}
			}
			if o.Rounds < 1 || o.Scale <= 0 {
				return fmt.Errorf("--rounds and --scale must be above 0")
			}
			var err error
			if o.Guideway, err = os.Executable(); err != nil {
				return err
			}
			show, end := report.Progress(os.Stderr, "comparing proxies")
			o.Progress = show
			result, err := peers.Run(o)
			end()
			if err != nil {
				return err
			}
			return f.write(cmd.OutOrStdout(), result.Report("", nil), true)
		},
	}
	f.register(cmd)
	cmd.Flags().IntVar(&o.Rounds, "rounds", 5, "`number` of rounds")
	cmd.Flags().Float64Var(&o.Scale, "scale", 1, "`factor` on the length of each measurement")
	cmd.Flags().StringSliceVar(&o.Only, "only", nil, "measure only these: "+strings.Join(names, ", "))
	cmd.Flags().StringVar(&o.Envoy, "envoy", envoyDefault(), "the Envoy `program`")
	return cmd
}

// envoyDefault is the Envoy of the environment, of PATH, or of this directory's virtual environment.
func envoyDefault() string {
	if p := os.Getenv("GUIDEWAY_ENVOY"); p != "" {
		return p
	}
	if _, err := os.Stat(".venv/bin/envoy"); err == nil {
		return ".venv/bin/envoy"
	}
	return "envoy"
}
