package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/controlplane"
	"github.com/guideway/guideway/controlplane/dns"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane/lb"
)

func newTable() *cobra.Command {
	var f configFlags
	var cluster, output string
	cmd := &cobra.Command{
		Use:   "table -c FILE [--cluster NAME]",
		Short: "Build the Maglev tables of a configuration",
		Long: `Build the Maglev tables that a configuration leads to, with every host as healthy as the configuration says.
The digest is the same on every instance with the same hosts, weights and health, and is what a running
instance shows at /maglev/<cluster>. Names of DNS clusters are resolved.`,
		Example: `  guideway table -c envoy.yaml
  guideway table -c envoy.yaml --cluster web -o json | jq '.[0].table[4711]'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := loadConfig(&f)
			if err != nil {
				return err
			}
			tables, err := tables(cmd.Context(), config, cluster)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), tables)
			}
			return printTables(cmd.OutOrStdout(), tables)
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVar(&cluster, "cluster", "", "only the cluster of this `name`")
	outputFlag(cmd, &output, "summary", "json")
	return cmd
}

// table is one priority's table, as in table's JSON.
type table struct {
	Cluster  string   `json:"cluster"`
	Priority int      `json:"priority"`
	Size     uint32   `json:"size"`
	Digest   string   `json:"digest"`
	Hosts    []string `json:"hosts"`
	// Table holds for each slot the index of its owner in Hosts.
	Table []int `json:"table"`

	weights []uint32
	counts  []uint32
}

func tables(ctx context.Context, config *model.Config, only string) ([]table, error) {
	out := []table{}
	for _, m := range config.Clusters {
		name := m.Settings.Name
		switch {
		case only != "" && name != only:
			continue
		case m.LB.Policy != lb.Maglev && only != "":
			return nil, fmt.Errorf("cluster %q has policy %v: only MAGLEV has a table", name, m.LB.Policy)
		case m.LB.Policy != lb.Maglev:
			fmt.Fprintf(os.Stderr, "cluster %q has policy %v: no table\n", name, m.LB.Policy)
			continue
		}
		state, err := controlplane.Offline(ctx, config, name, dns.Resolve)
		if err != nil {
			if only != "" {
				return nil, err
			}
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		for _, t := range lb.Tables(state.Active.Balancer) {
			out = append(out, tableOf(name, t))
		}
	}
	if only != "" && len(out) == 0 {
		if _, err := controlplane.Offline(ctx, config, only, dns.Resolve); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func tableOf(cluster string, t lb.Table) table {
	digest := t.Digest()
	v := table{Cluster: cluster, Priority: t.Priority, Size: t.Size(), Digest: hex.EncodeToString(digest[:]), Hosts: []string{}, Table: []int{}}
	for i, h := range t.Hosts {
		v.Hosts = append(v.Hosts, h.Address.String())
		v.weights = append(v.weights, h.Weight)
		v.counts = append(v.counts, t.Count(i))
	}
	if !t.Empty() {
		v.Table = make([]int, t.Size())
		for slot := range v.Table {
			v.Table[slot] = t.Owner(uint32(slot))
		}
	}
	return v
}

func printTables(w io.Writer, tables []table) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, t := range tables {
		fmt.Fprintf(w, "cluster %s, priority %d: %d slots, %d hosts, digest %s\n", t.Cluster, t.Priority, t.Size, len(t.Hosts), t.Digest)
		fmt.Fprintln(tw, "host\tweight\tslots\tshare\t")
		for i, h := range t.Hosts {
			fmt.Fprintf(tw, "%s\t%d\t%d\t%.3f %%\t\n", h, t.weights[i], t.counts[i], 100*float64(t.counts[i])/float64(t.Size))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return nil
}
