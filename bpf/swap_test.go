package bpf

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/guideway/guideway/conntrack"
)

// TestSwapIsWhole changes a service of two levels again and again, by the
// protocol of doc.go, under a stream of packets. Classes and tables of two
// different states do not fit together: a packet that met both would find a
// table without owners.
func TestSwapIsWhole(t *testing.T) {
	b := newBed(t, nil)
	b.reset()
	swaps := 40
	if testing.Short() {
		swaps = 5
	}
	backends := []Backend{ways[0].backend(), ways[0].backend()}
	for i := range backends {
		copy(backends[i].Addr[:], []byte{10, 9, 0, byte(i)})
	}
	// In state n, the classes lead to array 2 or 3 alone, and the other one has no owner.
	var images [2]conntrack.Image
	for n := range images {
		var s conntrack.Steering
		d := conntrack.Desired{
			Members: []conntrack.Member{{Addr: addr(0), Serves: true}, {Addr: addr(1), Serves: true}},
			Tables: []conntrack.Table{
				{ID: 1, Slots: []conntrack.Backend{0, 0, 0}}, {ID: 2, Slots: []conntrack.Backend{1, 1, 1}},
			},
			Classes: []conntrack.Classes{{ID: 3, To: []conntrack.ID{conntrack.ID(1 + n)}}},
			Top:     3, Idle: time.Minute,
		}
		for i := range d.Tables[1-n].Slots {
			d.Tables[1-n].Slots[i] = conntrack.NoBackend
		}
		if _, err := s.Apply(d, 0); err != nil {
			t.Fatal(err)
		}
		images[n] = image(t, &s)
	}
	service := b.put(vip4, kindUDP, Service{Arrays: 0}, images[0], backends)

	packet := frame(ip{src: client4.Addr(), dst: vip4.Addr(), proto: kindUDP}.bytes(udp(client4, vip4, "x")))
	var stop atomic.Bool
	var seen [2]atomic.Uint64
	var running sync.WaitGroup
	running.Go(func() {
		for !stop.Load() {
			action, out, err := b.XDP.Test(packet)
			if err != nil || verdicts[action] != "tx" {
				t.Errorf("action %d, %v", action, err)
				return
			}
			seen[out[33]&1].Add(1)
		}
	})
	for i := 1; i <= swaps; i++ {
		img := images[i%2]
		service.Arrays = uint32(16 * (i % 2)) // the range that is free
		clear(b.tables)                       // a new inner map for each array
		b.pushTables(&service, img, nil)
		b.must(b.Services4.Put(Key4(vip4, kindUDP), service))
		m, err := NewTable(first(img), uint64(i))
		b.must(err)
		b.must(b.Tables.Put(uint32(250), uint32(m.FD()))) // the barrier
		m.Close()
	}
	stop.Store(true)
	running.Wait()
	if seen[0].Load() == 0 || seen[1].Load() == 0 {
		t.Errorf("%d packets of one state, %d of the other", seen[0].Load(), seen[1].Load())
	}
	t.Logf("%d and %d packets during %d swaps", seen[0].Load(), seen[1].Load(), swaps)
}

func first(img conntrack.Image) conntrack.ArrayImage {
	a, _ := img.Array(0)
	return a
}
