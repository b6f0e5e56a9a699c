package disruption

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/guideway/guideway/bench/scheme"
	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/maglev"
)

// What is counted as tracked is what Guideway's own steering does: the same flows, sent through a Tracker of
// package conntrack over the same changes, move as often.
func TestTrackedIsWhatGuidewayDoes(t *testing.T) {
	const size = 1009
	rapid.Check(t, func(t *rapid.T) {
		members := Fleet(rapid.IntRange(3, 8).Draw(t, "backends"), nil, 2)
		var c Case
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			text := rapid.SampledFrom([]string{"add=1", "remove=1", "drain=1", "replace=1", "reweight=1,weight=3", "flap=1,times=2", "rolling-restart"}).Draw(t, "change")
			change, err := ParseChange(text)
			if err != nil {
				t.Fatal(err)
			}
			c.Changes = append(c.Changes, change)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		states, err := stages(members, c, seed)
		if err != nil {
			t.Skip(err) // no backend is left
		}
		s, err := scheme.Parse("maglev:m=1009")
		if err != nil {
			t.Fatal(err)
		}
		keys := Keys(300, seed)
		var outcome Outcome
		n := count{plan: &Plan{Keys: len(keys)}, scheme: s, keys: keys, progress: &counter{}}
		if err := n.run(context.Background(), [][]stage{states}, func(_ int, o Outcome) { outcome = o }); err != nil {
			t.Fatal(err)
		}

		tracker, err := conntrack.NewTracker(6, 10000, 10000)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Second
		apply := func(s stage) {
			d := conntrack.Desired{Top: 1, Idle: conntrack.NoIdle}
			for id, serves := range s.serves {
				d.Members = append(d.Members, conntrack.Member{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 9, byte(id)}), 80), Serves: serves})
			}
			var hosts []maglev.Host
			for _, b := range s.backends {
				key := maglev.HostKey(b.Addr)
				hosts = append(hosts, maglev.Host{Key: key, Addr: key, Weight: b.Weight})
			}
			table, err := maglev.Build(size, hosts, nil)
			if err != nil {
				t.Fatal(err)
			}
			slots := make([]conntrack.Backend, size)
			for slot := range slots {
				slots[slot] = conntrack.Backend(s.ids[table.Owner(uint32(slot))])
			}
			d.Tables = []conntrack.Table{{ID: 1, Slots: slots}}
			if _, err := tracker.Apply(d, now); err != nil {
				t.Fatal(err)
			}
		}
		packet := func(key scheme.Key, first bool) conntrack.Backend {
			flow := key.Flow()
			return tracker.Packet(conntrack.Packet{Flow: flow, Hash: conntrack.Hash5Tuple(0, flow), New: first}, now)
		}
		apply(states[0])
		at := make([]conntrack.Backend, len(keys))
		for k, key := range keys {
			at[k] = packet(key, true)
		}
		for i, s := range states[1:] {
			now += time.Second
			apply(s)
			moved := 0
			for k, key := range keys {
				if b := packet(key, false); b != at[k] {
					at[k] = b
					moved++
				}
			}
			if moved != outcome.Steps[i].Tracked.Moved {
				t.Fatalf("step %d, %s: %d flows moved through the tracker, %d were counted", i+1, s.name, moved, outcome.Steps[i].Tracked.Moved)
			}
		}
	})
}
