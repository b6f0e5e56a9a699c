package xdp

import (
	"fmt"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// counterMaps are the program's counters, summed over CPUs.
type counterMaps interface {
	backendCounters(index uint32) (bpf.BackendCounters, error)
	serviceCounters(id uint32) (bpf.ServiceCounters, error)
	events() ([bpf.EventCount]uint64, error)
}

func (k *kernelMaps) backendCounters(index uint32) (bpf.BackendCounters, error) {
	var sum bpf.BackendCounters
	var cpus []bpf.BackendCounters
	if err := k.BackendCounts.Lookup(index, &cpus); err != nil {
		return sum, fmt.Errorf("read the counters of backend %d: %w", index, err)
	}
	for _, c := range cpus {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
		sum.Flows += c.Flows
		sum.Unresolved += c.Unresolved
		sum.Back += c.Back
	}
	return sum, nil
}

func (k *kernelMaps) serviceCounters(id uint32) (bpf.ServiceCounters, error) {
	var sum bpf.ServiceCounters
	var cpus []bpf.ServiceCounters
	if err := k.ServiceCounts.Lookup(id, &cpus); err != nil {
		return sum, fmt.Errorf("read the counters of service %d: %w", id, err)
	}
	for _, c := range cpus {
		sum.Lookups += c.Lookups
		sum.Found += c.Found
		sum.Remembered += c.Remembered
		sum.HalfOpen += c.HalfOpen
		sum.Promoted += c.Promoted
		sum.InsertFailed += c.InsertFailed
		sum.Dropped += c.Dropped
	}
	return sum, nil
}

func (k *kernelMaps) events() ([bpf.EventCount]uint64, error) {
	var sum [bpf.EventCount]uint64
	for e := range sum {
		var cpus []uint64
		if err := k.Events.Lookup(uint32(e), &cpus); err != nil {
			return sum, fmt.Errorf("read the events: %w", err)
		}
		for _, n := range cpus {
			sum[e] += n
		}
	}
	return sum, nil
}

// planeStats are the stats of the data plane. What Envoy has a name for is counted under that name.
type planeStats struct {
	scope                                 *stats.Scope
	inSync                                *stats.Gauge
	pushFailed, moved                     *stats.Counter
	open, excepted                        *stats.Gauge
	remembered, halfOpen, nat             *stats.Gauge
	unresolved                            *stats.Gauge
	events                                [bpf.EventCount]*stats.Counter
	lastEvents                            [bpf.EventCount]uint64
	lookups, found, insertFailed, dropped *stats.Counter

	services map[string]*serviceStats
}

// serviceStats are those of one listener.
type serviceStats struct {
	store                          *stats.Store
	scope                          *stats.Scope
	packets, bytes, flows, lookups *stats.Counter
	insertFailed, dropped          *stats.Counter
	open, excepted                 *stats.Gauge
	inSync                         *stats.Gauge
	listener                       *dataplane.ListenerStats
	tcp                            *dataplane.TCPStats
	udp                            *dataplane.UDPStats
	last                           bpf.ServiceCounters
	begun                          bool
}

func newPlaneStats(store *stats.Store) *planeStats {
	c := store.Scope("guideway.xdp.")
	s := &planeStats{
		scope: c, inSync: c.Gauge("table_in_sync"), pushFailed: c.Counter("push_failed"), moved: c.Counter("slots_moved"),
		open: c.Gauge("open_slots"), excepted: c.Gauge("excepted_slots"),
		remembered: c.Gauge("remembered_flows"), halfOpen: c.Gauge("half_open_flows"), nat: c.Gauge("nat_flows"),
		unresolved: c.Gauge("next_hops_unresolved"),
		lookups:    c.Counter("flow_lookups"), found: c.Counter("flow_found"), insertFailed: c.Counter("flow_insert_failed"),
		dropped: c.Counter("service_packets_dropped"), services: map[string]*serviceStats{},
	}
	for e := range s.events {
		kind := "event."
		if e >= int(bpf.EventDrops) {
			kind = "drop."
		}
		s.events[e] = c.Counter(kind + bpf.EventName(bpf.Event(e)))
	}
	return s
}

// of returns the stats of a service, made when it is first counted.
func (p *Plane) serviceStats(s *service) *serviceStats {
	t := p.stats.services[s.name]
	if t != nil {
		return t
	}
	store := p.cfg.Stats
	c := store.Scope("guideway.service." + s.name + ".")
	t = &serviceStats{
		store: store, scope: c, packets: c.Counter("packets"), bytes: c.Counter("bytes"), flows: c.Counter("flows"), lookups: c.Counter("flow_lookups"),
		insertFailed: c.Counter("flow_insert_failed"), dropped: c.Counter("packets_dropped"),
		open: c.Gauge("open_slots"), excepted: c.Gauge("excepted_slots"), inSync: c.Gauge("table_in_sync"),
		listener: dataplane.NewListenerStats(store, s.listener.StatName, s.listener.Protocol, 0),
	}
	if s.listener.Protocol == dataplane.UDP {
		t.udp = dataplane.NewUDPStats(store, s.listener.UDP.StatPrefix)
	} else if proxy, err := onlyProxy(s.listener); err == nil {
		t.tcp = dataplane.NewTCPStats(store, proxy.StatPrefix)
	}
	p.stats.services[s.name] = t
	return t
}

// drop gives up the stats of a service that is gone.
func (t *planeStats) drop(s *service) {
	x := t.services[s.name]
	if x == nil {
		return
	}
	delete(t.services, s.name)
	x.scope.Release()
	x.listener.Scope.Release()
	if x.tcp != nil {
		x.tcp.Scope.Release()
	}
	if x.udp != nil {
		x.udp.Scope.Release()
	}
}

// update sets the gauges that follow from the state of services.
func (t *planeStats) update(p *Plane) {
	open, excepted, unresolved := 0, 0, 0
	inSync := int64(1)
	for _, s := range p.services {
		x := p.serviceStats(s)
		o, e := 0, 0
		for _, a := range s.steering.View().Arrays {
			o, e = o+a.Open, e+a.Excepted
		}
		x.open.Set(int64(o))
		x.excepted.Set(int64(e))
		open, excepted = open+o, excepted+e
		sync := int64(1)
		if s.failed != nil || s.placed.unsure {
			sync, inSync = 0, 0
		}
		x.inSync.Set(sync)
		for _, m := range s.members {
			if m != nil && m.wanted && (!m.hop.resolved || m.blocked != nil) {
				unresolved++
			}
		}
	}
	t.inSync.Set(inSync)
	t.open.Set(int64(open))
	t.excepted.Set(int64(excepted))
	t.unresolved.Set(int64(unresolved))
	t.remembered.Set(int64(p.scan.remembered))
	t.halfOpen.Set(int64(p.scan.halfOpen))
	t.nat.Set(int64(p.scan.nat))
}

// readCounters adds what the program has counted since it was asked last. Envoy's names get what they mean
// there: a SYN is a connection, a byte to a backend one received from a client and sent upstream. What backends
// answer does not come by here, so nothing is said of it.
func (p *Plane) readCounters() {
	events, err := p.counts.events()
	if err != nil {
		p.log.Debug("counters", "reason", err)
		return
	}
	for e := range events {
		add(p.stats.events[e], events[e], &p.stats.lastEvents[e])
	}
	for _, s := range p.services {
		t := p.serviceStats(s)
		if n, err := p.counts.serviceCounters(s.placed.id); err == nil {
			last := t.last
			if !t.begun {
				t.begun, last = true, n
			}
			t.last = n
			for _, c := range []struct {
				one, all *stats.Counter
				now, was uint64
			}{
				{t.lookups, p.stats.lookups, n.Lookups, last.Lookups}, {nil, p.stats.found, n.Found, last.Found},
				{t.insertFailed, p.stats.insertFailed, n.InsertFailed, last.InsertFailed},
				{t.dropped, p.stats.dropped, n.Dropped, last.Dropped},
			} {
				d := since(c.now, c.was)
				c.all.Add(d)
				if c.one != nil {
					c.one.Add(d)
				}
			}
		}
		for i, m := range s.members {
			if m == nil || i >= len(s.placed.members) {
				continue
			}
			n, err := p.counts.backendCounters(s.placed.backends.first + uint32(i))
			if err != nil {
				continue
			}
			if at := s.placed.backends.first + uint32(i) + 1; m.countedAt != at {
				m.countedAt, m.counted = at, bpf.BackendCounters{}
				if m.adopted { // its past is that of another process
					m.counted, m.adopted = n, false
				}
			}
			was := m.counted
			m.counted = n
			d := bpf.BackendCounters{Packets: since(n.Packets, was.Packets), Bytes: since(n.Bytes, was.Bytes), Flows: since(n.Flows, was.Flows)}
			if d.Packets > 0 || d.Flows > 0 {
				t.count(s, m, d)
			}
		}
	}
}

// since returns the growth of a counter; one that went back was begun anew.
func since(now, was uint64) uint64 {
	if now < was {
		return now
	}
	return now - was
}

func add(c *stats.Counter, now uint64, last *uint64) {
	c.Add(since(now, *last))
	*last = now
}

func (t *serviceStats) count(s *service, m *member, d bpf.BackendCounters) {
	t.packets.Add(d.Packets)
	t.bytes.Add(d.Bytes)
	t.flows.Add(d.Flows)
	m.total.Packets += d.Packets
	m.total.Bytes += d.Bytes
	m.total.Flows += d.Flows
	t.listener.CxTotal.Add(d.Flows)
	if t.tcp != nil {
		t.tcp.CxTotal.Add(d.Flows)
		t.tcp.RxBytesTotal.Add(d.Bytes)
	}
	if t.udp != nil {
		t.udp.SessRxBytes.Add(d.Bytes)
		t.udp.SessRxDatagrams.Add(d.Packets)
	}
	if m.cluster == nil {
		return
	}
	m.cluster.Stats.UpstreamCxTotal.Add(d.Flows)
	m.cluster.Stats.UpstreamCxTxBytesTotal.Add(d.Bytes)
	m.host.State.CxTotal.Add(int64(d.Flows))
	if t.udp != nil {
		m.cluster.Stats.UDPSessTxDatagrams.Add(d.Packets)
	}
}
