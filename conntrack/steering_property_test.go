package conntrack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// underTest is the Tracker as a history sees it.
type underTest struct{ *Tracker }

func newUnderTest(set setting) underTest {
	half := 8192
	if set.flood {
		half = halfRoom
	}
	t, err := NewTracker(set.proto, 8192, half)
	if err != nil {
		panic(err)
	}
	return underTest{t}
}

func (u underTest) apply(d Desired, _ map[int]bool, now time.Duration) error {
	if _, err := u.Apply(d, now); err != nil {
		return err
	}
	v := u.view.Load()
	if change, err := u.Apply(d, now); err != nil || change != (Change{}) || u.view.Load() != v {
		return fmt.Errorf("applying what is in force does something: %+v, error %v", change, err)
	}
	return u.countsAgree()
}

func (u underTest) sweep(now time.Duration) { u.Sweep(now) }

func (u underTest) packet(_ int, p Packet, now time.Duration) (int, error) {
	if b := u.Packet(p, now); b != NoBackend {
		return int(b), nil
	}
	return -1, nil
}

func (u underTest) unsettled() int {
	s := u.Stats()
	return s.OpenSlots + s.ExceptedSlots + s.OpenClasses + s.ExceptedClasses + s.Remembered + s.HalfOpen
}

// countsAgree compares the counts that are kept with those that are counted.
func (u underTest) countsAgree() error {
	for _, a := range u.view.Load().arrays {
		if a == nil {
			continue
		}
		n := map[slotState]int{}
		for _, s := range a.slots {
			n[s.state()]++
		}
		if n[open] != a.open || n[excepted] != a.excepted {
			return fmt.Errorf("array %d counts %d open and %d excepted slots, has %v", a.id, a.open, a.excepted, n)
		}
	}
	return nil
}

// both are a Tracker and the model, which must agree on every packet.
type both struct {
	underTest
	model *model
}

func (b both) apply(d Desired, lost map[int]bool, now time.Duration) error {
	return errors.Join(b.underTest.apply(d, lost, now), b.model.apply(d, lost, now))
}

func (b both) sweep(now time.Duration) {
	b.underTest.sweep(now)
	b.model.sweep(now)
}

func (b both) packet(id int, p Packet, now time.Duration) (int, error) {
	got, _ := b.underTest.packet(id, p, now)
	if want, _ := b.model.packet(id, p, now); got != want {
		return 0, fmt.Errorf("a packet of flow %d goes to %d, by the model to %d", id, got, want)
	}
	return got, nil
}

// rapidDice makes a history's choices shrink.
type rapidDice struct{ t *rapid.T }

func (r rapidDice) roll(n int) int { return rapid.IntRange(0, n-1).Draw(r.t, "roll") }

// The two invariants, for every setting: a live flow whose backend can serve
// does not move, and a backend that cannot serve gets no packet after Apply.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapidDice{t}
		set := rollSetting(d)
		if err := play(d, set, newUnderTest(set), 150); err != nil {
			t.Fatalf("%v: %v", set, err)
		}
	})
}

// modelled makes a setting one that the model covers.
func (s setting) modelled() setting {
	s.flood, s.morph, s.layout = false, false, s.layout%prioritiesInClusters
	return s
}

// The same in bulk: histories that are longer than rapid can shrink.
func TestInvariantsInBulk(t *testing.T) {
	for i := range bulk(3000) {
		d := seeded{rand.New(rand.NewPCG(bulkSeed, uint64(i)))}
		set := rollSetting(d)
		if err := play(d, set, newUnderTest(set), 200+400*(i%2)); err != nil {
			t.Fatalf("history %d, %v: %v", i, set, err)
		}
	}
}

const bulkSeed = 1

func bulk(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// A Tracker does what the model does, packet by packet.
func TestTrackerEqualsModel(t *testing.T) {
	for i := range bulk(2000) {
		d := seeded{rand.New(rand.NewPCG(2, uint64(i)))}
		set := rollSetting(d).modelled()
		if err := play(d, set, both{newUnderTest(set), newModel(straight)}, 200+400*(i%2)); err != nil {
			t.Fatalf("history %d, %v: %v", i, set, err)
		}
	}
}

// Histories can tell right from wrong: each rule bent shows, in the model,
// which without a bend is what the Tracker does.
func TestHistoriesNoticeBentRules(t *testing.T) {
	for b := straight + 1; b < bends; b++ {
		t.Run(bendNames[b], func(t *testing.T) {
			for i := range 4000 {
				d := seeded{rand.New(rand.NewPCG(3, uint64(i)))}
				set := rollSetting(d).modelled()
				if err := play(d, set, newModel(b), 600); err != nil {
					t.Logf("history %d, %v: %v", i, set, err)
					return
				}
			}
			t.Error("no history notices")
		})
	}
}
