package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/dataplane"
)

func newFlows() *cobra.Command {
	var admin adminClient
	var output, listener string
	var limit int
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "The flows that a running instance remembers in XDP",
		Long: `List the flows that XDP remembers: those whose backend differs, or may differ, from what the tables say now. In
steady state there are none. All flows are there with track: all, or nat.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			if listener != "" {
				q.Set("listener", listener)
			}
			body, err := admin.request(cmd.Context(), http.MethodGet, "/guideway/flows?"+q.Encode())
			if err != nil {
				return err
			}
			defer body.Close()
			if output == "json" {
				_, err := io.Copy(cmd.OutOrStdout(), body)
				return err
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(t, "LISTENER\tPROTOCOL\tCLIENT\tVIP\tBACKEND\tIDLE\tSTATE")
			in := json.NewDecoder(body)
			for {
				var f dataplane.FlowStatus
				if err := in.Decode(&f); errors.Is(err, io.EOF) {
					return t.Flush()
				} else if err != nil {
					return fmt.Errorf("read the flows: %w", err)
				}
				state := "alive"
				switch {
				case f.Void:
					state = "void"
				case f.HalfOpen:
					state = "half-open"
				case f.NAT:
					state = "nat"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Listener, f.Protocol, f.Client, f.VIP, f.Backend, f.Idle.Round(time.Millisecond), state)
			}
		},
	}
	admin.register(cmd)
	cmd.Flags().StringVar(&listener, "listener", "", "only those of a `listener`")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so `many`; 0 for all")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}
