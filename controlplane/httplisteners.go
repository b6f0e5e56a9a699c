package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/controlplane/xds"
	"github.com/guideway/guideway/dataplane"
)

// httpServer answers one HTTP listener: not traffic that is balanced, but what control planes and
// Kubernetes ask of a proxy.
type httpServer struct {
	*model.HTTPListener
	api     bool // it came by LDS
	version string
	at      time.Time
	server  *http.Server
	addr    netip.AddrPort
}

// takeHTTP serves a resource if it is an HTTP listener of those that are answered here, and reports
// whether it is.
func (c *Control) takeHTTP(r *xds.Resource, version string) (ok bool, err error) {
	m, _ := r.Message.(*listenerv3.Listener)
	l, ok := c.env().ReadHTTPListener(m)
	if !ok {
		return false, nil
	}
	if err := c.serveHTTP(l, true, version); err != nil {
		return true, err
	}
	delete(c.refused.listeners, r.Name)
	return true, nil
}

// serveHTTP puts an HTTP listener in force; one that cannot be bound leaves nothing.
func (c *Control) serveHTTP(l *model.HTTPListener, api bool, version string) error {
	old := c.http[l.Name]
	if old != nil && (old.Hash == l.Hash || !old.api && api) {
		return nil // equal, or static
	}
	if old != nil {
		c.endHTTP(l.Name)
	}
	config := net.ListenConfig{}
	socket, err := config.Listen(c.ctx, "tcp", l.Address.String())
	if err != nil {
		return cannotBind(l.Address, err)
	}
	n := &httpServer{HTTPListener: l, api: api, version: version, at: time.Now()}
	n.addr, _ = netip.ParseAddrPort(socket.Addr().String())
	n.server = &http.Server{Handler: c.httpHandler(l), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = n.server.Serve(socket) }() // ends with the server
	c.http[l.Name] = n
	if old == nil {
		c.counters.listenerAdded.Inc()
	} else {
		c.counters.listenerModified.Inc()
	}
	c.counters.listenerCreateSuccess.Inc()
	c.unseen = true
	return nil
}

func cannotBind(addr netip.AddrPort, err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		text := errno.Error()
		return fmt.Errorf("cannot bind '%s': %s", addr, strings.ToUpper(text[:1])+text[1:])
	}
	return fmt.Errorf("cannot bind '%s': %w", addr, err)
}

// staticHTTP serves the HTTP listeners of the configuration file, and ends those that are not in it any
// more.
func (c *Control) staticHTTP() error {
	wanted := map[string]bool{}
	var errs []error
	for _, l := range c.config.HTTP {
		wanted[l.Name] = true
		if err := c.serveHTTP(l, false, ""); err != nil {
			errs = append(errs, fmt.Errorf("listener %q: %w", l.Name, err))
		}
	}
	for name, n := range c.http {
		if !n.api && !wanted[name] {
			c.endHTTP(name)
			c.counters.listenerRemoved.Inc()
		}
	}
	return errors.Join(errs...)
}

func (c *Control) httpHandler(l *model.HTTPListener) http.Handler {
	forward := make([]http.Handler, len(l.Routes))
	for i, r := range l.Routes {
		if r.Target.IsValid() {
			forward[i] = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: r.Target.String()})
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.HealthPath != "" && r.URL.Path == l.HealthPath {
			if c.state.Load().Phase == Draining {
				w.WriteHeader(http.StatusServiceUnavailable)
			} else {
				w.WriteHeader(http.StatusOK)
			}
			return
		}
		for i, route := range l.Routes {
			fits := r.URL.Path == route.Path || route.Prefix && strings.HasPrefix(r.URL.Path, route.Path)
			if !fits || route.Method != "" && route.Method != r.Method {
				continue
			}
			if forward[i] != nil {
				forward[i].ServeHTTP(w, r)
			} else {
				w.WriteHeader(route.Status)
			}
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
}

func (c *Control) endHTTP(name string) {
	n := c.http[name]
	if n == nil {
		return
	}
	delete(c.http, name)
	c.unseen = true
	// The address is free when this returns; a probe that is under way has a moment.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n.server.Shutdown(ctx) != nil {
		_ = n.server.Close()
	}
}

// endAllHTTP ends them with the process.
func (c *Control) endAllHTTP() {
	for name := range c.http {
		_ = c.http[name].server.Close()
		delete(c.http, name)
	}
}

// status is the listener as /listeners shows it.
func (n *httpServer) status() dataplane.ListenerStatus {
	return dataplane.ListenerStatus{Name: n.Name, Protocol: dataplane.TCP, Addresses: []dataplane.ListenAddress{{Addr: n.addr}}}
}
