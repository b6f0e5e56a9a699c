package controlplane

import (
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
)

// listenerChange is when a listener changed last, and to which version of the server's.
type listenerChange struct {
	at      time.Time
	version string
}

// refused are the resources whose last update was refused, by name.
type refused struct{ clusters, listeners map[string]*lastTry }

func byName(listeners []*model.Listener) map[string]*model.Listener {
	m := make(map[string]*model.Listener, len(listeners))
	for _, l := range listeners {
		m[l.Name] = l
	}
	return m
}

// countListeners counts what a change of listeners does, as Envoy does, and notes when it was.
func (c *Control) countListeners(before, after []*model.Listener, version string) {
	old := byName(before)
	for _, l := range after {
		was := old[l.Name]
		delete(old, l.Name)
		switch {
		case was == nil:
			c.counters.listenerAdded.Inc()
		case was.Hash == l.Hash:
			continue
		case was.SocketHash == l.SocketHash:
			c.counters.listenerModified.Inc()
			c.counters.listenerInPlaceUpdated.Inc()
			c.drainsChains(was, l)
		default:
			c.counters.listenerModified.Inc()
			c.drainsListener()
		}
		c.counters.listenerCreateSuccess.Inc()
		c.listenerChanges[l.Name] = listenerChange{time.Now(), version}
	}
	for name := range old {
		c.counters.listenerRemoved.Inc()
		c.drainsListener()
		delete(c.listenerChanges, name)
	}
}

// drainsListener counts a former version of a listener while it drains.
func (c *Control) drainsListener() {
	if c.starting {
		return
	}
	c.counters.listenersDraining.Inc()
	time.AfterFunc(c.DrainTime, func() { c.post(c.counters.listenersDraining.Dec) })
}

// drainsChains counts the filter chains that an update in place ends, while they drain.
func (c *Control) drainsChains(was, now *model.Listener) {
	if c.starting {
		return
	}
	kept := map[uint64]bool{}
	for _, chain := range chainsOf(now) {
		kept[chain.Hash] = true
	}
	n := int64(0)
	for _, chain := range chainsOf(was) {
		if !kept[chain.Hash] {
			n++
		}
	}
	if n == 0 {
		return
	}
	c.counters.chainsDraining.Add(n)
	time.AfterFunc(c.DrainTime, func() { c.post(func() { c.counters.chainsDraining.Add(-n) }) })
}

func chainsOf(l *model.Listener) []*dataplane.FilterChain {
	chains := append([]*dataplane.FilterChain(nil), l.Chains...)
	if l.DefaultChain != nil {
		chains = append(chains, l.DefaultChain)
	}
	return chains
}
