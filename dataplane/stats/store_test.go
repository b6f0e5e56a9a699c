package stats

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

type testStats struct {
	Scope *Scope
	Total *Counter   `stat:"cx_total"`
	Now   *Gauge     `stat:"cx_active"`
	Ms    *Histogram `stat:"cx_length_ms"`
	Who   *Text      `stat:"identifier"`
	Late  *Counter   `stat:"udp.late,lazy"`
}

// show prints a store as text, sorted.
func show(s *Store) string {
	var lines []string
	for _, t := range s.All() {
		switch t.Kind {
		case TextKind:
			lines = append(lines, fmt.Sprintf("%s=%q", t.Name, t.Text()))
		case HistogramKind:
			_, all := t.Distributions()
			lines = append(lines, fmt.Sprintf("%s=%d values", t.Name, all.Count()))
		default:
			n, unsigned := t.Number()
			if unsigned {
				lines = append(lines, fmt.Sprintf("%s=%d", t.Name, uint64(n)))
			} else {
				lines = append(lines, fmt.Sprintf("%s=%d", t.Name, n))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

func TestBind(t *testing.T) {
	s := NewStore()
	a := testStats{Scope: s.Scope("tcp.a.")}
	Bind(a.Scope, &a)
	if a.Late != nil {
		t.Error("a lazy field was bound")
	}
	a.Total.Inc()
	a.Now.Set(-3)
	a.Who.Set("x")
	a.Ms.Record(5)
	const want = `tcp.a.cx_active=-3 tcp.a.cx_length_ms=0 values tcp.a.cx_total=1 tcp.a.identifier="x"`
	if got := show(s); got != want {
		t.Errorf("got %s", got)
	}
	s.Flush()
	if got := show(s); !strings.Contains(got, "length_ms=1 values") {
		t.Errorf("after a flush: %s", got)
	}
	BindLazy(a.Scope, &a)
	a.Late.Add(2)
	if got := show(s); !strings.HasSuffix(got, "tcp.a.udp.late=2") {
		t.Errorf("got %s", got)
	}
	if c := s.Counter("tcp.a.cx_total"); c != a.Total {
		t.Error("the full name is another counter")
	}
}

// TestSharing has scopes of one prefix share stats until the last is released.
func TestSharing(t *testing.T) {
	s := NewStore()
	a, b := testStats{Scope: s.Scope("tcp.a.")}, testStats{Scope: s.Scope("tcp.a.")}
	Bind(a.Scope, &a)
	Bind(b.Scope, &b)
	if a.Total != b.Total || a.Ms != b.Ms {
		t.Fatal("two scopes of a prefix have different stats")
	}
	other := b.Scope.Counter("other")
	if a.Scope.Counter("other") != other || s.Scope("tcp.").Counter("a.other") != other {
		t.Error("a name is another counter when split elsewhere")
	}
	a.Scope.Release()
	a.Scope.Release() // releasing twice does not take b's share
	if got := show(s); !strings.Contains(got, "tcp.a.cx_total") {
		t.Errorf("gone too early: %q", got)
	}
	b.Scope.Release()
	if got := show(s); got != "" {
		t.Errorf("left: %s", got)
	}
	b.Total.Inc() // pointers outlive the scope
}

// TestNameOwnedElsewhere binds a struct when one of its names exists already.
func TestNameOwnedElsewhere(t *testing.T) {
	s := NewStore()
	before := s.Counter("tcp.a.cx_total")
	a := testStats{Scope: s.Scope("tcp.a.")}
	Bind(a.Scope, &a)
	b := testStats{Scope: s.Scope("tcp.a.")}
	Bind(b.Scope, &b)
	if a.Total != before || b.Total != before {
		t.Error("a name has two counters")
	}
	before.Add(7)
	if got := show(s); strings.Count(got, "tcp.a.cx_total=7") != 1 || strings.Count(got, "cx_total") != 1 {
		t.Errorf("got %s", got)
	}
}

// TestPinned keeps a stat for the life of the store once it was asked for by its full name.
func TestPinned(t *testing.T) {
	s := NewStore()
	c := s.Scope("a.")
	c.Counter("b").Inc()
	s.Counter("a.b")
	c.Release()
	if got := show(s); got != "a.b=1" {
		t.Errorf("got %q", got)
	}
}

func TestKindMismatch(t *testing.T) {
	s := NewStore()
	s.Counter("a.b")
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), `stat "a.b" is a *stats.Counter`) {
			t.Errorf("panic %v", r)
		}
	}()
	s.Gauge("a.b")
}

func TestZeros(t *testing.T) {
	s := NewStore()
	c := s.Scope("x.")
	names := &Names{Counters: []string{"a", "b"}, Gauges: []string{"g"}, Histograms: []string{"h"}}
	c.Zero(names)
	c.Zero(names)
	c.Counter("b").Add(4)
	if got, want := show(s), "x.a=0 x.b=4 x.g=0 x.h=0 values"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, st := range s.All() {
		if st.Used() != (st.Name == "x.b") {
			t.Errorf("%s: used %v", st.Name, st.Used())
		}
	}
	if s.Counter("x.a").Inc(); !strings.Contains(show(s), "x.a=1") {
		t.Errorf("a zero that became real: %s", show(s))
	}
}

func TestGaugeFunc(t *testing.T) {
	s := NewStore()
	c := s.Scope("x.")
	c.GaugeFunc("g", func() int64 { return 1 })
	c.GaugeFunc("g", func() int64 { return 2 })
	if got := show(s); got != "x.g=2" {
		t.Errorf("got %s", got)
	}
	c.Gauge("g").Set(3)
	if got := show(s); got != "x.g=3" {
		t.Errorf("got %s", got)
	}
}

func TestReject(t *testing.T) {
	s := NewStoreWith(Config{Reject: func(name string) bool { return strings.Contains(name, "cx_") }})
	a := testStats{Scope: s.Scope("tcp.a.")}
	Bind(a.Scope, &a)
	a.Total.Inc()
	a.Scope.Counter("cx_more").Inc()
	a.Scope.GaugeFunc("cx_func", func() int64 { return 1 })
	a.Scope.Zero(&Names{Counters: []string{"cx_zero", "zero"}})
	if got := show(s); got != `tcp.a.identifier="" tcp.a.zero=0` {
		t.Errorf("got %s", got)
	}
}

func TestUsedAndReset(t *testing.T) {
	s := NewStore()
	c, g := s.Counter("c"), s.Gauge("g")
	used := func() (n int) {
		for _, st := range s.All() {
			if st.Used() {
				n++
			}
		}
		return n
	}
	if used() != 0 {
		t.Error("fresh stats are used")
	}
	s.ResetCounters()
	if used() != 0 {
		t.Error("a reset used a counter")
	}
	g.Set(0)
	c.Add(5)
	s.ResetCounters()
	if c.Value() != 0 || used() != 2 {
		t.Errorf("value %d, %d used", c.Value(), used())
	}
	c.Inc()
	if c.Value() != 1 {
		t.Errorf("value %d after a reset", c.Value())
	}
	s.Gauge("version").SetUnsigned(math.MaxUint64)
	if got := show(s); got != "c=1 g=0 version=18446744073709551615" {
		t.Errorf("got %s", got)
	}
}

func TestTagged(t *testing.T) {
	s := NewStore()
	for _, cluster := range []string{"a", "b"} {
		c := s.Scope("cluster." + cluster + ".")
		c.Counter("upstream_cx_total")
		c.Counter("upstream_rq_total")
		c.Counter("ssl.ciphers.x")
	}
	for range 2 {
		for _, st := range s.All() {
			name, tags := st.Tagged()
			wantName, wantTags := defaultTags.Extract(st.Name)
			if name != wantName || !slices.Equal(tags, wantTags) {
				t.Errorf("%s: %s %v, want %s %v", st.Name, name, tags, wantName, wantTags)
			}
		}
	}
	e, err := NewTagExtractor(false, []TagSpec{{Name: "fix", Fixed: "v"}})
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(Config{Tags: e})
	for _, st := range s.All() {
		if name, tags := st.Tagged(); name != st.Name || len(tags) != 1 {
			t.Errorf("%s: %s %v after the change", st.Name, name, tags)
		}
	}
}

// TestConcurrent is for the race detector.
func TestConcurrent(t *testing.T) {
	s := NewStore()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 200 {
				a := testStats{Scope: s.Scope(fmt.Sprintf("cluster.%d.", (i+j)%5))}
				Bind(a.Scope, &a)
				a.Total.Inc()
				a.Ms.Record(float64(j))
				if j%10 == 0 {
					for _, st := range s.All() {
						st.Tagged()
						st.Number()
						st.Distributions()
					}
					s.Flush()
				}
				a.Scope.Release()
			}
		})
	}
	wg.Wait()
	if got := show(s); got != "" {
		t.Errorf("left: %s", got)
	}
}

// TestMemory bounds what a scope costs beside its values.
func TestMemory(t *testing.T) {
	s := NewStore()
	const scopes = 1000
	var before, after runtime.MemStats
	hold := make([]*testStats, scopes)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range hold {
		hold[i] = &testStats{Scope: s.Scope(fmt.Sprintf("cluster.%d.", i))}
		Bind(hold[i].Scope, hold[i])
		hold[i].Scope.Zero(&Names{})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / scopes
	t.Logf("%d bytes a scope of 4 stats", each)
	if each > 1500 {
		t.Errorf("%d bytes a scope of 4 stats", each)
	}
	runtime.KeepAlive(hold)
}
