package proxy

import (
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
)

// Recorded from Envoy 1.40.0: lines and counters of the breakers.
func TestBreakers(t *testing.T) {
	zero, one := uint32(0), uint32(1)
	for _, c := range []struct {
		name  string
		set   func(*bed)
		line  string
		stats map[string]int64
	}{
		{"no pending requests", func(b *bed) { b.cluster.Breakers.Default.MaxPendingRequests = 0 },
			"URX UpstreamRetryLimitExceeded rx=0 tx=0 code=0 host=- cluster=c attempts=1 reason=- closed=-,Normal,tcp_initializion_failure:0,Normal",
			map[string]int64{"cluster.c.upstream_rq_pending_overflow": 1, "cluster.c.upstream_cx_connect_attempts_exceeded": 1, "cluster.c.upstream_cx_total": 0}},
		{"no pending requests, three attempts", func(b *bed) { b.cluster.Breakers.Default.MaxPendingRequests = 0; b.proxy.MaxConnectAttempts = 3 },
			"URX UpstreamRetryLimitExceeded rx=0 tx=0 code=0 host=- cluster=c attempts=3 reason=- closed=-,Normal,tcp_initializion_failure:0,Normal",
			map[string]int64{"cluster.c.upstream_rq_pending_overflow": 3, "cluster.c.upstream_cx_connect_attempts_exceeded": 1}},
		{"no connections", func(b *bed) { b.cluster.Breakers.Default.MaxConnections = 0 },
			"UO UpstreamOverflow rx=0 tx=0 code=0 host=- cluster=c attempts=0 reason=- closed=-,Normal,tcp_initializion_failure:2,Normal",
			map[string]int64{"cluster.c.upstream_cx_overflow": 1, "cluster.c.upstream_rq_pending_total": 0}},
		{"no requests", func(b *bed) { b.cluster.Breakers.Default.MaxRequests = 0 },
			"- - rx=0 tx=1 code=0 host=<host> cluster=c attempts=1 reason=- closed=-,Normal,-,Normal",
			map[string]int64{"cluster.c.circuit_breakers.default.rq_open": 1, "cluster.c.upstream_rq_total": 1}},
		{"no connections per host", func(b *bed) { b.cluster.Breakers.PerHostMaxConnections = &zero },
			"- - rx=0 tx=1 code=0 host=<host> cluster=c attempts=1 reason=- closed=-,Normal,-,Normal",
			map[string]int64{"cluster.c.upstream_cx_overflow": 1, "cluster.c.upstream_rq_total": 1}},
		{"one connection per host", func(b *bed) { b.cluster.Breakers.PerHostMaxConnections = &one },
			"- - rx=0 tx=1 code=0 host=<host> cluster=c attempts=1 reason=- closed=-,Normal,-,Normal",
			map[string]int64{"cluster.c.upstream_cx_overflow": 0, "cluster.c.upstream_rq_total": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			b.setHosts(startHost(t, greet).addr())
			b.proxy.AccessLog = []*accesslog.Log{b.logTo(observedFormat)}
			c.set(b)
			b.apply()
			d := b.dial()
			if strings.HasPrefix(c.line, "- -") {
				d.hear("A")
			} else if got, then := d.hearOut(); got != "" || then != "end of stream" {
				t.Errorf("the client got %q, then %s", got, then)
			}
			d.Close()
			b.idle()
			if lines := b.lines(1); hostPort.ReplaceAllString(lines[0], "<host>") != c.line {
				t.Errorf("line %q, want %q", lines[0], c.line)
			}
			b.want(c.stats)
		})
	}
}

// TestHostQueue: with per_host_thresholds a connection too many waits, and is served when another ends.
func TestHostQueue(t *testing.T) {
	for _, workers := range []int{1, 3} {
		b := newBed(t, func(c *Config) { c.Workers = workers })
		one := uint32(1)
		b.cluster.Breakers.PerHostMaxConnections = &one
		b.setHosts(startHost(t, greet).addr())
		b.apply()
		first := b.dial().hear("A")
		var waiting []*client
		for range 5 {
			waiting = append(waiting, b.dial().say("yy"))
		}
		eventually(t, "five to wait", func() bool { return b.cluster.Stats.UpstreamRqPendingActive.Value() == 5 })
		b.want(map[string]int64{"cluster.c.upstream_cx_overflow": 5, "cluster.c.upstream_cx_total": 1})
		waiting[0].reset() // nobody notices: it is not read
		first.Close()
		// They come in any order (several workers accept), each when the one before has left.
		got := make(chan *client)
		for _, c := range waiting[1:] {
			go func() {
				c.hear("Ayy")
				got <- c
			}()
		}
		for range waiting[1:] {
			(<-got).Close()
		}
		b.idle()
		b.levelsAtZero()
		b.want(map[string]int64{"cluster.c.upstream_rq_pending_total": 6})
	}
}

