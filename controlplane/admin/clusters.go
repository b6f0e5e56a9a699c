package admin

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
)

// sortedClusters returns the clusters by name, those whose names a filter accepts.
func (s *Server) sortedClusters(keep *regexp.Regexp) []Cluster {
	clusters := slices.Clone(s.state.Clusters())
	clusters = slices.DeleteFunc(clusters, func(c Cluster) bool { return keep != nil && !keep.MatchString(c.Name) })
	slices.SortFunc(clusters, func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
	return clusters
}

func (s *Server) clusters(w http.ResponseWriter, r *http.Request) {
	keep, err := filter(r)
	if err != nil {
		write(w, http.StatusBadRequest, plainText, err.Error())
		return
	}
	clusters := s.sortedClusters(keep)
	if r.URL.Query().Get("format") == "json" {
		body := &adminv3.Clusters{}
		for _, c := range clusters {
			body.ClusterStatuses = append(body.ClusterStatuses, clusterStatus(c))
		}
		writeMessage(w, body, false)
		return
	}
	var b strings.Builder
	for _, c := range clusters {
		writeCluster(&b, c)
	}
	write(w, http.StatusOK, plainText, b.String())
}

// filter compiles the parameter filter, nil without it.
func filter(r *http.Request) (*regexp.Regexp, error) {
	f := r.URL.Query().Get("filter")
	if f == "" {
		return nil, nil
	}
	re, err := regexp.Compile(f)
	if err != nil {
		return nil, fmt.Errorf("Invalid re2 regex: %s", regexError(err, f))
	}
	return re, nil
}

// regexError is RE2's form of a syntax error: "missing ): ((".
func regexError(err error, pattern string) string {
	text := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	if kind, _, ok := strings.Cut(text, ": `"); ok {
		text = kind
	}
	return strings.TrimPrefix(strings.ReplaceAll(text, "missing closing )", "missing )"), "") + ": " + pattern
}

// hostStat is one counter or gauge of a host.
type hostStat struct {
	name  string
	value int64
	gauge bool
}

// hostStats are sorted by name.
func hostStats(h *dataplane.Host) []hostStat {
	st := h.State
	if st == nil {
		st = &dataplane.HostState{}
	}
	return []hostStat{
		{"cx_active", st.CxActive.Load(), true},
		{"cx_connect_fail", st.CxConnectFail.Load(), false},
		{"cx_total", st.CxTotal.Load(), false},
		{"rq_active", st.RqActive.Load(), true},
		{"rq_error", st.RqError.Load(), false},
		{"rq_pending_active", st.RqPendingActive.Load(), true},
		{"rq_success", st.RqSuccess.Load(), false},
		{"rq_timeout", st.RqTimeout.Load(), false},
		{"rq_total", st.RqTotal.Load(), false},
	}
}

// writeCluster prints the lines of one cluster, in Envoy's order.
func writeCluster(b *strings.Builder, c Cluster) {
	line := func(parts ...string) {
		b.WriteString(c.Name)
		for _, p := range parts {
			b.WriteString("::")
			b.WriteString(p)
		}
		b.WriteByte('\n')
	}
	line("observability_name", c.StatName)
	if c.Outlier {
		for _, name := range []string{
			"success_rate_average", "success_rate_ejection_threshold",
			"local_origin_success_rate_average", "local_origin_success_rate_ejection_threshold",
		} {
			line("outlier", name, "-1")
		}
	}
	for _, p := range []struct {
		name string
		t    dataplane.Thresholds
	}{{"default_priority", c.Breakers.Default}, {"high_priority", c.Breakers.High}} {
		line(p.name, "max_connections", utoa(p.t.MaxConnections))
		line(p.name, "max_pending_requests", utoa(p.t.MaxPendingRequests))
		line(p.name, "max_requests", utoa(p.t.MaxRequests))
		line(p.name, "max_retries", utoa(p.t.MaxRetries))
	}
	line("added_via_api", strconv.FormatBool(c.AddedViaAPI))
	if c.EDSServiceName != "" {
		line("eds_service_name", c.EDSServiceName)
	}
	for _, h := range c.Hosts {
		address := h.Address.String()
		for _, st := range hostStats(h) {
			line(address, st.name, strconv.FormatInt(st.value, 10))
		}
		for _, kv := range [][2]string{
			{"hostname", h.Hostname},
			{"health_flags", h.Health.String()},
			{"weight", utoa(h.Weight)},
			{"region", h.Locality.Region},
			{"zone", h.Locality.Zone},
			{"sub_zone", h.Locality.SubZone},
			{"canary", strconv.FormatBool(h.Canary)},
			{"priority", utoa(h.Priority)},
			{"success_rate", "-1"},
			{"local_origin_success_rate", "-1"},
		} {
			line(address, kv[0], kv[1])
		}
	}
}

func utoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func clusterStatus(c Cluster) *adminv3.ClusterStatus {
	status := &adminv3.ClusterStatus{
		Name:              c.Name,
		AddedViaApi:       c.AddedViaAPI,
		ObservabilityName: c.StatName,
		EdsServiceName:    c.EDSServiceName,
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
			thresholds(corev3.RoutingPriority_DEFAULT, c.Breakers.Default),
			thresholds(corev3.RoutingPriority_HIGH, c.Breakers.High),
		}},
	}
	for _, h := range c.Hosts {
		host := &adminv3.HostStatus{
			Address:      socketAddress(h.Address),
			HealthStatus: healthStatus(h.Health),
			Weight:       h.Weight,
			Hostname:     h.Hostname,
			Locality:     locality(h.Locality),
			Priority:     h.Priority,
		}
		stats := hostStats(h)
		for _, gauges := range []bool{false, true} {
			for _, st := range stats {
				if st.gauge != gauges {
					continue
				}
				m := &adminv3.SimpleMetric{Name: st.name, Value: uint64(st.value)}
				if st.gauge {
					m.Type = adminv3.SimpleMetric_GAUGE
				}
				host.Stats = append(host.Stats, m)
			}
		}
		status.HostStatuses = append(status.HostStatuses, host)
	}
	return status
}

