package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
)

func TestLoads(t *testing.T) {
	p, err := Load(Options{Capacity: Capacity{Flows: 1024}})
	if err != nil {
		var v *ebpf.VerifierError
		if errors.As(err, &v) {
			n := len(v.Log)
			for _, l := range v.Log[max(0, n-90):] {
				t.Log(l)
			}
		}
		t.Fatal(err)
	}
	defer p.Close()
	info, err := p.XDP.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, _ := info.VerifiedInstructions()
	t.Log(n)
}
