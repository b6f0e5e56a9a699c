package controlplane

import (
	"context"
	"fmt"

	"github.com/guideway/guideway/controlplane/admin"
	"github.com/guideway/guideway/controlplane/dns"
	"github.com/guideway/guideway/controlplane/plan"
)

// Plan implements admin.State.
func (p *Process) Plan(ctx context.Context, text string) (*plan.Change, error) {
	config, err := p.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	return p.Foresee(ctx, config, dns.Resolve)
}
