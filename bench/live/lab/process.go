package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience bounds the wait for a program to start, to change or to end.
const patience = 15 * time.Second

// process is a program that runs in the lab.
type process struct {
	place Place
	cmd   *exec.Cmd
	log   string // file with what it prints
	done  chan struct{}
}

// start runs a program in the balancer's namespace.
func start(at Place, program string, args ...string) (*process, error) {
	p := &process{place: at, log: filepath.Join(at.Dir, "output.log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir = at.Dir
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// A group of its own, so that Ctrl-C reaches it through us only, and workers can be ended with it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := at.Do(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	go func() {
		_ = p.cmd.Wait() // what it printed tells more than its exit code
		close(p.done)
	}()
	return p, nil
}

// Stop ends the program and those it started, if it was started. Its flows are gone by then.
func (p *process) Stop() error {
	if p == nil || p.cmd == nil {
		return nil
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) // fails if it has ended
	select {
	case <-p.done:
	case <-time.After(patience):
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
	return nil
}

// errEnded says that a program ended that should not.
var errEnded = errors.New("it has ended")

// until waits until a program has done something. The error shows what it printed last.
func (p *process) until(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for {
		if done() {
			return nil
		}
		var err error
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-p.done:
			err = errEnded
		case <-every.C:
			continue
		}
		out, _ := os.ReadFile(p.log)
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s: not %s: %w; it said:\n%s", p.cmd.Path, what, err, strings.Join(lines[max(0, len(lines)-8):], "\n"))
	}
}

// client makes HTTP requests inside the namespace.
func (at Place) client() *http.Client {
	return &http.Client{
		Timeout: patience,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
				err = at.Do(func() error {
					var d net.Dialer
					conn, err = d.DialContext(ctx, network, address)
					return err
				})
				return conn, err
			},
		},
	}
}

// get returns the body of a 200 answer.
func (at Place) get(url string) (string, error) {
	resp, err := at.client().Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

// runIn runs a program in the namespace to its end.
func (at Place) runIn(ctx context.Context, input, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Dir = at.Dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := at.Do(cmd.Run); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(out.String()))
	}
	return nil
}

// find looks for a program in PATH, and in the directories of a system's own.
func find(name, from string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not in PATH: install %s", name, from)
}

// says returns the first line that a program prints.
func says(program string, args ...string) (string, error) {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return strings.TrimSpace(line), nil
}
