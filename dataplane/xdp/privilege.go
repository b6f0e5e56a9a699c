package xdp

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// PrivilegeError names what the process must be allowed to do and is not.
type PrivilegeError struct{ Missing []string }

func (e *PrivilegeError) Error() string {
	return "not allowed to use XDP: " + strings.Join(e.Missing, ", ") + " missing; give the process these capabilities (systemd: AmbientCapabilities, Docker: --cap-add), or use dataplane proxy"
}

// CheckPrivileges returns a *PrivilegeError that names every missing privilege, nil if none is.
func CheckPrivileges() error {
	effective, err := effectiveCapabilities()
	if err != nil {
		return err
	}
	return missing(effective)
}

func missing(effective uint64) error {
	has := func(c int) bool { return effective&(1<<c) != 0 }
	var e PrivilegeError
	if !has(unix.CAP_SYS_ADMIN) { // which, since long before CAP_BPF, includes the next two
		if !has(unix.CAP_BPF) {
			e.Missing = append(e.Missing, "CAP_BPF")
		}
		if !has(unix.CAP_PERFMON) {
			e.Missing = append(e.Missing, "CAP_PERFMON")
		}
	}
	if !has(unix.CAP_NET_ADMIN) {
		e.Missing = append(e.Missing, "CAP_NET_ADMIN")
	}
	if len(e.Missing) > 0 {
		return &e
	}
	return nil
}

func effectiveCapabilities() (uint64, error) {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return 0, fmt.Errorf("read this process's capabilities: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	return 0, errors.New("read this process's capabilities: /proc/thread-self/status does not tell them")
}

// explain adds to an error of loading what it often means.
func explain(err error) error {
	var v *ebpf.VerifierError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &v):
		return fmt.Errorf("the kernel's verifier refuses the XDP program; please report the log (--log-level debug prints all of it): %w", err)
	case errors.Is(err, unix.EPERM):
		if e := CheckPrivileges(); e != nil {
			return fmt.Errorf("%w: %w", e, err)
		}
		if e := rlimit.RemoveMemlock(); e != nil {
			return fmt.Errorf("%w: locked memory is limited (Linux before 5.11 counts maps): raise it ('ulimit -l unlimited', systemd: LimitMEMLOCK=infinity): %w", err, e)
		}
		return fmt.Errorf("%w: the kernel forbids it (lockdown, a security module or a container's seccomp profile)", err)
	}
	return err
}
