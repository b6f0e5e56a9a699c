package controlplane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/controlplane/xds"
	"github.com/guideway/guideway/dataplane"
)

// listenerWatcher takes what comes by LDS.
type listenerWatcher struct{ c *Control }

// Holds implements xds.Holder.
func (w *listenerWatcher) Holds() int {
	n := 0
	for _, h := range w.c.http {
		if h.api {
			n++
		}
	}
	for _, l := range w.c.listeners {
		if l.AddedViaAPI {
			n++
		}
	}
	return n
}

// Missing implements xds.Watcher.
func (w *listenerWatcher) Missing() {
	w.Unreachable()
	w.c.listenersAnswered = true
}

// Unreachable puts stored listeners in force if the server has not said anything yet.
func (w *listenerWatcher) Unreachable() {
	c := w.c
	if c.listenersAnswered || len(c.restored.listeners) == 0 {
		return
	}
	c.restored.inUse = true
	if err := w.Update(xds.Update{Resources: c.restored.listeners, Full: true}); err != nil {
		c.Log.For("config").Warn("not all of the stored state is in force", "reason", err)
	}
}

// Update implements xds.Watcher. Listeners are bound before it returns: whether they can be is part of
// the answer.
func (w *listenerWatcher) Update(u xds.Update) error {
	c := w.c
	c.listenersAnswered = true
	refusal := &xds.Refusal{Prefix: "Error adding/updating listener(s)"}
	refuse := func(r *xds.Resource, err error) {
		refusal.Refused = append(refusal.Refused, xds.Refused{Name: r.Name, Err: err})
		c.refused.listeners[r.Name] = &lastTry{time.Now(), u.Version, r.Message, err.Error()}
		c.Log.For("config").Warn(fmt.Sprintf("lds: listener '%s' config rejected: %v", r.Name, err))
	}

	named := map[string]bool{}
	for _, r := range u.Resources {
		named[r.Name] = true
	}
	gone := func(name string) bool {
		return !named[name] && (u.Full || slices.Contains(u.Removed, name))
	}
	// Removals come first, so that what is added may have their addresses.
	next := c.listeners[:0:0]
	for _, l := range c.listeners {
		if !l.AddedViaAPI || !gone(l.Name) {
			next = append(next, l)
		}
	}
	for name, h := range c.http {
		if h.api && gone(name) {
			c.endHTTP(name)
			c.counters.listenerRemoved.Inc()
		}
	}
	for name := range c.refused.listeners {
		if gone(name) {
			delete(c.refused.listeners, name)
		}
	}
	added := map[string]*xds.Resource{}
	seen := map[string]bool{}
	for _, r := range u.Resources {
		if seen[r.Name] {
			refuse(r, fmt.Errorf("duplicate listener %s found", r.Name))
			continue
		}
		seen[r.Name] = true
		at := slices.IndexFunc(next, func(l *model.Listener) bool { return l.Name == r.Name })
		if r.Heartbeat || at >= 0 && !next[at].AddedViaAPI {
			continue // static listeners cannot be changed by LDS
		}
		if r.Err != nil {
			if ok, err := c.takeHTTP(r, u.Version); ok {
				if err != nil {
					c.counters.listenerCreateFailure.Inc()
					refuse(r, err)
				}
				continue
			}
			refuse(r, r.Err)
			continue
		}
		if err := duplicateAddress(r.Listener, next); err != nil {
			refuse(r, err)
			continue
		}
		if err := c.openListenerLogs(r.Listener); err != nil {
			refuse(r, err)
			continue
		}
		c.notes(r)
		switch {
		case at < 0:
			next = append(next, c.limited(r.Listener))
		case next[at].Hash == r.Listener.Hash:
			delete(c.refused.listeners, r.Name)
			continue
		default:
			next[at] = c.limited(r.Listener)
		}
		added[r.Name] = r
	}
	for _, f := range c.changeListeners(next, u.Version) {
		if r := added[f.Name]; r != nil {
			refuse(r, f.Err)
			delete(added, f.Name)
		}
	}
	for name := range added {
		delete(c.refused.listeners, name)
	}
	c.listenerVersion = u.Version
	c.unseen = true
	c.unsaved = true
	if len(refusal.Refused) > 0 {
		return refusal
	}
	return nil
}

// duplicateAddress refuses a listener whose address another one has.
func duplicateAddress(l *model.Listener, others []*model.Listener) error {
	for _, o := range others {
		if o.Name == l.Name || o.Protocol != l.Protocol {
			continue
		}
		for _, a := range l.Addresses {
			if a.Addr.Port() != 0 && slices.ContainsFunc(o.Addresses, func(b dataplane.ListenAddress) bool { return b.Addr == a.Addr }) {
				return errDuplicate(l.Name, a.Addr)
			}
		}
	}
	return nil
}

func errDuplicate(name string, addr netip.AddrPort) error {
	return fmt.Errorf("error adding listener: '%s' has duplicate address '%s' as existing listener, to check if the listener has duplicated addresses with other listeners or 'enable_reuse_port' is set to 'false' for the listener", name, addr)
}

// changeListeners puts a new list of listeners in force. It returns those that could not be.
func (c *Control) changeListeners(next []*model.Listener, version string) []dataplane.ListenerFailure {
	before := c.listeners
	c.listeners = next
	if !c.starting {
		if slices.Equal(before, next) {
			return nil
		}
		_ = c.promote()
		c.dirty = false
		_ = c.apply(c.ctx) // reports what fails
	} else if err := c.goLive(c.ctx); err != nil {
		c.failure = err // a static listener cannot serve: the start fails
		return nil
	}
	failed := c.failed
	c.failed = nil
	for _, f := range failed {
		c.counters.listenerCreateFailure.Inc()
		c.listeners = slices.Clone(c.listeners)
		c.listeners = slices.DeleteFunc(c.listeners, func(l *model.Listener) bool { return l.Name == f.Name })
		if i := slices.IndexFunc(before, func(l *model.Listener) bool { return l.Name == f.Name }); i >= 0 {
			c.listeners = append(c.listeners, before[i]) // the former version serves on
		}
	}
	c.countListeners(before, c.listeners, version)
	c.unseen = true
	return failed
}

// splitFailures tells failures of listeners that came by LDS, which are refused by name, from the others.
func (c *Control) splitFailures(err error) (dynamic []dataplane.ListenerFailure, rest error) {
	var some *dataplane.ListenerError
	if !errors.As(err, &some) {
		return nil, err
	}
	var others []dataplane.ListenerFailure
	for _, f := range some.Failed {
		if slices.ContainsFunc(c.listeners, func(l *model.Listener) bool { return l.Name == f.Name && l.AddedViaAPI }) {
			dynamic = append(dynamic, f)
		} else {
			others = append(others, f)
		}
	}
	if len(others) == 0 {
		return dynamic, nil
	}
	return dynamic, &dataplane.ListenerError{Failed: others}
}
