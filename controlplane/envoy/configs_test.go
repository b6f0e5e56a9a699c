package envoy

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValidConfigs(t *testing.T) {
	files, err := filepath.Glob("testdata/configs/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d configurations (%v)", len(files), err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			cfg, err := Load(Options{Path: f})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range cfg.Warnings {
				t.Log(w)
			}
		})
	}
}

func TestPicksBootstraps(t *testing.T) {
	files, err := filepath.Glob("../../cmd/guideway/testdata/picks/*.json")
	if err != nil || len(files) < 6 {
		t.Fatalf("found %d scenarios (%v)", len(files), err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var scenario struct {
				Bootstrap json.RawMessage
				Files     map[string]json.RawMessage
			}
			if err := json.Unmarshal(text, &scenario); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for name, content := range scenario.Files {
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, "bootstrap.json")
			boot := strings.ReplaceAll(string(scenario.Bootstrap), "{dir}", dir)
			if err := os.WriteFile(path, []byte(boot), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := Load(Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			if len(cfg.Warnings) != 0 {
				t.Errorf("warnings: %v", cfg.Warnings)
			}
		})
	}
}

func TestInvalidConfigs(t *testing.T) {
	text, err := os.ReadFile("testdata/configs/invalid/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var expected map[string]struct {
		Stage, Where, Ours string
		Envoy              string `json:"envoy_contains"`
	}
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	for name, want := range expected {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata/configs/invalid", name)
			_, err := Load(Options{Path: path})
			var invalid *Invalid
			if !errors.As(err, &invalid) {
				t.Fatalf("error %v", err)
			}
			if len(invalid.Problems) != 1 {
				t.Errorf("%d problems:\n%v", len(invalid.Problems), err)
			}
			p := invalid.Problems[0]
			if p.Path != want.Where {
				t.Errorf("path %q, want %q", p.Path, want.Where)
			}
			if p.Line == 0 || p.File != path {
				t.Errorf("no place: %+v", p)
			}
			if !strings.Contains(p.Error(), want.Ours) {
				t.Errorf("message %q, want %q", p.Error(), want.Ours)
			}
			if !strings.Contains(p.Envoy, want.Envoy) {
				t.Errorf("Envoy's message %q, want %q", p.Envoy, want.Envoy)
			}
			t.Log(p)
		})
	}
}
