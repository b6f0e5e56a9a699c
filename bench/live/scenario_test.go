package live_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/bench/live"
)

// everything uses each action there is.
const everything = `
control: http://127.0.0.1:9900
values: {port: 80}
steps:
- name: drain b1
  changes: [b1]
  settle: 3
  do:
  - write: {file: balancer.conf, template: balancer.tmpl, values: {drained: b1}}
  - write: {file: hello, text: "{{.port}}"}
  - rename: {from: a, to: b}
  - request: {url: "http://127.0.0.1:9901/drain", headers: {X-By: bench}, body: now, status: 200}
  - until: {url: "http://127.0.0.1:9901/clusters", contains: draining, timeout: 10s}
  - run: [nginx, -s, reload]
  - wait: 2s
  - settle: 1
- name: kill b1
  do:
  - backend: {id: b1, behaviour: refuse}
`

func TestParseScenario(t *testing.T) {
	s, err := live.ParseScenario([]byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Steps) != 2 || len(s.Steps[0].Do) != 8 || *s.Steps[0].Settle != 3 || *s.Steps[0].Do[6].Wait != 2*time.Second {
		t.Errorf("parsed %+v", s)
	}
	if b := s.Steps[1].Do[0].Backend; b.Control != "http://127.0.0.1:9900" {
		t.Errorf("the backend is commanded at %q", b.Control)
	}
	if u := s.Steps[0].Do[4].Until; u.Timeout != 10*time.Second || s.Steps[0].Do[3].Request.Method != "POST" {
		t.Errorf("until is %+v", u)
	}
}

func TestParseScenarioRefuses(t *testing.T) {
	step := func(action string) string { return "steps:\n- name: x\n  do:\n  - " + action + "\n" }
	for text, want := range map[string]string{
		"":                                      "empty",
		"steps: []":                             "no steps",
		"steps: 4":                              "line 1",
		"steps:\n- name: x\n  nam: y":           "line 3",
		"steps:\n- do: []":                      "step 1 has no name",
		"steps:\n- name: x\n---\na: b":          "more than one document",
		"steps:\n- name: x\n  settle: -1":       "settle",
		"steps:\n- {name: x, changes: ['']}":    "no name",
		"control: localhost\nsteps:\n- name: x": "http://",
		step("{}"):                              "0 things",
		step("{wait: 1s, settle: 1}"):           "2 things",
		step("wait: -1s"):                       "wait",
		step("wait: soon"):                      "line 4",
		step("settle: 0"):                       "settle",
		step("run: []"):                         "program",
		step("rename: {from: a}"):               "from and to",
		step("write: {text: a}"):                "no file",
		step("write: {file: a}"):                "template",
		step("write: {file: a, text: b, template: c}"):                     "template",
		step("write: {file: a, text: '{{'}"):                               "write",
		step("request: {url: 'ftp://x'}"):                                  "http://",
		step("request: {url: 'http://x', method: 'A B'}"):                  "method",
		step("request: {url: 'http://x', status: 1}"):                      "status",
		step("until: {url: 'http://x'}"):                                   "contains or lacks",
		step("backend: {id: b1, behaviour: refuse}"):                       "no control address",
		step("backend: {behaviour: refuse, control: 'http://x'}"):          "no id",
		step("backend: {id: b1, behaviour: explode, control: 'http://x'}"): "explode",
	} {
		if s, err := live.ParseScenario([]byte(text)); err == nil {
			t.Errorf("%q is taken: %+v", text, s)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want it to speak of %q", text, err, want)
		}
	}
}

