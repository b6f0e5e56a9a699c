package controlplane

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "envoy.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from string) {
		t.Helper()
		if err := os.Rename(filepath.Join(dir, from), path); err != nil {
			t.Fatal(err)
		}
	}
	write("envoy.yaml", "one")
	seen := changes(t, path)
	want := func(text string) { t.Helper(); wantChange(t, seen, text) }
	write("envoy.yaml", "two")
	want("two")
	write("new", "three")
	rename("new")
	want("three")
	// The same content, another file in the directory, the file gone: no changes. The next one is.
	write("same", "three")
	rename("same")
	write("other", "x")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * quietTime) // nothing is to happen: there is no condition to wait for
	write("envoy.yaml", "four")
	want("four")
	// A link that moves to another target.
	write("v1", "five")
	write("v2", "six")
	link := func(target string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, "tmp")); err != nil {
			t.Fatal(err)
		}
		rename("tmp")
	}
	link("v1")
	want("five")
	link("v2")
	want("six")
	if len(seen) > 0 {
		t.Fatalf("heard of %q too", <-seen)
	}
}

func TestWatchNeedsADirectory(t *testing.T) {
	if err := Watch(t.Context(), filepath.Join(t.TempDir(), "none", "envoy.yaml"), func() {}); err == nil {
		t.Fatal("a file in no directory is watched")
	}
}

// changes watches a file, and gives what it held at each change.
func changes(t *testing.T, path string) <-chan string {
	t.Helper()
	seen := make(chan string, 16)
	if err := Watch(t.Context(), path, func() {
		b, _ := os.ReadFile(path)
		seen <- string(b)
	}); err != nil {
		t.Fatal(err)
	}
	return seen
}

func wantChange(t *testing.T, seen <-chan string, text string) {
	t.Helper()
	select {
	case got := <-seen:
		if got != text {
			t.Fatalf("heard of %q, want %q", got, text)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("did not hear of %q", text)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// An access log beside the configuration is the careless operator's way.
func TestWatchInABusyDirectory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "envoy.yaml")
	writeFile(t, path, "one")
	seen := changes(t, path)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(quietTime / 10); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				os.WriteFile(filepath.Join(dir, "access.log"), []byte("x"), 0o644)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	writeFile(t, path, "two")
	wantChange(t, seen, "two")
}

func TestWatchThroughLinks(t *testing.T) {
	t.Run("to a file elsewhere", func(t *testing.T) {
		real := filepath.Join(t.TempDir(), "real.yaml")
		path := filepath.Join(t.TempDir(), "envoy.yaml")
		writeFile(t, real, "one")
		if err := os.Symlink(real, path); err != nil {
			t.Fatal(err)
		}
		seen := changes(t, path)
		writeFile(t, real, "two")
		wantChange(t, seen, "two")
	})
	t.Run("of the directory", func(t *testing.T) {
		dir := t.TempDir()
		for _, v := range []string{"v1", "v2"} {
			if err := os.Mkdir(filepath.Join(dir, v), 0o755); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dir, v, "envoy.yaml"), v)
		}
		current := filepath.Join(dir, "current")
		if err := os.Symlink("v1", current); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(current, "envoy.yaml")
		seen := changes(t, path)
		if err := os.Symlink("v2", filepath.Join(dir, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "next"), current); err != nil {
			t.Fatal(err)
		}
		wantChange(t, seen, "v2")
	})
}

func TestWatchRefusesAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Watch(t.Context(), path, func() {}); err == nil {
		t.Fatal("a pipe is watched: to read it again would block")
	}
}
