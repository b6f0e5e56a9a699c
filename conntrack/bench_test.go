package conntrack

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A packet of a settled slot, of one on the way through classes, and of open
// slots with few and many flows.
func BenchmarkPacket(b *testing.B) {
	const size = 65537
	run := func(name string, n int, prepare func(*Tracker)) {
		b.Run(fmt.Sprintf("%s/flows=%d", name, n), func(b *testing.B) {
			tr, err := NewTracker(TCP, 2*n+minShard, minShard)
			if err != nil {
				b.Fatal(err)
			}
			apply(b, tr, service(size, 0, 1, 2), 0)
			prepare(tr)
			r := rand.New(rand.NewPCG(1, 1))
			packets := make([]Packet, n)
			for i := range packets {
				f := randomFlow(r, TCP)
				packets[i] = Packet{Flow: f, Hash: Hash5Tuple(0, f), ClassHash: Hash5Tuple(1, f)}
				tr.Packet(packets[i], 0)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				tr.Packet(packets[i], 0)
				if i++; i == n {
					i = 0
				}
			}
		})
	}
	priorities := service(size, 0, 1, 2)
	to := make([]ID, 100)
	for i := range to {
		to[i] = 1
	}
	priorities.Classes, priorities.Top = []Classes{{ID: 2, To: to}}, 2
	for _, n := range []int{1, 1 << 14, 1 << 20} {
		run("settled", n, func(*Tracker) {})
		run("classes", n, func(tr *Tracker) {
			apply(b, tr, priorities, 0)
			tr.Sweep(2 * time.Hour)
		})
		run("open", n, func(tr *Tracker) { apply(b, tr, service(size, 3), 0) })
	}
}

func BenchmarkHash5Tuple(b *testing.B) {
	for name, f := range map[string]Flow{"IPv4": packetOf(2, TCP).Flow, "IPv6": packetOf(1, TCP).Flow} {
		for _, seed := range []uint64{0, 7} {
			b.Run(fmt.Sprintf("%s/seed=%d", name, seed), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Hash5Tuple(seed, f)
				}
			})
		}
	}
}

// One slot in a thousand changes, in a table of the usual size.
func BenchmarkApply(b *testing.B) {
	d := service(65537, 0, 1, 2)
	tr := newTracker(b, TCP, d)
	b.ReportAllocs()
	k := 0
	for b.Loop() {
		for i := 0; i < 65537; i += 1000 {
			d.Tables[0].Slots[i] = Backend(k % 2)
		}
		k++
		apply(b, tr, d, 0)
	}
}
