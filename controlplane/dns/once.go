package dns

import (
	"context"
	"fmt"

	"github.com/guideway/guideway/controlplane/model"
)

// Resolve looks the names of a DNS cluster up once and returns its endpoints with their addresses. It
// fails if any name cannot be looked up.
func Resolve(ctx context.Context, c *model.Cluster) (model.Assignment, error) {
	w := NewWatcher(c, Deps{})
	for _, n := range w.names {
		a, err := w.deps.Resolver.Lookup(ctx, n.host, c.DNS.Family)
		if err != nil {
			return model.Assignment{}, fmt.Errorf("looking up %s: %w", n.host, err)
		}
		n.addrs = a.Addrs
	}
	return w.assignment(), nil
}
