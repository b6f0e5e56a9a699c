package stats

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// Store holds every stat of a process by its name. Safe for concurrent use.
type Store struct {
	mu    sync.RWMutex
	items map[string]*item
}

// item is one stat and the number of scopes that hold it.
type item struct {
	name string
	stat any // *Counter, *Gauge, *Histogram or *Text
	refs int
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{items: map[string]*item{}} }

// Scope returns a new scope for names that begin with prefix (with its final dot).
func (s *Store) Scope(prefix string) *Scope { return &Scope{store: s, prefix: prefix} }

// Counter returns the counter of that full name, made if it is not there, for the life of the store.
func (s *Store) Counter(name string) *Counter { return get[Counter](s, name) }

// Gauge returns the gauge of that full name, made if it is not there, for the life of the store.
func (s *Store) Gauge(name string) *Gauge { return get[Gauge](s, name) }

// Histogram returns the histogram of that full name, made if it is not there, for the life of the store.
func (s *Store) Histogram(name string) *Histogram { return get[Histogram](s, name) }

// Text returns the text readout of that full name, made if it is not there, for the life of the store.
func (s *Store) Text(name string) *Text { return get[Text](s, name) }

func get[T any](s *Store, name string) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[name]
	if it == nil {
		it = &item{name: name, stat: new(T)}
		s.items[name] = it
	}
	it.refs++
	v, ok := it.stat.(*T)
	if !ok {
		panic(fmt.Sprintf("stat %q is a %T, asked for as %T", name, it.stat, v))
	}
	return v
}

// Scope makes stats below a prefix and gives them up together.
type Scope struct {
	store  *Store
	prefix string
	mu     sync.Mutex
	held   []string
}

// Prefix returns the scope's prefix, with its final dot.
func (c *Scope) Prefix() string { return c.prefix }

// Counter returns the counter prefix+name.
func (c *Scope) Counter(name string) *Counter { return hold(c, name, c.store.Counter) }

// Gauge returns the gauge prefix+name.
func (c *Scope) Gauge(name string) *Gauge { return hold(c, name, c.store.Gauge) }

// Histogram returns the histogram prefix+name.
func (c *Scope) Histogram(name string) *Histogram { return hold(c, name, c.store.Histogram) }

// Text returns the text readout prefix+name.
func (c *Scope) Text(name string) *Text { return hold(c, name, c.store.Text) }

func hold[T any](c *Scope, name string, get func(string) *T) *T {
	v := get(c.prefix + name)
	c.mu.Lock()
	c.held = append(c.held, c.prefix+name)
	c.mu.Unlock()
	return v
}

// Release gives the scope's stats up; those that no other scope holds disappear from the store.
// Pointers handed out stay usable.
func (c *Scope) Release() {
	c.mu.Lock()
	held := c.held
	c.held = nil
	c.mu.Unlock()
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	for _, name := range held {
		if it := c.store.items[name]; it != nil {
			if it.refs--; it.refs <= 0 {
				delete(c.store.items, name)
			}
		}
	}
}

// Bind fills the fields of *dst (a pointer to a struct) that are pointers to stats and carry a tag
// `stat:"name"` with stats of the scope. A field tagged `stat:"name,lazy"` is left nil until BindLazy.
func Bind(c *Scope, dst any) { bind(c, dst, false) }

// BindLazy fills the fields tagged lazy; those that only some users of the struct have.
func BindLazy(c *Scope, dst any) { bind(c, dst, true) }

func bind(c *Scope, dst any, lazy bool) {
	v := reflect.ValueOf(dst).Elem()
	for i := range v.NumField() {
		tag, ok := v.Type().Field(i).Tag.Lookup("stat")
		if !ok {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		if (option == "lazy") != lazy || !v.Field(i).IsNil() {
			continue
		}
		switch f := v.Field(i).Addr().Interface().(type) {
		case **Counter:
			*f = c.Counter(name)
		case **Gauge:
			*f = c.Gauge(name)
		case **Histogram:
			*f = c.Histogram(name)
		case **Text:
			*f = c.Text(name)
		default:
			panic(fmt.Sprintf("field %s of %T carries a stat tag but is no stat", v.Type().Field(i).Name, dst))
		}
	}
}
