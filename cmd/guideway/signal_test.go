package main_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// Whoever sees the process may end it: as the admin address is written, the listeners are being made.
func TestSIGTERMDuringTheStartIsNoFailure(t *testing.T) {
	for range 5 {
		ns := testbed.Isolated(t)
		config := goodConfig()
		config["admin"] = testbed.Message{"address": testbed.SocketAddress("127.0.0.1", 0)}
		p := testbed.Guideway(t).Start(t, ns, config)
		p.Admin() // once it is written
		p.Signal(syscall.SIGTERM)
		if code := p.Wait(); code != 0 || strings.Contains(p.Stderr(), "[critical]") {
			t.Fatalf("exit code %d, and says:\n%s", code, p.Stderr())
		}
	}
}
