package proxy

import (
	"net/netip"
	"time"

	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
)

// udpHost is a host as one listening socket knows it: the backend that conntrack's rules speak of.
type udpHost struct {
	cluster *udpCluster
	host    *dataplane.Host // nil once it is gone
	index   conntrack.Backend
	gen     uint32
	remote  sockaddr
	// live sessions, counted in the host's state.
	live    int64
	counted *dataplane.HostState
	// sessions of this host alone, if hosts are picked for each datagram.
	sessions *conntrack.Sessions[*udpSession]
}

// udpHosts answers conntrack.Sessions' questions about the hosts of all clusters that one listening
// socket sends to. A backend's index is used again only with another generation.
type udpHosts struct {
	l       *udpListener
	slots   []*udpHost
	byState map[*dataplane.HostState]*udpHost
	free    []*udpHost
	// pinned is the host of the datagram in hand if hosts are picked for each datagram.
	pinned *udpHost
}

// Standing says whether a session may stay with its host, by the newest health there is.
func (h *udpHosts) Standing(b conntrack.Backend, gen uint32) conntrack.Standing {
	u := h.slots[b]
	switch {
	case u.host == nil || u.gen != gen:
		return conntrack.Gone
	case h.pinned != nil: // it was picked for this very datagram
		return conntrack.Serving
	}
	health := u.host.State.Health()
	if health == 0 {
		return conntrack.Serving
	}
	if u.cluster.c.KeepsSessions(health) {
		return conntrack.Serving
	}
	return conntrack.Unfit
}

// endOf says why the session's next datagram will go elsewhere, "" if it will not.
func (h *udpHosts) endOf(s *udpSession) dataplane.FlowEnd {
	switch h.Standing(s.track.Backend(), s.host.gen) {
	case conntrack.Gone:
		return dataplane.EndHostRemoved
	case conntrack.Serving:
		return ""
	}
	f := s.track.Flow()
	hash, hashed := s.cluster.c.HashPolicy(h.l.proxy.Hash).HashOf(dataplane.UDP, f.Src, f.Dst)
	if next := lb.Owner(s.cluster.c.Balancer, hash); hashed && (next == nil || next.State == s.host.counted || !s.cluster.c.KeepsSessions(next.State.Health())) {
		return "" // nobody is better: it stays
	}
	if s.host.counted.Health().Draining() {
		return dataplane.EndHostDraining
	}
	return dataplane.EndHostFailed
}

// Pick picks a host for a new session; if there is none it counts why.
func (h *udpHosts) Pick(f conntrack.Flow) (conntrack.Backend, uint32, bool) {
	u := h.pinned
	if u == nil {
		u = h.pick(f)
	}
	if u == nil {
		return conntrack.NoBackend, 0, false
	}
	return u.index, u.gen, true
}

func (h *udpHosts) pick(f conntrack.Flow) *udpHost {
	c := h.l.cluster(h.l.proxy.Route(f.Src, f.Dst))
	if c == nil {
		h.l.stats.SessNoRoute.Inc()
		h.l.total.noRoute++
		return nil
	}
	hash, hashed := c.c.HashPolicy(h.l.proxy.Hash).HashOf(dataplane.UDP, f.Src, f.Dst)
	host := c.c.Balancer.Pick(hash, hashed)
	if host == nil {
		c.c.Stats.UpstreamCxNoneHealthy.Inc()
		return nil
	}
	return h.of(c, host)
}

// of returns what is known of a host, and gets to know it if need be. It returns nil if there are too
// many hosts to number.
func (h *udpHosts) of(c *udpCluster, host *dataplane.Host) *udpHost {
	if u := h.byState[host.State]; u != nil {
		return u
	}
	var u *udpHost
	switch n := len(h.free); {
	case n > 0:
		u, h.free = h.free[n-1], h.free[:n-1]
	case len(h.slots) < int(conntrack.NoBackend)-1:
		u = &udpHost{index: conntrack.Backend(len(h.slots))}
		h.slots = append(h.slots, u)
	default:
		return nil
	}
	u.cluster, u.host, u.counted = c, host, host.State
	u.remote.set(host.Address)
	h.byState[host.State] = u
	return u
}

