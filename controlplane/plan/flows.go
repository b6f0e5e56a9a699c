package plan

import (
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
)

// Flows is what a change does to the flows there are.
type Flows struct {
	TCP int `json:"tcp"`
	UDP int `json:"udp"`
	// Remembered flows stay with their host although the table gives their hash to another one since this
	// change; AllRemembered counts those of earlier changes too.
	Remembered    int `json:"remembered"`
	AllRemembered int `json:"remembered_all"`
	// Broken flows end, or go to another host, because of the change: at once, with their next datagram, or
	// when the drain time or the window of close_after is over. Reasons splits them.
	Broken  int                       `json:"broken"`
	Reasons map[dataplane.FlowEnd]int `json:"reasons,omitempty"`
	// Ended were gone after the change without a reason of ours: their client or host ended them.
	Ended int `json:"ended,omitempty"`
}

func (f *Flows) end(why dataplane.FlowEnd) {
	f.Broken++
	if f.Reasons == nil {
		f.Reasons = map[dataplane.FlowEnd]int{}
	}
	f.Reasons[why]++
}

func (f *Flows) stay(flow *dataplane.Flow, older, newer *dataplane.Snapshot) {
	if !flow.Hashed || onItsHost(flow, newer.Clusters[flow.Cluster]) {
		return
	}
	f.AllRemembered++
	if onItsHost(flow, older.Clusters[flow.Cluster]) {
		f.Remembered++
	}
}

func (f *Flows) count(flow *dataplane.Flow) {
	if flow.Protocol == dataplane.UDP {
		f.UDP++
	} else {
		f.TCP++
	}
}

// onItsHost reports whether the cluster's table gives a flow's hash to the host it is on.
func onItsHost(flow *dataplane.Flow, c *dataplane.Cluster) bool {
	if c == nil {
		return false
	}
	h := lb.Owner(c.Balancer, flow.Hash)
	return h != nil && (h.State == flow.Host || h.Address == flow.Address)
}

// Foresee says what becomes of flows when older is replaced by newer. Those that end anyway are counted,
// and not broken by this change.
func Foresee(flows []dataplane.Flow, older, newer *dataplane.Snapshot) *Flows {
	out := &Flows{}
	v := newViews(older, newer)
	for i := range flows {
		f := &flows[i]
		out.count(f)
		if f.Ends != "" {
			continue
		}
		if why := v.end(f); why != "" {
			out.end(why)
			continue
		}
		out.stay(f, older, newer)
	}
	return out
}

// Observe says what became of flows when older was replaced by newer, from those there were just before
// and those there are now.
func Observe(before, after []dataplane.Flow, older, newer *dataplane.Snapshot) *Flows {
	out := &Flows{}
	v := newViews(older, newer)
	now := make(map[dataplane.FlowID]*dataplane.Flow, len(after))
	for i := range after {
		now[after[i].ID] = &after[i]
	}
	for i := range before {
		f := &before[i]
		out.count(f)
		if f.Ends != "" {
			continue
		}
		is := now[f.ID]
		switch {
		case is != nil && is.Ends != "":
			out.end(is.Ends)
		case is != nil:
			out.stay(f, older, newer)
		default: // gone; why is not written on it any more
			if why := v.end(f); why != "" {
				out.end(why)
			} else {
				out.Ended++
			}
		}
	}
	return out
}

// views are two snapshots made ready for questions about flows.
type views struct {
	older, newer *dataplane.Snapshot
	was, is      map[string]*dataplane.Listener
	hosts        map[string]*pair
}

// pair is the hosts of a cluster before and after, by their identity.
type pair struct {
	was, is map[*dataplane.HostState]*dataplane.Host
}

func newViews(older, newer *dataplane.Snapshot) *views {
	v := &views{older: older, newer: newer, was: map[string]*dataplane.Listener{}, is: map[string]*dataplane.Listener{}, hosts: map[string]*pair{}}
	for _, l := range older.Listeners {
		v.was[l.Name] = l
	}
	for _, l := range newer.Listeners {
		v.is[l.Name] = l
	}
	return v
}

func (v *views) pair(cluster string) *pair {
	p := v.hosts[cluster]
	if p == nil {
		list := func(c *dataplane.Cluster) map[*dataplane.HostState]*dataplane.Host {
			m := map[*dataplane.HostState]*dataplane.Host{}
			if c != nil {
				for _, h := range c.Hosts {
					m[h.State] = h
				}
			}
			return m
		}
		p = &pair{list(v.older.Clusters[cluster]), list(v.newer.Clusters[cluster])}
		v.hosts[cluster] = p
	}
	return p
}

