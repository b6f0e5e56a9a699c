package envoy

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"github.com/guideway/guideway/controlplane/model"
)

// seeds adds configurations and odd texts to a fuzz test.
func seeds(f *testing.F) {
	files, _ := filepath.Glob("testdata/configs/*.yaml")
	more, _ := filepath.Glob("testdata/configs/invalid/*.yaml")
	for _, name := range append(files, more...) {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	for _, s := range []string{"", "{}", "[", "a: &a [*a]", "node: {id: 1e999}", "? ? a", "static_resources: {clusters: [~, {name: ~}]}",
		"static_resources: {listeners: [{address: {socket_address: {}}}]}", "\xff\xfe", "--- a\n--- b", "!!binary x", "node: !!map {id: !!str 5}",
		"static_resources: {clusters: [{name: a, load_assignment: {endpoints: [{lb_endpoints: [{}, {endpoint: {}}]}]}}]}"} {
		f.Add([]byte(s))
	}
}

// load reads text as a file of the given extension would be. It never fails but with an *Invalid.
func loadText(t *testing.T, text []byte, parse func([]byte) (*tree, error)) {
	t.Helper()
	cfg, err := loadBytes(text, parse)
	var invalid *Invalid
	switch {
	case err == nil && cfg == nil:
		t.Fatal("neither a configuration nor an error")
	case err != nil && (!errors.As(err, &invalid) || len(invalid.Problems) == 0):
		t.Fatalf("error %v of type %T", err, err)
	}
}

func FuzzLoadYAML(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text []byte) { loadText(t, text, parseYAML) })
}

func FuzzLoadJSON(f *testing.F) {
	f.Add([]byte(`{"static_resources":{"clusters":[{"name":"a","type":"STRICT_DNS"}]}}`))
	f.Add([]byte(`{"node":`))
	seeds(f)
	f.Fuzz(func(t *testing.T, text []byte) { loadText(t, text, parseJSON) })
}

// TestLoadMutations loads configurations with parts cut out, doubled or overwritten: it must not panic,
// and say something of what it refuses.
func TestLoadMutations(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	files, _ := filepath.Glob("testdata/configs/*.yaml")
	refused := 0
	for range 600 {
		text, err := os.ReadFile(files[r.IntN(len(files))])
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		for range 1 + r.IntN(3) {
			i, j := r.IntN(len(lines)), r.IntN(len(lines))
			switch r.IntN(4) {
			case 0:
				lines[i] = nil
			case 1:
				lines[i] = append(lines[i][:len(lines[i]):len(lines[i])], lines[j]...)
			case 2:
				lines[i], lines[j] = lines[j], lines[i]
			case 3:
				lines[i] = bytes.Map(func(c rune) rune {
					if r.IntN(20) == 0 {
						return rune("0:{}[]-nx \""[r.IntN(11)])
					}
					return c
				}, lines[i])
			}
		}
		mutated := bytes.Join(lines, nil)
		loadText(t, mutated, parseYAML)
		if _, err := loadBytes(mutated, parseYAML); err != nil {
			refused++
			if strings.TrimSpace(err.Error()) == "" {
				t.Errorf("refused without a word:\n%s", mutated)
			}
		}
	}
	if refused < 100 {
		t.Errorf("only %d of 600 were refused", refused)
	}
}

// TestHuge holds that a large configuration loads in time and memory in proportion to its size.
func TestHuge(t *testing.T) {
	const hosts = 20_000
	var b bytes.Buffer
	b.WriteString("static_resources: {clusters: [{name: c, load_assignment: {cluster_name: c, endpoints: [{lb_endpoints: [\n")
	for i := range hosts {
		b.WriteString("  {endpoint: {address: {socket_address: {address: 10.")
		b.WriteString(strings.Join([]string{strconv.Itoa(i >> 16 & 255), strconv.Itoa(i >> 8 & 255), strconv.Itoa(i & 255)}, "."))
		b.WriteString(", port_value: 80}}}},\n")
	}
	b.WriteString("  ]}]}}]}\n")
	wrong := bytes.ReplaceAll(b.Bytes(), []byte("port_value: 80"), []byte("port_value: 80000"))
	_, err := loadBytes(wrong, parseYAML)
	var invalid *Invalid
	if !errors.As(err, &invalid) || len(invalid.Problems) != maxProblems+1 {
		t.Fatalf("a mistake in every endpoint: %.200v", err)
	}
	cfg, err := loadBytes(b.Bytes(), parseYAML)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(cfg.Clusters[0].Assignment.Localities[0].Endpoints); n != hosts {
		t.Errorf("%d endpoints", n)
	}
}

func loadBytes(text []byte, parse func([]byte) (*tree, error)) (*model.Config, error) {
	r := &report{}
	boot := &bootstrapv3.Bootstrap{}
	r.readText("fuzz", text, parse, boot)
	if err := r.err(); err != nil {
		return nil, err
	}
	return r.load(boot, Options{})
}
