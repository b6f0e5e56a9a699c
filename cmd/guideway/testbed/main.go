package testbed

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// inside tells the process that Main started that it is in the user namespace already.
const inside = "GUIDEWAY_TEST_IN_USER_NAMESPACE"

// parallel is how many tests run at once unless -parallel says so.
const parallel = 8

// Main runs the tests of a package that uses namespaces; call it from TestMain, with its result as exit
// code. Users who are not root get a user namespace in which they may make network namespaces, if the system lets them:
// the test binary then runs in it, once more.
func Main(m *testing.M) int {
	if os.Geteuid() != 0 && os.Getenv(inside) == "" {
		if code, ok := runInUserNamespace(); ok {
			return code
		}
	}
	if os.Getenv(inside) != "" {
		h, err := netlink.NewHandle()
		if err == nil {
			err = loopbackUp(h)
			h.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	// These tests wait for other processes most of the time.
	if flag.Parse(); flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		flag.Set("test.parallel", strconv.Itoa(parallel))
	}
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	return code
}

// runInUserNamespace runs this binary again as root of a new user and network namespace; false
// means that the system does not let us.
func runInUserNamespace() (code int, ok bool) {
	in := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
		return cmd
	}
	if in("true").Run() != nil {
		return 0, false
	}
	cmd := in(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return cmd.ProcessState.ExitCode(), true
}
