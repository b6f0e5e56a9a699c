package proxy

import (
	"sync/atomic"

	"github.com/guideway/guideway/dataplane"
)

var _ dataplane.FlowLister = (*Server)(nil)

// flowOwners numbers what numbers flows: UDP sockets, from 1. TCP connections, whose numbers are the
// process's, have owner 0.
var flowOwners atomic.Uint64

// inForce is which listeners and chains take new connections, for telling those whose time is over.
type inForce struct {
	listeners map[*liveListener]bool
	names     map[string]bool
	chains    map[*liveChain]bool
}

// LiveFlows implements dataplane.FlowLister. Connections that have no host yet are not among them.
func (s *Server) LiveFlows() []dataplane.Flow {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	now := inForce{map[*liveListener]bool{}, map[string]bool{}, map[*liveChain]bool{}}
	for name, l := range s.live {
		now.listeners[l], now.names[name] = true, true
		for _, c := range l.chains {
			now.chains[c] = true
		}
	}
	found := make([][]dataplane.Flow, len(s.workers))
	s.everyWorker(func(w *worker) {
		flows := make([]dataplane.Flow, 0, w.tcp.count)
		flows = w.tcp.flows(flows, &now)
		for _, e := range w.udp {
			if l, ok := e.(*udpListener); ok {
				flows = l.flows(flows)
			}
		}
		found[w.index] = flows
	})
	var all []dataplane.Flow
	for _, f := range found {
		all = append(all, f...)
	}
	return all
}

// flows appends the worker's TCP connections.
func (t *tcpState) flows(to []dataplane.Flow, now *inForce) []dataplane.Flow {
	for c := t.conns; c != nil; c = c.next {
		if c.host == nil || c.chain == nil || !c.upOpen {
			continue
		}
		p := c.chain.cfg.Proxy
		f := dataplane.Flow{
			ID: dataplane.FlowID{Number: c.id}, Protocol: dataplane.TCP,
			Listener: c.ln.cfg.Name, Chain: c.chain.cfg, Cluster: c.cluster.Name,
			Src: c.remoteAddr(), Dst: c.localAddr(), Host: c.host.State, Address: c.host.Address,
		}
		f.Hash, f.Hashed = c.cluster.HashPolicy(p.Hash).HashOf(dataplane.TCP, f.Src, c.hashLocal(p))
		switch {
		case c.leaving:
			f.Ends = dataplane.EndCloseAfter
		case now.chains[c.chain]:
		case now.listeners[c.ln.newest()]:
			f.Ends = dataplane.EndChainRemoved
		case now.names[f.Listener]:
			f.Ends = dataplane.EndListenerChanged
		default:
			f.Ends = dataplane.EndListenerRemoved
		}
		to = append(to, f)
	}
	return to
}

// flows appends the socket's sessions.
func (l *udpListener) flows(to []dataplane.Flow) []dataplane.Flow {
	for t := range l.tables {
		for track := range t.All {
			s := track.Value
			if s == nil {
				continue
			}
			flow := track.Flow()
			f := dataplane.Flow{
				ID: dataplane.FlowID{Owner: l.serial, Number: s.id}, Protocol: dataplane.UDP,
				Listener: l.conf.Name, Cluster: s.cluster.name, Src: flow.Src, Dst: flow.Dst,
				Host: s.host.counted, Address: s.backend.Address,
			}
			// A host that is picked for each datagram is nobody's for long.
			if !l.proxy.PerPacket {
				f.Hash, f.Hashed = s.cluster.c.HashPolicy(l.proxy.Hash).HashOf(dataplane.UDP, f.Src, f.Dst)
				f.Ends = l.hosts.endOf(s)
			}
			if s.leaving {
				f.Ends = dataplane.EndCloseAfter
			}
			to = append(to, f)
		}
	}
	return to
}

// FlowCount returns how many TCP connections and UDP sessions there are. It costs little.
func (s *Server) FlowCount() (connections, sessions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, 0
	}
	tcp, udp := make([]int, len(s.workers)), make([]int, len(s.workers))
	s.everyWorker(func(w *worker) {
		tcp[w.index] = w.tcp.count
		for _, e := range w.udp {
			if l, ok := e.(*udpListener); ok {
				udp[w.index] += l.live
			}
		}
	})
	for i := range s.workers {
		connections += tcp[i]
		sessions += udp[i]
	}
	return connections, sessions
}
