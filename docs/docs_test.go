// Package docs holds the documentation to what the program does: links lead somewhere, commands and their
// flags exist, configurations are valid, and what the pages say is printed is printed.
package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "guideway-docs-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "guideway")
	code := 1
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/guideway").CombinedOutput(); err != nil {
		os.Stderr.Write(out)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestLinks(t *testing.T) {
	all := map[string]*page{}
	for _, p := range pages(t) {
		all[filepath.Clean(p.path)] = p
	}
	for _, p := range all {
		for _, l := range p.links {
			if strings.Contains(l.text, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(l.text, "#")
			to := filepath.Clean(p.path)
			if file != "" {
				to = filepath.Join(filepath.Dir(p.path), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s leads nowhere", p.at(l.line), l.text)
			} else if q := all[to]; anchor != "" && (q == nil || !q.anchors[anchor]) {
				t.Errorf("%s: %s: there is no such heading", p.at(l.line), l.text)
			}
		}
	}
}

// TestEveryPageIsLinked has readers find all pages from the README.
func TestEveryPageIsLinked(t *testing.T) {
	linked := map[string]bool{}
	all := pages(t)
	for _, p := range all {
		for _, l := range p.links {
			file, _, _ := strings.Cut(l.text, "#")
			linked[strings.TrimPrefix(filepath.Join(filepath.Dir(p.path), file), "../docs/")] = true
		}
	}
	for _, p := range all {
		if p.path != "../README.md" && !linked[p.path] {
			t.Errorf("no page links to %s", p.path)
		}
	}
}

var topLevel = regexp.MustCompile(`^(\.ci|bench|bpf|cmd|conntrack|controlplane|dataplane|deploy|docs|maglev)/[\w./-]+$`)
var testName = regexp.MustCompile(`^(Test|Fuzz)[A-Z]\w*$`)
var makeTarget = regexp.MustCompile(`^make ([a-z]+)`)

// TestNamedThingsExist looks for files, tests and make targets that the pages name.
func TestNamedThingsExist(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := exec.Command("grep", "-rhoE", "--include=*_test.go", `^func (Test|Fuzz)\w+`, "..").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t) {
		named := p.spans
		for _, b := range p.blocks {
			for i, line := range strings.Split(b.text, "\n") {
				named = append(named, located{line, b.line + i})
			}
		}
		for _, n := range named {
			switch {
			case topLevel.MatchString(n.text):
				if _, err := os.Stat(filepath.Join("..", n.text)); err != nil {
					t.Errorf("%s: there is no %s", p.at(n.line), n.text)
				}
			case testName.MatchString(n.text):
				if !strings.Contains(string(tests), "func "+n.text+"\n") {
					t.Errorf("%s: there is no test %s", p.at(n.line), n.text)
				}
			case makeTarget.MatchString(n.text):
				target := makeTarget.FindStringSubmatch(n.text)[1]
				if !strings.Contains(string(makefile), "\n"+target+":") {
					t.Errorf("%s: make has no target %s", p.at(n.line), target)
				}
			}
		}
	}
}

// TestConfigurations validates each yaml block that is a whole bootstrap. "yaml refused" marks those that
// are shown for their mistakes.
func TestConfigurations(t *testing.T) {
	whole := 0
	for _, p := range pages(t) {
		dir := t.TempDir()
		for _, b := range p.blocks {
			kind, mark, _ := strings.Cut(b.info, " ")
			if kind != "yaml" {
				continue
			}
			b.save(t, dir)
			var top map[string]any
			if err := yaml.Unmarshal([]byte(b.text), &top); err != nil {
				t.Errorf("%s: %v", p.at(b.line), err)
				continue
			}
			if top["static_resources"] == nil && top["dynamic_resources"] == nil {
				continue
			}
			whole++
			file := filepath.Join(dir, "envoy.yaml")
			if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(program, "validate", "-c", file)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if (err != nil) != (mark == "refused") {
				t.Errorf("%s: %v\n%s", p.at(b.line), err, out)
			}
		}
	}
	if whole == 0 {
		t.Error("no page has a whole configuration")
	}
}

// dry are the commands that open nothing and end by themselves.
var dry = regexp.MustCompile(`^guideway (validate|table|lookup|plan .*--from) `)

// TestConsole runs the dry commands of console blocks in a directory with the configurations that stand
// above them (yaml blocks that begin with "# name.yaml"), and compares what they print. A line "..." stands for
// any lines.
func TestConsole(t *testing.T) {
	ran := 0
	for _, p := range pages(t) {
		dir := t.TempDir()
		for _, b := range p.blocks {
			b.save(t, dir)
			if b.info != "console" {
				continue
			}
			for _, part := range strings.Split("\n"+b.text, "\n$ ")[1:] {
				command, want, _ := strings.Cut(part, "\n")
				if !dry.MatchString(command) {
					continue
				}
				ran++
				cmd := exec.Command("sh", "-c", command)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
				got, err := cmd.CombinedOutput()
				if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				if !matches(strings.TrimSpace(string(got)), strings.TrimSpace(want)) {
					t.Errorf("%s: $ %s\nprints\n%s\nnot\n%s", p.at(b.line), command, got, want)
				}
			}
		}
	}
	if ran == 0 {
		t.Error("nothing was run")
	}
}

// save writes a yaml block that begins with "# name.yaml" under that name.
func (b *block) save(t *testing.T, dir string) {
	t.Helper()
	first, _, _ := strings.Cut(b.text, "\n")
	name, ok := strings.CutPrefix(first, "# ")
	if !strings.HasPrefix(b.info, "yaml") || !ok || !strings.HasSuffix(name, ".yaml") || name != filepath.Base(name) {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(b.text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// matches compares lines; one of "..." in want stands for any number of lines.
func matches(got, want string) bool {
	var pattern strings.Builder
	for _, line := range strings.Split(want, "\n") {
		if strings.TrimSpace(line) == "..." {
			pattern.WriteString(`(?:.*\n)*`)
		} else {
			pattern.WriteString(regexp.QuoteMeta(strings.TrimRight(line, " ")) + ` *\n`)
		}
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(got + "\n")
}

// help is what --help says of a command.
type help struct{ commands, flags []string }

// helps asks each command once.
type helps map[string]*help

var (
	commandLine = regexp.MustCompile(`^  ([a-z]+)  `)
	flagLine    = regexp.MustCompile(`^ +(?:-(\w), )?(?:    )?--([a-z0-9-]+)`)
)

func (all helps) of(t *testing.T, path string) *help {
	t.Helper()
	if h := all[path]; h != nil {
		return h
	}
	out, err := exec.Command(program, append(strings.Fields(path), "--help")...).Output()
	if err != nil {
		t.Fatalf("guideway %s --help: %v", path, err)
	}
	h := &help{}
	section := ""
	for _, line := range strings.Split(string(out), "\n") {
		if line != "" && line[0] != ' ' {
			section = line
		}
		if m := commandLine.FindStringSubmatch(line); m != nil && section == "Available Commands:" {
			h.commands = append(h.commands, m[1])
		}
		if m := flagLine.FindStringSubmatch(line); m != nil && strings.HasSuffix(section, "Flags:") {
			h.flags = append(h.flags, "--"+m[2])
			if m[1] != "" {
				h.flags = append(h.flags, "-"+m[1])
			}
		}
	}
	if len(h.flags) == 0 {
		t.Fatalf("guideway %s --help lists no flags:\n%s", path, out)
	}
	all[path] = h
	return h
}

// everything calls do for each command there is.
func (all helps) everything(t *testing.T, path string, do func(path string, h *help)) {
	h := all.of(t, path)
	do(path, h)
	for _, c := range h.commands {
		if c != "help" {
			all.everything(t, strings.TrimSpace(path+" "+c), do)
		}
	}
}

var flagPattern = regexp.MustCompile(`^--?[a-zA-Z][\w-]*`)

// TestCommands holds that commands exist, with the flags that the pages give them.
func TestCommands(t *testing.T) {
	all := helps{}
	var union []string
	all.everything(t, "", func(_ string, h *help) { union = append(union, h.flags...) })
	seen := 0
	for _, p := range pages(t) {
		lines := p.spans
		for _, b := range p.blocks {
			for i, line := range strings.Split(b.text, "\n") {
				lines = append(lines, located{strings.TrimPrefix(line, "$ "), b.line + i})
			}
		}
		for _, l := range lines {
			if strings.HasPrefix(l.text, "--") && flagPattern.MatchString(l.text) {
				if f := flagPattern.FindString(l.text); !slices.Contains(union, f) {
					t.Errorf("%s: no command has the flag %s", p.at(l.line), f)
				}
				continue
			}
			rest, ok := strings.CutPrefix(strings.TrimPrefix(l.text, "bin/"), "guideway ")
			if !ok || strings.HasPrefix(rest, " ") { // two blanks: it is output
				continue
			}
			seen++
			checkCommand(t, all, p.at(l.line), rest)
		}
	}
	if seen == 0 {
		t.Error("no page has a command")
	}
}

func checkCommand(t *testing.T, all helps, at, line string) {
	t.Helper()
	path := ""
	h := all.of(t, "")
	words := strings.Fields(line)
	for len(words) > 0 && len(h.commands) > 0 && !strings.HasPrefix(words[0], "-") {
		if !slices.Contains(h.commands, words[0]) {
			t.Errorf("%s: there is no command guideway %s%s", at, path, words[0])
			return
		}
		path = strings.TrimSpace(path + " " + words[0])
		words = words[1:]
		h = all.of(t, path)
	}
	for _, w := range words {
		if strings.ContainsAny(w[:1], "|>&;#") {
			return
		}
		if f := flagPattern.FindString(w); f != "" && !slices.Contains(h.flags, f) {
			t.Errorf("%s: guideway %s has no flag %s", at, path, f)
		}
	}
}

// TestEveryFlagIsDescribed holds that the page of commands names every command and every flag, but those of
// measurements.
func TestEveryFlagIsDescribed(t *testing.T) {
	text, err := os.ReadFile("command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	helps{}.everything(t, "", func(path string, h *help) {
		if strings.HasPrefix(path, "completion ") || strings.HasPrefix(path, "bench ") {
			return // one shell is enough; measurements have pages of their own
		}
		if !strings.Contains(string(text), "guideway "+path) {
			t.Errorf("command-line.md does not name guideway %s", path)
		}
		for _, f := range h.flags {
			if strings.HasPrefix(f, "--") && !regexp.MustCompile(regexp.QuoteMeta(f)+`\b[^-]`).Match(text) {
				t.Errorf("command-line.md does not name %s of guideway %s", f, path)
			}
		}
	})
}