// FuzzParseScenario looks for text that makes the parser fail otherwise than by an error, and holds
// what it takes against what a scenario must have.
func FuzzParseScenario(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte("steps:\n- {name: x, do: [{wait: 1s}, {run: [true]}]}"))
	f.Add([]byte("control: 'http://[::1]:9'\nsteps:\n- name: x\n  do:\n  - backend: {id: '', behaviour: drain}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := live.ParseScenario(text)
		if err != nil {
			return
		}
		if len(s.Steps) == 0 {
			t.Fatal("no steps, no error")
		}
		for _, step := range s.Steps {
			if step.Name == "" {
				t.Fatal("a step without a name")
			}
			for _, a := range step.Do {
				set := 0
				for _, is := range []bool{a.Backend != nil, a.Write != nil, a.Rename != nil, a.Request != nil, a.Until != nil, a.Run != nil, a.Wait != nil, a.Settle != nil} {
					if is {
						set++
					}
				}
				if set != 1 || a.Run != nil && len(a.Run) == 0 || a.Wait != nil && *a.Wait <= 0 || a.Backend != nil && a.Backend.Control == "" {
					t.Fatalf("an action that cannot be done: %+v", a)
				}
			}
		}
	})
}

// TestPlaysAScenario does everything there is to do, in files of its own and with a server that keeps a record.
func TestPlaysAScenario(t *testing.T) {
	addrs, all := startBackends(t, "b1")
	control := httptest.NewServer(backend.Control(all...))
	defer control.Close()
	var asked []string
	polls := 0
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("X-By"))
		switch r.URL.Path {
		case "/slow":
			if polls++; polls > 2 {
				fmt.Fprint(w, "in force")
			}
		case "/no":
			http.Error(w, "not now", http.StatusConflict)
		}
	}))
	defer admin.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "conf.tmpl"), []byte("port {{.port}}, drained {{.drained}}"), 0o644); err != nil {
		t.Fatal(err)
	}
	play := func(text string) (*live.Results, error) {
		s, err := live.ParseScenario([]byte(strings.NewReplacer("{admin}", admin.URL, "{control}", control.URL).Replace(text)))
		if err != nil {
			t.Fatal(err)
		}
		plan := heldOnly(10, 10)
		plan.TCPTargets, plan.UDPTargets = addrs, addrs
		return live.Measure(context.Background(), plan, s.Play(dir))
	}
	r, err := play(`
control: {control}
values: {port: 80, drained: none}
steps:
- name: all of it
  changes: [b1]
  do:
  - write: {file: a, template: conf.tmpl, values: {drained: b1}}
  - rename: {from: a, to: b}
  - run: [cp, b, c]
  - request: {url: "{admin}/do", headers: {X-By: bench}}
  - until: {url: "{admin}/slow", contains: in force}
  - until: {url: "{admin}/slow", lacks: nothing}
  - wait: 1ms
  - settle: 1
- name: die
  settle: 0
  do:
  - backend: {id: b1, behaviour: drain}
`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "c")); string(got) != "port 80, drained b1" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if want := "POST /do bench,GET /slow ,GET /slow ,GET /slow ,GET /slow "; strings.Join(asked, ",") != want {
		t.Errorf("asked %q", asked)
	}
	if all[0].Behaviour() != backend.Drain {
		t.Errorf("the backend's behaviour is %v", all[0].Behaviour())
	}
	if err := all[0].Set(backend.Return); err != nil {
		t.Fatal(err)
	}
	if len(r.Steps) != 4 || r.Steps[2].Name != "all of it" || r.Steps[2].Of[live.TCP].Affected != 10 || r.Total(live.UDP).Broken.All != 0 {
		t.Errorf("the steps are %+v", r.Steps)
	}
	for action, want := range map[string]string{
		"request: {url: '{admin}/no'}":                           "not now",
		"request: {url: '{admin}/do', status: 201}":              "200 OK",
		"until: {url: '{admin}/do', contains: x, timeout: 50ms}": "not within",
		"run: [false]":                                              "exit status 1",
		"run: [/nonexistent]":                                       "no such file",
		"rename: {from: x, to: y}":                                  "no such file",
		"write: {file: d, text: '{{.unknown}}'}":                    "unknown",
		"write: {file: d, template: none}":                          "none",
		"backend: {id: b9, behaviour: drain, control: '{control}'}": "no backend",
	} {
		r, err := play("steps:\n- name: fails\n  do:\n  - " + action + "\n")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `step "fails", action 1`) {
			t.Errorf("%s: %v, want %q", action, err, want)
		}
		if r == nil || len(r.Steps) != 3 {
			t.Errorf("%s: what was seen until then is lost", action)
		}
	}
}
