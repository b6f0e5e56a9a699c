package logging

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func newLog(t *testing.T, o Options) (*Log, *bytes.Buffer) {
	t.Helper()
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	l.out = &out
	return l, &out
}

func TestDefaultFormat(t *testing.T) {
	l, out := newLog(t, Options{Level: slog.LevelInfo})
	l.For("main").Log(context.Background(), LevelCritical, "error `x`", "path", "a b", "n", 3)
	want := `^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\]\[\d+\]\[critical\]\[main\] \[logging/logger_test\.go:\d+\] error ` + "`x`" + ` path="a b" n=3\n$`
	if !regexp.MustCompile(want).MatchString(out.String()) {
		t.Fatalf("got %q\nwant %s", out, want)
	}
}

func TestPatterns(t *testing.T) {
	ln := line{time: time.Date(2026, 1, 2, 15, 4, 5, 67_008_009, time.UTC), level: "info", component: "dns", file: "a/b.go", number: 7, message: "two\n\"lines\""}
	for format, want := range map[string]string{
		"%v":                   "two\n\"lines\"",
		"%_":                   `two\n"lines"`,
		"%j":                   `two\n\"lines\"`,
		"[%T.%e][%f][%F]":      "[15:04:05.067][067008][067008009]",
		"%Y-%m-%d %H:%M:%S %E": "2026-01-02 15:04:05 1767366245",
		"%l|%8l|%-8l|%L":       "info|    info|info    |I",
		"%n %g %s %#":          "dns a/b.go b.go 7",
		"100%":                 "100%",
		"%%v %q %":             "%v %q %",
		"%12":                  "%12",
		"":                     "",
	} {
		var b []byte
		for _, f := range compile(format) {
			b = f(b, &ln)
		}
		if string(b) != want {
			t.Errorf("%q prints %q, want %q", format, b, want)
		}
	}
}

func TestLevels(t *testing.T) {
	l, out := newLog(t, Options{Level: slog.LevelWarn, Overrides: map[string]slog.Level{"dns": LevelTrace, "http": slog.LevelDebug}, Format: "%n:%v"})
	l.For("main").Info("no")
	l.For("dns").Debug("yes")
	l.SetComponentLevel("dns", LevelOff)
	l.For("dns").Log(context.Background(), LevelCritical, "no")
	l.SetLevel(slog.LevelInfo)
	l.For("main").With("a", 1).WithGroup("g").Info("yes", "b", 2)
	if got, want := out.String(), "dns:yes\nmain:yes a=1 g.b=2\n"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	if l.SetComponentLevel("nope", 0) {
		t.Fatal("an unknown component was accepted")
	}
	for _, kv := range l.Levels() {
		if kv[1] != "info" {
			t.Fatalf("%s is at %s", kv[0], kv[1])
		}
	}
}

func TestParse(t *testing.T) {
	if _, err := ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), "invalid log level specified 'loud'") {
		t.Fatal(err)
	}
	if l, err := ParseLevel("warn"); err != nil || l != slog.LevelWarn {
		t.Fatal(l, err)
	}
	for _, bad := range []string{"x", "x:loud", ":info", "a:info,,"} {
		if _, err := ParseOverrides(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	m, err := ParseOverrides("upstream:debug,conn:off")
	if err != nil || m["upstream"] != slog.LevelDebug || m["conn"] != LevelOff {
		t.Fatal(m, err)
	}
}

func TestReopen(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	l, err := New(Options{Path: name, Format: "%v"})
	if err != nil {
		t.Fatal(err)
	}
	l.For("main").Info("one")
	if err := os.Rename(name, name+".1"); err != nil {
		t.Fatal(err)
	}
	l.For("main").Info("two")
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.For("main").Info("three")
	old, _ := os.ReadFile(name + ".1")
	now, _ := os.ReadFile(name)
	if string(old) != "one\ntwo\n" || string(now) != "three\n" {
		t.Fatalf("rotated %q, new %q", old, now)
	}
	if _, err := New(Options{Path: filepath.Join(name, "x")}); err == nil {
		t.Fatal("a path below a file was opened")
	}
}
