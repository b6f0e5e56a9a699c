package testbed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// Patience bounds every wait for something that should happen at once, or after the time a test has configured.
const Patience = 30 * time.Second

// Proxy is a load balancer that was started: Envoy or Guideway. Its methods fail the test rather
// than return errors. It is stopped, by its process id, when the test ends; a failed test shows what it printed.
type Proxy struct {
	Subject
	Dir string // its working directory; holds boot.yaml

	t      testing.TB
	ns     *Namespace
	cmd    *exec.Cmd
	client *http.Client
	admin  netip.AddrPort
	// adminFile is where the program writes the admin address that it got, if the configuration has port 0.
	adminFile      string
	stdout, stderr output
	done           chan struct{} // closed when the process has ended
}

// output keeps what a process prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// StartEnvoy starts the installed Envoy; see [Subject.Start].
func StartEnvoy(t testing.TB, config any, args ...string) *Proxy {
	t.Helper()
	return Envoy(t).Start(t, nil, config, args...)
}

// StartGuideway starts this module's program; see [Subject.Start].
func StartGuideway(t testing.TB, config any, args ...string) *Proxy {
	t.Helper()
	return Guideway(t).Start(t, nil, config, args...)
}

// Start runs the subject on a configuration in a namespace (nil: the test's), and does not wait until it
// serves. The configuration is text (YAML or JSON; string or []byte), or a value that is written as JSON;
// "{dir}" in it stands for the proxy's directory. One worker, no hot restart, and logs are flushed every 50 ms.
func (s Subject) Start(t testing.TB, ns *Namespace, config any, args ...string) *Proxy {
	t.Helper()
	return s.StartIn(t, ns, t.TempDir(), config, args...)
}

// StartIn is Start with a directory of the caller's, which may hold files that the configuration names.
func (s Subject) StartIn(t testing.TB, ns *Namespace, dir string, config any, args ...string) *Proxy {
	t.Helper()
	path := WriteConfig(t, dir, config)
	admin, err := adminAddress(path)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"-c", path, "--concurrency", "1", "--disable-hot-restart", "--file-flush-interval-msec", "50"}
	var adminFile string
	if admin.IsValid() && admin.Port() == 0 {
		adminFile = filepath.Join(dir, "admin-address")
		all = append(all, "--admin-address-path", adminFile)
	}
	p := s.Exec(t, ns, dir, append(all, args...)...)
	p.admin, p.adminFile = admin, adminFile
	return p
}

// Exec runs the subject with exactly these arguments.
func (s Subject) Exec(t testing.TB, ns *Namespace, dir string, args ...string) *Proxy {
	t.Helper()
	p := &Proxy{Subject: s, Dir: dir, t: t, ns: ns, done: make(chan struct{})}
	p.client = &http.Client{
		Timeout:       Patience,
		Transport:     &http.Transport{DialContext: ns.DialContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	p.cmd = exec.Command(s.Exe, args...)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := ns.Do(p.cmd.Start); err != nil {
		t.Fatalf("start %s: %v", s.Name, err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.stop)
	return p
}

// WriteConfig writes a configuration, as Start takes it, to boot.yaml in a directory.
func WriteConfig(t testing.TB, dir string, config any) (path string) {
	t.Helper()
	text, err := configText(config)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "boot.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "{dir}", dir)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func configText(config any) (string, error) {
	switch c := config.(type) {
	case string:
		return c, nil
	case []byte:
		return string(c), nil
	}
	text, err := json.MarshalIndent(config, "", " ")
	return string(text), err
}

// adminAddress finds the admin address in a bootstrap file; invalid if there is none.
func adminAddress(path string) (netip.AddrPort, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return netip.AddrPort{}, err
	}
	var b struct {
		Admin struct {
			Address struct {
				SocketAddress struct {
					Address   string `yaml:"address"`
					PortValue uint16 `yaml:"port_value"`
				} `yaml:"socket_address"`
			} `yaml:"address"`
		} `yaml:"admin"`
	}
	if err := yaml.Unmarshal(text, &b); err != nil {
		return netip.AddrPort{}, nil // a broken configuration may be what the test is about
	}
	sa := b.Admin.Address.SocketAddress
	if sa.Address == "" {
		return netip.AddrPort{}, nil
	}
	ip, err := netip.ParseAddr(sa.Address)
	return netip.AddrPortFrom(ip, sa.PortValue), err
}

// stop ends the process and shows its output if the test failed.
func (p *Proxy) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.t.Errorf("%s (process %d) has not ended %v after SIGTERM: killing it", p.Name, p.PID(), Patience)
		p.cmd.Process.Kill()
		<-p.done
	}
	p.client.CloseIdleConnections()
	if strings.Contains(p.Stderr(), "WARNING: DATA RACE") {
		p.t.Errorf("%s has a data race", p.Name)
	}
	if p.t.Failed() {
		p.t.Logf("%s %q\nstdout:\n%s\nstderr:\n%s", p.Name, p.cmd.Args[1:], tail(p.Stdout()), tail(p.Stderr()))
	}
}

