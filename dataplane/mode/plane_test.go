package mode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
	"github.com/guideway/guideway/dataplane/stats"
	"github.com/guideway/guideway/dataplane/xdp"
	"github.com/guideway/guideway/maglev"
)

// fake is a data plane that writes down what it is told.
type fake struct {
	name   string
	serves []string
	log    *[]string
	mode   xdp.Mode
}

func (f *fake) Apply(_ context.Context, s *dataplane.Snapshot) error {
	f.serves = nil
	for _, l := range s.Listeners {
		f.serves = append(f.serves, l.Name)
	}
	*f.log = append(*f.log, fmt.Sprint(f.name, f.serves))
	return nil
}

func (f *fake) Listening() []dataplane.ListenerStatus {
	var list []dataplane.ListenerStatus
	for _, name := range f.serves {
		list = append(list, dataplane.ListenerStatus{Name: name})
	}
	return list
}
func (f *fake) DrainListeners([]string, time.Duration) {}
func (f *fake) SetDraining(bool)                       {}
func (f *fake) Close() error                           { return nil }
func (f *fake) Mode() (xdp.Mode, []string)             { return f.mode, []string{"eth0"} }

// bed is a plane on two fakes.
type bed struct {
	*Plane
	log    []string
	opened [][]xdp.Mode
	err    error // of opening XDP
	mode   xdp.Mode
}

func newBed(c Config) *bed {
	b := &bed{}
	c.Proxy = &fake{name: "proxy", log: &b.log}
	c.Stats, c.Log = stats.NewStore(), slog.New(slog.DiscardHandler)
	c.OpenXDP = func(modes []xdp.Mode, _ []*dataplane.Listener, _ map[string]*dataplane.Cluster) (XDPPlane, error) {
		b.opened = append(b.opened, modes)
		if b.err != nil {
			return nil, b.err
		}
		return &fake{name: "xdp", log: &b.log, mode: b.mode}, nil
	}
	b.Plane = New(c)
	return b
}

