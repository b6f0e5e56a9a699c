package demo_test

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/guideway/guideway/bench/demo"
)

func TestDemo(t *testing.T) {
	program := os.Getenv("GUIDEWAY_BINARY")
	if program == "" {
		program = filepath.Join(t.TempDir(), "guideway")
		if out, err := exec.Command("go", "build", "-o", program, "github.com/guideway/guideway/cmd/guideway").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	var out strings.Builder
	r, err := demo.Run(context.Background(), demo.Options{
		Program: program, Flows: 60, Once: true, Dir: t.TempDir(), Out: &out,
		Admin: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0),
	})
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	if r.NewOnDrained != 0 {
		t.Errorf("%d new flows went to the drained backend", r.NewOnDrained)
	}
	for _, want := range []string{"alpha", "beta", "gamma", "Nothing moved and nothing broke"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo does not say %q", want)
		}
	}
}

func TestDemoSaysWhyItCannotStart(t *testing.T) {
	_, err := demo.Run(context.Background(), demo.Options{
		Program: filepath.Join(t.TempDir(), "none"), Flows: 1, Once: true, Dir: t.TempDir(), Out: &strings.Builder{},
		Admin: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0),
	})
	if err == nil || !strings.Contains(err.Error(), "starting the balancer") {
		t.Fatal(err)
	}
}
