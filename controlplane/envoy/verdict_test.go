package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// bases are the configurations that verdict cases change.
var bases = map[string]string{
	"tcp": `
node: {id: n, cluster: c}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: l
    address: {socket_address: {address: 127.0.0.1, port_value: 15999}}
    filter_chains:
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: t
          cluster: c
  clusters:
  - name: c
    type: STATIC
    load_assignment:
      cluster_name: c
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}
`,
	"udp": `
node: {id: n, cluster: c}
static_resources:
  listeners:
  - name: l
    address: {socket_address: {protocol: UDP, address: 127.0.0.1, port_value: 15999}}
    listener_filters:
    - name: udp
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig
        stat_prefix: u
        matcher:
          on_no_match:
            action:
              name: route
              typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route, cluster: c}
  clusters:
  - name: c
    type: STATIC
    load_assignment:
      cluster_name: c
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}
`,
}

// places abbreviates paths in verdict cases.
var places = map[string]string{
	"C": "static_resources.clusters[0]",
	"L": "static_resources.listeners[0]",
	"X": "static_resources.listeners[0].filter_chains[0]",
	"F": "static_resources.listeners[0].filter_chains[0].filters[0].typed_config",
	"U": "static_resources.listeners[0].listener_filters[0].typed_config",
	"A": "static_resources.clusters[0].load_assignment",
	"E": "static_resources.clusters[0].load_assignment.endpoints[0].lb_endpoints[0]",
}

// change applies lines of "path: value" to a base; "-path" removes a field. Values are YAML.
func change(t *testing.T, base, lines string) []byte {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal([]byte(bases[base]), &doc); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		path, value, found := strings.Cut(line, ": ")
		remove := strings.HasPrefix(path, "-")
		if !found && !remove {
			t.Fatalf("case line %q", line)
		}
		path = strings.TrimPrefix(path, "-")
		if long, ok := places[path[:1]]; ok && (len(path) == 1 || path[1] == '.' || path[1] == '[') {
			path = long + path[1:]
		}
		var v any
		if err := yaml.Unmarshal([]byte(value), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		doc = put(t, doc, strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }), v, remove)
	}
	text, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func put(t *testing.T, doc any, path []string, v any, remove bool) any {
	if len(path) == 0 {
		return v
	}
	if i, err := strconv.Atoi(path[0]); err == nil {
		list, _ := doc.([]any)
		for len(list) <= i {
			list = append(list, nil)
		}
		list[i] = put(t, list[i], path[1:], v, remove)
		return list
	}
	m, ok := doc.(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	if remove && len(path) == 1 {
		delete(m, path[0])
		return m
	}
	m[path[0]] = put(t, m[path[0]], path[1:], v, remove)
	return m
}

// TestVerdicts holds the verdict on each case, and that problems have places.
func TestVerdicts(t *testing.T) {
	for _, tc := range verdicts {
		t.Run(tc.base+"/"+tc.name(), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "c.json")
			if err := os.WriteFile(file, change(t, tc.base, tc.lines), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := Load(Options{Path: file})
			if ok := err == nil; ok != (tc.want == accepts || tc.want == lenient) {
				t.Fatalf("error %v", err)
			}
			text := ""
			if err != nil {
				var invalid *Invalid
				if !errors.As(err, &invalid) {
					t.Fatalf("error %v of type %T", err, err)
				}
				for _, p := range invalid.Problems {
					if p.Line == 0 || p.Path == "" {
						t.Errorf("no place: %+v", p)
					}
				}
				text = err.Error()
			} else {
				for _, w := range cfg.Warnings {
					text += w.Error() + "\n"
					if w.Line == 0 {
						t.Errorf("no place: %+v", w)
					}
				}
				if tc.says == "" && text != "" {
					t.Errorf("unexpected warnings:\n%s", text)
				}
			}
			if !strings.Contains(text, tc.says) {
				t.Errorf("it says:\n%s\nwant %q", text, tc.says)
			}
			if (tc.want == strict || tc.want == lenient) != (tc.why != "") {
				t.Errorf("a reason must be given if, and only if, the verdict differs from Envoy's")
			}
		})
	}
}

// findEnvoy returns a real Envoy, or skips the test.
func findEnvoy(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("GUIDEWAY_ENVOY"); p != "" {
		return p
	}
	if p, err := exec.LookPath("envoy"); err == nil {
		return p
	}
	if p, err := filepath.Abs("../../.venv/bin/envoy"); err == nil {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	t.Skip("no Envoy: set GUIDEWAY_ENVOY, or put envoy into PATH or .venv/bin")
	return ""
}

var blanks = regexp.MustCompile(`\s+`)

// askEnvoy runs envoy --mode validate.
func askEnvoy(t *testing.T, envoy, file string) (ok bool, says string) {
	t.Helper()
	cmd := exec.Command(envoy, "-c", file, "--mode", "validate", "-l", "error")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return err == nil, blanks.ReplaceAllString(string(out), " ")
}

// TestVerdictsAgainstEnvoy asks a real Envoy for its verdict on the same cases, and that what
// Problem.Envoy promises is what Envoy says.
func TestVerdictsAgainstEnvoy(t *testing.T) {
	envoy := findEnvoy(t)
	for _, tc := range verdicts {
		t.Run(tc.base+"/"+tc.name(), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "c.json")
			if err := os.WriteFile(file, change(t, tc.base, tc.lines), 0o600); err != nil {
				t.Fatal(err)
			}
			ok, says := askEnvoy(t, envoy, file)
			if ok != (tc.want == accepts || tc.want == strict) {
				t.Fatalf("Envoy accepts: %v\n%s", ok, says)
			}
			if !ok && tc.want == refuses {
				_, err := Load(Options{Path: file})
				var invalid *Invalid
				if !errors.As(err, &invalid) {
					t.Fatalf("Envoy refuses it: %s", says)
				}
				promised, kept := "", false
				for _, p := range invalid.Problems {
					if p.Envoy != "" {
						promised += p.Envoy + "\n"
						kept = kept || strings.Contains(says, blanks.ReplaceAllString(p.Envoy, " "))
					}
				}
				if promised != "" && !kept {
					t.Errorf("Envoy says\n%s\nnot\n%s", says, promised)
				}
			}
		})
	}
}

// TestConfigsAgainstEnvoy compares verdicts on the configuration files.
func TestConfigsAgainstEnvoy(t *testing.T) {
	envoy := findEnvoy(t)
	files, _ := filepath.Glob("testdata/configs/*.yaml")
	more, _ := filepath.Glob("testdata/configs/invalid/*.yaml")
	for _, f := range append(files, more...) {
		t.Run(filepath.Base(f), func(t *testing.T) {
			ok, says := askEnvoy(t, envoy, f)
			_, err := Load(Options{Path: f})
			if ok != (err == nil) {
				t.Errorf("Envoy accepts: %v (%s); Guideway: %v", ok, says, err)
			}
		})
	}
}

type verdict uint8

const (
	accepts verdict = iota
	refuses
	strict  // Guideway refuses, Envoy accepts
	lenient // Guideway accepts, Envoy refuses
)

type verdictCase struct {
	base, lines string
	want        verdict
	// says is a part of the problem or warning; a case that is accepted without has no warnings.
	says string
	// why the verdict differs from Envoy's.
	why string
}

func (c *verdictCase) name() string {
	return strings.ReplaceAll(fmt.Sprintf("%.70s", blanks.ReplaceAllString(strings.TrimSpace(c.lines), " ")), "/", "|")
}
