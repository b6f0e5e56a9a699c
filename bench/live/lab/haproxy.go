package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/guideway/guideway/bench/live"
)

// haproxyRuntime is HAProxy told of changes through its runtime API, which its makers recommend for them.
var haproxyRuntime = Subject{
	Name:     "haproxy",
	About:    "mode tcp, roundrobin; runtime API (set server, add server); checks every 500 ms; no UDP",
	Networks: []live.Network{live.TCP},
	Find:     haproxyVersion,
	Start: func(ctx context.Context, _ Options, at Place, fleet Fleet) (Balancer, error) {
		h := &haproxy{place: at}
		return h, h.start(ctx, fleet, "-db")
	},
}

// haproxyReload is HAProxy told of changes by a new configuration and a reload, as most deployments do.
var haproxyReload = Subject{
	Name:     "haproxy-reload",
	About:    "mode tcp, roundrobin; new configuration and SIGUSR2 to the master; checks every 500 ms; no UDP",
	Networks: []live.Network{live.TCP},
	Find:     haproxyVersion,
	Start: func(ctx context.Context, _ Options, at Place, fleet Fleet) (Balancer, error) {
		h := &haproxy{place: at, reloads: true}
		return h, h.start(ctx, fleet, "-W", "-S", filepath.Join(at.Dir, "master.sock"))
	},
}

func haproxyVersion(Options) (string, error) {
	path, err := find("haproxy", "the package haproxy")
	if err != nil {
		return "", err
	}
	return says(path, "-v")
}

type haproxy struct {
	*process
	place   Place
	reloads bool
	serial  int // of reloads
	fleet   Fleet
}

func (h *haproxy) start(ctx context.Context, fleet Fleet, mode ...string) error {
	path, err := find("haproxy", "the package haproxy")
	if err != nil {
		return err
	}
	if err := h.write(fleet); err != nil {
		return err
	}
	if h.process, err = start(h.place, path, append(mode, "-f", h.config())...); err != nil {
		return err
	}
	h.fleet = fleet
	return h.inForce(ctx, fleet)
}

func (h *haproxy) config() string { return filepath.Join(h.place.Dir, "haproxy.cfg") }

func (h *haproxy) write(fleet Fleet) error {
	var b strings.Builder
	fmt.Fprintf(&b, `global
  stats socket %s level admin expose-fd listeners
  nbthread 1
  maxconn 9000
defaults
  mode tcp
  timeout connect 1s
  timeout client 1h
  timeout server 1h
frontend vip
  bind %v
  default_backend fleet
backend fleet
  balance roundrobin
`, h.socket(), h.place.VIP)
	for _, m := range fleet {
		fmt.Fprintf(&b, "  server %s %v %s", m.ID, m.Addr, haproxyCheck)
		if m.Draining {
			b.WriteString(" weight 0") // no new connections
		}
		b.WriteString("\n")
	}
	return live.ReplaceFile(h.config(), []byte(b.String()))
}

const haproxyCheck = "check inter 500ms fall 2 rise 1"

func (h *haproxy) socket() string { return filepath.Join(h.place.Dir, "haproxy.sock") }

// Apply implements Balancer.
func (h *haproxy) Apply(ctx context.Context, fleet Fleet) error {
	if h.reloads {
		if err := h.write(fleet); err != nil {
			return err
		}
		h.serial++
		if err := h.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
			return err
		}
		return h.inForce(ctx, fleet)
	}
	was := map[string]Member{}
	for _, m := range h.fleet {
		was[m.ID] = m
	}
	var commands []string
	for _, m := range fleet {
		old, there := was[m.ID]
		delete(was, m.ID)
		if !there {
			commands = append(commands, fmt.Sprintf("add server fleet/%s %v %s", m.ID, m.Addr, haproxyCheck),
				"enable health fleet/"+m.ID, "enable server fleet/"+m.ID)
		}
		if m.Draining && !old.Draining {
			commands = append(commands, "set server fleet/"+m.ID+" state drain")
		}
	}
	for id := range was {
		// "del server" works once its connections have ended; until then it stays in maintenance.
		commands = append(commands, "set server fleet/"+id+" state maint")
	}
	for _, c := range commands {
		// The API answers such commands with an empty line, or with a word on what it did.
		out, err := ask(h.socket(), c)
		if err != nil {
			return err
		}
		if out != "" && !strings.Contains(out, "registered") {
			return fmt.Errorf("haproxy: %s: %s", c, out)
		}
	}
	h.fleet = fleet
	return nil
}

// inForce waits until the process that has the listeners is as new as the last reload, and serves the fleet.
func (h *haproxy) inForce(ctx context.Context, fleet Fleet) error {
	return h.until(ctx, "serving the fleet", func() bool {
		if h.reloads {
			procs, err := ask(filepath.Join(h.place.Dir, "master.sock"), "show proc")
			if err != nil || !reloaded(procs, h.serial) {
				return false
			}
		}
		out, err := ask(h.socket(), "show servers state fleet")
		if err != nil {
			return false
		}
		for _, m := range fleet {
			if !strings.Contains(out, " "+m.ID+" "+m.Addr.Addr().String()+" 2 ") { // 2: running
				return false
			}
		}
		return strings.Count(out, " fleet ") == len(fleet)
	})
}

// reloaded reads from "show proc" whether the master has been reloaded that often and has a worker
// of the last one: it counts how old each worker is, in reloads.
func reloaded(procs string, times int) bool {
	workers := false
	for line := range strings.SplitSeq(procs, "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) < 3:
		case f[1] == "master" && f[2] != fmt.Sprint(times):
			return false
		case f[1] == "worker" && f[2] == "0":
			workers = true
		}
	}
	return workers
}

// ask sends a line to a socket of HAProxy's and returns what it answers.
func ask(socket, line string) (string, error) {
	conn, err := net.DialTimeout("unix", socket, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		return "", err
	}
	// The master's socket goes on listening for further lines otherwise.
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	if errors.Is(err, syscall.ECONNRESET) {
		err = nil // the answer is there, the process that gave it has gone
	}
	return strings.TrimSpace(string(out)), err
}
