package proxy

import (
	"encoding/json"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
)

type listenerRow struct {
	Case   string
	Filter struct {
		AllowWithout bool     `json:"allow_requests_without_proxy_protocol"`
		StatPrefix   string   `json:"stat_prefix"`
		Disallowed   []string `json:"disallowed_versions"`
	}
	Listener struct {
		Timeout  string `json:"listener_filters_timeout"`
		Continue bool   `json:"continue_on_listener_filters_timeout"`
	}
	ClientGets string `json:"client_gets"`
	// Clients are the letters that clients get, by their addresses.
	Clients          map[string]string `json:"-"`
	SecondClientGets string            `json:"second_client_gets"`
	Then             string
	Log              []string
	Stats            map[string]int64
}

// proxyHeaders are what the clients of the PROXY protocol rows send.
var proxyHeaders = map[string]string{
	"v1":                        "PROXY TCP4 1.2.3.4 5.6.7.8 1111 2222\r\nhi",
	"v1 UNKNOWN":                "PROXY UNKNOWN\r\nhi",
	"v2":                        header2(0x21, 0x11, "") + "hi",
	"v2 LOCAL":                  header2(0x20, 0x00, "") + "hi",
	"v2 with a TLV":             header2(0x21, 0x11, "\xea\x00\x03abc") + "hi",
	"v2 datagram family":        header2(0x21, 0x12, "") + "hi",
	"no header":                 "hello therehi",
	"v1 bad address":            "PROXY TCP4 1.2.3.x 5.6.7.8 1111 2222\r\nhi",
	"v2 bad version":            header2(0x31, 0x11, "") + "hi",
	"start of a v1 header only": "PROXY TCP4 1.2",
	"silent client":             "",
}

// header2 is a version 2 header from 1.2.3.4:1111 to 5.6.7.8:2222; family 0 has no addresses.
func header2(versionAndCommand, family byte, tlv string) string {
	body := "\x01\x02\x03\x04\x05\x06\x07\x08\x04\x57\x08\xae"
	if family == 0 {
		body = ""
	}
	body += tlv
	return signature2 + string([]byte{versionAndCommand, family, 0, byte(len(body))}) + body
}

func TestObservedListeners(t *testing.T) {
	raw := readRows[map[string]any](t, "listeners.json")
	for i, row := range readRows[listenerRow](t, "listeners.json") {
		row.Clients = map[string]string{}
		for key, letter := range raw[i] {
			if from, ok := strings.CutPrefix(key, "client "); ok {
				row.Clients[from] = letter.(string)
			}
		}
		name, _ := json.Marshal([]any{row.Case, row.Filter, row.Listener})
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			switch {
			case strings.HasPrefix(row.Case, "PROXY protocol: "):
				playProxyProtocol(t, row)
			case strings.HasPrefix(row.Case, "one connection allowed by"):
				playLimit(t, row)
			case strings.HasPrefix(row.Case, "RBAC"):
				playRBAC(t, row)
			case strings.HasPrefix(row.Case, "longest source prefix"):
				playSourcePrefixes(t, row)
			case strings.HasPrefix(row.Case, "port 0"):
				playAddresses(t, row)
			default:
				t.Fatal("no test plays this row")
			}
		})
	}
}

