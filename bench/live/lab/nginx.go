package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/guideway/guideway/bench/live"
)

// nginxStream is nginx's stream module, told of changes by a new configuration and a reload.
var nginxStream = Subject{
	Name:     "nginx",
	About:    "stream module, hash on client address and port, consistent; new configuration and SIGHUP; passive checks only",
	Networks: []live.Network{live.TCP, live.UDP},
	Find: func(Options) (string, error) {
		path, _, err := findNginx()
		if err != nil {
			return "", err
		}
		return says(path, "-v")
	},
	Start: func(ctx context.Context, _ Options, at Place, fleet Fleet) (Balancer, error) {
		n := &nginx{place: at}
		return n, n.start(ctx, fleet)
	},
}

type nginx struct {
	*process
	place  Place
	module string // the stream module, if it is to be loaded
	serial int    // of reloads
}

var modulesPath = regexp.MustCompile(`--modules-path=(\S+)`)

// findNginx finds the program, and its stream module unless that is built in.
func findNginx() (path, module string, err error) {
	if path, err = find("nginx", "the packages nginx and libnginx-mod-stream"); err != nil {
		return "", "", err
	}
	built, err := exec.Command(path, "-V").CombinedOutput()
	if err != nil {
		return "", "", fmt.Errorf("nginx -V: %w", err)
	}
	if regexp.MustCompile(`--with-stream(\s|$)`).Match(built) {
		return path, "", nil
	}
	if m := modulesPath.FindSubmatch(built); m != nil {
		if module = filepath.Join(string(m[1]), "ngx_stream_module.so"); isFile(module) {
			return path, module, nil
		}
	}
	return "", "", errors.New("nginx has no stream module: install the package libnginx-mod-stream")
}

func (n *nginx) start(ctx context.Context, fleet Fleet) error {
	path, module, err := findNginx()
	if err != nil {
		return err
	}
	n.module = module
	if err := n.write(fleet); err != nil {
		return err
	}
	if n.process, err = start(n.place, path, "-p", n.place.Dir, "-c", n.config(), "-e", n.errorLog()); err != nil {
		return err
	}
	return n.until(ctx, "starting a worker", func() bool { return n.logged("start worker process ") == 1 })
}

func (n *nginx) config() string   { return filepath.Join(n.place.Dir, "nginx.conf") }
func (n *nginx) errorLog() string { return filepath.Join(n.place.Dir, "error.log") }

func (n *nginx) write(fleet Fleet) error {
	var b strings.Builder
	if n.module != "" {
		fmt.Fprintf(&b, "load_module %s;\n", n.module)
	}
	fmt.Fprintf(&b, `daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid nginx.pid;
error_log error.log notice;
events { worker_connections 16384; }
stream {
  upstream fleet {
    hash $remote_addr:$remote_port consistent;
`)
	for _, m := range fleet {
		fmt.Fprintf(&b, "    server %v max_fails=1 fail_timeout=10s", m.Addr)
		if m.Draining {
			b.WriteString(" down") // the free version has no drain; a reload keeps what is there
		}
		b.WriteString(";\n")
	}
	fmt.Fprintf(&b, `  }
  server { listen %[1]v backlog=4096; proxy_pass fleet; proxy_connect_timeout 1s; proxy_timeout 1h; }
  server { listen %[1]v udp; proxy_pass fleet; proxy_timeout 60s; }
}
`, n.place.VIP)
	return live.ReplaceFile(n.config(), []byte(b.String()))
}

// Apply implements Balancer. A reload is in force when the old worker has been told to finish:
// the new one has been started before.
func (n *nginx) Apply(ctx context.Context, fleet Fleet) error {
	if err := n.write(fleet); err != nil {
		return err
	}
	n.serial++
	if err := n.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	return n.until(ctx, "reloading", func() bool { return n.logged("gracefully shutting down") >= n.serial })
}

// logged counts how often the log says something.
func (n *nginx) logged(what string) int {
	text, err := os.ReadFile(n.errorLog())
	if err != nil {
		return 0
	}
	return strings.Count(string(text), what)
}
