package controlplane

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/guideway/guideway/controlplane/admin"
	"github.com/guideway/guideway/controlplane/model"
)

// layers are the runtime's layers in force: those of the configuration, with what the admin API has set in
// its layer.
func (c *Control) layers() []model.RuntimeLayer {
	layers := make([]model.RuntimeLayer, len(c.config.Runtime))
	copy(layers, c.config.Runtime)
	for i := range layers {
		if layers[i].Admin {
			layers[i].Values = c.overrides
		}
	}
	return layers
}

var errEnding = errors.New("the process is shutting down")

// modifyRuntime sets keys of the admin layer; an empty value takes an override away.
func (c *Control) modifyRuntime(values map[string]string) error {
	err := errEnding
	c.do(func() {
		err = admin.ErrNoAdminLayer
		for _, l := range c.config.Runtime {
			if l.Admin {
				err = nil
			}
		}
		if err != nil {
			return
		}
		c.overrides = maps.Clone(c.overrides)
		if c.overrides == nil {
			c.overrides = map[string]string{}
		}
		for key, value := range values {
			if value == "" {
				delete(c.overrides, key)
			} else {
				c.overrides[key] = value
			}
		}
		c.takeRuntime()
		c.dirty = true
	})
	return err
}

// takeRuntime puts the values of the runtime where they act.
func (c *Control) takeRuntime() {
	c.runtime = mergeRuntime(c.layers())
	c.counters.runtime(len(c.config.Runtime), len(c.runtime))
	for _, clusters := range []map[string]*cluster{c.clusters, c.warming} {
		for _, cl := range clusters {
			if at := panicThreshold(cl.desired, c.runtime); at != cl.panicAt {
				cl.panicAt = at
				c.touch(cl)
			}
		}
	}
	for i, l := range c.listeners {
		if now := c.limited(l); now != l {
			c.listeners[i] = now
			c.dirty = true
		}
	}
}

// limited is the listener with the limit of its runtime key.
func (c *Control) limited(l *model.Listener) *model.Listener {
	limit := connectionLimit(l.Name, c.runtime)
	if (limit == nil) == (l.ConnectionLimit == nil) && (limit == nil || *limit == *l.ConnectionLimit) {
		return l
	}
	changed := *l.Listener
	changed.ConnectionLimit = limit
	return &model.Listener{Listener: &changed, Source: l.Source}
}

// connectionLimit is a listener's limit by its runtime key, nil for none.
func connectionLimit(listener string, runtime map[string]string) *uint64 {
	n, err := strconv.ParseUint(runtime[fmt.Sprintf("envoy.resource_limits.listener.%s.connection_limit", listener)], 10, 64)
	if err != nil {
		return nil
	}
	return &n
}
