package controlplane

import (
	"os"
	"path/filepath"
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
	seen := make(chan string, 16)
	if err := Watch(t.Context(), path, func() {
		b, _ := os.ReadFile(path)
		seen <- string(b)
	}); err != nil {
		t.Fatal(err)
	}
	want := func(text string) {
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
