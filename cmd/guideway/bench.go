package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/bench/report"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what changes of backends disturb, what tables cost, and how fast proxies are",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchDisruption(), newBenchTable(), newBenchChurn(), newBenchPacket(), newBenchPeers(), newBenchLive(), newBenchBackend())
	return cmd
}

// reportFlags say where a benchmark's report goes.
type reportFlags struct {
	output, html, plots string
}

func (f *reportFlags) register(cmd *cobra.Command) {
	outputFlag(cmd, &f.output, report.Formats...)
	cmd.Flags().StringVar(&f.html, "html", "", "also write the report, with plots, to this `file`")
	cmd.Flags().StringVar(&f.plots, "plots", "", "also write the plots to this `directory`, as SVG")
}

// write completes a report with how it was made, and puts it where the flags say.
// measured says that it holds times, which depend on the machine.
func (f *reportFlags) write(w io.Writer, r *report.Report, measured bool) error {
	b := buildOf()
	r.Command = report.CommandLine("guideway", os.Args[1:])
	facts := []report.Fact{{Name: "guideway", Value: fmt.Sprintf("%s (revision %s), %s, %s", b.Version, b.Revision, b.Go, b.Platform)}}
	if measured {
		facts = append(facts, report.Machine()...)
	}
	r.Facts = append(facts, r.Facts...)
	if f.html != "" {
		var page bytes.Buffer
		if err := r.WriteHTML(&page); err != nil {
			return err
		}
		if err := os.WriteFile(f.html, page.Bytes(), 0o666); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	if f.plots != "" {
		if err := r.WritePlots(filepath.Clean(f.plots)); err != nil {
			return err
		}
	}
	return r.Write(w, f.output)
}

// interrupted runs a command whose context ends with SIGINT or SIGTERM as well.
func interrupted(cmd *cobra.Command, run func(cmd *cobra.Command) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cmd.SetContext(ctx)
	return run(cmd)
}

// monotonic returns a clock that counts from now.
func monotonic() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
