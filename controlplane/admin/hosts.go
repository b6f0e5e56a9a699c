package admin

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"

	"github.com/guideway/guideway/controlplane/plan"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
)

// ClusterHosts is an element of the answer to /guideway/hosts, /guideway/drain and /guideway/undrain.
type ClusterHosts struct {
	Cluster string       `json:"cluster"`
	Policy  string       `json:"policy,omitempty"`
	Tables  []TableID    `json:"tables,omitempty"`
	Hosts   []HostStatus `json:"hosts"`
}

// TableID tells tables apart: those of one digest are equal, slot by slot.
type TableID struct {
	Priority int    `json:"priority"`
	Size     uint32 `json:"size"`
	Digest   string `json:"digest"`
}

// HostStatus is a host and the flows it has now.
type HostStatus struct {
	Address  netip.AddrPort `json:"address"`
	Hostname string         `json:"hostname,omitempty"`
	Priority uint32         `json:"priority"`
	Weight   uint32         `json:"weight,omitempty"`
	Slots    uint32         `json:"slots,omitempty"`
	// Health is as in /clusters: "healthy", or flags.
	Health string `json:"health"`
	// Connections are live TCP connections, Sessions live UDP sessions.
	Connections int64 `json:"connections"`
	Sessions    int64 `json:"sessions"`
}

// hostOf reads the parameters of a request about hosts; an invalid address stands for all.
func hostOf(r *http.Request) (cluster string, address netip.AddrPort, err error) {
	q := r.URL.Query()
	cluster = q.Get("cluster")
	if !q.Has("host") {
		return cluster, address, nil
	}
	address, err = netip.ParseAddrPort(q.Get("host"))
	if err != nil {
		return "", address, fmt.Errorf("host %q is not an address with a port, such as 10.0.0.1:80 or [2001:db8::1]:80", q.Get("host"))
	}
	return cluster, address, nil
}

func (s *Server) hosts(w http.ResponseWriter, r *http.Request) {
	only, address, err := hostOf(r)
	if err != nil {
		write(w, http.StatusBadRequest, plainText, err.Error()+"\n")
		return
	}
	out := []ClusterHosts{}
	for _, c := range s.sortedClusters(nil) {
		if only != "" && c.Name != only {
			continue
		}
		v := ClusterHosts{Cluster: c.Name, Policy: c.Policy, Hosts: []HostStatus{}}
		slots := map[*dataplane.HostState]uint32{}
		for _, t := range lb.Tables(c.Balancer) {
			if t.Empty() {
				continue
			}
			d := t.Digest()
			v.Tables = append(v.Tables, TableID{t.Priority, t.Size(), hex.EncodeToString(d[:])})
			for i, h := range t.Hosts {
				slots[h.State] += t.Count(i)
			}
		}
		for _, h := range c.Hosts {
			if address.IsValid() && h.Address != address {
				continue
			}
			st := HostStatus{
				Address: h.Address, Hostname: h.Hostname, Priority: h.Priority, Weight: h.Weight,
				Slots: slots[h.State], Health: h.Health.String(),
			}
			st.count(h.State)
			v.Hosts = append(v.Hosts, st)
		}
		if len(v.Hosts) > 0 || !address.IsValid() {
			out = append(out, v)
		}
	}
	writeIndented(w, out)
}

func (h *HostStatus) count(s *dataplane.HostState) {
	if s != nil {
		h.Connections, h.Sessions = s.CxActive.Load(), s.UDPSessions.Load()
	}
}

func (s *Server) drainHost(drain bool) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		cluster, address, err := hostOf(r)
		if err == nil && !address.IsValid() {
			err = errors.New("which host? Give ?host=ADDRESS:PORT, and &cluster=NAME for one cluster alone")
		}
		if err != nil {
			write(w, http.StatusBadRequest, plainText, err.Error()+"\n")
			return
		}
		found, err := s.state.DrainHost(cluster, address, drain)
		switch {
		case errors.Is(err, ErrNoHost):
			write(w, http.StatusNotFound, plainText, err.Error()+"\n")
			return
		case err != nil:
			write(w, http.StatusServiceUnavailable, plainText, err.Error()+"\n")
			return
		}
		out := []ClusterHosts{}
		for _, h := range found {
			if len(out) == 0 || out[len(out)-1].Cluster != h.Cluster {
				out = append(out, ClusterHosts{Cluster: h.Cluster})
			}
			st := HostStatus{Address: h.Address, Health: h.Health.String()}
			st.count(h.State)
			last := &out[len(out)-1]
			last.Hosts = append(last.Hosts, st)
		}
		writeIndented(w, out)
	}
}

func (s *Server) changes(w http.ResponseWriter, _ *http.Request) {
	list := s.state.Changes()
	if list == nil {
		list = []*plan.Change{}
	}
	writeIndented(w, list)
}

// maxPlan bounds the configuration in a request, in bytes.
const maxPlan = 256 << 20

func (s *Server) plan(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPlan))
	if err != nil {
		write(w, http.StatusBadRequest, plainText, "the configuration cannot be read: "+err.Error()+"\n")
		return
	}
	change, err := s.state.Plan(r.Context(), string(text))
	switch {
	case errors.Is(err, ErrInvalid):
		write(w, http.StatusBadRequest, plainText, err.Error()+"\n")
	case err != nil:
		write(w, http.StatusServiceUnavailable, plainText, err.Error()+"\n")
	default:
		writeIndented(w, change)
	}
}
