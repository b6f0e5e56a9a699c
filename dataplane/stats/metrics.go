package stats

import "sync/atomic"

// Counter only grows. The zero value is ready; safe for concurrent use. 8 bytes.
type Counter struct{ v atomic.Uint64 }

// wasReset is set in a counter that had counted before it was reset: such a counter stays "used".
const wasReset = 1 << 63

// Inc adds 1.
func (c *Counter) Inc() { c.v.Add(1) }

// Add adds n.
func (c *Counter) Add(n uint64) { c.v.Add(n) }

// Value returns the count since the start or the last Reset.
func (c *Counter) Value() uint64 { return c.v.Load() &^ wasReset }

// Reset sets the counter to 0 (admin: reset_counters).
func (c *Counter) Reset() {
	if c.v.Load() != 0 {
		c.v.Store(wasReset)
	}
}

// Used reports whether the counter has ever counted.
func (c *Counter) Used() bool { return c.v.Load() != 0 }

// Gauge goes up and down. The zero value is ready; safe for concurrent use. 16 bytes.
type Gauge struct {
	v     atomic.Int64
	flags atomic.Uint32
}

const (
	gaugeUsed = 1 << iota
	gaugeUnsigned
)

// mark sets flags; the load keeps the common case free of writes.
func (g *Gauge) mark(flags uint32) {
	if g.flags.Load()&flags != flags {
		g.flags.Or(flags)
	}
}

// Set replaces the value.
func (g *Gauge) Set(n int64) {
	g.v.Store(n)
	g.mark(gaugeUsed)
}

// SetUnsigned replaces the value by one that may need all 64 bits, such as a hash.
func (g *Gauge) SetUnsigned(n uint64) {
	g.v.Store(int64(n))
	g.mark(gaugeUsed | gaugeUnsigned)
}

// Add adds n, which may be negative, and returns the new value.
func (g *Gauge) Add(n int64) int64 {
	g.mark(gaugeUsed)
	return g.v.Add(n)
}

// Inc adds 1.
func (g *Gauge) Inc() { g.Add(1) }

// Dec takes 1 away.
func (g *Gauge) Dec() { g.Add(-1) }

// Value returns the present value.
func (g *Gauge) Value() int64 { return g.v.Load() }

// Used reports whether the gauge has ever been written.
func (g *Gauge) Used() bool { return g.flags.Load()&gaugeUsed != 0 }

// unsigned reports whether Value holds a uint64.
func (g *Gauge) unsigned() bool { return g.flags.Load()&gaugeUnsigned != 0 }

// Text is a string value. The zero value is ready; safe for concurrent use.
type Text struct{ v atomic.Pointer[string] }

// Set replaces the text.
func (t *Text) Set(s string) { t.v.Store(&s) }

// Value returns the text, "" if none was set.
func (t *Text) Value() string {
	if p := t.v.Load(); p != nil {
		return *p
	}
	return ""
}

// Used reports whether a text has been set.
func (t *Text) Used() bool { return t.v.Load() != nil }
