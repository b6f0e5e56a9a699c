package stats

import "sync/atomic"

// Counter only grows. The zero value is ready; safe for concurrent use.
type Counter struct{ v atomic.Uint64 }

// Inc adds 1.
func (c *Counter) Inc() { c.v.Add(1) }

// Add adds n.
func (c *Counter) Add(n uint64) { c.v.Add(n) }

// Value returns the count since the start or the last Reset.
func (c *Counter) Value() uint64 { return c.v.Load() }

// Reset sets the counter to 0 (admin: reset_counters).
func (c *Counter) Reset() { c.v.Store(0) }

// Gauge goes up and down. The zero value is ready; safe for concurrent use.
type Gauge struct{ v atomic.Int64 }

// Set replaces the value.
func (g *Gauge) Set(n int64) { g.v.Store(n) }

// Add adds n, which may be negative, and returns the new value.
func (g *Gauge) Add(n int64) int64 { return g.v.Add(n) }

// Inc adds 1.
func (g *Gauge) Inc() { g.v.Add(1) }

// Dec takes 1 away.
func (g *Gauge) Dec() { g.v.Add(-1) }

// Value returns the present value.
func (g *Gauge) Value() int64 { return g.v.Load() }

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
