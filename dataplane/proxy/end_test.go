package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
)

// want compares some stats; a name that is not in the bed's is 0.
func (b *bed) want(values map[string]int64) {
	b.t.Helper()
	got := b.values()
	for name, n := range values {
		if got[name] != n {
			b.t.Errorf("%s is %d, want %d", name, got[name], n)
		}
	}
}

// levelsAtZero checks that everything that counts what is there now has come back to 0.
func (b *bed) levelsAtZero() {
	b.t.Helper()
	for name, n := range b.values() {
		if strings.HasSuffix(name, "_active") || strings.HasSuffix(name, "_buffered") || strings.HasSuffix(name, "_open") {
			b.t.Errorf("%s is %d after the end of all connections", name, n)
		}
	}
	l := b.cluster.Live
	if l.Connections.Value() != 0 || l.Pending.Value() != 0 || l.Requests.Value() != 0 {
		b.t.Errorf("live counts are %d, %d, %d", l.Connections.Value(), l.Pending.Value(), l.Requests.Value())
	}
	for _, h := range b.cluster.Hosts {
		if s := h.State; s.CxActive.Load() != 0 || s.RqActive.Load() != 0 || s.RqPendingActive.Load() != 0 {
			b.t.Errorf("host %s has %d connections, %d requests, %d pending", h.Address, s.CxActive.Load(), s.RqActive.Load(), s.RqPendingActive.Load())
		}
	}
	if n := b.srv.shared.connections.Load(); n != 0 {
		b.t.Errorf("%d connections count against the global limit", n)
	}
}

func TestDrainClose(t *testing.T) {
	b := newBed(t)
	h := startHost(t, echo)
	b.setHosts(h.addr())
	b.proxy.CheckDrainClose = true
	b.proxy.AccessLog = []*accesslog.Log{b.logTo(observedFormat)}
	b.apply()
	c := b.dial().say("x").hear("x")
	b.srv.everyWorker(func(*worker) {}) // the turn that moved the byte is over
	b.srv.SetDraining(true)
	// The byte reaches the backend, then both sides end. What it echoes may be lost.
	c.say("y")
	if _, then := c.hearOut(); then != "end of stream" {
		t.Errorf("then %s", then)
	}
	if got, _ := h.told(1); got != "xy" {
		t.Errorf("the backend got %q", got)
	}
	b.idle()
	if l := b.lines(1)[0]; !strings.HasSuffix(l, "closed=tcp_proxy_drain_close,Normal,tcp_proxy_drain_close,Normal") {
		t.Errorf("line %q", l)
	}
	b.want(map[string]int64{"tcp.t.downstream_cx_drain_close": 1})
	b.srv.SetDraining(false)
	b.dial().say("x").hear("x").say("y").hear("y")
}

func TestDrainShare(t *testing.T) {
	var d drain
	now := time.Unix(1000, 0)
	if d.begun() || d.share(now) != 0 {
		t.Error("a drain that has not begun")
	}
	d.begin(now, 10*time.Second)
	for after, want := range map[time.Duration]float64{0: 0, 5 * time.Second: 0.5, 10 * time.Second: 1, time.Hour: 1} {
		if got := d.share(now.Add(after)); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
}

func TestRBACAllows(t *testing.T) {
	b := newBed(t)
	b.setHosts(startHost(t, greet).addr())
	b.filters = []dataplane.NetworkFilter{&dataplane.RBAC{StatPrefix: "rb.", Allowed: func(a dataplane.ConnAddrs) (bool, string) { return true, "p" }}}
	b.apply()
	b.dial().hear("A").say("hello").hear("hello").say("again").hear("again").Close()
	b.idle()
	if n := b.store.Counter("rb.rbac.allowed").Value(); n != 1 {
		t.Errorf("rb.rbac.allowed is %d", n)
	}
	b.want(map[string]int64{"tcp.t.downstream_cx_rx_bytes_total": 10})
}

// TestShutdown: at Close peers see an orderly end. The texts are those of Envoy 1.40.0.
func TestShutdown(t *testing.T) {
	b := newBed(t)
	h := startHost(t, echo)
	b.setHosts(h.addr())
	b.proxy.AccessLog = []*accesslog.Log{b.logTo(observedFormat)}
	b.apply()
	c := b.dial().say("x").hear("x")
	b.srv.Close()
	if got, then := c.hearOut(); got != "" || then != "end of stream" {
		t.Errorf("the client got %q, then %s", got, then)
	}
	if _, ends := h.told(1); ends[0] != "end" {
		t.Errorf("the backend saw %q", ends[0])
	}
	const text = "purging_socket_that_have_not_progressed_to_connections,Normal"
	if l := b.lines(1)[0]; !strings.HasSuffix(l, "closed="+text+","+text) {
		t.Errorf("line %q", l)
	}
	b.levelsAtZero()
	if err := b.srv.Close(); err != nil {
		t.Error(err)
	}
	if err := b.tryApply(); err != errClosed {
		t.Errorf("apply after close: %v", err)
	}
}

// TestFilterPhaseOverUpdate: a client that has not sent its PROXY header yet when its listener changes
// is served by the listener as it is then; one whose listener went is closed at the end of the drain.
func TestFilterPhaseOverUpdate(t *testing.T) {
	b := newBed(t, func(c *Config) { c.DrainTime = -1 })
	b.setHosts(startHost(t, greet).addr())
	b.listener.ListenerFilters = []dataplane.ListenerFilter{&dataplane.ProxyProtocolFilter{}}
	b.apply()
	c, d := b.dial().say("PROXY"), b.dial()
	eventually(t, "two connections", func() bool { return b.listenerStats.PreCxActive.Value() == 2 })
	b.listener.Hash = 2
	b.proxy.StatPrefix = "new"
	b.apply()
	c.say(" UNKNOWN\r\n").hear("A")
	if n := b.store.Counter("tcp.new.downstream_cx_total").Value(); n != 1 {
		t.Errorf("the new chain has %d connections", n)
	}
	b.applySnapshot(b.snapshot())
	for _, x := range []*client{c, d} {
		if got, then := x.hearOut(); got != "" || then != "end of stream" {
			t.Errorf("got %q, then %s", got, then)
		}
	}
	b.idle()
	b.levelsAtZero()
	if n := b.listenerStats.PreCxActive.Value(); n != 0 {
		t.Errorf("downstream_pre_cx_active is %d", n)
	}
}
