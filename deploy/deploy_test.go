// Package deploy checks what is shipped beside the program: example configurations, the systemd unit, the
// Dockerfile.
package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/guideway/guideway/controlplane/envoy"
)

func TestExamplesAreValid(t *testing.T) {
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	for _, file := range files {
		config, err := envoy.Load(envoy.Options{Path: file})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, w := range config.Warnings {
			t.Errorf("%s: an example should not cause warnings: %v", file, w)
		}
	}
}

// TestExamplesAreEnvoys asks a real Envoy.
func TestExamplesAreEnvoys(t *testing.T) {
	program := findEnvoy(t)
	files, _ := filepath.Glob("examples/*.yaml")
	for _, file := range files {
		out, err := exec.Command(program, "--mode", "validate", "-l", "error", "-c", file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: Envoy refuses it: %v\n%s", file, err, out)
		}
	}
}

func findEnvoy(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("GUIDEWAY_ENVOY"), "envoy", "../.venv/bin/envoy"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Envoy: make test installs one, or set GUIDEWAY_ENVOY")
	return ""
}

func TestSystemdUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze: install systemd")
	}
	unit, err := os.ReadFile("systemd/guideway.service")
	if err != nil {
		t.Fatal(err)
	}
	// The program stands elsewhere here; everything else is checked as it is.
	dir := t.TempDir()
	program := filepath.Join(dir, "guideway")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "guideway.service")
	if err := os.WriteFile(file, bytes.ReplaceAll(unit, []byte("/usr/local/bin/guideway"), []byte(program)), 0o644); err != nil {
		t.Fatal(err)
	}
	verify := func(what string) {
		t.Helper()
		cmd := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", file)
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":") // with what else is in the directory
		out, err := cmd.CombinedOutput()
		if err != nil || bytes.Contains(out, []byte("guideway.service")) || bytes.Contains(out, []byte("xdp.conf")) {
			t.Errorf("systemd-analyze verify of %s: %v\n%s", what, err, out)
		}
	}
	verify("the unit")
	install(t, "systemd/guideway.service.d/xdp.conf.example", filepath.Join(dir, "guideway.service.d", "xdp.conf"), 0o644)
	verify("the unit with the drop-in for XDP")
}

// TestDockerfile does what the Dockerfile says, as far as that goes without Docker: it builds the program
// with the same words, lays out the last stage's files, and runs its command in there.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(gomod)[1]
	if !bytes.Contains(text, fmt.Appendf(nil, "FROM golang:%s-", goVersion)) {
		t.Errorf("the Dockerfile does not build with Go %s, which go.mod asks for", goVersion)
	}

	image := t.TempDir()
	built := filepath.Join(t.TempDir(), "guideway")
	var entrypoint, command []string
	for _, line := range strings.Split(string(text), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "RUN" && strings.Contains(rest, "go build"):
			sh := strings.ReplaceAll(strings.ReplaceAll(rest, "-o /guideway", "-o "+built), "${VERSION}", "0.0.0-test")
			cmd := exec.Command("sh", "-c", sh)
			cmd.Dir = ".."
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", sh, err, out)
			}
		case word == "COPY" && strings.HasPrefix(rest, "--from=build /guideway "):
			install(t, built, image+strings.Fields(rest)[2], 0o755)
		case word == "COPY" && strings.Contains(rest, "deploy/"):
			install(t, filepath.Join("..", strings.Fields(rest)[0]), image+strings.Fields(rest)[1], 0o644)
		case word == "ENTRYPOINT":
			entrypoint = words(rest)
		case word == "CMD":
			command = words(rest)
		}
	}
	out, err := exec.Command("file", built).CombinedOutput()
	if err == nil && !bytes.Contains(out, []byte("statically linked")) {
		t.Errorf("an image from scratch needs a static program: %s", out)
	}
	if os.Getuid() != 0 {
		t.Skip("running the image's command in a root of its own needs root")
	}
	tmp := filepath.Join(image, "tmp")
	if err := os.Mkdir(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(image, 0o755); err != nil {
		t.Fatal(err)
	}
	// In a network namespace of its own the example's ports are free; a real container has lo up, too.
	args := []string{"-n", "sh", "-c", `ip link set lo up && exec chroot --userspec=65532:65532 "$@"`, "sh", image}
	args = append(append(append(args, entrypoint...), command...), "--admin-address-path", "/tmp/admin")
	cmd := exec.Command("unshare", args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	// It has come up when it has written its admin address.
	deadline := time.After(20 * time.Second)
	for {
		if b, err := os.ReadFile(filepath.Join(tmp, "admin")); err == nil && len(b) > 0 {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("the image's command ended: %v\n%s", err, &log)
		case <-deadline:
			cmd.Process.Kill()
			t.Fatalf("the image's command does not come up:\n%s", &log)
		case <-time.After(20 * time.Millisecond):
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := <-done; err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, &log)
	}
}

func install(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, mode); err != nil {
		t.Fatal(err)
	}
}

func words(list string) []string {
	var out []string
	for _, w := range strings.Split(strings.Trim(list, "[]"), ",") {
		out = append(out, strings.Trim(w, ` "`))
	}
	return out
}