// TestBackoff retries by the clock, until the host is there.
func TestBackoff(t *testing.T) {
	b := newBed(t)
	addr := refused(t)
	b.setHosts(addr)
	b.proxy.MaxConnectAttempts = 1000
	b.proxy.Backoff = &dataplane.Backoff{Base: 5 * time.Millisecond, Max: 20 * time.Millisecond}
	b.proxy.AccessLog = []*accesslog.Log{b.logTo("%RESPONSE_FLAGS% %UPSTREAM_TRANSPORT_FAILURE_REASON%")}
	b.apply()
	c := b.dial()
	eventually(t, "some attempts", func() bool { return b.cluster.Stats.UpstreamCxConnectFail.Value() >= 3 })
	startHostAt(t, addr, greet)
	c.hear("A")
	c.Close()
	b.idle()
	if l := b.lines(1)[0]; !strings.HasPrefix(l, "UF ") {
		t.Errorf("line %q", l)
	}
	b.levelsAtZero()
}

// TestBackoffCeiling holds the jitter against its rule.
func TestBackoffCeiling(t *testing.T) {
	bo := &dataplane.Backoff{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}
	for n, ceiling := range []time.Duration{10, 20, 40, 50, 50, 50} {
		var most time.Duration
		for range 2000 {
			most = max(most, jitteredBackoff(bo, uint32(n)))
		}
		if most != (ceiling-1)*time.Millisecond {
			t.Errorf("attempt %d waits up to %v, want below %d ms", n, most, ceiling)
		}
	}
}

func TestWeightedClusters(t *testing.T) {
	b := newBed(t)
	b.setHosts(startHost(t, greet).addr())
	other := newCluster(b.store, "d")
	d := host(startHost(t, greet).addr())
	other.Balancer = &anyHost{[]*dataplane.Host{d}}
	b.snap.Clusters = map[string]*dataplane.Cluster{"d": other}
	b.proxy.Clusters = []dataplane.WeightedCluster{{Name: "c", Weight: 1}, {Name: "d", Weight: 3}}
	b.proxy.TotalWeight = 4
	b.apply()
	const n = 400
	for range n {
		b.dial().hear("A").Close()
	}
	b.idle()
	c, d4 := b.cluster.Stats.UpstreamCxTotal.Value(), other.Stats.UpstreamCxTotal.Value()
	if c+d4 != n || c < n/4-60 || c > n/4+60 {
		t.Errorf("%d and %d of %d connections, want a quarter and the rest", c, d4, n)
	}
}

// TestAdditionalAddresses: a host's further addresses are tried within one attempt.
func TestAdditionalAddresses(t *testing.T) {
	for _, c := range []struct {
		name  string
		first func(testing.TB) string
	}{{"refused", refused}, {"no answer", stalled}} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			h := startHost(t, greet)
			b.setHosts(c.first(t))
			b.cluster.Hosts[0].AdditionalAddresses = []netip.AddrPort{
				netip.MustParseAddrPort(refused(t)), netip.MustParseAddrPort(h.addr()),
			}
			b.proxy.AccessLog = []*accesslog.Log{b.logTo("%UPSTREAM_HOST% %UPSTREAM_REMOTE_ADDRESS% %RESPONSE_FLAGS%")}
			b.apply()
			b.dial().hear("A").Close()
			b.idle()
			if l, want := b.lines(1)[0], b.cluster.Hosts[0].Address.String()+" "+h.addr()+" -"; l != want {
				t.Errorf("line %q, want %q", l, want)
			}
			b.want(map[string]int64{"cluster.c.upstream_cx_total": 1, "cluster.c.upstream_cx_connect_fail": 0})
			b.levelsAtZero()
		})
	}
	b := newBed(t)
	b.setHosts(refused(t))
	b.cluster.Hosts[0].AdditionalAddresses = []netip.AddrPort{netip.MustParseAddrPort(refused(t))}
	b.apply()
	if got, then := b.dial().hearOut(); got != "" || then != "end of stream" {
		t.Errorf("the client got %q, then %s", got, then)
	}
	b.idle()
	b.want(map[string]int64{"cluster.c.upstream_cx_total": 1, "cluster.c.upstream_cx_connect_fail": 1})
	b.levelsAtZero()
}

