package lab

import (
	"context"
	"fmt"
	"strings"

	"github.com/guideway/guideway/bench/live"
)

// nftables is the kernel's own: destination NAT by a hash of the client, and connection tracking for what is there.
var nftables = Subject{
	Name:     "nftables",
	About:    "dnat to jhash of client address and port, with the kernel's connection tracking; rules replaced in one transaction; no checks",
	Networks: []live.Network{live.TCP, live.UDP},
	Find: func(Options) (string, error) {
		path, err := find("nft", "the package nftables")
		if err != nil {
			return "", err
		}
		line, err := says(path, "--version") // nftables v1.0.6 (its name)
		if words := strings.Fields(line); len(words) > 1 {
			line = strings.TrimPrefix(words[1], "v")
		}
		return line, err
	},
	Start: func(ctx context.Context, _ Options, at Place, fleet Fleet) (Balancer, error) {
		path, err := find("nft", "the package nftables")
		if err != nil {
			return nil, err
		}
		n := &nft{place: at, path: path}
		err = at.runIn(ctx, "table ip lab {\n chain vip { type nat hook prerouting priority dstnat; }\n}\n", path, "-f", "-")
		if err != nil {
			return nil, err
		}
		return n, n.Apply(ctx, fleet)
	},
}

type nft struct {
	place Place
	path  string
}

// Apply implements Balancer.
func (n *nft) Apply(ctx context.Context, fleet Fleet) error {
	targets := fleet.serving()
	var choice []string
	for i, m := range targets {
		choice = append(choice, fmt.Sprintf("%d : %v", i, m.Addr.Addr()))
	}
	var b strings.Builder
	b.WriteString("flush chain ip lab vip\n")
	for _, network := range live.Networks {
		fmt.Fprintf(&b, "add rule ip lab vip ip daddr %v %v dport %d dnat to jhash ip saddr . %v sport mod %d seed 0x6d61676c map { %s }\n",
			n.place.VIP.Addr(), network, n.place.VIP.Port(), network, len(targets), strings.Join(choice, ", "))
	}
	return n.place.runIn(ctx, b.String(), n.path, "-f", "-")
}

// Stop implements Balancer. The rules go with the namespace.
func (n *nft) Stop() error { return nil }
