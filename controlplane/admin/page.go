package admin

import (
	"bytes"
	_ "embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"net/netip"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"

	"github.com/guideway/guideway/controlplane/plan"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// overview is what the page shows.
type overview struct {
	Phase, Version, Node string
	Uptime               string
	Now                  string
	Live                 bool
	Clusters             []clusterOverview
	Listeners            []dataplane.ListenerStatus
	Hosts, Unhealthy     int
	Connections          int64
	Changes              []changeOverview
	Endpoints            []*endpoint
}

// changeOverview is a line of what changed last.
type changeOverview struct {
	When, What, Slots, Flows string
	Generation               uint64
}

// shownChanges is how many changes the page shows; /guideway/changes has more.
const shownChanges = 10

func viewChange(c *plan.Change, now time.Time) changeOverview {
	v := changeOverview{When: now.Sub(c.Time).Round(time.Second).String() + " ago", Generation: c.Generation}
	var what []string
	for _, cluster := range c.Clusters {
		word := cluster.Change
		if word == "changed" && len(cluster.Hosts) == 1 {
			word = cluster.Hosts[0].Address.String() + " " + cluster.Hosts[0].Change
		} else if word == "changed" {
			word = fmt.Sprintf("%d hosts", len(cluster.Hosts))
		}
		what = append(what, cluster.Name+": "+word)
	}
	for _, l := range c.Listeners {
		what = append(what, "listener "+l.Name+": "+l.Change)
	}
	if len(what) > 4 {
		what = append(what[:3], fmt.Sprintf("%d more", len(what)-3))
	}
	v.What = strings.Join(what, "; ")
	if c.Slots.Size > 0 {
		v.Slots = fmt.Sprintf("%d (%.2f %%), %d collateral", c.Slots.Moved, c.Slots.Percent(), c.Slots.Collateral)
	}
	if f := c.Flows; f != nil {
		v.Flows = fmt.Sprintf("%d remembered, %d broken of %d", f.Remembered, f.Broken, f.TCP+f.UDP)
	}
	return v
}

type clusterOverview struct {
	Name, Policy, Discovery  string
	Hosts                    []hostOverview
	Healthy, Total           int
	Connections, Connected   int64
	TableSize                uint32
	Digest, ShortDigest      string
	Change                   string
	Panic, Hashed, HasTables bool
}

type hostOverview struct {
	Address, Hostname, Locality, Health string
	State                               string // healthy, degraded, draining or failed: a word and a colour
	Priority, Weight                    uint32
	Slots                               uint32
	Active, Total, Failed               int64
	// TableShare and TrafficShare are in percent of the cluster; a share of -1 is not known.
	TableShare, TrafficShare float64
}

// Percent prints a share for a person.
func (hostOverview) Percent(share float64) string {
	if share < 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", share)
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, s.overview(time.Now())); err != nil {
		write(w, http.StatusInternalServerError, plainText, "the page cannot be shown: "+err.Error()+"\n")
		return
	}
	write(w, http.StatusOK, htmlText, b.String())
}

func (s *Server) overview(now time.Time) *overview {
	info := s.state.ServerInfo()
	phase := s.state.Phase()
	o := &overview{
		Phase:       phase.String(),
		Live:        phase == adminv3.ServerInfo_LIVE,
		Version:     info.GetVersion(),
		Node:        info.GetNode().GetId(),
		Uptime:      info.GetUptimeCurrentEpoch().AsDuration().Round(time.Second).String(),
		Now:         now.UTC().Format("2006-01-02 15:04:05 UTC"),
		Listeners:   s.state.Listeners(),
		Connections: connections(s.config.Stats),
		Endpoints:   s.sorted(),
	}
	for _, c := range s.sortedClusters(nil) {
		v := viewCluster(c, now)
		o.Clusters = append(o.Clusters, v)
		o.Hosts += v.Total
		o.Unhealthy += v.Total - v.Healthy
	}
	for _, c := range s.state.Changes() {
		if len(o.Changes) == shownChanges {
			break
		}
		o.Changes = append(o.Changes, viewChange(c, now))
	}
	return o
}

func viewCluster(c Cluster, now time.Time) clusterOverview {
	v := clusterOverview{Name: c.Name, Policy: c.Policy, Discovery: c.Discovery, Total: len(c.Hosts), Panic: lb.Panics(c.Balancer)}
	slots := map[netip.AddrPort]uint32{}
	sizes := map[uint32]uint32{} // by priority
	var digests []string
	for _, t := range lb.Tables(c.Balancer) {
		if t.Empty() {
			continue
		}
		v.HasTables = true
		v.TableSize = t.Size()
		sizes[uint32(t.Priority)] = t.Size()
		d := t.Digest()
		digests = append(digests, hex.EncodeToString(d[:]))
		for i, h := range t.Hosts {
			slots[h.Address] += t.Count(i)
		}
	}
	v.Digest = strings.Join(digests, " ")
	if len(digests) > 0 {
		v.ShortDigest = digests[0][:12]
	}
	var traffic int64
	for _, h := range c.Hosts {
		if h.State != nil {
			traffic += h.State.CxTotal.Load()
		}
	}
	for _, h := range c.Hosts {
		state := h.State
		if state == nil {
			state = &dataplane.HostState{}
		}
		host := hostOverview{
			Address: h.Address.String(), Hostname: h.Hostname, Health: h.Health.String(), State: healthWord(h.Health),
			Priority: h.Priority, Weight: h.Weight, Slots: slots[h.Address],
			Active: state.CxActive.Load(), Total: state.CxTotal.Load(), Failed: state.CxConnectFail.Load(),
			TableShare: -1, TrafficShare: -1,
		}
		host.Locality = strings.Trim(strings.Join([]string{h.Locality.Region, h.Locality.Zone, h.Locality.SubZone}, " / "), " /")
		if size := sizes[h.Priority]; size > 0 {
			host.TableShare = 100 * float64(host.Slots) / float64(size)
		}
		if traffic > 0 {
			host.TrafficShare = 100 * float64(host.Total) / float64(traffic)
		}
		if h.Health.Healthy() {
			v.Healthy++
		}
		v.Connections += host.Active
		v.Connected += host.Total
		v.Hosts = append(v.Hosts, host)
	}
	if d := c.Disruption; d != nil && d.Size > 0 {
		v.Change = fmt.Sprintf("moved %d of %d slots (%.2f %%; no table could have moved fewer than %d)",
			d.Moved, d.Size, 100*float64(d.Moved)/float64(d.Size), d.Minimum)
	}
	if !c.Changed.IsZero() {
		when := now.Sub(c.Changed).Round(time.Second).String() + " ago"
		if v.Change == "" {
			v.Change = when
		} else {
			v.Change += ", " + when
		}
	}
	return v
}

// healthWord is what a person wants to know first.
func healthWord(h dataplane.Health) string {
	switch {
	case h.Draining():
		return "draining"
	case h.Failed():
		return "failed"
	case h.Degraded():
		return "degraded"
	}
	return "healthy"
}
