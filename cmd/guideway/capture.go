package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
)

func newCapture() *cobra.Command {
	var admin adminClient
	var listener, file string
	var seconds, packets, every int
	cmd := &cobra.Command{
		Use:   "capture --listener NAME -w FILE",
		Short: "Write the packets of an XDP listener, before and after forwarding, to a pcap-ng file",
		Long: `Write the packets of a listener that runs in XDP to a pcap-ng file, which Wireshark and tcpdump -r read: what
came in on an interface "before", what went out on "after", 256 bytes of each. tcpdump itself does not see such
packets. Ends after the time, the number of packets, or Ctrl-C.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			q := url.Values{"listener": {listener}, "seconds": {strconv.Itoa(seconds)}, "packets": {strconv.Itoa(packets)}, "every": {strconv.Itoa(every)}}
			body, err := admin.request(ctx, http.MethodPost, "/guideway/capture?"+q.Encode())
			if err != nil {
				return err
			}
			defer body.Close()
			out := cmd.OutOrStdout()
			if file != "-" {
				f, err := os.Create(file)
				if err != nil {
					return err
				}
				defer f.Close()
				out = f
			}
			n, err := io.Copy(out, body)
			if err != nil && context.Cause(ctx) == nil {
				return fmt.Errorf("after %d bytes: %w", n, err)
			}
			if file != "-" {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d bytes written to %s\n", n, file)
			}
			return nil
		},
	}
	admin.register(cmd)
	f := cmd.Flags()
	f.StringVar(&listener, "listener", "", "`name` of the listener")
	f.StringVarP(&file, "write", "w", "-", "`file`; - is standard output")
	f.IntVar(&seconds, "seconds", 10, "how long, in `seconds`")
	f.IntVar(&packets, "packets", 0, "end after so `many` packets, before and after counted each; 0 for no bound")
	f.IntVar(&every, "every", 1, "take one packet in so `many`")
	cmd.MarkFlagRequired("listener")
	return cmd
}
