package report

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// plain are words that a shell takes as they are.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// CommandLine returns a command line that can be pasted into a shell.
func CommandLine(program string, args []string) string {
	words := []string{program}
	for _, a := range args {
		if !plain.MatchString(a) {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// Machine says what times were measured on: processor and kernel. What cannot be
// found out is left out.
func Machine() []Fact {
	var facts []Fact
	if model := processor(); model != "" {
		facts = append(facts, Fact{"processor", fmt.Sprintf("%s, %d in use", model, runtime.GOMAXPROCS(0))})
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		facts = append(facts, Fact{"kernel", unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])})
	}
	return facts
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// unfit is what a file name should not have.
var unfit = regexp.MustCompile(`[^a-z0-9]+`)

// WritePlots writes each plot of the report to a file of its own in a directory,
// which is made if it is not there. Files are named for what they show.
func (r *Report) WritePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("writing plots: %w", err)
	}
	for _, s := range r.Sections {
		for _, c := range s.Charts {
			svg, err := SVG(c)
			if err != nil {
				return err
			}
			name := strings.Trim(unfit.ReplaceAllString(strings.ToLower(c.name()), "-"), "-") + ".svg"
			if err := os.WriteFile(filepath.Join(dir, name), svg, 0o666); err != nil {
				return fmt.Errorf("writing plots: %w", err)
			}
		}
	}
	return nil
}