// of makes a snapshot of listeners: each is named by its own choice, and fits XDP unless it begins with "unfit".
func of(t *testing.T, listeners ...*dataplane.Listener) *dataplane.Snapshot {
	t.Helper()
	c := &dataplane.Cluster{Name: "c", Stats: dataplane.NewClusterStats(stats.NewStore(), "c"), Live: &dataplane.ClusterLive{}, Incarnation: 1}
	at := netip.MustParseAddrPort("10.0.0.1:80")
	set := lb.HostSet{Hosts: []*dataplane.Host{{Address: at, Key: maglev.HostKey(at), Weight: 1, State: &dataplane.HostState{}}}}
	c.Hosts = set.Hosts
	var err error
	c.Balancer, err = lb.New(lb.Config{Policy: lb.Maglev, TableSize: 251}, lb.Input{Priorities: []lb.HostSet{set}, Live: c.Live, Stats: c.Stats}, lb.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	return &dataplane.Snapshot{Listeners: listeners, Clusters: map[string]*dataplane.Cluster{"c": c}}
}

func listener(name, choice string, unfit bool) *dataplane.Listener {
	l := &dataplane.Listener{
		Name: name, Dataplane: choice, Protocol: dataplane.TCP, Hash: uint64(len(name) + 100*len(choice)),
		Addresses:    []dataplane.ListenAddress{{Addr: netip.MustParseAddrPort("192.0.2.1:80")}},
		DefaultChain: &dataplane.FilterChain{Proxy: &dataplane.TCPProxy{Clusters: []dataplane.WeightedCluster{{Name: "c", Weight: 1}}}},
	}
	if unfit {
		l.ListenerFilters = []dataplane.ListenerFilter{&dataplane.TLSInspector{}}
	}
	return l
}

func TestChoice(t *testing.T) {
	broken := errors.New("no XDP here")
	for _, c := range []struct {
		name     string
		config   Config
		listener *dataplane.Listener
		err      error    // of opening XDP
		mode     xdp.Mode // it runs in
		want     string   // "" if the listener fails
		modes    []xdp.Mode
	}{
		{name: "auto", listener: listener("a", "", false), config: Config{Interfaces: []string{"eth0"}}, want: XDP, modes: []xdp.Mode{xdp.Native, xdp.Generic}},
		{name: "auto, generic", listener: listener("a", "", false), config: Config{Interfaces: []string{"eth0"}}, mode: xdp.Generic, want: XDPGeneric, modes: []xdp.Mode{xdp.Native, xdp.Generic}},
		{name: "auto without interfaces", listener: listener("a", "", false), want: Proxy},
		{name: "auto, unfit", listener: listener("a", "", true), config: Config{Interfaces: []string{"eth0"}}, want: Proxy},
		{name: "auto, no XDP", listener: listener("a", "", false), config: Config{Interfaces: []string{"eth0"}}, err: broken, want: Proxy, modes: []xdp.Mode{xdp.Native, xdp.Generic}},
		{name: "xdp, unfit", listener: listener("a", "", true), config: Config{Mode: XDP, Interfaces: []string{"eth0"}}},
		{name: "xdp, no XDP", listener: listener("a", "", false), config: Config{Mode: XDP, Interfaces: []string{"eth0"}}, err: broken, modes: []xdp.Mode{xdp.Native, xdp.Generic}},
		{name: "generic", listener: listener("a", "", false), config: Config{Mode: XDPGeneric, Interfaces: []string{"eth0"}}, mode: xdp.Generic, want: XDPGeneric, modes: []xdp.Mode{xdp.Generic}},
		{name: "the listener's choice", listener: listener("a", Proxy, false), config: Config{Mode: XDP, Interfaces: []string{"eth0"}}, want: Proxy},
		{name: "native required", listener: listener("a", "", false), config: Config{RequireNative: true, Interfaces: []string{"eth0"}}, want: XDP, modes: []xdp.Mode{xdp.Native}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(c.config)
			b.err, b.mode = c.err, c.mode
			err := b.Apply(context.Background(), of(t, c.listener))
			var some *dataplane.ListenerError
			if c.want == "" {
				if !errors.As(err, &some) {
					t.Fatalf("error %v, want one of the listener", err)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if got := b.Listening()[0]; got.Dataplane != c.want || got.Reason == "" {
				t.Errorf("%+v, want %s and a reason", got, c.want)
			}
			var modes []xdp.Mode
			if len(b.opened) > 0 {
				modes = b.opened[0]
			}
			if !slices.Equal(modes, c.modes) {
				t.Errorf("modes tried: %v, want %v", modes, c.modes)
			}
		})
	}
}

func TestRequiredNativeIsAnError(t *testing.T) {
	b := newBed(Config{RequireNative: true, Interfaces: []string{"eth0"}})
	b.err = errors.New("the driver has no XDP")
	if err := b.Apply(context.Background(), of(t, listener("a", "", false))); !errors.Is(err, b.err) {
		t.Errorf("%v, want %v", err, b.err)
	}
}

// A listener that changes its data plane is served by one of the two at any time, and hosts that come and go do not
// make it change.
func TestMovesWithoutAGap(t *testing.T) {
	b := newBed(Config{Interfaces: []string{"eth0"}})
	apply := func(s *dataplane.Snapshot) {
		t.Helper()
		b.log = nil
		if err := b.Apply(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	apply(of(t, listener("x", "", true), listener("y", "", false)))
	apply(of(t, listener("x", "auto", false), listener("y", "", false)))
	if want := []string{"proxy[x]", "xdp[x y]", "proxy[]"}; !slices.Equal(b.log, want) {
		t.Errorf("to XDP: %v, want %v", b.log, want)
	}
	apply(of(t, listener("x", "proxy", false), listener("y", "", false)))
	if want := []string{"proxy[x]", "xdp[y]"}; !slices.Equal(b.log, want) {
		t.Errorf("to the proxy: %v, want %v", b.log, want)
	}
	s := of(t, listener("x", "proxy", false), listener("y", "", false))
	c := *s.Clusters["c"]
	odd := *c.Hosts[0]
	odd.Address = netip.MustParseAddrPort("10.0.0.2:8080") // of a port that ipip cannot reach
	c.Hosts = append(slices.Clone(c.Hosts), &odd)
	s.Clusters = map[string]*dataplane.Cluster{"c": &c}
	apply(s)
	if want := []string{"proxy[x]", "xdp[y]"}; !slices.Equal(b.log, want) {
		t.Errorf("with a new host: %v, want %v", b.log, want)
	}
}
