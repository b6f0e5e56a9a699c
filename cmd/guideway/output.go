package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// outputFlag adds -o with its choices, the first of which is the default.
func outputFlag(cmd *cobra.Command, value *string, choices ...string) {
	cmd.Flags().StringVarP(value, "output", "o", choices[0], "`format`: "+strings.Join(choices, " or "))
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
	check := func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(choices, *value) {
			return fmt.Errorf("unknown output format %q: use %s", *value, strings.Join(choices, " or "))
		}
		return nil
	}
	cmd.PreRunE = check
}
