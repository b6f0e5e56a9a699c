// Guideway is an Envoy-compatible L4 load balancer built on Maglev hashing.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(execute(os.Args[1:]))
}

// errReported says that the error has been printed; only the exit code is left.
var errReported = errors.New("reported")

// exitCode is an error that sets the exit code; its message has been printed.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func execute(args []string) int {
	root := newRoot()
	root.SetArgs(beforeDashes(root, args))
	err := root.Execute()
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case !errors.Is(err, errReported):
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	return 1
}

// beforeDashes cuts what follows "--", as Envoy does: control planes put words of their own there.
// Subcommands keep it.
func beforeDashes(root *cobra.Command, args []string) []string {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		if cmd, _, err := root.Find(args); err == nil && cmd != root && cmd.Name() != "run" {
			return args
		}
	}
	for i, a := range args {
		if a == "--" {
			return args[:i]
		}
	}
	return args
}

func newRoot() *cobra.Command {
	var f serveFlags
	root := &cobra.Command{
		Use:   "guideway",
		Short: "An Envoy-compatible L4 load balancer on Maglev hashing",
		Long: `Guideway balances TCP and UDP by an Envoy configuration: it builds the same Maglev tables as Envoy, and
keeps existing flows on their backend when the set of backends changes.

  guideway demo                                  see it work: a balancer, three backends, a drain
  guideway -c envoy.yaml                         serve a configuration (like "guideway run -c envoy.yaml")
  guideway validate -c envoy.yaml                every problem of a configuration, with file and line
  guideway table -c envoy.yaml                   the Maglev tables it leads to, with their digests
  guideway lookup -c envoy.yaml --listener web --src 192.0.2.7:40000
                                                 which backend a client gets, and why
  guideway plan -c new.yaml                      what a new configuration would move in the running instance
  guideway drain 10.0.0.1:80 --wait              take a backend out for new flows, and wait for the old ones

A configuration that changes on disk is applied as a difference; one that is invalid is reported and
changes nothing. Envoy's own flags are accepted; those without a meaning here do nothing.`,
		Args:                       unknownCommand,
		SilenceUsage:               true,
		SilenceErrors:              true,
		DisableAutoGenTag:          true,
		SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.version {
				return printVersion(cmd.OutOrStdout(), "text")
			}
			return run(cmd, &f)
		},
	}
	f.register(root.Flags())
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newRun(), newValidate(), newTable(), newLookup(), newPlan(), newDemo(), newBench(), newServices(), newBackends(), newFlows(), newDrain(), newUndrain(), newCapture(), newDecap(), newDetach(), newVersion())
	return root
}

// unknownCommand explains a first word that is no command.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		return fmt.Errorf("unknown command %q, did you mean %q? (guideway --help lists them)", args[0], s[0])
	}
	return fmt.Errorf("unknown command %q (guideway --help lists them)", args[0])
}

// flagError words errors of the command line as Envoy does, with a way on.
func flagError(cmd *cobra.Command, err error) error {
	argument := err.Error()
	for _, prefix := range []string{"unknown flag: ", "unknown shorthand flag: "} {
		if rest, ok := strings.CutPrefix(argument, prefix); ok {
			argument = rest
			fmt.Fprintf(os.Stderr, "PARSE ERROR: Argument: %s\n             Couldn't find match for argument\n\nBrief USAGE: %s\n\nFor complete help type: %s --help\n",
				argument, cmd.UseLine(), cmd.CommandPath())
			return errReported
		}
	}
	fmt.Fprintf(os.Stderr, "PARSE ERROR: %s\n\nFor complete help type: %s --help\n", argument, cmd.CommandPath())
	return errReported
}
