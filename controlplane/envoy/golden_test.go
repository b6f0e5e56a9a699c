package envoy

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/guideway/guideway/controlplane/model"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/proto"
)

var update = flag.Bool("update", false, "write golden files instead of comparing")

// TestGolden holds the whole way from a configuration to the model. Each archive in testdata/golden has a
// configuration ("config.yaml"), and what becomes of it: "model", with "warnings" if there are any, or
// "problems". Run with -update to write what is found.
func TestGolden(t *testing.T) {
	files, _ := filepath.Glob("testdata/golden/*.txtar")
	if len(files) < 5 {
		t.Fatalf("found %d archives", len(files))
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			config := archive.Files[0]
			path := filepath.Join(t.TempDir(), config.Name)
			if err := os.WriteFile(path, config.Data, 0o600); err != nil {
				t.Fatal(err)
			}
			found := []txtar.File{config}
			add := func(name, text string) {
				if text != "" {
					text = strings.ReplaceAll(text, path, config.Name)
					found = append(found, txtar.File{Name: name, Data: []byte(text)})
				}
			}
			cfg, err := Load(Options{Path: path})
			var invalid *Invalid
			switch {
			case errors.As(err, &invalid):
				add("problems", list(invalid.Problems))
			case err != nil:
				t.Fatal(err)
			default:
				add("warnings", list(cfg.Warnings))
				cfg.Warnings = nil
				add("model", dump(cfg))
			}
			got := txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: found})
			if *update {
				if err := os.WriteFile(name, got, 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want := txtar.Format(archive); !bytes.Equal(got, want) {
				t.Errorf("%s differs; see what git diff says after go test -run TestGolden -update:\n%s", name, firstDifference(string(got), string(want)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

func list(ps []model.Problem) string {
	var b strings.Builder
	for _, p := range ps {
		fmt.Fprintln(&b, p.Error())
		if p.Envoy != "" {
			fmt.Fprintf(&b, "\tEnvoy: %s\n", p.Envoy)
		}
	}
	return b.String()
}

// dump writes a model as an indented outline. Sources, hashes, functions and zero values are left out.
func dump(v any) string {
	var b strings.Builder
	outline(&b, reflect.ValueOf(v), 0)
	return b.String()
}

func outline(b *strings.Builder, v reflect.Value, depth int) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	indent := strings.Repeat("  ", depth)
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f, name := v.Field(i), v.Type().Field(i).Name
			if name == "Source" || strings.HasSuffix(name, "Hash") && f.Kind() == reflect.Uint64 || f.IsZero() || !v.Type().Field(i).IsExported() {
				continue
			}
			dumpEntry(b, indent, name, f, depth)
		}
	case reflect.Slice:
		for i := range v.Len() {
			dumpEntry(b, indent, fmt.Sprint(i), v.Index(i), depth)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			dumpEntry(b, indent, k.String(), v.MapIndex(k), depth)
		}
	}
}

func dumpEntry(b *strings.Builder, indent, name string, v reflect.Value, depth int) {
	inner := v
	for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Interface {
		if inner.IsNil() {
			fmt.Fprintf(b, "%s%s: nil\n", indent, name)
			return
		}
		if m, ok := inner.Interface().(proto.Message); ok {
			fmt.Fprintf(b, "%s%s: (%s)\n", indent, name, m.ProtoReflect().Descriptor().Name())
			return
		}
		inner = inner.Elem()
	}
	if s, ok := inner.Interface().(fmt.Stringer); ok {
		fmt.Fprintf(b, "%s%s: %s\n", indent, name, s)
		return
	}
	switch inner.Kind() {
	case reflect.Func:
		fmt.Fprintf(b, "%s%s: (func)\n", indent, name)
	case reflect.Struct, reflect.Map:
		kind := ""
		if v.Kind() == reflect.Interface {
			kind = " " + inner.Type().Name()
		}
		fmt.Fprintf(b, "%s%s:%s\n", indent, name, kind)
		outline(b, inner, depth+1)
	case reflect.Slice:
		if inner.Type().Elem().Kind() == reflect.Uint8 {
			fmt.Fprintf(b, "%s%s: %x\n", indent, name, inner.Bytes())
			return
		}
		fmt.Fprintf(b, "%s%s:\n", indent, name)
		outline(b, inner, depth+1)
	default:
		fmt.Fprintf(b, "%s%s: %v\n", indent, name, inner.Interface())
	}
}
