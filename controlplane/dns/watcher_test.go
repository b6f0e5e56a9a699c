package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// scripted answers each name from a list, the last entry again and again, and notes when it was asked.
type scripted struct {
	mu    sync.Mutex
	start time.Time
	names map[string][]reply
	asked []string // "name at 5s"
}

// reply is addresses by blanks, "fail", or "hang" (until the context ends).
type reply struct {
	text string
	ttl  time.Duration
}

func (s *scripted) Lookup(ctx context.Context, name string, _ model.DNSFamily) (Answer, error) {
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprintf("%s %v", name, time.Since(s.start)))
	list := s.names[name]
	r := list[0]
	if len(list) > 1 {
		s.names[name] = list[1:]
	}
	s.mu.Unlock()
	a := Answer{TTL: r.ttl}
	switch r.text {
	case "fail":
		return a, errors.New("servers are down")
	case "hang":
		<-ctx.Done()
		return a, ctx.Err()
	}
	for _, f := range strings.Fields(r.text) {
		a.Addrs = append(a.Addrs, netip.MustParseAddr(f))
	}
	return a, nil
}

// run watches a cluster in a bubble of fake time for d and returns what OnUpdate got, as
// "0s: host=addr host=addr", and the counters attempt, success, failure, no_rebuild, empty.
func run(t *testing.T, c *model.Cluster, s *scripted, d time.Duration) (updates []string, counts [5]uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := dataplane.NewClusterStats(stats.NewStore(), "c")
		s.start = time.Now()
		w := NewWatcher(c, Deps{
			Resolver: s, Stats: st, Log: slog.New(slog.DiscardHandler),
			Random: func(n int64) int64 { return n - 1 },
			OnUpdate: func(a model.Assignment) {
				updates = append(updates, fmt.Sprintf("%v: %s", time.Since(s.start), describe(a)))
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		w.Run(ctx)
		counts = [5]uint64{st.UpdateAttempt.Value(), st.UpdateSuccess.Value(), st.UpdateFailure.Value(), st.UpdateNoRebuild.Value(), st.UpdateEmpty.Value()}
	})
	return updates, counts
}

func describe(a model.Assignment) string {
	var b []string
	for _, l := range a.Localities {
		for _, e := range l.Endpoints {
			s := fmt.Sprintf("%s=%s", e.Hostname, e.Address)
			if len(e.Additional) > 0 {
				s += fmt.Sprint(e.Additional)
			}
			if l.Priority > 0 {
				s += fmt.Sprintf("@%d", l.Priority)
			}
			b = append(b, s)
		}
	}
	return strings.Join(b, " ")
}

// cluster has one endpoint at port 80 for each name; the k-th is in a locality of priority k.
func cluster(d model.Discovery, names ...string) *model.Cluster {
	c := &model.Cluster{Discovery: d, WaitForWarmOnInit: true, DNS: model.DNS{RefreshRate: 5 * time.Second}}
	for i, n := range names {
		c.Assignment.Localities = append(c.Assignment.Localities, model.LocalityEndpoints{
			Priority: uint32(i), Endpoints: []model.Endpoint{{Host: n, Port: 80, Weight: 1}},
		})
	}
	return c
}

func script(s map[string][]reply) *scripted { return &scripted{names: s} }

func TestWatcher(t *testing.T) {
	backoff := cluster(model.StrictDNS, "a")
	backoff.DNS.FailureRefreshBase, backoff.DNS.FailureRefreshMax = 2*time.Second, 8*time.Second
	ttl := cluster(model.StrictDNS, "a")
	ttl.DNS.RespectTTL, ttl.DNS.Jitter = true, 100*time.Millisecond
	eager := cluster(model.StrictDNS, "a")
	eager.WaitForWarmOnInit = false
	logical := cluster(model.LogicalDNS, "a")
	logical.Assignment.Localities[0].Priority = 3
	literal := cluster(model.StrictDNS)
	literal.Assignment.Localities = []model.LocalityEndpoints{{Endpoints: []model.Endpoint{{Address: netip.MustParseAddrPort("192.0.2.1:81")}}}}
	named := cluster(model.StrictDNS, "a")
	named.Assignment.Localities[0].Endpoints[0].Hostname = "host.example"

	for _, c := range []struct {
		name    string
		cluster *model.Cluster
		script  map[string][]reply
		for_    time.Duration
		updates []string
		counts  [5]uint64 // attempt, success, failure, no_rebuild, empty
		asked   []string  // if not nil
	}{
		{
			name: "answers that change, come in another order, and go", cluster: cluster(model.StrictDNS, "a"),
			script:  map[string][]reply{"a": {{text: "10.0.0.1 10.0.0.2"}, {text: "10.0.0.2 10.0.0.1"}, {text: "10.0.0.2"}, {text: ""}}},
			for_:    17 * time.Second,
			updates: []string{"0s: a=10.0.0.1:80 a=10.0.0.2:80", "10s: a=10.0.0.2:80", "15s: "},
			counts:  [5]uint64{4, 4, 0, 1, 0},
		}, {
			name: "failure keeps the hosts", cluster: cluster(model.StrictDNS, "a"),
			script:  map[string][]reply{"a": {{text: "10.0.0.1"}, {text: "fail"}, {text: "fail"}, {text: "10.0.0.1"}}},
			for_:    17 * time.Second,
			updates: []string{"0s: a=10.0.0.1:80"},
			counts:  [5]uint64{4, 2, 2, 1, 0},
		}, {
			name: "first failure does not hold up the start", cluster: cluster(model.StrictDNS, "a"),
			script:  map[string][]reply{"a": {{text: "fail"}, {text: "10.0.0.1"}}},
			for_:    6 * time.Second,
			updates: []string{"0s: ", "5s: a=10.0.0.1:80"},
			counts:  [5]uint64{2, 1, 1, 0, 0},
		}, {
			name: "no such name is an answer", cluster: cluster(model.StrictDNS, "a"),
			script:  map[string][]reply{"a": {{text: ""}}},
			for_:    6 * time.Second,
			updates: []string{"0s: "},
			counts:  [5]uint64{2, 2, 0, 2, 0},
		}, {
			name: "one name of two is enough to begin with", cluster: cluster(model.StrictDNS, "a", "b"),
			script:  map[string][]reply{"a": {{text: "10.0.0.1"}}, "b": {{text: "hang"}}},
			for_:    4 * time.Second,
			updates: []string{"0s: a=10.0.0.1:80"},
			counts:  [5]uint64{2, 1, 0, 0, 0},
		}, {
			name: "backoff grows, and ends with a success", cluster: backoff,
			script: map[string][]reply{"a": {{text: "fail"}, {text: "fail"}, {text: "fail"}, {text: "10.0.0.1"}, {text: "fail"}, {text: "10.0.0.1"}}},
			for_:   22 * time.Second,
			// bounds 2, 4, 8, and 2 again; the random number is one short of each
			asked:   []string{"a 0s", "a 1.999999999s", "a 5.999999998s", "a 13.999999997s", "a 18.999999997s", "a 20.999999996s"},
			updates: []string{"0s: ", "13.999999997s: a=10.0.0.1:80"},
			counts:  [5]uint64{6, 2, 4, 1, 0},
		}, {
			name: "TTL and jitter", cluster: ttl,
			script:  map[string][]reply{"a": {{text: "10.0.0.1", ttl: time.Second}, {text: "10.0.0.1", ttl: 3 * time.Second}, {text: "10.0.0.1"}}},
			for_:    10 * time.Second,
			asked:   []string{"a 0s", "a 1.099999999s", "a 4.199999998s", "a 9.299999997s"},
			updates: []string{"0s: a=10.0.0.1:80"},
			counts:  [5]uint64{4, 4, 0, 3, 0},
		}, {
			name: "wait_for_warm_on_init off", cluster: eager,
			script:  map[string][]reply{"a": {{text: "hang"}}},
			for_:    time.Second,
			updates: []string{"0s: "},
			counts:  [5]uint64{1, 0, 0, 0, 0},
		}, {
			name: "no names", cluster: cluster(model.StrictDNS),
			for_:    time.Second,
			updates: []string{"0s: "},
		}, {
			name: "logical: first address, nothing is a failure, order counts", cluster: logical,
			script:  map[string][]reply{"a": {{text: "10.0.0.1 10.0.0.2"}, {text: ""}, {text: "10.0.0.2 10.0.0.1"}, {text: "10.0.0.2 10.0.0.1"}}},
			for_:    16 * time.Second,
			updates: []string{"0s: a=10.0.0.1:80[10.0.0.2:80]", "10s: a=10.0.0.2:80[10.0.0.1:80]"},
			counts:  [5]uint64{4, 3, 1, 1, 0},
		}, {
			name: "address instead of a name", cluster: literal,
			script:  map[string][]reply{"192.0.2.1": {{text: "192.0.2.1"}}},
			for_:    6 * time.Second,
			updates: []string{"0s: 192.0.2.1=192.0.2.1:81"},
			counts:  [5]uint64{2, 2, 0, 1, 0},
		}, {
			name: "hostname of its own", cluster: named,
			script:  map[string][]reply{"a": {{text: "10.0.0.1"}}},
			for_:    time.Second,
			updates: []string{"0s: host.example=10.0.0.1:80"},
			counts:  [5]uint64{1, 1, 0, 0, 0},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := script(c.script)
			updates, counts := run(t, c.cluster, s, c.for_)
			if !slices.Equal(updates, c.updates) {
				t.Errorf("updates %q\nwant    %q", updates, c.updates)
			}
			if counts != c.counts {
				t.Errorf("attempt, success, failure, no_rebuild, empty = %v, want %v", counts, c.counts)
			}
			if c.asked != nil && !slices.Equal(s.asked, c.asked) {
				t.Errorf("asked %q\nwant  %q", s.asked, c.asked)
			}
		})
	}
}

