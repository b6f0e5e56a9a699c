package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/bench/disruption"
	"github.com/guideway/guideway/bench/report"
	"github.com/guideway/guideway/bench/scheme"
)

// disruptionFlags are those of bench disruption.
type disruptionFlags struct {
	report   reportFlags
	backends int
	weights  []uint
	zones    int
	keys     int
	seed     uint64
	top      int
	schemes  []string
	changes  []string
	scenario string
	timing   bool
}

func newBenchDisruption() *cobra.Command {
	var f disruptionFlags
	var kinds strings.Builder
	for _, k := range scheme.Kinds() {
		fmt.Fprintf(&kinds, "  %-16s %s", k.Name, k.About)
		if k.Options != "" {
			fmt.Fprintf(&kinds, " (%s)", k.Options)
		}
		fmt.Fprintln(&kinds)
	}
	cmd := &cobra.Command{
		Use:   "disruption",
		Short: "Count, on paper, what changes of backends move under many schemes",
		Long: `Place the same random flows by many schemes, change the backends, and count exactly: flows moved, how many had
to, how even the load is, and how it goes with connection tracking, where a flow keeps its backend while that
can serve. Nothing is sent. docs/disruption.md explains the figures and the scenario file.

Schemes (--scheme, with options as in ring:v=200):
` + kinds.String() + `
Changes (--change, as in add=2,weight=3 or remove=10.0.0.1:8080+10.0.0.2:8080; "a; b" is one after the other):
` + strings.TrimRight(disruption.ChangeHelp(), "\n"),
		Example: `  guideway bench disruption
  guideway bench disruption --backends 100 --change remove=1 --change "add=1; remove=1" --html report.html
  guideway bench disruption --scheme maglev --scheme ring:v=160 --scenario rollout.yaml -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := f.plan(cmd)
			if err != nil {
				return err
			}
			return interrupted(cmd, func(cmd *cobra.Command) error { return f.run(cmd, plan) })
		},
	}
	f.report.register(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.backends, "backends", 10, "`number` of backends at the start, 10.0.0.1:8080 and on")
	flags.UintSliceVar(&f.weights, "weights", nil, "weights of the backends, which go round: `1,1,4`")
	flags.IntVar(&f.zones, "zones", 3, "`number` of zones over which the backends are spread: a, b, c")
	flags.IntVar(&f.keys, "keys", 1_000_000, "`number` of flows")
	flags.Uint64Var(&f.seed, "seed", 1, "`number` that decides flows and what is picked at random")
	flags.IntVar(&f.top, "top", 3, "count flows whose first `k` backends change, where the scheme names several; 1 turns it off")
	flags.StringArrayVar(&f.schemes, "scheme", nil, "a `scheme` to compare; can be given several times (default: many)")
	flags.StringArrayVar(&f.changes, "change", nil, "a `change` to count, each from the same start; can be given several times (default: one of each)")
	flags.StringVar(&f.scenario, "scenario", "", "read all of this from a YAML `file`; flags that are given count more")
	flags.BoolVar(&f.timing, "timing", true, "measure build and lookup times; without, the report depends on the flags only")
	return cmd
}

// plan is what the scenario says, then the flags, then their defaults.
func (f *disruptionFlags) plan(cmd *cobra.Command) (disruption.Plan, error) {
	plan := disruption.Plan{Keys: f.keys, Seed: f.seed, Top: f.top}
	if f.scenario != "" {
		if len(f.changes) > 0 {
			return plan, errors.New("--change and --scenario: give one of them")
		}
		text, err := os.ReadFile(f.scenario)
		if err != nil {
			return plan, err
		}
		s, err := disruption.ParseScenario(text)
		if err != nil {
			return plan, fmt.Errorf("%s: %w", f.scenario, err)
		}
		given := cmd.Flags().Changed
		if s.Keys > 0 && !given("keys") {
			plan.Keys = s.Keys
		}
		if s.Seed != nil && !given("seed") {
			plan.Seed = *s.Seed
		}
		if s.Top > 0 && !given("top") {
			plan.Top = s.Top
		}
		if !given("backends") && !given("weights") && !given("zones") {
			plan.Members = s.Members
		}
		plan.Schemes, plan.Cases = s.Schemes, s.Cases
	}
	if plan.Keys < 1 || plan.Keys > disruption.MaxKeys {
		return plan, fmt.Errorf("--keys %d: use 1 to %d", plan.Keys, disruption.MaxKeys)
	}
	if plan.Top < 1 || plan.Top > disruption.MaxTop {
		return plan, fmt.Errorf("--top %d: use 1 to %d", plan.Top, disruption.MaxTop)
	}
	if plan.Members == nil {
		if f.backends < 1 || f.backends > scheme.MaxBackends || f.zones < 0 {
			return plan, fmt.Errorf("--backends %d, --zones %d: use 1 to %d backends, and no negative numbers", f.backends, f.zones, scheme.MaxBackends)
		}
		weights := make([]uint32, len(f.weights))
		for i, w := range f.weights {
			if w < 1 || w > 10000 {
				return plan, fmt.Errorf("--weights: %d: use 1 to 10000", w)
			}
			weights[i] = uint32(w)
		}
		plan.Members = disruption.Fleet(f.backends, weights, f.zones)
	}
	if len(f.schemes) > 0 {
		plan.Schemes = nil
		for _, text := range f.schemes {
			s, err := scheme.Parse(text)
			if err != nil {
				return plan, fmt.Errorf("--scheme: %w", err)
			}
			plan.Schemes = append(plan.Schemes, s)
		}
	}
	if plan.Schemes == nil {
		plan.Schemes = scheme.Default()
	}
	for _, text := range f.changes {
		c, err := disruption.ParseCase(text)
		if err != nil {
			return plan, fmt.Errorf("--change: %w", err)
		}
		plan.Cases = append(plan.Cases, c)
	}
	if plan.Cases == nil {
		plan.Cases = disruption.DefaultCases(f.zones > 0)
	}
	if f.timing {
		plan.Clock = monotonic()
	}
	return plan, nil
}

func (f *disruptionFlags) run(cmd *cobra.Command, plan disruption.Plan) error {
	show, end := report.Progress(os.Stderr, "placing flows")
	plan.Progress = show
	results, err := disruption.Run(cmd.Context(), plan)
	end()
	if err != nil {
		return err
	}
	return f.report.write(cmd.OutOrStdout(), results.Report(), f.timing)
}
