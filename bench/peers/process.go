package peers

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pin keeps all threads of this process on one CPU. Threads made later inherit it.
func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("keeping the load generator on CPU %d: %w", cpu, err)
		}
	}
	return nil
}

// process is a running proxy with its children.
type process struct {
	cmd *exec.Cmd
	out bytes.Buffer
	end chan struct{}
}

// start runs a peer on one CPU and waits until it listens.
func (p Peer) start(dir string, ports Ports, cpu int) (*process, error) {
	args, err := p.configure(dir, ports)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	r := &process{end: make(chan struct{})}
	r.cmd = exec.Command("taskset", append([]string{"-c", strconv.Itoa(cpu), p.program}, args...)...)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	go func() { r.cmd.Wait(); close(r.end) }()
	deadline := time.Now().Add(20 * time.Second)
	for {
		c, err := net.DialTimeout("tcp", address(ports.Echo).String(), time.Second)
		if err == nil {
			c.Close()
			return r, nil
		}
		select {
		case <-r.end:
			return nil, fmt.Errorf("%s ended at once: %s", p.Name, strings.TrimSpace(r.out.String()))
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			r.stop()
			return nil, fmt.Errorf("%s does not listen: %s", p.Name, strings.TrimSpace(r.out.String()))
		}
	}
}

// stop ends the process and its children, and waits.
func (r *process) stop() {
	syscall.Kill(-r.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-r.end:
	case <-time.After(5 * time.Second):
		syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		<-r.end
	}
}

// pids are the process and all that descend from it.
func (r *process) pids() []int {
	children := map[int][]int{}
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return []int{r.cmd.Process.Pid}
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	all := []int{r.cmd.Process.Pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// parentOf reads a process's parent; the name in parentheses before it may hold anything.
func parentOf(pid int) (int, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

// cpu is the time on CPU of all threads so far, to the nanosecond. Threads that have ended do not count.
func (r *process) cpu() time.Duration {
	var total time.Duration
	for _, pid := range r.pids() {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			continue
		}
		for _, t := range tasks {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, t.Name()))
			if err != nil {
				continue
			}
			if on, _, ok := strings.Cut(string(b), " "); ok {
				n, _ := strconv.ParseInt(on, 10, 64)
				total += time.Duration(n)
			}
		}
	}
	return total
}

// rss is the resident memory, in bytes.
func (r *process) rss() int {
	total := 0
	for _, pid := range r.pids() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			continue
		}
		if f := strings.Fields(string(b)); len(f) > 1 {
			n, _ := strconv.Atoi(f[1])
			total += n * os.Getpagesize()
		}
	}
	return total
}
