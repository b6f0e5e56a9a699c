package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// Config of an admin server.
type Config struct {
	// Address to listen on; port 0 takes a free one.
	Address netip.AddrPort
	// Listener is where to serve if it is there already; nil to bind Address. The server closes it.
	Listener net.Listener
	// AllowPaths are exact paths, or prefixes that end in '*'; nil allows all.
	AllowPaths []string
	// Stats is the store to show.
	Stats *stats.Store
	// FlushOnAdmin is stats_flush_on_admin: histograms are flushed when they are asked for.
	FlushOnAdmin bool
	// Inspector tells what the data plane does; nil if there is none that tells.
	Inspector dataplane.Inspector
	Log       *slog.Logger
}

// Server is a running admin server.
type Server struct {
	config    Config
	state     State
	endpoints map[string]*endpoint
	listener  net.Listener
	http      *http.Server
	counters  *counters
	exporter  *exporter
}

const (
	plainText = "text/plain; charset=UTF-8"
	bareText  = "text/plain" // of /config_dump's errors
	htmlText  = "text/html; charset=UTF-8"
	jsonText  = "application/json"
)

// New binds the address and serves. The server answers at once, also while the process starts.
func New(c Config, state State) (*Server, error) {
	s := newServer(c, state)
	l, err := c.Listener, error(nil)
	if l == nil {
		l, err = net.Listen("tcp", c.Address.String())
	}
	if err != nil {
		return nil, fmt.Errorf("cannot bind admin address '%s': %w", c.Address, errors.Unwrap(unwrapSyscall(err)))
	}
	s.listener = l
	s.http = &http.Server{
		Handler:           s,
		ConnState:         s.counters.connState,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Hour,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			c.Log.Error("the admin server has stopped", "reason", err)
		}
	}()
	return s, nil
}

// unwrapSyscall finds the error that holds the errno, so that a message names the address once.
func unwrapSyscall(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return fmt.Errorf("%w", err)
}

func newServer(c Config, state State) *Server {
	s := &Server{config: c, state: state, endpoints: map[string]*endpoint{}, counters: newCounters(c.Stats)}
	s.exporter = newExporter(c.Stats)
	for _, e := range s.table() {
		s.endpoints[e.path] = e
	}
	return s
}

// Copy returns a copy of the listening socket's descriptor, for another process.
func (s *Server) Copy() (fd int, err error) {
	l, ok := s.listener.(syscall.Conn)
	if !ok {
		return -1, errors.New("the admin listener has no descriptor")
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

// Addr is the address the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops the server; answers under way get a moment to end.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	a := &answer{ResponseWriter: w}
	s.serve(a, r)
	s.counters.request(a.status, time.Since(began))
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache, max-age=0")
	h.Set("X-Content-Type-Options", "nosniff")
	path := r.URL.Path
	if !s.allowed(path) {
		write(w, http.StatusForbidden, plainText, "request to path "+path+" not allowed")
		return
	}
	e := s.endpoints[path]
	if e == nil {
		switch {
		case strings.HasPrefix(path, "/maglev/"):
			e = s.endpoints["/maglev/<cluster>"]
		case strings.HasPrefix(path, "/debug/pprof"):
			profile(w, r)
			return
		default:
			write(w, http.StatusNotFound, plainText, "invalid path. "+s.help())
			return
		}
	}
	if e.mutates && r.Method != http.MethodPost {
		write(w, http.StatusMethodNotAllowed, plainText, "Method "+r.Method+" not allowed, POST required.")
		return
	}
	e.serve(w, r)
}

func (s *Server) allowed(path string) bool {
	if s.config.AllowPaths == nil {
		return true
	}
	for _, p := range s.config.AllowPaths {
		if prefix, isPrefix := strings.CutSuffix(p, "*"); path == p || isPrefix && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// profile serves Go's profiles, where Go's tools look for them.
func profile(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// answer remembers the status.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController through.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func write(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	fmt.Fprint(w, body)
}

func ok(w http.ResponseWriter) { write(w, http.StatusOK, plainText, "OK\n") }

// flag reports whether a parameter without need of a value is there.
func flag(r *http.Request, name string) bool { return r.URL.Query().Has(name) }