func playProxyProtocol(t *testing.T, row listenerRow) {
	b := newBed(t)
	b.setHosts(startHost(t, greet).addr())
	f := &dataplane.ProxyProtocolFilter{StatPrefix: row.Filter.StatPrefix, AllowWithoutHeader: row.Filter.AllowWithout}
	for _, v := range row.Filter.Disallowed {
		f.DisallowV1 = f.DisallowV1 || v == "V1"
		f.DisallowV2 = f.DisallowV2 || v == "V2"
	}
	b.listener.ListenerFilters = []dataplane.ListenerFilter{f}
	b.listener.FiltersTimeout = duration(t, row.Listener.Timeout, 15*time.Second)
	b.listener.ContinueOnFiltersTimeout = row.Listener.Continue
	b.proxy.AccessLog = []*accesslog.Log{b.logTo("remote=%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% " +
		"direct=%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT% local=%DOWNSTREAM_LOCAL_ADDRESS%")}
	b.apply()

	says := proxyHeaders[strings.TrimPrefix(row.Case, "PROXY protocol: ")]
	c := b.dial().say(says)
	if row.Then == "stays open" {
		c.hear(row.ClientGets)
		c.CloseWrite() // it was open, so this ends it in order
		if got, then := c.hearOut(); got != "" || then != "end of stream" {
			t.Errorf("the client got %q more, then %s", got, then)
		}
	} else if got, then := c.hearOut(); got != row.ClientGets || then != row.Then {
		t.Errorf("the client got %q, then %s; with Envoy %q, then %s", got, then, row.ClientGets, row.Then)
	}
	c.Close()
	b.idle()
	lines := b.lines(len(row.Log))
	for i := range lines {
		lines[i] = strings.Replace(lines[i], "local="+b.addr(), "local=127.0.0.1:10000", 1)
	}
	if strings.Join(lines, "\n") != strings.Join(row.Log, "\n") {
		t.Errorf("lines %q, Envoy's %q", lines, row.Log)
	}
	b.checkListener(row.Stats, "downstream_cx_proxy_proto_error", "proxy_proto.not_found_disallowed",
		"proxy_proto.px.not_found_allowed", "proxy_proto.versions.v1.found", "proxy_proto.versions.v2.found",
		"proxy_proto.px.versions.v1.found", "proxy_proto.versions.v1.error", "proxy_proto.versions.v2.error",
		"proxy_proto.versions.v1.disallowed", "proxy_proto.versions.v2.disallowed")
}

// checkListener compares the listener's stats and the counters named with a row's.
func (b *bed) checkListener(want map[string]int64, more ...string) {
	b.t.Helper()
	got := map[string]int64{}
	collect(got, b.listenerStats)
	for name := range got {
		if !strings.Contains(name, ".downstream_") {
			delete(got, name)
		}
	}
	for _, name := range more {
		if n := int64(b.store.Counter(name).Value()); n != 0 {
			got[name] = n
		}
	}
	if n := b.store.Gauge("connection_limit.lim.active_connections").Value(); n != 0 {
		got["connection_limit.lim.active_connections"] = n
	}
	for name := range want {
		if strings.HasPrefix(name, "overload.") {
			delete(want, name)
		}
	}
	if !reflect.DeepEqual(got, want) {
		b.t.Errorf("stats\n%v, Envoy's\n%v", got, want)
	}
}

func playLimit(t *testing.T, row listenerRow) {
	b := newBed(t)
	b.setHosts(startHost(t, greet).addr())
	one := uint64(1)
	switch {
	case strings.Contains(row.Case, "runtime key"):
		b.listener.ConnectionLimit = &one
	case strings.Contains(row.Case, "overload manager"):
		b.snap.MaxConnections = 1
	default:
		b.filters = []dataplane.NetworkFilter{&dataplane.ConnectionLimit{StatPrefix: "lim", Max: 1, Delay: 500 * time.Millisecond}}
	}
	b.apply()
	first := b.dial().hear("A")
	if got, then := b.dial().hearOut(); got != row.SecondClientGets || then != row.Then {
		t.Errorf("the second client got %q, then %s", got, then)
	}
	b.checkListener(row.Stats, "connection_limit.lim.limited_connections")
	first.Close()
	b.idle()
	if n := b.store.Gauge("connection_limit.lim.active_connections").Value(); n != 0 {
		t.Errorf("connection_limit counts %d connections after the end of all", n)
	}
}

