package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/bench/backend"
)

type backendFlags struct {
	listen    []string
	network   string
	behaviour string
	control   string
}

func newBenchBackend() *cobra.Command {
	var f backendFlags
	cmd := &cobra.Command{
		Use:   "backend",
		Short: "Run backends that say who they are, for bench live",
		Long: `Run backends that answer each connection and datagram with their identity and then what they got. bench live
needs them behind the balancer it measures. They can be told to behave otherwise while they run:

  curl -X POST http://127.0.0.1:9900/b1/drain      refuse new connections, serve on those there are
  curl -X POST http://127.0.0.1:9900/b1/refuse     die: reset, refuse; also hang, stall, reset, close-at-once
  curl -X POST http://127.0.0.1:9900/b1/return     as before
  curl http://127.0.0.1:9900/                      state and counters of all`,
		Example: `  guideway bench backend --listen b1=127.0.0.1:9001 --listen b2=127.0.0.1:9002 --control 127.0.0.1:9900
  guideway bench backend --listen 0.0.0.0:9000     (says the address it was reached at)`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interrupted(cmd, f.run)
		},
	}
	cmd.Flags().StringArrayVar(&f.listen, "listen", nil, "`[ID=]HOST:PORT` of a backend; can be given several times, also for one ID")
	cmd.Flags().StringVar(&f.network, "network", "tcp,udp", "`protocols` to serve: tcp, udp or both")
	cmd.Flags().StringVar(&f.behaviour, "behaviour", "identify", "first `behaviour`")
	cmd.Flags().StringVar(&f.control, "control", "", "`HOST:PORT` to take commands on by HTTP; anyone who reaches it may give them")
	return cmd
}

// parseListen reads the addresses of backends, by identity, in order.
func parseListen(listen []string) (ids []string, addrs map[string][]netip.AddrPort, err error) {
	addrs = map[string][]netip.AddrPort{}
	for _, text := range listen {
		id, address, named := strings.Cut(text, "=")
		if !named {
			id, address = "", text
		}
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, nil, fmt.Errorf("--listen %q: %w: write 127.0.0.1:9001, or b1=127.0.0.1:9001", text, err)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		addrs[id] = append(addrs[id], at)
	}
	if len(ids) == 0 {
		return nil, nil, errors.New("no address: give --listen b1=127.0.0.1:9001")
	}
	return ids, addrs, nil
}

func parseNetwork(text string) (n backend.Network, err error) {
	for word := range strings.SplitSeq(text, ",") {
		switch word {
		case "tcp":
			n |= backend.TCP
		case "udp":
			n |= backend.UDP
		default:
			return 0, fmt.Errorf("--network %q: use tcp, udp or tcp,udp", text)
		}
	}
	return n, nil
}

func (f *backendFlags) run(cmd *cobra.Command) error {
	ids, addrs, err := parseListen(f.listen)
	if err != nil {
		return err
	}
	network, err := parseNetwork(f.network)
	if err != nil {
		return err
	}
	behaviour, err := backend.ParseBehaviour(f.behaviour)
	if err != nil {
		return fmt.Errorf("--behaviour: %w", err)
	}
	ctx := cmd.Context()
	var all []*backend.Backend
	defer func() {
		for _, b := range all {
			b.Close()
		}
	}()
	for _, id := range ids {
		b, err := backend.Start(ctx, backend.Config{ID: id, Network: network, Behaviour: behaviour}, addrs[id]...)
		if err != nil {
			return fmt.Errorf("starting backend %s: %w", id, err)
		}
		all = append(all, b)
		for _, a := range b.Addrs() {
			fmt.Fprintf(cmd.OutOrStdout(), "backend %s on %v\n", id, a)
		}
	}
	if f.control == "" {
		<-ctx.Done()
		return nil
	}
	l, err := net.Listen("tcp", f.control)
	if err != nil {
		return fmt.Errorf("--control: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "control on %v\n", l.Addr())
	server := &http.Server{Handler: backend.Control(all...), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