func thresholds(p corev3.RoutingPriority, t dataplane.Thresholds) *clusterv3.CircuitBreakers_Thresholds {
	return &clusterv3.CircuitBreakers_Thresholds{
		Priority:           p,
		MaxConnections:     wrapperspb.UInt32(t.MaxConnections),
		MaxPendingRequests: wrapperspb.UInt32(t.MaxPendingRequests),
		MaxRequests:        wrapperspb.UInt32(t.MaxRequests),
		MaxRetries:         wrapperspb.UInt32(t.MaxRetries),
	}
}

func socketAddress(a netip.AddrPort) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       a.Addr().String(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())},
	}}}
}

func locality(l dataplane.Locality) *corev3.Locality {
	return &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}

func healthStatus(h dataplane.Health) *adminv3.HostHealthStatus {
	return &adminv3.HostHealthStatus{
		FailedActiveHealthCheck:    h&dataplane.FailedActiveHC != 0,
		FailedOutlierCheck:         h&dataplane.FailedOutlierCheck != 0,
		FailedActiveDegradedCheck:  h&dataplane.DegradedActiveHC != 0,
		PendingDynamicRemoval:      h&dataplane.PendingDynamicRemoval != 0,
		PendingActiveHc:            h&dataplane.PendingActiveHC != 0,
		ExcludedViaImmediateHcFail: h&dataplane.ExcludedViaImmediateHC != 0,
		ActiveHcTimeout:            h&dataplane.ActiveHCTimeout != 0,
		EdsHealthStatus:            edsHealth(h),
	}
}

// edsHealth is the configured part of a host's health.
func edsHealth(h dataplane.Health) corev3.HealthStatus {
	switch {
	case h&dataplane.FailedEDSHealth != 0:
		return corev3.HealthStatus_UNHEALTHY
	case h&dataplane.EDSStatusDraining != 0:
		return corev3.HealthStatus_DRAINING
	case h&dataplane.DegradedEDSHealth != 0:
		return corev3.HealthStatus_DEGRADED
	}
	return corev3.HealthStatus_HEALTHY
}

func (s *Server) listeners(w http.ResponseWriter, r *http.Request) {
	listeners := s.state.Listeners()
	if r.URL.Query().Get("format") == "json" {
		body := &adminv3.Listeners{}
		for _, l := range listeners {
			status := &adminv3.ListenerStatus{Name: l.Name}
			for i, a := range l.Addresses {
				address := socketAddress(a.Addr)
				address.GetSocketAddress().Ipv4Compat = a.IPv4Compat
				if i == 0 {
					status.LocalAddress = address
				} else {
					status.AdditionalLocalAddresses = append(status.AdditionalLocalAddresses, address)
				}
			}
			body.ListenerStatuses = append(body.ListenerStatuses, status)
		}
		writeMessage(w, body, false)
		return
	}
	var b strings.Builder
	for _, l := range listeners {
		for _, a := range l.Addresses {
			fmt.Fprintf(&b, "%s::%s\n", l.Name, a.Addr)
		}
	}
	write(w, http.StatusOK, plainText, b.String())
}

// tableView is one Maglev table in /maglev/<cluster>.
type tableView struct {
	Priority int             `json:"priority"`
	Size     uint32          `json:"size"`
	Digest   string          `json:"digest"` // of what the table does
	SHA256   string          `json:"sha256"` // of the owners in the order of hosts
	Min      uint32          `json:"min_entries_per_host"`
	Max      uint32          `json:"max_entries_per_host"`
	Hosts    []tableHostView `json:"hosts"`
}

type tableHostView struct {
	Address string `json:"address"`
	Key     string `json:"key"`
	Weight  uint32 `json:"weight"`
	Slots   uint32 `json:"slots"`
}

func (s *Server) maglev(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/maglev/")
	for _, c := range s.state.Clusters() {
		if c.Name != name {
			continue
		}
		tables := lb.Tables(c.Balancer)
		if len(tables) == 0 {
			write(w, http.StatusNotFound, plainText, "cluster "+name+" has no Maglev table: its policy is "+c.Policy+"\n")
			return
		}
		body := struct {
			Cluster string      `json:"cluster"`
			Tables  []tableView `json:"tables"`
		}{Cluster: name}
		for _, t := range tables {
			body.Tables = append(body.Tables, viewTable(t))
		}
		writeIndented(w, body)
		return
	}
	write(w, http.StatusNotFound, plainText, "there is no active cluster "+strconv.Quote(name)+"; /clusters lists them\n")
}

func viewTable(t lb.Table) tableView {
	digest, ordered := t.Digest(), t.OrderedDigest()
	v := tableView{
		Priority: t.Priority, Size: t.Size(), Hosts: []tableHostView{},
		Digest: hex.EncodeToString(digest[:]), SHA256: hex.EncodeToString(ordered[:]),
	}
	v.Min, v.Max = t.Entries()
	for i := range t.Len() {
		h := t.Host(i)
		v.Hosts = append(v.Hosts, tableHostView{Address: h.Addr, Key: h.Key, Weight: h.Weight, Slots: t.Count(i)})
	}
	return v
}
