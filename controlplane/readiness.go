package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane/envoy"
	"github.com/guideway/guideway/controlplane/xds"
	"github.com/guideway/guideway/dataplane"
)

// readinessListener answers the one HTTP listener that control planes send to an L4 proxy: the probe of
// its readiness.
type readinessListener struct {
	envoy.Readiness
	source  proto.Message
	version string
	at      time.Time
	server  *http.Server
	addr    netip.AddrPort
}

// takeReadiness serves a listener if it is of that shape, and reports whether it is.
func (c *Control) takeReadiness(r *xds.Resource, version string) (ok bool, err error) {
	m, _ := r.Message.(*listenerv3.Listener)
	spec, ok := envoy.ReadReadiness(m)
	if !ok {
		return false, nil
	}
	old := c.readiness[r.Name]
	if old != nil && old.Readiness == spec {
		return true, nil
	}
	if old != nil {
		c.endReadiness(r.Name)
	}
	config := net.ListenConfig{}
	l, err := config.Listen(c.ctx, "tcp", spec.Address.String())
	if err != nil {
		var errno unix.Errno
		if errors.As(err, &errno) {
			text := unix.ErrnoName(errno)
			if errno == unix.EADDRINUSE {
				text = "Address already in use"
			}
			return true, fmt.Errorf("cannot bind '%s': %s", spec.Address, text)
		}
		return true, fmt.Errorf("cannot bind '%s': %w", spec.Address, err)
	}
	n := &readinessListener{Readiness: spec, source: m, version: version, at: time.Now()}
	n.addr, _ = netip.ParseAddrPort(l.Addr().String())
	n.server = &http.Server{Handler: c.readinessHandler(spec), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = n.server.Serve(l) }() // ends with the server
	c.readiness[r.Name] = n
	delete(c.refused.listeners, r.Name)
	if old == nil {
		c.counters.listenerAdded.Inc()
	} else {
		c.counters.listenerModified.Inc()
	}
	c.counters.listenerCreateSuccess.Inc()
	return true, nil
}

// readinessHandler answers 200 while the process takes traffic, 503 while it does not, and what the
// route says for every other path.
func (c *Control) readinessHandler(spec envoy.Readiness) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != spec.Path:
			w.WriteHeader(spec.Otherwise)
		case c.state.Load().Phase == Draining:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusOK)
		}
	})
}

func (c *Control) endReadiness(name string) {
	n := c.readiness[name]
	if n == nil {
		return
	}
	delete(c.readiness, name)
	delete(c.listenerChanges, name)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	go func() {
		defer cancel()
		if n.server.Shutdown(ctx) != nil {
			_ = n.server.Close()
		}
	}()
}

// status is the listener as /listeners shows it.
func (n *readinessListener) status(name string) dataplane.ListenerStatus {
	return dataplane.ListenerStatus{Name: name, Protocol: dataplane.TCP, Addresses: []dataplane.ListenAddress{{Addr: n.addr}}}
}
