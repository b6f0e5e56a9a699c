package stats

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// Bind fills the fields of *dst (a pointer to a struct) that are pointers to stats and carry a tag
// `stat:"name"` with stats of the scope. A field tagged `stat:"name,lazy"` is left nil until BindLazy.
// Fields that are set already are left alone.
func Bind(c *Scope, dst any) { bind(c, dst, false) }

// BindLazy fills the fields tagged lazy; those that only some users of the struct have.
func BindLazy(c *Scope, dst any) { bind(c, dst, true) }

// layout describes the stat fields of one struct type, lazy ones or all others. It is shared by every
// scope that binds the type.
type layout struct {
	fields []layoutField
	byName map[string]int
	size   [kinds]int
}

type layoutField struct {
	name  string
	kind  Kind
	index int // in the struct
	slot  int // among those of its kind
}

type layoutKey struct {
	typ  reflect.Type
	lazy bool
}

var layouts sync.Map // layoutKey -> *layout

func layoutOf(typ reflect.Type, lazy bool) *layout {
	key := layoutKey{typ, lazy}
	if l, ok := layouts.Load(key); ok {
		return l.(*layout)
	}
	l := &layout{byName: map[string]int{}}
	for i := range typ.NumField() {
		tag, ok := typ.Field(i).Tag.Lookup("stat")
		if !ok {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		if (option == "lazy") != lazy {
			continue
		}
		f := layoutField{name: name, index: i}
		switch reflect.Zero(typ.Field(i).Type).Interface().(type) {
		case *Counter:
			f.kind = CounterKind
		case *Gauge:
			f.kind = GaugeKind
		case *Histogram:
			f.kind = HistogramKind
		case *Text:
			f.kind = TextKind
		default:
			panic(fmt.Sprintf("field %s of %v carries a stat tag but is no stat", typ.Field(i).Name, typ))
		}
		f.slot = l.size[f.kind]
		l.size[f.kind]++
		l.byName[name] = len(l.fields)
		l.fields = append(l.fields, f)
	}
	actual, _ := layouts.LoadOrStore(key, l)
	return actual.(*layout)
}

// group is the block of values of one bound struct below one prefix.
type group struct {
	layout     *layout
	counters   []Counter
	gauges     []Gauge
	histograms []Histogram
	texts      []Text
	// hidden are fields that are not this group's to show, by index: another part of the store has the
	// name, or it is rejected. nil if there are none.
	hidden map[int]bool
}

func newGroup(l *layout) *group {
	return &group{
		layout:     l,
		counters:   make([]Counter, l.size[CounterKind]),
		gauges:     make([]Gauge, l.size[GaugeKind]),
		histograms: make([]Histogram, l.size[HistogramKind]),
		texts:      make([]Text, l.size[TextKind]),
	}
}

func (g *group) stat(i int) any {
	f := &g.layout.fields[i]
	switch f.kind {
	case CounterKind:
		return &g.counters[f.slot]
	case GaugeKind:
		return &g.gauges[f.slot]
	case HistogramKind:
		return &g.histograms[f.slot]
	}
	return &g.texts[f.slot]
}

func (g *group) find(name string) any {
	i, ok := g.layout.byName[name]
	if !ok || g.hidden[i] {
		return nil
	}
	return g.stat(i)
}

func bind(c *Scope, dst any, lazy bool) {
	v := reflect.ValueOf(dst).Elem()
	l := layoutOf(v.Type(), lazy)
	if len(l.fields) == 0 {
		return
	}
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var g *group
	for _, have := range c.node.groups {
		if have.layout == l {
			g = have
		}
	}
	isNew := g == nil
	if isNew {
		g = newGroup(l)
	}
	for i := range l.fields {
		f := &l.fields[i]
		field := v.Field(f.index)
		if !field.IsNil() {
			if isNew {
				g.hide(i)
			}
			continue
		}
		full := c.node.prefix + f.name
		if _, have := s.find(full); have != nil && (isNew || g.hidden[i]) {
			g.hide(i)
			stat := reflect.ValueOf(have)
			if stat.Type() != field.Type() {
				panic(fmt.Sprintf("stat %q is a %T, asked for as %v", full, have, field.Type()))
			}
			field.Set(stat)
			continue
		}
		if isNew && s.rejected(full) {
			g.hide(i)
		}
		field.Set(reflect.ValueOf(g.stat(i)))
	}
	if isNew {
		c.node.groups = append(c.node.groups, g)
	}
}

func (g *group) hide(i int) {
	if g.hidden == nil {
		g.hidden = map[int]bool{}
	}
	g.hidden[i] = true
}
