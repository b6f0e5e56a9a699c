package maglev

import (
	"fmt"
	"net/netip"
	"testing"
)

// benchHosts returns n hosts of distinct addresses in no particular order.
func benchHosts(n int, weight func(i int) uint32) []Host {
	hosts := make([]Host, n)
	for i := range hosts {
		j := uint32(i) * 2654435761 >> 8 // spreads over 10.0.0.0/8 without repeating
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(j >> 16), byte(j >> 8), byte(j)}), 8080)
		hosts[i] = Host{Key: HostKey(addr), Weight: weight(i)}
	}
	return hosts
}

// BenchmarkBuild compares Build with a plain transcription of Envoy's loop. The
// figure of interest is the ratio of the two at the same size and hosts.
func BenchmarkBuild(b *testing.B) {
	weights := []struct {
		name   string
		weight func(i int) uint32
	}{
		{"equal", func(int) uint32 { return 1 }},
		{"skewed", func(i int) uint32 { return uint32(i%10 + 1) }},
		{"1to128", func(i int) uint32 { return 1 << (i % 8) }},
		{"1to1000", func(i int) uint32 {
			if i == 0 {
				return 1000
			}
			return 1
		}},
	}
	for _, w := range weights {
		for _, c := range []struct {
			size  uint32
			hosts int
		}{{65537, 10}, {65537, 100}, {65537, 1000}, {65537, 10000}, {655373, 1000}} {
			hosts := benchHosts(c.hosts, w.weight)
			name := fmt.Sprintf("weights=%s/size=%d/hosts=%d", w.name, c.size, c.hosts)
			b.Run(name+"/how=plain", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					buildPlainly(c.size, hosts, nil)
				}
			})
			b.Run(name+"/how=fast", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Build(c.size, hosts, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
