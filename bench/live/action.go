package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// again is how long an until action rests between two requests.
const again = 20 * time.Millisecond

// answerSize is the most of an answer that is read.
const answerSize = 16 << 20

// Play returns the scenario as a script. Files and programs are found from dir.
func (s *Scenario) Play(dir string) Script {
	return func(ctx context.Context, m *Meter) error {
		for i := range s.Steps {
			step := &s.Steps[i]
			m.plan.Progress(Playing, i, len(s.Steps))
			m.Step(step.Name, step.Changes...)
			for n := range step.Do {
				if err := s.do(ctx, m, dir, &step.Do[n]); err != nil {
					return fmt.Errorf("step %q, action %d: %w", step.Name, n+1, err)
				}
			}
			rounds := m.plan.Settle
			if step.Settle != nil {
				rounds = *step.Settle
			}
			if err := m.Settle(ctx, rounds); err != nil {
				return err
			}
		}
		m.plan.Progress(Playing, len(s.Steps), len(s.Steps))
		return nil
	}
}

func (s *Scenario) do(ctx context.Context, m *Meter, dir string, a *Action) error {
	switch {
	case a.Backend != nil:
		to := strings.TrimSuffix(a.Backend.Control, "/") + "/" + url.PathEscape(a.Backend.ID) + "/" + a.Backend.Behaviour
		_, err := send(ctx, &RequestAction{Method: http.MethodPost, URL: to})
		return err
	case a.Write != nil:
		return a.Write.do(dir, s.Values)
	case a.Rename != nil:
		return os.Rename(found(dir, a.Rename.From), found(dir, a.Rename.To))
	case a.Request != nil:
		_, err := send(ctx, a.Request)
		return err
	case a.Until != nil:
		return a.Until.do(ctx)
	case a.Run != nil:
		return run(ctx, dir, a.Run)
	case a.Wait != nil:
		return pause(ctx, *a.Wait)
	default:
		return m.Settle(ctx, *a.Settle)
	}
}

// found finds a file from a directory.
func found(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// do writes the file beside its place and renames it.
func (w *WriteAction) do(dir string, values map[string]any) error {
	text := w.Text
	if w.Template != "" {
		b, err := os.ReadFile(found(dir, w.Template))
		if err != nil {
			return err
		}
		text = string(b)
	}
	t, err := template.New(filepath.Base(w.File)).Option("missingkey=error").Parse(text)
	if err != nil {
		return err
	}
	all := maps.Clone(values)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, w.Values)
	var b bytes.Buffer
	if err := t.Execute(&b, all); err != nil {
		return err
	}
	return ReplaceFile(found(dir, w.File), b.Bytes())
}

// ReplaceFile writes a file so that readers see the old or the new one, never a part.
func ReplaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	if _, err = f.Write(content); err == nil {
		err = f.Chmod(0o644)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// send makes a request and returns the body of its answer.
func send(ctx context.Context, r *RequestAction) (string, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, strings.NewReader(r.Body))
	if err != nil {
		return "", err
	}
	for name, value := range r.Headers {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerSize))
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", r.Method, r.URL, err)
	}
	if r.Status != 0 && resp.StatusCode != r.Status || r.Status == 0 && resp.StatusCode >= 400 {
		return "", fmt.Errorf("%s %s: %s: %s", r.Method, r.URL, resp.Status, firstLine(string(body)))
	}
	return string(body), nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

func (u *UntilAction) do(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	var last error
	for {
		body, err := send(limited, &RequestAction{Method: http.MethodGet, URL: u.URL})
		switch {
		case err != nil:
			if limited.Err() == nil {
				last = err
			}
		case u.Contains != "" && strings.Contains(body, u.Contains), u.Lacks != "" && !strings.Contains(body, u.Lacks):
			return nil
		default:
			last = errors.New("it does not say so")
		}
		if err := pause(limited, again); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("not within %v: %s contains %q, lacks %q: %w", u.Timeout, u.URL, u.Contains, u.Lacks, last)
		}
	}
}

// run runs a program to its end.
func run(ctx context.Context, dir string, words []string) error {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second // for children that keep its output open
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", words[0], err, firstLine(string(out)))
	}
	return nil
}

// pause waits, or returns the error of a context that ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
