package lab

import (
	"context"
	"fmt"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/bench/live"
)

// change is one of those every subject goes through.
type change struct {
	name    string
	changed string // the backend
	// tell is what the balancer is told; nil: nothing, it has to find out.
	tell func(Fleet, Member) Fleet
	// dies says that the backend's program ends.
	dies bool
}

// script are the changes, in order. The backend that is added is the last of the network.
func script(added string) []change {
	return []change{
		{name: "drain b1", changed: "b1", tell: func(f Fleet, m Member) Fleet { return f.draining(m.ID) }},
		{name: "add " + added, changed: added, tell: func(f Fleet, m Member) Fleet { return append(f.without(m.ID), m) }},
		{name: "remove b2", changed: "b2", tell: func(f Fleet, m Member) Fleet { return f.without(m.ID) }},
		{name: "b3 fails", changed: "b3", dies: true},
	}
}

// changes plays the script. Removed backends go on running: what they have they could serve.
func changes(n *network, b Balancer, fleet Fleet) live.Script {
	return func(ctx context.Context, m *live.Meter) error {
		for _, c := range script(n.members[len(n.members)-1].ID) {
			m.Step(c.name, c.changed)
			for i, member := range n.members {
				if member.ID != c.changed {
					continue
				}
				if c.dies {
					if err := n.backends[i].Set(backend.Refuse); err != nil {
						return err
					}
				}
				if c.tell != nil {
					fleet = c.tell(fleet, member)
					if err := b.Apply(ctx, fleet); err != nil {
						return fmt.Errorf("%s: %w", c.name, err)
					}
				}
			}
			if err := m.Settle(ctx, m.Plan().Settle); err != nil {
				return err
			}
		}
		return nil
	}
}
