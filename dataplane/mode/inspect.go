package mode

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"github.com/guideway/guideway/dataplane"
)

var _ dataplane.Inspector = (*Plane)(nil)

// inspector returns what knows of the listeners in XDP, nil if there are none.
func (p *Plane) inspector() dataplane.Inspector {
	i, _ := p.XDP().(dataplane.Inspector)
	return i
}

// Services implements dataplane.Inspector.
func (p *Plane) Services() []dataplane.ServiceStatus {
	known := map[string]dataplane.ServiceStatus{}
	if i := p.inspector(); i != nil {
		for _, s := range i.Services() {
			known[s.Listener] = s
		}
	}
	list := []dataplane.ServiceStatus{}
	for _, l := range p.Listening() {
		s, ok := known[l.Name]
		if !ok {
			s = dataplane.ServiceStatus{Listener: l.Name, Protocol: l.Protocol.String(), Addresses: []netip.AddrPort{}}
			for _, a := range l.Addresses {
				s.Addresses = append(s.Addresses, a.Addr)
			}
		}
		s.Dataplane, s.Reason = l.Dataplane, l.Reason
		list = append(list, s)
	}
	return list
}

// Flows implements dataplane.Inspector. The proxy's connections are sockets, which it does not list.
func (p *Plane) Flows(ctx context.Context, yield func(dataplane.FlowStatus) bool) error {
	if i := p.inspector(); i != nil {
		return i.Flows(ctx, yield)
	}
	return nil
}

// Capture implements dataplane.Inspector.
func (p *Plane) Capture(ctx context.Context, listener string, every uint32, limit int, w io.Writer) error {
	i := p.inspector()
	if i == nil {
		return fmt.Errorf("listener %q does not run in XDP: tcpdump sees its packets", listener)
	}
	return i.Capture(ctx, listener, every, limit, w)
}