func playRBAC(t *testing.T, row listenerRow) {
	b := newBed(t)
	role, says := greet, ""
	if strings.Contains(row.Case, "client speaks") {
		role, says = echo, "x"
	}
	b.setHosts(startHost(t, role).addr())
	b.filters = []dataplane.NetworkFilter{&dataplane.RBAC{StatPrefix: "rb.", Allowed: func(a dataplane.ConnAddrs) (bool, string) {
		return !netip.MustParsePrefix("127.0.0.0/8").Contains(a.Direct.Addr()), "p"
	}}}
	b.proxy.AccessLog = []*accesslog.Log{b.logTo("%RESPONSE_FLAGS% %CONNECTION_TERMINATION_DETAILS%")}
	b.apply()
	c := b.dial().say(says)
	if row.Then == "stays open" {
		c.hear(row.ClientGets)
		c.Close()
	} else if got, then := c.hearOut(); got != row.ClientGets || then != row.Then {
		t.Errorf("the client got %q, then %s", got, then)
	}
	b.idle()
	if got := b.lines(len(row.Log)); !reflect.DeepEqual(got, row.Log) {
		t.Errorf("lines %q, Envoy's %q", got, row.Log)
	}
	if n := b.store.Counter("rb.rbac.denied").Value(); n != 1 {
		t.Errorf("rb.rbac.denied is %d", n)
	}
}

func playSourcePrefixes(t *testing.T, row listenerRow) {
	b := newBed(t)
	greetB := func(h *fakeHost, c *net.TCPConn) {
		c.Write([]byte("B"))
		echo(h, c)
	}
	b.setHosts(startHost(t, greet).addr())
	second := newCluster(b.store, "second")
	second.Balancer = &anyHost{[]*dataplane.Host{host(startHost(t, greetB).addr())}}
	b.snap.Clusters = map[string]*dataplane.Cluster{"second": second}
	chain := func(hash uint64, prefix, cluster, stat string) *dataplane.FilterChain {
		p := b.proxy
		p.StatPrefix = stat
		p.Clusters = []dataplane.WeightedCluster{{Name: cluster, Weight: 1}}
		c := &dataplane.FilterChain{Hash: hash, Proxy: &p}
		if prefix != "" {
			c.Match.SourceRanges = []netip.Prefix{netip.MustParsePrefix(prefix)}
		}
		return c
	}
	b.listener.Chains = []*dataplane.FilterChain{
		chain(1, "127.0.1.0/24", "second", "t"), chain(2, "127.0.1.9/32", "c", "t"),
	}
	b.listener.DefaultChain = chain(3, "", "second", "rest")
	var err error
	if b.listener.Matcher, err = dataplane.NewChainMatcher(b.listener.Chains, b.listener.DefaultChain); err != nil {
		t.Fatal(err)
	}
	b.apply()
	for from, letter := range row.Clients {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", b.addr())
		if err != nil {
			t.Fatal(err)
		}
		(&client{c.(*net.TCPConn), t}).hear(letter).Close()
	}
	b.idle()
	for name, want := range row.Stats {
		if n := int64(b.store.Counter(name).Value()); n != want {
			t.Errorf("%s is %d, in Envoy %d", name, n, want)
		}
	}

	// Without a default chain the rest is closed, and only the listener's log tells.
	b.listener.DefaultChain = nil
	b.listener.Hash = 2
	b.listener.Matcher, _ = dataplane.NewChainMatcher(b.listener.Chains, nil)
	b.listener.AccessLog = []*accesslog.Log{b.logTo("%RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %ACCESS_LOG_TYPE% %DOWNSTREAM_DETECTED_CLOSE_TYPE%")}
	total := b.listenerStats.CxTotal.Value()
	b.apply()
	if got, then := b.dial().hearOut(); got != "" || then != "end of stream" {
		t.Errorf("got %q, then %s", got, then)
	}
	if l := b.lines(1); l[0] != "NR filter_chain_not_found NotSet Normal" { // as recorded from Envoy 1.40.0
		t.Errorf("line %q", l[0])
	}
	if n := b.listenerStats.NoChainMatch.Value(); n != 1 || b.listenerStats.CxTotal.Value() != total {
		t.Errorf("no_filter_chain_match is %d, downstream_cx_total went from %d to %d", n, total, b.listenerStats.CxTotal.Value())
	}
}

