package proxy

import (
	"strings"
	"sync/atomic"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// connectionLimit is envoy.filters.network.connection_limit of one chain, over all workers.
type connectionLimit struct {
	cfg     *dataplane.ConnectionLimit
	open    atomic.Int64
	active  *stats.Gauge
	limited *stats.Counter
}

func (c *liveChain) newConnectionLimit(store *stats.Store, cfg *dataplane.ConnectionLimit) *connectionLimit {
	scope := store.Scope("connection_limit." + cfg.StatPrefix + ".")
	c.scopes = append(c.scopes, scope)
	return &connectionLimit{cfg: cfg, active: scope.Gauge("active_connections"), limited: scope.Counter("limited_connections")}
}

// enter counts one connection more; false if there is no room for it.
func (l *connectionLimit) enter() bool {
	if l.open.Add(1) > int64(l.cfg.Max) {
		l.open.Add(-1)
		l.limited.Inc()
		return false
	}
	l.active.Inc()
	return true
}

func (l *connectionLimit) leave() {
	l.open.Add(-1)
	l.active.Dec()
}

// rbac is envoy.filters.network.rbac of one chain.
type rbac struct {
	cfg             *dataplane.RBAC
	allowed, denied *stats.Counter
}

func (c *liveChain) newRBAC(store *stats.Store, cfg *dataplane.RBAC) *rbac {
	scope := store.Scope(strings.TrimSuffix(cfg.StatPrefix, ".") + ".rbac.")
	c.scopes = append(c.scopes, scope)
	scope.Counter("shadow_allowed")
	scope.Counter("shadow_denied")
	return &rbac{cfg: cfg, allowed: scope.Counter("allowed"), denied: scope.Counter("denied")}
}
