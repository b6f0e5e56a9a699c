package mode

import "github.com/guideway/guideway/dataplane"

var _ dataplane.FlowLister = (*Plane)(nil)

// LiveFlows implements dataplane.FlowLister: the flows of listeners in the proxy. XDP forwards packets, and
// knows the flows of slots that changed at most.
func (p *Plane) LiveFlows() []dataplane.Flow {
	if l, ok := p.cfg.Proxy.(dataplane.FlowLister); ok {
		return l.LiveFlows()
	}
	return nil
}