// end says why the change ends a flow; "" if it does not.
func (v *views) end(f *dataplane.Flow) dataplane.FlowEnd {
	if f.Protocol == dataplane.UDP {
		if why := v.listenerEndsSession(f); why != "" {
			return why
		}
		if why := v.hostEndsSession(f); why != "" {
			return why
		}
	}
	if why := v.hostEndsFlow(f); why != "" {
		return why
	}
	if f.Protocol == dataplane.TCP {
		return v.listenerEndsConnection(f)
	}
	return ""
}

// hostEndsFlow follows settings of the cluster that close flows.
func (v *views) hostEndsFlow(f *dataplane.Flow) dataplane.FlowEnd {
	was, is := v.older.Clusters[f.Cluster], v.newer.Clusters[f.Cluster]
	if was == is || was == nil {
		return ""
	}
	p := v.pair(f.Cluster)
	old, now := p.was[f.Host], p.is[f.Host]
	if old == nil {
		return "" // it had gone before
	}
	over := was.CloseAfter
	if is != nil {
		over = is.CloseAfter
	}
	switch {
	case over > 0 && now == nil, over > 0 && now.Health.Draining() && !old.Health.Draining():
		return dataplane.EndCloseAfter
	case now == nil || !is.CloseOnHealthFailure || f.Protocol != dataplane.TCP:
		return ""
	}
	const failed = dataplane.FailedActiveHC | dataplane.FailedOutlierCheck
	if now.Health&failed != 0 && old.Health&failed == 0 {
		return dataplane.EndHealthFailure
	}
	return ""
}

// hostEndsSession follows the rules of conntrack for hosts that cannot serve.
func (v *views) hostEndsSession(f *dataplane.Flow) dataplane.FlowEnd {
	was, is := v.older.Clusters[f.Cluster], v.newer.Clusters[f.Cluster]
	if was == is {
		return ""
	}
	if is == nil {
		return dataplane.EndHostRemoved
	}
	now := v.pair(f.Cluster).is[f.Host]
	if now == nil && was != nil && was.Incarnation != is.Incarnation {
		for _, h := range is.Hosts { // the hosts are new ones, but where they were
			if h.Address == f.Address {
				now = h
				break
			}
		}
	}
	if now == nil {
		return dataplane.EndHostRemoved
	}
	if is.KeepsSessions(now.Health) {
		return ""
	}
	if l := v.was[f.Listener]; l != nil && l.UDP != nil && l.UDP.PerPacket {
		return "" // each datagram goes where it is sent; the session waits for the next one, or idles out
	}
	if next := lb.Owner(is.Balancer, f.Hash); f.Hashed && (next == nil || next.State == now.State || !is.KeepsSessions(next.Health)) {
		return "" // nobody is better: it stays
	}
	if now.Health.Draining() {
		return dataplane.EndHostDraining
	}
	return dataplane.EndHostFailed
}

// listenerEndsSession: a UDP session lives as long as its socket has a listener that sends it where it is.
func (v *views) listenerEndsSession(f *dataplane.Flow) dataplane.FlowEnd {
	was, is := v.was[f.Listener], v.is[f.Listener]
	if was == nil || is != nil && (was == is || was.Hash == is.Hash) {
		return ""
	}
	next := v.successor(was)
	switch {
	case next == nil && is == nil:
		return dataplane.EndListenerRemoved
	case next == nil:
		return dataplane.EndListenerChanged
	case next.UDP.PerPacket != was.UDP.PerPacket || next.UDP.UseOriginalSrcIP != was.UDP.UseOriginalSrcIP,
		next.UDP.Route(f.Src, f.Dst) != f.Cluster:
		return dataplane.EndRouteChanged
	}
	return ""
}

// successor is the UDP listener that gets the socket of one.
func (v *views) successor(was *dataplane.Listener) *dataplane.Listener {
	address := was.Addresses[0].Addr
	for _, l := range v.newer.Listeners {
		if l.UDP == nil || address.Port() == 0 && l.Name != was.Name {
			continue
		}
		for _, a := range l.Addresses {
			if a.Addr == address {
				return l
			}
		}
	}
	return nil
}

// listenerEndsConnection: a TCP connection lives as long as its filter chain is in force.
func (v *views) listenerEndsConnection(f *dataplane.Flow) dataplane.FlowEnd {
	was, is := v.was[f.Listener], v.is[f.Listener]
	switch {
	case was == nil || was == is:
		return ""
	case is == nil:
		return dataplane.EndListenerRemoved
	case was.Hash == is.Hash:
		return ""
	case was.SocketHash != is.SocketHash:
		return dataplane.EndListenerChanged
	}
	for _, c := range is.Chains {
		if c.Hash == f.Chain.Hash && c.Name == f.Chain.Name {
			return ""
		}
	}
	if c := is.DefaultChain; c != nil && c.Hash == f.Chain.Hash && c.Name == f.Chain.Name {
		return ""
	}
	return dataplane.EndChainRemoved
}
