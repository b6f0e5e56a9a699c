package stats

import "strings"

// Totals are the counters of a process that have counted, and those of its gauges that tell of things it
// still has, by full name.
type Totals struct {
	Counters map[string]int64 `json:"counters"`
	Gauges   map[string]int64 `json:"gauges"`
}

// Totals returns those of the store.
func (s *Store) Totals() Totals {
	t := Totals{Counters: map[string]int64{}, Gauges: map[string]int64{}}
	for _, st := range s.All() {
		switch v := st.stat.(type) {
		case *Counter:
			if n := v.Value(); n > 0 {
				t.Counters[st.Name] = int64(n)
			}
		case *Gauge:
			if n := v.Value(); n != 0 && adds(st.Name) {
				t.Gauges[st.Name] = n
			}
		}
	}
	return t
}

// adds reports whether the values of a gauge in two processes that serve together add up, as Envoy's
// gauges of import mode Accumulate do: what is open, waits or is held.
func adds(name string) bool {
	if strings.HasPrefix(name, "listener_manager.") || strings.HasPrefix(name, "cluster_manager.") ||
		strings.HasPrefix(name, "server.") || strings.HasPrefix(name, "guideway.") || strings.HasSuffix(name, ".ejections_active") {
		return false
	}
	return strings.HasSuffix(name, "_active") || strings.HasSuffix(name, "_buffered")
}

// Imported adds the totals of another process to a store, again and again as they grow. What has no
// stat of its name yet is added when there is one. Not safe for concurrent use.
type Imported struct {
	store *Store
	done  Totals
}

// NewImported returns one that has added nothing.
func NewImported(s *Store) *Imported {
	return &Imported{s, Totals{map[string]int64{}, map[string]int64{}}}
}

// Add brings what was added up to t; a gauge that is not in t has fallen to 0.
func (i *Imported) Add(t Totals) {
	for _, st := range i.store.All() {
		switch v := st.stat.(type) {
		case *Counter:
			if d := t.Counters[st.Name] - i.done.Counters[st.Name]; d > 0 {
				v.Add(uint64(d))
				i.done.Counters[st.Name] += d
			}
		case *Gauge:
			if !adds(st.Name) {
				continue
			}
			if d := t.Gauges[st.Name] - i.done.Gauges[st.Name]; d != 0 {
				v.Add(d)
				i.done.Gauges[st.Name] += d
			}
		}
	}
}

// End takes the gauges back: the other process has ended.
func (i *Imported) End() { i.Add(Totals{Counters: i.done.Counters}) }
