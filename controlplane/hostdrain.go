package controlplane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/guideway/guideway/controlplane/admin"
	"github.com/guideway/guideway/controlplane/hotrestart"
	"github.com/guideway/guideway/dataplane"
)

// DrainHost takes the hosts at an address out for new flows, or back in: in one cluster, or in all if the
// name is "". It returns them when that is in force; the error is
// admin.ErrNoHost if there is none. What is drained stays so for as long as its cluster
// knows the host, over changes of its configuration too.
func (c *Control) DrainHost(in string, address netip.AddrPort, drain bool) ([]admin.Host, error) {
	var found []admin.Host
	err := errors.New("the process is shutting down")
	c.do(func() {
		if err = nil; c.starting {
			err = errors.New("the process is still starting: try again once it is ready")
			return
		}
		seen := map[*dataplane.HostState]bool{}
		flag := dataplane.Health(0)
		if drain {
			flag = dataplane.AdminDraining
		}
		for _, clusters := range []map[string]*cluster{c.clusters, c.warming} {
			for _, name := range sortedNames(clusters) {
				cl := clusters[name]
				if in != "" && name != in {
					continue
				}
				for _, h := range cl.find(address) {
					if h.drained != flag {
						h.drained = flag
						c.urgent(cl)
					}
					// A warming incarnation shares its hosts' states with the one in force: each counts once.
					if !seen[h.state] {
						seen[h.state] = true
						found = append(found, admin.Host{Cluster: name, Address: address, Health: h.health(), State: h.state})
					}
				}
			}
		}
		if len(found) == 0 {
			err = c.noHost(in, address)
			return
		}
		if c.dirty {
			c.dirty = false
			err = c.apply(c.ctx)
		}
	})
	return found, err
}

// noHost words what there is instead.
func (c *Control) noHost(cluster string, address netip.AddrPort) error {
	if cluster != "" && c.newest(cluster) == nil {
		return fmt.Errorf("%w: there is no cluster %q, but %s", admin.ErrNoHost, cluster, strings.Join(sortedNames(c.clusters), ", "))
	}
	where := "any cluster"
	if cluster != "" {
		where = fmt.Sprintf("cluster %q", cluster)
	}
	return fmt.Errorf("%w: %s is not in %s; /clusters lists what is", admin.ErrNoHost, address, where)
}

// drainAgain drains the hosts of a cluster that a former process had drained; each once.
func (c *Control) drainAgain(cl *cluster) {
	name := cl.desired.Settings.Name
	c.Drained = slices.DeleteFunc(c.Drained, func(d hotrestart.Drained) bool {
		if d.Cluster != name {
			return false
		}
		hosts := cl.find(d.Address)
		for _, h := range hosts {
			h.drained = dataplane.AdminDraining
		}
		return len(hosts) > 0
	})
}

// DrainedHosts lists the hosts that DrainHost has taken out.
func (c *Control) DrainedHosts() []hotrestart.Drained {
	var found []hotrestart.Drained
	for _, cl := range c.State().Clusters {
		for _, h := range cl.Active.Hosts {
			if h.Health&dataplane.AdminDraining != 0 {
				found = append(found, hotrestart.Drained{Cluster: cl.Active.Name, Address: h.Address})
			}
		}
	}
	return found
}