func TestInterleave(t *testing.T) {
	a := func(s ...string) (out []netip.AddrPort) {
		for _, x := range s {
			out = append(out, netip.MustParseAddrPort(x))
		}
		return out
	}
	got := interleave(a("[::1]:1")[0], a("[::2]:1", "1.1.1.1:1", "[::3]:1", "2.2.2.2:1"))
	if want := a("[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestBindAddressAndKeepalive(t *testing.T) {
	b := newBed(t)
	from := make(chan string, 1)
	h := startHost(t, func(h *fakeHost, c *net.TCPConn) {
		from <- c.RemoteAddr().String()
		h.read(c, nil)
	})
	b.setHosts(h.addr())
	b.cluster.BindAddress = netip.MustParseAddrPort("127.0.0.77:0")
	b.cluster.Keepalive = &dataplane.TCPKeepalive{Time: 33 * time.Second, Probes: 4}
	b.apply()
	c := b.dial()
	if f := <-from; !strings.HasPrefix(f, "127.0.0.77:") {
		t.Errorf("the backend's client is %s", f)
	}
	c.Close()
	b.idle()

	next := *b.cluster
	next.BindAddress = netip.MustParseAddrPort("192.0.2.1:0") // not ours (RFC 5737)
	b.cluster = &next
	b.apply()
	if got, then := b.dial().hearOut(); got != "" || then != "end of stream" {
		t.Errorf("the client got %q, then %s", got, then)
	}
	b.idle()
	b.want(map[string]int64{"cluster.c.bind_errors": 1})
	b.levelsAtZero()
}

// TestEarlyData: ON_DOWNSTREAM_DATA connects at the first byte. Counters recorded from Envoy 1.40.0.
func TestEarlyData(t *testing.T) {
	b := newBed(t)
	h := startHost(t, echo)
	b.setHosts(h.addr())
	b.proxy.OnDownstreamData, b.proxy.MaxEarlyData = true, 2
	b.proxy.AccessLog = []*accesslog.Log{b.logTo(observedFormat)}
	b.apply()
	c := b.dial()
	eventually(t, "the connection", func() bool { return b.tcpStats.CxTotal.Value() == 1 })
	b.want(map[string]int64{"cluster.c.upstream_cx_total": 0})
	c.say("abc").hear("abc").say("def").hear("def").Close()
	b.idle()
	b.want(map[string]int64{"tcp.t.early_data_received_count_total": 1, "cluster.c.upstream_cx_tx_bytes_total": 6, "tcp.t.downstream_cx_rx_bytes_total": 6})
	b.levelsAtZero()

	b.dial().reset()
	b.idle()
	if l := b.lines(2)[1]; l != "- - rx=0 tx=0 code=0 host=- cluster=- attempts=0 reason=- closed=-,Normal,-,RemoteReset" {
		t.Errorf("line of a reset: %q", l)
	}
	h.stop()
	if got, then := b.dial().say("abc").hearOut(); got != "" || then != "end of stream" {
		t.Errorf("refused: the client got %q, then %s", got, then)
	}
	b.idle()
	if l := b.lines(3)[2]; !strings.HasPrefix(l, "UF,URX UpstreamConnectionFailure,UpstreamRetryLimitExceeded rx=3 tx=0 ") {
		t.Errorf("line of a refusal: %q", l)
	}
	b.levelsAtZero()
}

func TestUpstreamProxyHeader(t *testing.T) {
	for _, c := range []struct {
		name   string
		header dataplane.UpstreamProxyProtocol
		client string // header of the client, if any
		merge  dataplane.TLVMerge
		want   func(peer, local netip.AddrPort) string
	}{
		{"version 1", dataplane.UpstreamProxyProtocol{Version: 1}, "", 0, func(p, l netip.AddrPort) string {
			return string(appendProxyHeader1(nil, p, l))
		}},
		{"version 1 behind a header", dataplane.UpstreamProxyProtocol{Version: 1}, header2(0x21, 0x11, ""), 0, func(p, l netip.AddrPort) string {
			return "PROXY TCP4 1.2.3.4 5.6.7.8 1111 2222\r\n"
		}},
		{"version 2", dataplane.UpstreamProxyProtocol{Version: 2, Added: []dataplane.TLV{{Type: 0xe1, Value: []byte("abc")}, {Type: 0xe2, Value: []byte("xx")}}}, "", 0,
			func(p, l netip.AddrPort) string {
				// As Envoy 1.40.0 sends it: the cluster's elements first, a type once.
				return string(appendProxyHeader2(nil, p, l, []dataplane.TLV{
					{Type: 0xe1, Value: []byte("abc")}, {Type: 0xe2, Value: []byte("xx")}, {Type: 0xe3, Value: []byte("ZZ")},
				}))
			}},
		{"version 2, passing one", dataplane.UpstreamProxyProtocol{Version: 2, PassTLVs: []byte{0xea}}, header2(0x21, 0x11, "\xea\x00\x03abc\xeb\x00\x01x"), 0,
			func(p, l netip.AddrPort) string { return header2(0x21, 0x11, "\xea\x00\x03abc") }},
		{"version 2, own beside the client's", dataplane.UpstreamProxyProtocol{Version: 2, PassAllTLVs: true}, header2(0x21, 0x11, "\xe3\x00\x03abc"), dataplane.AppendIfExists,
			func(p, l netip.AddrPort) string {
				return header2(0x21, 0x11, "\xe1\x00\x02YY\xe3\x00\x02ZZ\xe3\x00\x03abc")
			}},
		{"version 2, own in place of the client's", dataplane.UpstreamProxyProtocol{Version: 2, PassAllTLVs: true}, header2(0x21, 0x11, "\xe3\x00\x03abc"), dataplane.OverwriteByType,
			func(p, l netip.AddrPort) string { return header2(0x21, 0x11, "\xe1\x00\x02YY\xe3\x00\x02ZZ") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			b.setHosts(startHost(t, echo).addr())
			b.cluster.ProxyProtocol = &c.header
			b.proxy.TLVs = []dataplane.TLV{{Type: 0xe1, Value: []byte("YY")}, {Type: 0xe3, Value: []byte("ZZ")}}
			b.proxy.TLVMerge = c.merge
			if c.client != "" {
				b.listener.ListenerFilters = []dataplane.ListenerFilter{&dataplane.ProxyProtocolFilter{KeepAllTLVs: true}}
			}
			b.apply()
			d := b.dial().say(c.client)
			peer := d.LocalAddr().(*net.TCPAddr).AddrPort()
			want := c.want(peer, netip.MustParseAddrPort(b.addr()))
			d.hear(want).say("abc").hear("abc").Close()
			b.idle()
			b.want(map[string]int64{
				"cluster.c.upstream_cx_tx_bytes_total": int64(len(want) + 3), "tcp.t.downstream_cx_rx_bytes_total": 3,
				"tcp.t.downstream_cx_tx_bytes_total": int64(len(want) + 3),
			})
		})
	}
}

// TestEndWhileConnecting: lines and counters of ends before the upstream is connected, as recorded from
// Envoy 1.40.0.
func TestEndWhileConnecting(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   func(*bed)
		line  string
		stats map[string]int64
	}{
		{"idle", func(b *bed) { b.proxy.IdleTimeout = 100 * time.Millisecond },
			"- - rx=0 tx=0 code=0 host=- cluster=c attempts=1 reason=- closed=-,Normal,tcp_session_idle_timeout,Normal",
			map[string]int64{"tcp.t.idle_timeout": 1}},
		{"duration", func(b *bed) { b.proxy.MaxDuration = 100 * time.Millisecond },
			"DT DurationTimeout rx=0 tx=0 code=0 host=- cluster=c attempts=1 reason=- closed=-,Normal,max_connection_duration_reached,Normal",
			map[string]int64{"tcp.t.max_downstream_connection_duration": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			b.setHosts(stalled(t))
			b.proxy.AccessLog = []*accesslog.Log{b.logTo(observedFormat)}
			c.set(b)
			b.apply()
			if got, then := b.dial().hearOut(); got != "" || then != "end of stream" {
				t.Errorf("got %q, then %s", got, then)
			}
			for name, n := range map[string]int64{
				"cluster.c.upstream_cx_destroy": 1, "cluster.c.upstream_cx_destroy_local": 1, "cluster.c.upstream_cx_total": 1,
				"cluster.c.upstream_rq_cancelled": 1, "cluster.c.upstream_rq_pending_total": 1,
				"listener.127.0.0.1_10000.downstream_cx_destroy": 1, "listener.127.0.0.1_10000.downstream_cx_total": 1,
				"tcp.t.downstream_cx_total": 1,
			} {
				c.stats[name] = n
			}
			b.checkEnd([]string{c.line}, c.stats)
		})
	}
}
