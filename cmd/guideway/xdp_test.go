package main

import (
	"fmt"
	"testing"
)

// Every way of forwarding, in both modes and families: small and large answers, from all backends.
func TestXDPForwards(t *testing.T) {
	for _, mode := range []string{"xdp", "xdp-generic"} {
		for _, forwarding := range []string{"ipip", "gue", "l2", "nat"} {
			for _, v6 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/v6=%v", mode, forwarding, v6), func(t *testing.T) {
					b := newXDPBed(t, forwarding, v6)
					b.start(t, t.TempDir(), b.config(mode, xdpHealth{}))
					seen := map[string]int{}
					for range 30 {
						name, err := b.get(100)
						if err != nil {
							t.Fatal(err)
						}
						seen[name]++
					}
					if len(seen) != 3 {
						t.Errorf("30 connections reached %v, want all three backends", seen)
					}
					if _, err := b.get(10 << 20); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
}