// tail cuts a long text to its end.
func tail(s string) string {
	const most = 6000
	if len(s) > most {
		return "[…]" + s[len(s)-most:]
	}
	return s
}

// PID gives the process id.
func (p *Proxy) PID() int { return p.cmd.Process.Pid }

// Stdout gives what the process has printed so far.
func (p *Proxy) Stdout() string { return p.stdout.String() }

// Stderr gives what the process has logged so far.
func (p *Proxy) Stderr() string { return p.stderr.String() }

// Ended tells whether the process has ended.
func (p *Proxy) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process.
func (p *Proxy) Signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%s to %s: %v", sig, p.Name, err)
	}
}

// Paused runs f while the process is stopped (SIGSTOP): what f does to the process' sockets, the process finds all at
// once, as if it had happened in one instant.
func (p *Proxy) Paused(f func()) {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	defer p.Signal(syscall.SIGCONT)
	Eventually(p.t, p.Name+" stops", func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
		if err != nil || len(tasks) == 0 {
			p.t.Fatalf("%s has no threads: %v", p.Name, err)
		}
		for _, file := range tasks {
			stat, _ := os.ReadFile(file)
			// "pid (name) state ...", proc_pid_stat(5); the name may hold anything.
			if i := bytes.LastIndexByte(stat, ')'); i < 0 || !bytes.HasPrefix(stat[i:], []byte(") T")) {
				return false
			}
		}
		return true
	})
	f()
}

// Wait waits for the process to end and gives its exit code; -1 if a signal ended it.
func (p *Proxy) Wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.t.Fatalf("%s has not ended within %v", p.Name, Patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Admin gives the admin address.
func (p *Proxy) Admin() netip.AddrPort {
	p.t.Helper()
	if p.adminFile != "" && p.admin.Port() == 0 {
		Eventually(p.t, p.Name+" writes its admin address", func() bool {
			text, err := os.ReadFile(p.adminFile)
			if err != nil || p.Ended() {
				return p.Ended()
			}
			at, err := netip.ParseAddrPort(strings.TrimSpace(string(text)))
			if err == nil {
				p.admin = at
			}
			return err == nil
		})
	}
	if !p.admin.IsValid() || p.admin.Port() == 0 {
		p.t.Fatalf("%s has no admin address", p.Name)
	}
	return p.admin
}

// Ready waits until /ready answers 200. It fails the test if the process ends before.
func (p *Proxy) Ready() *Proxy {
	p.t.Helper()
	p.Admin()
	Eventually(p.t, p.Name+" is ready", func() bool {
		if p.Ended() {
			p.t.Fatalf("%s ended with %d before it was ready", p.Name, p.cmd.ProcessState.ExitCode())
		}
		r, err := p.do("GET", "/ready")
		return err == nil && r.Status == http.StatusOK
	})
	return p
}

// Response is what the admin address answered.
type Response struct {
	Status int
	Type   string // content type
	Body   string
}

// Get asks the admin address.
func (p *Proxy) Get(path string) Response { p.t.Helper(); return p.Do(http.MethodGet, path) }

// Post asks the admin address to do something.
func (p *Proxy) Post(path string) Response { p.t.Helper(); return p.Do(http.MethodPost, path) }

// Do sends the admin address a request.
func (p *Proxy) Do(method, path string) Response {
	p.t.Helper()
	p.Admin()
	r, err := p.do(method, path)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func (p *Proxy) do(method, path string) (Response, error) {
	req, err := http.NewRequest(method, "http://"+p.admin.String()+path, nil)
	if err != nil {
		return Response{}, err
	}
	r, err := p.client.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Response{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return Response{Status: r.StatusCode, Type: r.Header.Get("Content-Type"), Body: string(body)}, nil
}

// Stats reads all counters and gauges.
func (p *Proxy) Stats() map[string]int64 {
	p.t.Helper()
	r := p.Get("/stats")
	if r.Status != http.StatusOK {
		p.t.Fatalf("/stats: %d %s", r.Status, r.Body)
	}
	stats := make(map[string]int64)
	for line := range strings.Lines(r.Body) {
		// Names may hold colons, "name: value" has a blank after the last.
		i := strings.LastIndex(line, ": ")
		if i < 0 {
			continue
		}
		if v, err := strconv.ParseInt(strings.TrimSpace(line[i+2:]), 10, 64); err == nil {
			stats[line[:i]] = v
		} // else a histogram or a text
	}
	return stats
}

// Eventually polls until ok says so, and fails the test if it has not within Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !Within(Patience, ok) {
		t.Fatalf("not within %v: %s", Patience, what)
	}
}

// Within polls until ok says so or the time is over; it tells which.
func Within(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); ; {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(5 * time.Millisecond) // between polls
	}
}
