package proxy

import "github.com/guideway/guideway/dataplane/stats"

// listenerFilter runs before a filter chain is chosen.
type listenerFilter interface{}

func (l *liveListener) makeFilters(store *stats.Store) {}
