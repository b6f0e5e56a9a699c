package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/controlplane"
	"github.com/guideway/guideway/controlplane/dns"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
)

func newLookup() *cobra.Command {
	var f configFlags
	var listener, src, dst, output string
	cmd := &cobra.Command{
		Use:   "lookup -c FILE --listener NAME --src IP:PORT",
		Short: "Which backend a client gets, and why",
		Long: `Tell which backend a new flow of a client gets, step by step: filter chain, cluster, hash, priority, slot, host.
Hosts count as healthy as the configuration says. Where chance decides (no hash, weighted clusters), it
says so and gives every possible cluster.`,
		Example: `  guideway lookup -c envoy.yaml --listener web --src 192.0.2.7:40000
  guideway lookup -c envoy.yaml --listener web --src '[2001:db8::7]:40000' -o json | jq -r .host`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := loadConfig(&f)
			if err != nil {
				return err
			}
			answers, err := lookup(cmd.Context(), config, listener, src, dst)
			if err != nil {
				return err
			}
			if output == "json" {
				if len(answers) == 1 {
					return printJSON(cmd.OutOrStdout(), answers[0])
				}
				return printJSON(cmd.OutOrStdout(), answers)
			}
			printAnswers(cmd.OutOrStdout(), answers)
			return nil
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVar(&listener, "listener", "", "`name` of the listener")
	cmd.Flags().StringVar(&src, "src", "", "the client's `address:port`; a bare address is taken with port 0")
	cmd.Flags().StringVar(&dst, "dst", "", "the `address:port` the client connects to (default: the listener's first)")
	cmd.MarkFlagRequired("listener")
	cmd.MarkFlagRequired("src")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// answer is one possible way of a flow, as in lookup's JSON.
type answer struct {
	Listener string `json:"listener"`
	Src      string `json:"src"`
	Dst      string `json:"dst"`
	Chain    string `json:"filter_chain,omitempty"`
	Cluster  string `json:"cluster"`
	// Share of new flows that take this cluster: below 1 for weighted clusters.
	Share  float64 `json:"share"`
	Policy string  `json:"policy"`
	// HashOf says what was hashed; Hash is a decimal string, absent where chance decides.
	HashOf   string `json:"hash_of"`
	Hash     string `json:"hash,omitempty"`
	Priority *int   `json:"priority,omitempty"`
	Slot     *int   `json:"slot,omitempty"`
	Size     uint32 `json:"table_size,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// Host is absent where chance decides or nobody can serve; Why says which.
	Host string `json:"host,omitempty"`
	Why  string `json:"why"`
}

func lookup(ctx context.Context, config *model.Config, listener, src, dst string) ([]answer, error) {
	l, err := controlplane.FindListener(config, listener)
	if err != nil {
		return nil, err
	}
	from, err := parseAddress("--src", src)
	if err != nil {
		return nil, err
	}
	var to netip.AddrPort
	if dst != "" {
		if to, err = parseAddress("--dst", dst); err != nil {
			return nil, err
		}
	}
	route, to, err := controlplane.RouteOf(l.Listener, from, to)
	if err != nil {
		return nil, err
	}
	var total uint64
	for _, c := range route.Clusters {
		total += uint64(c.Weight)
	}
	var answers []answer
	for _, c := range route.Clusters {
		a := answer{Listener: listener, Src: from.String(), Dst: to.String(), Chain: route.Chain, Cluster: c.Name, Share: float64(c.Weight) / float64(total)}
		state, err := controlplane.Offline(ctx, config, c.Name, dns.Resolve)
		if err != nil {
			return nil, err
		}
		a.pick(l.Protocol, route.Hash, state, from, to)
		answers = append(answers, a)
	}
	return answers, nil
}

func (a *answer) pick(proto dataplane.Protocol, policy dataplane.HashPolicy, state controlplane.ClusterState, from, to netip.AddrPort) {
	c := state.Desired.LB
	a.Policy = c.Policy.String()
	policy = state.Desired.Settings.HashPolicy(policy)
	hash, hashed := policy.HashOf(proto, from, to)
	switch {
	case !c.Policy.Hashes():
		a.HashOf = "nothing"
		a.Why = "the policy takes turns or chances: any healthy host"
		return
	case !hashed:
		a.HashOf = "nothing"
		a.Why = "no hash policy: a random slot"
		return
	}
	a.HashOf = hashText(policy, from)
	a.Hash = strconv.FormatUint(hash, 10)
	priority, slot, host := lb.Explain(state.Active.Balancer, hash)
	if priority >= 0 {
		a.Priority = &priority
	}
	for _, t := range lb.Tables(state.Active.Balancer) {
		if t.Priority == priority && slot >= 0 {
			digest := t.Digest()
			a.Slot, a.Size, a.Digest = &slot, t.Size(), hex.EncodeToString(digest[:])
		}
	}
	switch {
	case host == nil:
		a.Why = "no host can serve"
	case a.Slot != nil:
		a.Why = "the owner of the slot"
	default:
		a.Why = "the next host on the ring"
	}
	if c.BalanceFactor > 0 && host != nil {
		a.Why += ", while it is not overloaded (hash_balance_factor)"
	}
	if host != nil {
		a.Host = host.Address.String()
	}
}

func hashText(p dataplane.HashPolicy, from netip.AddrPort) string {
	switch p.Kind {
	case dataplane.HashSourceIP:
		return "source address " + from.Addr().String()
	case dataplane.HashKey:
		return fmt.Sprintf("the key %q", p.Key)
	}
	return fmt.Sprintf("the 5-tuple, seed %d", p.Seed)
}

func parseAddress(flag, s string) (netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s %q is no address: write 192.0.2.7:40000 or [2001:db8::7]:40000", flag, s)
	}
	return netip.AddrPortFrom(a, 0), nil
}

func printAnswers(w io.Writer, answers []answer) {
	for i, a := range answers {
		if i == 0 {
			fmt.Fprintf(w, "listener   %s (%s -> %s)\n", a.Listener, a.Src, a.Dst)
			if a.Chain != "" {
				fmt.Fprintf(w, "chain      %s\n", a.Chain)
			}
		}
		fmt.Fprintf(w, "cluster    %s", a.Cluster)
		if a.Share < 1 {
			fmt.Fprintf(w, " (%.4g %% of new flows, at random)", 100*a.Share)
		}
		fmt.Fprintf(w, "\npolicy     %s\n", a.Policy)
		if a.Hash != "" {
			fmt.Fprintf(w, "hash       %s of %s\n", a.Hash, a.HashOf)
		}
		if a.Priority != nil {
			fmt.Fprintf(w, "priority   %d\n", *a.Priority)
		}
		if a.Slot != nil {
			fmt.Fprintf(w, "slot       %d of %d (table %.12s...)\n", *a.Slot, a.Size, a.Digest)
		}
		host := a.Host
		if host == "" {
			host = "-"
		}
		fmt.Fprintf(w, "host       %s (%s)\n", host, a.Why)
	}
}
