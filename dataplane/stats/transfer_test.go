package stats

import "testing"

func TestImported(t *testing.T) {
	older, newer := NewStore(), NewStore()
	older.Counter("tcp.a.downstream_cx_total").Add(5)
	older.Counter("later.total").Add(7)
	older.Gauge("tcp.a.downstream_cx_active").Set(3)
	older.Gauge("cluster.c.membership_total").Set(9)
	older.Gauge("listener_manager.total_listeners_active").Set(2)
	total, active := newer.Counter("tcp.a.downstream_cx_total"), newer.Gauge("tcp.a.downstream_cx_active")
	members, listeners := newer.Gauge("cluster.c.membership_total"), newer.Gauge("listener_manager.total_listeners_active")
	total.Add(1)
	active.Set(1)
	i := NewImported(newer)
	check := func(when string, wantTotal uint64, wantActive int64) {
		t.Helper()
		if total.Value() != wantTotal || active.Value() != wantActive || members.Value() != 0 || listeners.Value() != 0 {
			t.Errorf("%s: total %d, active %d, members %d, listeners %d", when, total.Value(), active.Value(), members.Value(), listeners.Value())
		}
	}
	i.Add(older.Totals())
	check("at first", 6, 4)
	i.Add(older.Totals())
	check("again", 6, 4)
	older.Counter("tcp.a.downstream_cx_total").Add(2)
	older.Gauge("tcp.a.downstream_cx_active").Set(0)
	late := newer.Counter("later.total")
	i.Add(older.Totals())
	check("after more", 8, 1)
	if late.Value() != 7 {
		t.Errorf("a counter that came later has %d", late.Value())
	}
	older.Gauge("tcp.a.downstream_cx_active").Set(2)
	i.Add(older.Totals())
	i.End()
	check("at the end", 8, 1)
}
