package live

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/guideway/guideway/bench/backend"
)

// Scenario is a file that says what changes while flows are held, and when.
type Scenario struct {
	// Control is the control address of guideway bench backend, as http://127.0.0.1:9900.
	Control string `yaml:"control"`
	// Values are what templates of write actions know.
	Values map[string]any `yaml:"values"`
	Steps  []ScenarioStep `yaml:"steps"`
}

// ScenarioStep is one change and what it is called in the report.
type ScenarioStep struct {
	Name string `yaml:"name"`
	// Changes names the backends whose flows the step concerns.
	Changes []string `yaml:"changes"`
	Do      []Action `yaml:"do"`
	// Settle is how often flows ask again before the next step; nil is the run's.
	Settle *int `yaml:"settle"`
}

// Action is one thing to do; exactly one field is set.
type Action struct {
	Backend *BackendAction `yaml:"backend"`
	Write   *WriteAction   `yaml:"write"`
	Rename  *RenameAction  `yaml:"rename"`
	Request *RequestAction `yaml:"request"`
	Until   *UntilAction   `yaml:"until"`
	Run     []string       `yaml:"run"` // a program and its arguments; no shell
	Wait    *time.Duration `yaml:"wait"`
	Settle  *int           `yaml:"settle"`
}

// BackendAction commands a backend of guideway bench backend.
type BackendAction struct {
	ID        string `yaml:"id"`
	Behaviour string `yaml:"behaviour"`
	Control   string `yaml:"control"` // in place of the scenario's
}

// WriteAction writes a file, in one step: readers see the old or the new one.
type WriteAction struct {
	File     string         `yaml:"file"`
	Template string         `yaml:"template"` // a file in the notation of Go's text/template
	Text     string         `yaml:"text"`     // the template itself
	Values   map[string]any `yaml:"values"`   // over the scenario's
}

// RenameAction renames a file.
type RenameAction struct {
	From string `yaml:"from"`
	To   string `yaml:"to"`
}

// RequestAction sends an HTTP request, to an admin API for example.
type RequestAction struct {
	URL     string            `yaml:"url"`
	Method  string            `yaml:"method"` // POST
	Body    string            `yaml:"body"`
	Headers map[string]string `yaml:"headers"`
	Status  int               `yaml:"status"` // expected; 0 is any below 400
}

// UntilAction asks until an answer holds a text, or no longer holds it.
type UntilAction struct {
	URL      string        `yaml:"url"`
	Contains string        `yaml:"contains"`
	Lacks    string        `yaml:"lacks"`
	Timeout  time.Duration `yaml:"timeout"` // 30 s
}

// Limits of a scenario.
const (
	maxSteps  = 10_000
	maxWait   = 24 * time.Hour
	maxSettle = 1000
)

// ParseScenario reads a scenario file, which is YAML. Errors name the line or the step.
func ParseScenario(text []byte) (*Scenario, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var s Scenario
	if err := d.Decode(&s); errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty: it needs steps")
	} else if err != nil {
		return nil, err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file has more than one document: write one")
	}
	if len(s.Steps) == 0 {
		return nil, errors.New("no steps: nothing would change")
	}
	if len(s.Steps) > maxSteps {
		return nil, fmt.Errorf("%d steps: use at most %d", len(s.Steps), maxSteps)
	}
	if s.Control != "" {
		if err := checkURL(s.Control); err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.Name == "" {
			return nil, fmt.Errorf("step %d has no name", i+1)
		}
		if err := step.check(&s); err != nil {
			return nil, fmt.Errorf("step %q: %w", step.Name, err)
		}
	}
	return &s, nil
}

func (s *ScenarioStep) check(in *Scenario) error {
	if strings.ContainsAny(s.Name, "\r\n") {
		return errors.New("its name has more than one line")
	}
	if s.Settle != nil && (*s.Settle < 0 || *s.Settle > maxSettle) {
		return fmt.Errorf("settle: %d: use 0 to %d", *s.Settle, maxSettle)
	}
	if slices.Contains(s.Changes, "") {
		return errors.New("changes: a backend has no name")
	}
	for i := range s.Do {
		if err := s.Do[i].check(in); err != nil {
			return fmt.Errorf("action %d: %w", i+1, err)
		}
	}
	return nil
}

// check tells whether an action says one thing, and all that is needed for it.
func (a *Action) check(in *Scenario) error {
	set := 0
	var err error
	use := func(e error) { set, err = set+1, e }
	if a.Backend != nil {
		use(a.Backend.check(in))
	}
	if a.Write != nil {
		use(a.Write.check())
	}
	if a.Rename != nil {
		use(a.Rename.check())
	}
	if a.Request != nil {
		use(a.Request.check())
	}
	if a.Until != nil {
		use(a.Until.check())
	}
	if a.Run != nil {
		use(checkRun(a.Run))
	}
	if a.Wait != nil {
		use(within("wait", *a.Wait, maxWait))
	}
	if a.Settle != nil {
		var e error
		if *a.Settle < 1 || *a.Settle > maxSettle {
			e = fmt.Errorf("settle: %d: use 1 to %d", *a.Settle, maxSettle)
		}
		use(e)
	}
	if set != 1 {
		return fmt.Errorf("it says %d things: write one of backend, write, rename, request, until, run, wait, settle", set)
	}
	return err
}

func (b *BackendAction) check(in *Scenario) error {
	if b.ID == "" {
		return errors.New("backend: no id")
	}
	if _, err := backend.ParseBehaviour(b.Behaviour); err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	if b.Control == "" {
		b.Control = in.Control
	}
	if b.Control == "" {
		return errors.New("backend: no control address: write control: http://HOST:PORT here or at the top of the file")
	}
	return checkURL(b.Control)
}

func (w *WriteAction) check() error {
	if w.File == "" {
		return errors.New("write: no file")
	}
	if (w.Template == "") == (w.Text == "") {
		return errors.New("write: give template, which is a file, or text")
	}
	if _, err := template.New("text").Parse(w.Text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func (r *RenameAction) check() error {
	if r.From == "" || r.To == "" {
		return errors.New("rename: give from and to")
	}
	return nil
}

func (r *RequestAction) check() error {
	if r.Method == "" {
		r.Method = http.MethodPost
	}
	if r.Status != 0 && (r.Status < 100 || r.Status > 599) {
		return fmt.Errorf("request: status %d: use 100 to 599", r.Status)
	}
	if _, err := http.NewRequest(r.Method, "http://localhost", nil); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	return checkURL(r.URL)
}

func (u *UntilAction) check() error {
	if (u.Contains == "") == (u.Lacks == "") {
		return errors.New("until: give contains or lacks")
	}
	if u.Timeout == 0 {
		u.Timeout = 30 * time.Second
	}
	if err := within("until: timeout", u.Timeout, maxWait); err != nil {
		return err
	}
	return checkURL(u.URL)
}

func checkRun(words []string) error {
	if len(words) == 0 || words[0] == "" {
		return errors.New("run: give a program and its arguments, as [nginx, -s, reload]")
	}
	return nil
}

func within(what string, d, most time.Duration) error {
	if d <= 0 || d > most {
		return fmt.Errorf("%s: %v: use more than 0 and at most %v", what, d, most)
	}
	return nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("%q is no address: write http://HOST:PORT/PATH", text)
	}
	return nil
}
