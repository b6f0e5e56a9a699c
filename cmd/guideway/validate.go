package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/controlplane/envoy"
	"github.com/guideway/guideway/controlplane/model"
)

func newValidate() *cobra.Command {
	var f configFlags
	var output string
	cmd := &cobra.Command{
		Use:   "validate -c FILE",
		Short: "Check a configuration: every problem with file, line, field and what to do",
		Long: `Check a configuration without binding a port or resolving a name. Prints every problem and every field that
is accepted but not acted on. Exit code 0 if it would be served, 1 if not.`,
		Example: `  guideway validate -c envoy.yaml
  guideway validate -c envoy.yaml -o json | jq -r '.errors[].reason'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return validate(cmd.OutOrStdout(), cmd.ErrOrStderr(), o, output)
		},
	}
	f.register(cmd.Flags())
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// verdict is validate's JSON.
type verdict struct {
	Valid    bool      `json:"valid"`
	Errors   []problem `json:"errors"`
	Warnings []problem `json:"warnings"`
}

type problem struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Path   string `json:"path,omitempty"`
	Reason string `json:"reason"`
	Envoy  string `json:"envoy,omitempty"`
}

func problems(list []model.Problem) []problem {
	out := make([]problem, 0, len(list))
	for _, p := range list {
		out = append(out, problem{p.File, p.Line, p.Path, p.Reason, p.Envoy})
	}
	return out
}

func validate(stdout, stderr io.Writer, o envoy.Options, output string) error {
	config, err := envoy.Load(o)
	var invalid *envoy.Invalid
	if err != nil && !errors.As(err, &invalid) {
		return err
	}
	v := verdict{Valid: err == nil, Errors: []problem{}, Warnings: []problem{}} // lists for a script also when empty
	if config != nil {
		v.Warnings = problems(config.Warnings)
	}
	if invalid != nil {
		v.Errors = problems(invalid.Problems)
	}
	if output == "json" {
		if err := printJSON(stdout, v); err != nil {
			return err
		}
	} else {
		if config != nil {
			for _, w := range config.Warnings {
				fmt.Fprintln(stderr, "warning:", w)
			}
		}
		if invalid != nil {
			for _, p := range invalid.Problems {
				fmt.Fprintln(stderr, "error:", p)
			}
		}
		if v.Valid {
			fmt.Fprintf(stdout, "configuration '%s' OK\n", o.Path)
		}
	}
	if !v.Valid {
		return exitCode(1)
	}
	return nil
}

// loadConfig loads a configuration for a command that needs a valid one.
func loadConfig(f *configFlags) (*model.Config, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	config, err := envoy.Load(o)
	var invalid *envoy.Invalid
	if errors.As(err, &invalid) {
		for _, p := range invalid.Problems {
			fmt.Fprintln(os.Stderr, "error:", p)
		}
		return nil, errReported
	}
	return config, err
}
