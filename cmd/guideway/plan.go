package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane"
	"github.com/guideway/guideway/controlplane/dns"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/controlplane/plan"
	"github.com/guideway/guideway/dataplane"
)

// exitTooMuch is the exit code of plan when more moves than --max-moved allows.
const exitTooMuch exitCode = 2

type planFlags struct {
	config   configFlags
	admin    adminClient
	from     string
	maxMoved float64
	output   string
}

func newPlan() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan -c NEW.yaml [--admin ADDRESS | --from OLD.yaml]",
		Short: "What a new configuration would move, and which flows it would break",
		Long: `Tell what a new configuration would change, without changing anything: which slots of the tables would get
another owner, how many of them must (any hashing would move them) and how many are collateral; how many
live flows would be remembered on their backend although the table says another, and how many would
break, and why; which backends come, go, or change weight.

The new configuration is compared with the running instance at --admin, with its health, drained backends
and live flows, or with a file (--from), where every backend counts as healthy and there are no flows.

Exit codes: 0, 1 error, 2 more than --max-moved percent of the slots of some table would move.`,
		Example: `  guideway plan -c new.yaml
  guideway plan -c new.yaml --max-moved 5 -o json > plan.json && mv new.yaml envoy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.config.register(cmd.Flags())
	f.admin.register(cmd)
	cmd.Flags().StringVar(&f.from, "from", "", "compare with this configuration `file` instead of a running instance")
	cmd.Flags().Float64Var(&f.maxMoved, "max-moved", 100, "most `percent` of the slots of one table that may move")
	cmd.MarkFlagsMutuallyExclusive("admin", "from")
	outputFlag(cmd, &f.output, "summary", "json")
	return cmd
}

func (f *planFlags) run(cmd *cobra.Command) error {
	if f.maxMoved < 0 || f.maxMoved > 100 {
		return fmt.Errorf("--max-moved %v is no percentage: give a number from 0 to 100", f.maxMoved)
	}
	config, err := loadConfig(&f.config)
	if err != nil {
		return err
	}
	change, err := f.foresee(cmd.Context(), config)
	if err != nil {
		return err
	}
	if f.output == "json" {
		err = printJSON(cmd.OutOrStdout(), change)
	} else {
		err = printChange(cmd.OutOrStdout(), change)
	}
	if err != nil {
		return err
	}
	if most := change.MostMoved(); most > f.maxMoved {
		fmt.Fprintf(cmd.ErrOrStderr(), "error: %.2f %% of a table would move, --max-moved allows %v %%\n", most, f.maxMoved)
		return exitTooMuch
	}
	return nil
}

func (f *planFlags) foresee(ctx context.Context, config *model.Config) (*plan.Change, error) {
	if f.from != "" {
		old := f.config
		old.path, old.yaml = f.from, ""
		from, err := loadConfig(&old)
		if err != nil {
			return nil, err
		}
		return controlplane.ForeseeOffline(ctx, from, config, dns.Resolve)
	}
	boot, ok := config.Source.(proto.Message)
	if !ok {
		return nil, errors.New("the configuration has no message to send")
	}
	text, err := protojson.Marshal(boot)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be sent: %w", err)
	}
	change := &plan.Change{}
	if err := f.admin.ask(ctx, http.MethodPost, "/guideway/plan", nil, bytes.NewReader(text), change); err != nil {
		return nil, err
	}
	return change, nil
}

// printChange prints a change for people.
func printChange(w io.Writer, c *plan.Change) error {
	if c.Empty() {
		_, err := fmt.Fprintln(w, "nothing would change")
		return err
	}
	for _, cluster := range c.Clusters {
		fmt.Fprintf(w, "cluster %s: %s\n", cluster.Name, cluster.Change)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, h := range cluster.Hosts {
			fmt.Fprintf(tw, "  %s\t%s\n", h.Address, describeHost(&h))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		for _, t := range cluster.Tables {
			fmt.Fprintf(w, "  priority %d: %d of %d slots move (%.2f %%): %d unavoidable, %d collateral\n",
				t.Priority, t.Moved, t.Size, t.Percent(), t.Unavoidable, t.Collateral)
			if t.FormerSize > 0 {
				fmt.Fprintf(w, "    estimated from a sample: the table had %d slots\n", t.FormerSize)
			}
		}
	}
	for _, l := range c.Listeners {
		what := map[string]string{"chains": "its filter chains change", "socket": "its socket or address changes"}[l.Change]
		if what == "" {
			what = l.Change
		}
		fmt.Fprintf(w, "listener %s: %s\n", l.Name, what)
	}
	if f := c.Flows; f != nil {
		fmt.Fprintf(w, "flows: %s now; %d will be remembered, %d will break\n", left(int64(f.TCP), int64(f.UDP)), f.Remembered, f.Broken)
		for _, why := range slices.Sorted(maps.Keys(f.Reasons)) {
			fmt.Fprintf(w, "  %d: %s\n", f.Reasons[why], endText(why))
		}
	}
	for _, a := range c.Assumed {
		fmt.Fprintf(w, "assuming that %s\n", a)
	}
	return nil
}

func describeHost(h *plan.Host) string {
	var parts []string
	for _, word := range strings.Fields(h.Change) {
		switch word {
		case "added":
			parts = append(parts, fmt.Sprintf("added, weight %d, %s", h.Weight, h.Health))
		case "removed":
			parts = append(parts, fmt.Sprintf("removed (weight %d)", h.FormerWeight))
		case "weight":
			parts = append(parts, fmt.Sprintf("weight %d -> %d", h.FormerWeight, h.Weight))
		case "health":
			parts = append(parts, fmt.Sprintf("%s -> %s", h.FormerHealth, h.Health))
		}
	}
	return strings.Join(parts, ", ")
}

// endText words why flows break.
func endText(why dataplane.FlowEnd) string {
	if text, ok := map[dataplane.FlowEnd]string{
		dataplane.EndHostRemoved:     "UDP sessions of backends that are removed end",
		dataplane.EndHostFailed:      "UDP sessions of backends that cannot serve move",
		dataplane.EndHostDraining:    "UDP sessions of draining backends move (udp_draining: move)",
		dataplane.EndCloseAfter:      "flows of draining or removed backends are closed over close_after",
		dataplane.EndHealthFailure:   "TCP connections of failed backends are closed",
		dataplane.EndListenerRemoved: "the listener is removed: TCP connections end after the drain time, UDP sessions at once",
		dataplane.EndListenerChanged: "the listener's socket changes: TCP connections end after the drain time, UDP sessions at once",
		dataplane.EndChainRemoved:    "the filter chain is removed or changes: TCP connections end after the drain time",
		dataplane.EndRouteChanged:    "UDP sessions that the listener sends elsewhere end",
	}[why]; ok {
		return text
	}
	return string(why)
}