// TestWatcherKeepsPriorities: two names in two localities, one of them unresolved at first.
func TestWatcherKeepsPriorities(t *testing.T) {
	s := script(map[string][]reply{"a": {{text: "fail"}, {text: "10.0.0.1"}}, "b": {{text: "10.0.0.2"}}})
	updates, _ := run(t, cluster(model.StrictDNS, "a", "b"), s, 6*time.Second)
	if want := "5s: a=10.0.0.1:80 b=10.0.0.2:80@1"; len(updates) == 0 || updates[len(updates)-1] != want {
		t.Errorf("updates %q, want %q last", updates, want)
	}
}

// TestWatcherWithServer drives a real lookup to a real server whose answer changes.
func TestWatcherWithServer(t *testing.T) {
	s := newServer(t)
	s.set("web", records("web.test. 1 A 127.0.0.1"))
	c := cluster(model.StrictDNS, "web.test")
	c.DNS = model.DNS{Resolvers: []netip.AddrPort{s.addr}, RefreshRate: time.Millisecond, Family: model.V4Only}
	got := make(chan string, 16)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w := NewWatcher(c, Deps{
		Stats: dataplane.NewClusterStats(stats.NewStore(), "c"), Log: slog.New(slog.DiscardHandler),
		OnUpdate: func(a model.Assignment) { got <- describe(a) },
	})
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	expect := func(want string) {
		t.Helper()
		select {
		case u := <-got:
			if u != want {
				t.Fatalf("update %q, want %q", u, want)
			}
		case <-ctx.Done():
			t.Fatalf("no update, want %q", want)
		}
	}
	expect("web.test=127.0.0.1:80")
	s.set("web", records("web.test. 1 A 127.0.0.1", "web.test. 1 A 127.0.0.2"))
	expect("web.test=127.0.0.1:80 web.test=127.0.0.2:80")
	s.set("web", nil)
	expect("")
	cancel()
	<-ended
}
