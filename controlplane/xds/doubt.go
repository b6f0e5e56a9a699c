package xds

import "time"

// doubt holds back an empty first answer of a new stream: a management server that has just started may
// answer before it has loaded anything, and to take it by its word would end all service. The answer
// counts after a while, or together with the next one.
type doubt struct {
	update *Update
	stop   func()
}

// doubtful is how long an empty first answer is not believed.
const doubtful = 10 * time.Second

// hold reports whether an update is to wait, and arranges that it comes into force if nothing else does.
func (d *doubt) hold(m *mux, ch *channel, u Update, first bool) bool {
	holder, ok := ch.subs[0].watcher.(Holder)
	if !first || !ok || len(u.Resources) > 0 {
		return false
	}
	n := holder.Holds()
	if n == 0 || !u.Full && len(u.Removed) < n {
		return false
	}
	m.log.Warn("the first answer after a reconnect is empty; what is in force stays for now", "type", ch.typ.String(), "resources", n, "seconds", doubtful.Seconds())
	d.update = &u
	d.stop = m.client.after(doubtful, func() {
		late := *d.update
		d.update, d.stop = nil, nil
		if len(ch.subs) > 0 {
			if err := ch.subs[0].watcher.Update(late); err != nil {
				m.log.Warn("not all resources could be removed", "type", ch.typ.String(), "reason", err)
			}
		}
	})
	return true
}

// merge adds what was held back to the update that follows it.
func (d *doubt) merge(u Update) Update {
	if d.update == nil {
		return u
	}
	held := d.update
	d.cancel()
	if u.Full {
		return u
	}
	back := map[string]bool{}
	for _, r := range u.Resources {
		back[r.Name] = true
	}
	removed := append([]string(nil), u.Removed...)
	for _, name := range held.Removed {
		if !back[name] {
			removed = append(removed, name)
		}
	}
	u.Removed = removed
	return u
}

func (d *doubt) cancel() {
	if d.stop != nil {
		d.stop()
	}
	d.update, d.stop = nil, nil
}

// Holder is a Watcher that tells how many resources it has from its source. Only of these an empty
// answer is doubted.
type Holder interface{ Holds() int }