// update takes over the hosts of the clusters of a new snapshot, and reports whether any host is gone.
//
// A host that left its cluster is gone, even if one with its address comes later. If the cluster itself
// was replaced by one with other settings, its hosts are new ones by right; a session stays with the one
// that has its host's address (Envoy ends all sessions then).
func (h *udpHosts) update(s *dataplane.Snapshot) (gone bool) {
	type place struct {
		byState map[*dataplane.HostState]*dataplane.Host
		byAddr  map[netip.AddrPort]*dataplane.Host
	}
	changed := map[*udpCluster]place{}
	for name, c := range h.l.clusters {
		next := s.Clusters[name]
		if next == c.c {
			continue
		}
		p := place{byState: map[*dataplane.HostState]*dataplane.Host{}}
		if next == nil {
			delete(h.l.clusters, name)
		} else {
			replaced := next.Incarnation != c.c.Incarnation
			if replaced {
				p.byAddr = map[netip.AddrPort]*dataplane.Host{}
			}
			for _, host := range next.Hosts {
				p.byState[host.State] = host
				if replaced && p.byAddr[host.Address] == nil {
					p.byAddr[host.Address] = host
				}
			}
			c.follow(next)
		}
		changed[c] = p
	}
	if len(changed) == 0 {
		return false
	}
	for _, u := range h.slots {
		p, ok := changed[u.cluster]
		if u.host == nil || !ok {
			continue
		}
		next := p.byState[u.host.State]
		if next == nil {
			next = p.byAddr[u.host.Address]
			if next != nil && h.byState[next.State] != nil {
				next = nil // known by another slot already
			}
		}
		delete(h.byState, u.host.State)
		u.host = next
		if next == nil {
			u.gen++
			gone = true
			continue
		}
		u.remote.set(next.Address)
		h.byState[next.State] = u
		u.countIn(next.State)
	}
	return gone
}

// begun and ended count sessions in the host's state.
func (u *udpHost) begun() { u.live++; u.counted.UDPSessions.Add(1) }
func (u *udpHost) ended() { u.live--; u.counted.UDPSessions.Add(-1) }

// countIn moves the count to another state.
func (u *udpHost) countIn(s *dataplane.HostState) {
	if s != u.counted {
		u.counted.UDPSessions.Add(-u.live)
		s.UDPSessions.Add(u.live)
		u.counted = s
	}
}

// recycle frees the numbers of hosts that are gone, when their sessions have ended.
func (h *udpHosts) recycle() {
	h.free = h.free[:0]
	for _, u := range h.slots {
		if u.host == nil {
			u.cluster, u.sessions = nil, nil
			h.free = append(h.free, u)
		}
	}
}

// udpCluster is a cluster as one listening socket uses it.
type udpCluster struct {
	l    *udpListener
	name string
	c    *dataplane.Cluster
	// sessions counted in c.Live now.
	sessions int64
	// Counts of this turn of the loop, before they go to the shared stats.
	pending udpCounts
	listed  bool // in the list of those with pending counts
	// crowded is until when no session is tried, after the kernel found no local port for one.
	crowded time.Time
}

// udpCounts are counts of datagrams and bytes that went well, and datagrams that did not.
type udpCounts struct {
	rx, rxBytes         uint64 // from clients
	tx, txBytes, txErrs uint64 // to clients

	upTx, upTxBytes, upTxErrs             uint64 // to hosts
	upRx, upRxBytes, upRxErrs, upRxTooBig uint64 // from hosts
}

func newUDPCluster(l *udpListener, name string, c *dataplane.Cluster) *udpCluster {
	bindUDPStats(c.Stats)
	return &udpCluster{l: l, name: name, c: c}
}

// follow makes the cluster act by its next version; what its sessions count for moves along.
func (c *udpCluster) follow(next *dataplane.Cluster) {
	if next.Stats != c.c.Stats {
		bindUDPStats(next.Stats)
	}
	if next.Live != c.c.Live {
		countConnections(c.c, -c.sessions)
		countConnections(next, c.sessions)
	}
	c.c = next
	countConnections(next, 0) // the limit may be another one
}

// acquire takes one of the cluster's connections, if its circuit breaker has one left.
func (c *udpCluster) acquire() bool {
	if !below(&c.c.Live.Connections, c.c.Breakers.Default.MaxConnections) {
		c.c.Stats.UpstreamCxOverflow.Inc()
		return false
	}
	c.sessions++
	countConnections(c.c, 1)
	return true
}

func (c *udpCluster) release() {
	c.sessions--
	countConnections(c.c, -1)
}

func countConnections(c *dataplane.Cluster, n int64) {
	count(&c.Live.Connections, n, c.Breakers.Default.MaxConnections, c.Stats.CxOpen)
}

// bindUDPStats makes the UDP counters of a cluster, which exist only where a UDP listener uses it.
func bindUDPStats(s *dataplane.ClusterStats) {
	bindMu.Lock()
	defer bindMu.Unlock()
	s.BindUDP()
}
