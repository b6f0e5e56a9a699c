package health

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

// The rows of health.json are what a running Envoy 1.40 did. They are replayed here step by step: each
// probe goes to a real socket, but only when the test lets it, so that counters are exact.

// observed is one row, or a part of one, as JSON.
type observed map[string]json.RawMessage

// sample is one moment of a row.
type sample struct {
	Flags   []string
	Healthy int `json:"membership_healthy"`
	Attempt, Success, Failure,
	NetworkFailure uint64
}

func (s *sample) UnmarshalJSON(b []byte) error {
	var v struct {
		Flags          []string `json:"flags"`
		Healthy        int      `json:"membership_healthy"`
		Attempt        uint64   `json:"attempt"`
		Success        uint64   `json:"success"`
		Failure        uint64   `json:"failure"`
		NetworkFailure uint64   `json:"network_failure"`
	}
	if len(b) > 0 && b[0] == '"' {
		return nil // "-- change" stands between samples
	}
	err := json.Unmarshal(b, &v)
	*s = sample{v.Flags, v.Healthy, v.Attempt, v.Success, v.Failure, v.NetworkFailure}
	return err
}

// observedRows returns the rows whose case is name.
func observedRows(t *testing.T, name string) (rows []observed) {
	t.Helper()
	b, err := os.ReadFile("../../cmd/guideway/testdata/observed/health.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []observed
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if decode[string](t, r["case"]) == name {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("health.json has no case %q", name)
	}
	return rows
}

func decode[T any](t *testing.T, b json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return v
}

// samples decodes a list of samples; the marks between them are dropped.
func samples(t *testing.T, b json.RawMessage) (out []sample) {
	t.Helper()
	for _, s := range decode[[]sample](t, b) {
		if s.Flags != nil {
			out = append(out, s)
		}
	}
	return out
}

// gate holds each probe back until the test lets it go, and gives it its time only then.
type gate struct {
	inner   prober
	timeout time.Duration
	mu      sync.Mutex
	probes  map[*dataplane.HostState]*gated
}

type gated struct {
	inner        probe
	timeout      time.Duration
	arrived, go_ chan struct{}
}

func (g *gate) open(t *Target) probe {
	p := &gated{g.inner.open(t), g.timeout, make(chan struct{}), make(chan struct{})}
	g.mu.Lock()
	g.probes[t.State] = p
	g.mu.Unlock()
	return p
}

func (p *gated) close() { p.inner.close() }

func (p *gated) run(ctx context.Context) outcome {
	select {
	case p.arrived <- struct{}{}:
	case <-ctx.Done():
		return broken(ctx, ctx.Err())
	}
	select {
	case <-p.go_:
	case <-ctx.Done():
		return broken(ctx, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.inner.run(ctx)
}

// replay is a checker under the test's hand.
type replay struct {
	*Checker
	t       *testing.T
	gate    *gate
	targets []*Target
	store   *stats.Store
	log     bytes.Buffer
	mu      sync.Mutex
	flags   []dataplane.Health
}

// newReplay checks hosts at addrs, with thresholds healthy 2 and unhealthy as given. All probes wait.
func newReplay(t *testing.T, check model.HealthCheck, unhealthy uint32, pending bool, addrs ...netip.AddrPort) *replay {
	t.Helper()
	r := &replay{t: t, store: stats.NewStore(), flags: make([]dataplane.Health, len(addrs))}
	check.Timeout, check.Interval = time.Minute, time.Millisecond
	check.HealthyThreshold, check.UnhealthyThreshold = 2, unhealthy
	cfg := Config{Cluster: "c", Check: check, PendingNewHosts: pending}
	real, _, err := newProber(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.gate = &gate{inner: real, timeout: 5 * time.Second, probes: map[*dataplane.HostState]*gated{}}
	c, err := New(cfg, Deps{
		Scope: r.store.Scope("cluster.c."), EventLog: &r.log, probes: r.gate,
		OnChange: func(target *Target, h dataplane.Health) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for i, tg := range r.targets {
				if tg.State == target.State {
					r.flags[i] = h
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Checker = c
	t.Cleanup(func() { c.Stop(); <-c.Done() })
	for i, a := range addrs {
		r.targets = append(r.targets, &Target{State: new(dataplane.HostState), Address: a, Check: a})
		r.flags[i] = c.InitialFlags(r.targets[i])
	}
	c.SetHosts(r.targets)
	for i := range addrs {
		r.await(i)
	}
	return r
}

// await waits until the next probe of host i stands at the gate: the one before has had its effect.
func (r *replay) await(i int) {
	r.t.Helper()
	var p *gated
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); p == nil; <-tick.C {
		if time.Now().After(deadline) {
			r.t.Fatalf("host %d is not probed", i)
		}
		r.gate.mu.Lock()
		p = r.gate.probes[r.targets[i].State]
		r.gate.mu.Unlock()
	}
	select {
	case <-p.arrived:
	case <-time.After(10 * time.Second):
		r.t.Fatalf("host %d is not probed", i)
	}
}

// step lets the probe of each host named go, and waits for its effect.
func (r *replay) step(hosts ...int) {
	r.t.Helper()
	for _, i := range hosts {
		r.gate.probes[r.targets[i].State].go_ <- struct{}{}
		r.await(i)
	}
}

// now is the present moment. Probes at the gate are not yet attempts.
func (r *replay) now() sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := func(n string) uint64 { return r.store.Counter("cluster.c.health_check." + n).Value() }
	s := sample{Attempt: c("attempt") - uint64(len(r.targets)), Success: c("success"), Failure: c("failure"), NetworkFailure: c("network_failure")}
	for _, f := range r.flags {
		s.Flags = append(s.Flags, f.String())
		if f.Healthy() {
			s.Healthy++
		}
	}
	return s
}

// until steps all hosts until as many attempts were made as in want, and compares.
func (r *replay) until(when string, want sample) {
	r.t.Helper()
	all := make([]int, len(r.targets))
	for i := range all {
		all[i] = i
	}
	for r.now().Attempt < want.Attempt {
		r.step(all...)
	}
	if got := r.now(); !reflect.DeepEqual(got, want) {
		r.t.Errorf("%s: %+v, Envoy has %+v", when, got, want)
	}
}