// playAddresses is the row of several addresses, but for the address that is not bound, which a
// Guideway configuration cannot have.
func playAddresses(t *testing.T, _ listenerRow) {
	b := newBed(t)
	b.setHosts(startHost(t, greet).addr())
	b.listener.Addresses = []dataplane.ListenAddress{
		{Addr: netip.MustParseAddrPort("127.0.0.1:0")},
		{Addr: netip.MustParseAddrPort("127.0.0.2:0")},
		{Addr: netip.MustParseAddrPort("[::]:0"), IPv4Compat: true},
	}
	b.proxy.AccessLog = []*accesslog.Log{b.logTo("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %DOWNSTREAM_LOCAL_ADDRESS%")}
	b.apply()
	at := b.srv.Listening()[0].Addresses
	if len(at) != 3 {
		t.Fatalf("listening at %v", at)
	}
	port := netip.AddrPortFrom(netip.IPv4Unspecified(), at[2].Addr.Port()).String()[len("0.0.0.0:"):]
	for i, to := range []struct{ addr, line string }{
		{at[0].Addr.String(), "127.0.0.1 " + at[0].Addr.String()},
		{at[1].Addr.String(), "127.0.0.1 " + at[1].Addr.String()},
		{"127.0.0.1:" + port, "127.0.0.1 127.0.0.1:" + port},
		{"[::1]:" + port, "::1 [::1]:" + port},
	} {
		dial(t, to.addr).hear("A").Close()
		if lines := b.lines(i + 1); lines[i] != to.line {
			t.Errorf("line %q, want %q", lines[i], to.line)
		}
	}
}

type logRow struct {
	Case    string
	Options struct {
		Log *struct {
			Interval  string `json:"access_log_flush_interval"`
			Connected bool   `json:"flush_access_log_on_connected"`
			Start     bool   `json:"flush_access_log_on_start"`
		} `json:"access_log_options"`
	}
	Lines []string
	JSON  map[string]any `json:"json_format"`
	Text  string
}

func TestObservedAccessLog(t *testing.T) {
	for _, row := range readRows[logRow](t, "access-log.json") {
		t.Run(row.Case+" "+row.Text, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			h := startHost(t, echo)
			b.setHosts(h.addr())
			format := accesslog.Default()
			var err error
			switch {
			case row.JSON != nil:
				format, err = accesslog.ParseJSON(row.JSON)
			case row.Text != "":
				format, err = accesslog.ParseText(row.Text + "\n")
			}
			if err != nil {
				t.Fatal(err)
			}
			b.proxy.AccessLog = []*accesslog.Log{b.openLog(format)}
			if o := row.Options.Log; o != nil {
				b.proxy.LogOnStart, b.proxy.LogOnConnected = o.Start, o.Connected
				b.proxy.LogInterval = duration(t, o.Interval, 0)
			}
			b.apply()
			c := b.dial().say("hello").hear("hello")
			want := strings.Join(row.Lines, "\n")
			if n := strings.Count(want, "TcpPeriodic"); n > 0 {
				eventually(t, "periodic lines", func() bool { return strings.Count(strings.Join(b.lines(0), "\n"), "TcpPeriodic") == n })
			}
			before := time.Now()
			c.Close()
			b.idle()
			got := strings.Join(b.lines(len(row.Lines)), "\n")
			got = strings.NewReplacer(b.addr(), "127.0.0.1:10000", h.addr(), "127.0.0.1:20001").Replace(got)
			_, port, _ := strings.Cut(h.addr(), ":")
			switch row.Text {
			case "%UPSTREAM_REMOTE_PORT%":
				got = strings.Replace(got, port, "20001", 1)
			case "%DOWNSTREAM_LOCAL_PORT%":
				_, port, _ = strings.Cut(b.addr(), ":")
				got = strings.Replace(got, port, "10000", 1)
			}
			got, want = maskTimes(t, got, before), maskTimes(t, want, time.Time{})
			if got != want {
				t.Errorf("lines\n%s\nEnvoy's\n%s", got, want)
			}
		})
	}
}
