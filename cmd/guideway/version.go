package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set at link time for releases: -ldflags "-X main.version=1.2.3".
var version = "0.1.0"

// build tells what this binary was made from.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Clean    bool   `json:"clean"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildOf() build {
	b := build{Version: version, Revision: "unknown", Clean: true, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				b.Clean = s.Value != "true"
			}
		}
	}
	return b
}

// envoyForm is the version as Envoy's tools parse it: sha/x.y.z/status/type/ssl.
func (b build) envoyForm() string {
	status := "Clean"
	if !b.Clean {
		status = "Modified"
	}
	return fmt.Sprintf("%s/%s/%s/RELEASE/none", b.Revision, b.Version, status)
}

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return printVersion(cmd.OutOrStdout(), output) },
	}
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

func printVersion(w io.Writer, output string) error {
	b := buildOf()
	if output == "json" {
		return printJSON(w, b)
	}
	_, err := fmt.Fprintf(w, "guideway  version: %s (%s, %s)\n", b.envoyForm(), b.Go, b.Platform)
	return err
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
