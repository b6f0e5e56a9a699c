package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Components are the loggers that exist from the start, in the order in which they are listed.
var Components = []string{"admin", "config", "conn", "dns", "hc", "main", "proxy", "runtime", "upstream", "xdp", "xds"}

// Log is the process log. Safe for concurrent use.
type Log struct {
	pattern pattern
	path    string // "" is stderr

	mu  sync.Mutex // serialises lines and reopening
	out io.Writer
	buf []byte

	levels map[string]*atomic.Int64
}

// Options of a log.
type Options struct {
	// Level of all components, Overrides by component ("component:level,..." on the command line).
	Level     slog.Level
	Overrides map[string]slog.Level
	// Format in spdlog's notation; "" is DefaultFormat.
	Format string
	// Path of the log file; "" is stderr.
	Path string
}

// New opens a log. It fails if the file cannot be opened.
func New(o Options) (*Log, error) {
	if o.Format == "" {
		o.Format = DefaultFormat
	}
	l := &Log{pattern: compile(o.Format), path: o.Path, out: os.Stderr, levels: map[string]*atomic.Int64{}}
	for _, c := range Components {
		l.levels[c] = new(atomic.Int64)
	}
	l.SetLevel(o.Level)
	for c, level := range o.Overrides {
		// Envoy has many more components than Guideway; an override for one of them is no error.
		if v := l.levels[c]; v != nil {
			v.Store(int64(level))
		}
	}
	return l, l.Reopen()
}

// ParseOverrides reads Envoy's --component-log-level: "upstream:debug,conn:trace".
func ParseOverrides(s string) (map[string]slog.Level, error) {
	m := map[string]slog.Level{}
	if s == "" {
		return m, nil
	}
	for _, part := range strings.Split(s, ",") {
		component, name, ok := strings.Cut(part, ":")
		if !ok || component == "" {
			return nil, fmt.Errorf("component log level is not correctly specified '%s': write component:level,component:level", part)
		}
		level, err := ParseLevel(name)
		if err != nil {
			return nil, err
		}
		m[component] = level
	}
	return m, nil
}

// Reopen opens the log file anew (after rotation). It does nothing for stderr.
func (l *Log) Reopen() error {
	if l.path == "" {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log file: %w", err)
	}
	l.mu.Lock()
	old := l.out
	l.out = f
	l.mu.Unlock()
	if c, ok := old.(io.Closer); ok && old != os.Stderr {
		c.Close()
	}
	return nil
}

// SetLevel sets the level of every component.
func (l *Log) SetLevel(level slog.Level) {
	for _, v := range l.levels {
		v.Store(int64(level))
	}
}

// SetComponentLevel sets the level of one component; it reports whether there is such a one.
func (l *Log) SetComponentLevel(component string, level slog.Level) bool {
	v, ok := l.levels[component]
	if ok {
		v.Store(int64(level))
	}
	return ok
}

// Levels lists the components, sorted, with the names of their levels.
func (l *Log) Levels() [][2]string {
	var out [][2]string
	for c, v := range l.levels {
		out = append(out, [2]string{c, LevelName(slog.Level(v.Load()))})
	}
	slices.SortFunc(out, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return out
}

// For returns the logger of a component. A component that is not one of Components is a programming
// error and panics.
func (l *Log) For(component string) *slog.Logger {
	level, ok := l.levels[component]
	if !ok {
		panic("logging: unknown component " + component)
	}
	return slog.New(&handler{log: l, component: component, level: level})
}

// handler is one component's slog.Handler.
type handler struct {
	log       *Log
	component string
	level     *atomic.Int64
	prefix    string // of keys, from groups
	attrs     string // already printed
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return int64(level) >= h.level.Load()
}

// Handle implements slog.Handler.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	text.WriteString(r.Message)
	text.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		writeAttr(&text, h.prefix, a)
		return true
	})
	ln := line{time: r.Time.UTC(), level: LevelName(r.Level), component: h.component, message: text.String()}
	if ln.time.IsZero() {
		ln.time = time.Now().UTC()
	}
	if r.PC != 0 {
		frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
		ln.file = path.Join(path.Base(path.Dir(frame.File)), path.Base(frame.File))
		ln.number = frame.Line
	}
	l := h.log
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buf[:0]
	for _, f := range l.pattern {
		b = f(b, &ln)
	}
	b = append(b, '\n')
	l.buf = b
	_, err := l.out.Write(b)
	return err
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var text strings.Builder
	text.WriteString(h.attrs)
	for _, a := range attrs {
		writeAttr(&text, h.prefix, a)
	}
	n := *h
	n.attrs = text.String()
	return &n
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	n := *h
	if name != "" {
		n.prefix = h.prefix + name + "."
	}
	return &n
}

func writeAttr(b *strings.Builder, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, g := range v.Group() {
			writeAttr(b, prefix, g)
		}
		return
	}
	if a.Equal(slog.Attr{}) {
		return
	}
	s := v.String()
	if s == "" || strings.ContainsAny(s, " \"=\n\t") {
		s = fmt.Sprintf("%q", s)
	}
	fmt.Fprintf(b, " %s%s=%s", prefix, a.Key, s)
}
