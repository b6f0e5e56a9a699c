package health

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/guideway/guideway/dataplane"
)

// history is every result of one host since its checks began: the slow model looks all of it over
// for each question.
type history struct {
	results []outcome
}

// trailing counts results at the end of h[:n] that want says yes to.
func trailing(h []outcome, want func(outcome) bool) int {
	n := 0
	for i := len(h) - 1; i >= 0 && want(h[i]); i-- {
		n++
	}
	return n
}

// up says whether a host with these results is healthy, by the words of the documentation.
func up(h []outcome, r *rules) bool {
	if len(h) == 0 {
		return false
	}
	last, before := h[len(h)-1], h[:len(h)-1]
	if len(h) == 1 {
		return last.ok // the first result decides alone
	}
	isOK := func(o outcome) bool { return o.ok }
	isBad := func(o outcome) bool { return !o.ok }
	if up(before, r) {
		definite := !last.ok && !last.kind.network() && !last.retriable
		return last.ok || !definite && trailing(h, isBad) < int(r.unhealthy)
	}
	return last.ok && trailing(h, isOK) >= int(r.healthy)
}

// flags is what a host with these results shows.
func (h *history) flags(r *rules, pending bool) dataplane.Health {
	var f dataplane.Health
	if len(h.results) == 0 && pending {
		f |= dataplane.PendingActiveHC
	}
	if !up(h.results, r) {
		f |= dataplane.FailedActiveHC
		for i := len(h.results) - 1; i >= 0; i-- { // the last failure says whether it is a timeout
			if o := h.results[i]; !o.ok {
				if o.kind == failedTimeout {
					f |= dataplane.ActiveHCTimeout
				}
				break
			}
		}
	}
	for i := len(h.results) - 1; i >= 0; i-- { // the last success says whether it is degraded
		if o := h.results[i]; o.ok {
			if o.degraded {
				f |= dataplane.DegradedActiveHC
			}
			break
		}
	}
	return f
}

// TestCheckerAgainstModel lets hosts come, go, move and be switched off in any order, while probes end
// in any order with any result; flags must be those of the slow model all the time.
func TestCheckerAgainstModel(t *testing.T) {
	outcomes := []outcome{pass, pass, {ok: true, degraded: true}, failed(failedNetwork), failed(failedTimeout), failed(failedActive), {kind: failedActive, retriable: true}}
	synctest.Test(t, func(t *testing.T) {
		// rapid would ask a *testing.T for its deadline, which is not to be had in a bubble.
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			cfg := common()
			cfg.Check.Timeout = time.Hour
			cfg.Check.HealthyThreshold = rapid.Uint32Range(1, 3).Draw(rt, "healthy")
			cfg.Check.UnhealthyThreshold = rapid.Uint32Range(1, 3).Draw(rt, "unhealthy")
			cfg.PendingNewHosts = rapid.Bool().Draw(rt, "pending")
			w := watch(t, cfg, Deps{Pool: NewPool(3)})
			states := make([]*dataplane.HostState, 6)
			for i := range states {
				states[i] = new(dataplane.HostState)
			}
			present := map[*dataplane.HostState]*Target{}
			model := map[*dataplane.HostState]*history{}
			agree := func() {
				for state, tg := range present {
					var want dataplane.Health
					if !tg.Disabled {
						want = model[state].flags(&w.rules, cfg.PendingNewHosts)
					}
					if got := w.flag(state); got != want {
						rt.Fatalf("host %s is %s, want %s after %v", tg.Check, got, want, model[state])
					}
				}
			}
			rt.Repeat(map[string]func(*rapid.T){
				"": func(rt *rapid.T) { agree() },
				"hosts": func(rt *rapid.T) {
					next := map[*dataplane.HostState]*Target{}
					var list []*Target
					for i, state := range states {
						kind := rapid.SampledFrom([]string{"in", "in", "in", "out", "moved", "off"}).Draw(rt, fmt.Sprint("host ", i))
						if kind == "out" {
							delete(model, state)
							continue
						}
						port := uint16(i + 1)
						if kind == "moved" {
							port += 100
						}
						addr := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)
						tg := &Target{State: state, Address: addr, Check: addr, Disabled: kind == "off"}
						old := present[state]
						if old == nil || old.Disabled || tg.Disabled || old.Check != addr {
							model[state] = &history{}
						}
						next[state] = tg
						list = append(list, tg)
					}
					w.forgetAllBut(next)
					present = next
					w.set(list...)
				},
				"result": func(rt *rapid.T) {
					synctest.Wait()
					var waiting []int
					for i, state := range states {
						if w.fake.isWaiting(state) && present[state] != nil && !present[state].Disabled {
							waiting = append(waiting, i)
						}
					}
					if len(waiting) == 0 {
						rt.Skip("no probe is under way")
					}
					state := states[rapid.SampledFrom(waiting).Draw(rt, "of")]
					o := rapid.SampledFrom(outcomes).Draw(rt, "outcome")
					model[state].results = append(model[state].results, o)
					w.fake.end(t, present[state], o)
				},
				"time": func(rt *rapid.T) {
					time.Sleep(5 * time.Second)
					synctest.Wait()
				},
			})
			w.stop(t)
		})
	})
}
