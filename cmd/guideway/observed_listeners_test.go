package main_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// staysOpenAfter is how long a connection must be quiet to count as staying open; it is longer than the
// timeouts of 0.3 s and delays of 0.5 s in the cases.
const staysOpenAfter = time.Second

// listenerStage is where a listener case is played: hosts A on 20001 and B on 20002 greet a client with their
// letter and echo, the one on 20003 echoes only.
type listenerStage struct {
	*testing.T
	ns      *testbed.Namespace
	subject testbed.Subject
	expect  *testbed.Expectations
	row     testbed.Row
	proxy   *testbed.Proxy
}

const (
	greetingA  = 20001
	greetingB  = 20002
	silentEcho = 20003
)

func (s *listenerStage) start(more testbed.Message, listeners ...any) {
	s.Helper()
	s.proxy = s.subject.Start(s.T, s.ns, testbed.Merge(testbed.Bootstrap(listeners, []any{
		testbed.Cluster("A", greetingA), testbed.Cluster("B", greetingB), testbed.Cluster("echo", silentEcho),
	}), more)).Ready()
}

func (s *listenerStage) connect(from string) *testbed.Client {
	s.Helper()
	return testbed.ConnectTo(s.T, s.ns, netip.MustParseAddr(from), testbed.ListenAddress(testbed.ListenPort))
}

func (s *listenerStage) log() any {
	return testbed.Lines(filepath.Join(s.proxy.Dir, "access.log"))
}

// hearAsRecorded compares what a client gets and what its connection does then, and closes it.
func (s *listenerStage) hearAsRecorded(c *testbed.Client) {
	s.Helper()
	wantGot, _ := s.expect.Want(s.T, s.row, "client_gets").(string)
	quiet := testbed.Patience
	if s.expect.Want(s.T, s.row, "then") == testbed.StaysOpen {
		quiet = staysOpenAfter
	}
	got, then, _ := c.HearUntilQuiet(len(wantGot), quiet)
	c.Close()
	s.expect.Expect(s.T, s.row, "client_gets", got)
	s.expect.Expect(s.T, s.row, "then", then)
}

// stats compares the counters whose names match.
func (s *listenerStage) stats(names string) {
	s.Helper()
	match := regexp.MustCompile(names)
	s.expect.ExpectSoon(s.T, s.row, "stats", func() any { return testbed.NonZero(s.proxy.Stats(), match) })
}

// listenerStats are the counters of the one listener and of connection limits.
const listenerStats = `^(listener\.127\.0\.0\.1_10000\.downstream_|proxy_proto\.|downstream_cx_proxy_proto_error$|connection_limit\.|overload\.)`

func logTo(format string) testbed.Message {
	return testbed.Message{"access_log": []any{testbed.TextLog("{dir}/access.log", format)}}
}

// The addresses that PROXY protocol clients claim.
var (
	claimed   = netip.MustParseAddr("1.2.3.4")
	claimedTo = netip.MustParseAddrPort("5.6.7.8:2222")
)

// proxyHeaders are what the client of a PROXY protocol case sends. The clients that
// get to speak at all say "hi" after it.
var proxyHeaders = map[string]string{
	"v1":                        proxyHeader("v1", claimed, claimedTo) + "hi",
	"v1 UNKNOWN":                "PROXY UNKNOWN\r\nhi",
	"v2":                        proxyHeader("v2", claimed, claimedTo) + "hi",
	"v2 LOCAL":                  proxyV2(0x20, 0x00, "") + "hi",
	"v2 with a TLV":             proxyV2(0x21, 0x11, "\xea\x00\x03abc") + "hi",
	"v2 datagram family":        proxyV2(0x21, 0x12, "") + "hi",
	"no header":                 "hello therehi",
	"v1 bad address":            "PROXY TCP4 1.2.3.x 5.6.7.8 1111 2222\r\nhi",
	"v2 bad version":            proxyV2(0x31, 0x11, "") + "hi",
	"start of a v1 header only": "PROXY TCP4 1.2",
	"silent client":             "",
}

// proxyV2 is a version 2 header for 1.2.3.4:1111 to 5.6.7.8:2222; family 0 has no addresses.
func proxyV2(versionAndCommand, family byte, tlv string) string {
	body := "\x01\x02\x03\x04\x05\x06\x07\x08\x04\x57\x08\xae"
	if family == 0 {
		body = ""
	}
	body += tlv
	return "\r\n\r\n\x00\r\nQUIT\n" + string([]byte{versionAndCommand, family, 0, byte(len(body))}) + body
}

func playProxyProtocol(s *listenerStage, what string) {
	says, known := proxyHeaders[what]
	if !known {
		s.Fatal("no client sends this header: add it to proxyHeaders")
	}
	if what == "no header" && s.row.Message(s.T, "filter")["allow_requests_without_proxy_protocol"] != true {
		// Where a header must come, Envoy judges it by its first 16 bytes.
		says = "hello there, no header"
	}
	format := "remote=%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% direct=%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT% " +
		"local=%DOWNSTREAM_LOCAL_ADDRESS%"
	listener := testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "A", logTo(format)))
	listener["listener_filters"] = []any{testbed.Typed("envoy.filters.listener.proxy_protocol",
		"envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol", s.row.Message(s.T, "filter"))}
	s.start(nil, testbed.Merge(listener, s.row.Message(s.T, "listener")))

	c := s.connect("127.0.0.1").Say(says)
	s.hearAsRecorded(c)
	s.expect.ExpectSoon(s.T, s.row, "log", s.log)
	s.stats(listenerStats)
}

// playLimit has a first client connected; a second one is too many.
func playLimit(more testbed.Message, filters ...any) func(*listenerStage) {
	return func(s *listenerStage) {
		s.start(more, testbed.Listener("l", testbed.ListenPort, append(filters, testbed.TCPProxy("t", "A"))...))
		s.connect("127.0.0.1").Hear("A")
		got, then, after := s.connect("127.0.0.1").HearOut()
		s.expect.Expect(s.T, s.row, "second_client_gets", got)
		s.expect.Expect(s.T, s.row, "then", then)
		s.expect.Expect(s.T, s.row, "seconds", testbed.Seconds(after))
		s.stats(listenerStats)
	}
}

func playRBAC(cluster, says string) func(*listenerStage) {
	return func(s *listenerStage) {
		denied := testbed.Message{"direct_remote_ip": testbed.Message{"address_prefix": "127.0.0.0", "prefix_len": 8}}
		rbac := testbed.Typed("envoy.filters.network.rbac", "envoy.extensions.filters.network.rbac.v3.RBAC", testbed.Message{
			"stat_prefix": "rb.",
			"rules": testbed.Message{"action": "DENY", "policies": testbed.Message{"p": testbed.Message{
				"permissions": []any{testbed.Message{"any": true}}, "principals": []any{denied},
			}}},
		})
		s.start(nil, testbed.Listener("l", testbed.ListenPort, rbac,
			testbed.TCPProxy("t", cluster, logTo("%RESPONSE_FLAGS% %CONNECTION_TERMINATION_DETAILS%"))))
		c := s.connect("127.0.0.1").Say(says)
		s.hearAsRecorded(c)
		s.expect.ExpectSoon(s.T, s.row, "log", s.log)
		s.stats(`^rb\.`)
	}
}

func playSourcePrefixes(s *listenerStage) {
	chain := func(prefix string, length int, cluster string) testbed.Message {
		return testbed.Message{
			"filter_chain_match": testbed.Message{"source_prefix_ranges": []any{
				testbed.Message{"address_prefix": prefix, "prefix_len": length},
			}},
			"filters": []any{testbed.TCPProxy("t", cluster)},
		}
	}
	listener := testbed.Listener("l", testbed.ListenPort)
	listener["filter_chains"] = []any{chain("127.0.1.0", 24, "B"), chain("127.0.1.9", 32, "A")}
	listener["default_filter_chain"] = testbed.Message{"filters": []any{testbed.TCPProxy("rest", "B")}}
	s.start(nil, listener)
	for field := range s.row {
		if from, ok := strings.CutPrefix(field, "client "); ok {
			got, _, _ := s.connect(from).HearUntilQuiet(1, 0)
			s.expect.Expect(s.T, s.row, field, got)
		}
	}
	s.stats(`^tcp\..*\.downstream_cx_total$`)
}

func playAddresses(s *listenerStage) {
	zero := testbed.Listener("zero", 0, testbed.TCPProxy("t", "A"))
	zero["additional_addresses"] = []any{testbed.Message{"address": testbed.SocketAddress("127.0.0.2", 10001)}}
	six := testbed.Listener("six", 0, testbed.TCPProxy("t", "A", logTo("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %DOWNSTREAM_LOCAL_ADDRESS%")))
	six["address"] = testbed.Message{"socket_address": testbed.Message{"address": "::", "port_value": 10002, "ipv4_compat": true}}
	unbound := testbed.Listener("unbound", 10003, testbed.TCPProxy("t", "A"))
	unbound["bind_to_port"] = false
	listeners := []any{zero, six}
	if s.expect.Subject.IsEnvoy() {
		listeners = append(listeners, unbound) // Guideway refuses it: see TestVerdictsThatDiffer
	}
	s.start(nil, listeners...)

	var port string
	s.expect.ExpectSoon(s.T, s.row, "listeners", func() any {
		var lines []string
		for line := range strings.Lines(s.proxy.Get("/listeners").Body) {
			line = strings.TrimSuffix(line, "\n")
			if p, ok := strings.CutPrefix(line, "zero::127.0.0.1:"); ok {
				port = p
				line = "zero::127.0.0.1:<port>"
			}
			lines = append(lines, line)
		}
		return lines
	})
	for _, to := range []string{"127.0.0.1:" + port, "127.0.0.1:10002", "[::1]:10002"} {
		testbed.ConnectTo(s.T, s.ns, netip.Addr{}, to).Hear("A").Close()
	}
	s.expect.ExpectSoon(s.T, s.row, "dual-stack log", s.log)
	totals := regexp.MustCompile(`^listener\.[^a-z]*\.downstream_cx_total$`) // not those of workers, nor the admin's
	s.expect.ExpectSoon(s.T, s.row, "stats", func() any {
		some := map[string]int64{}
		for name, v := range s.proxy.Stats() {
			if totals.MatchString(name) {
				some[name] = v
			}
		}
		return some
	})
	// The recording counts one connection for the listener with two addresses; the other address works as well.
	testbed.ConnectTo(s.T, s.ns, netip.Addr{}, "127.0.0.2:10001").Hear("A")
}

var listenerCases = map[string]func(*listenerStage){
	"longest source prefix wins; the default chain takes the rest": playSourcePrefixes,
	"one connection allowed by runtime key": playLimit(testbed.Message{
		"layered_runtime": testbed.Message{"layers": []any{testbed.Message{
			"name":         "static",
			"static_layer": testbed.Message{"envoy.resource_limits.listener.l.connection_limit": 1},
		}}},
	}),
	"one connection allowed by overload manager": playLimit(testbed.Message{
		"overload_manager": testbed.Message{"resource_monitors": []any{testbed.Typed(
			"envoy.resource_monitors.global_downstream_max_connections",
			"envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
			testbed.Message{"max_active_downstream_connections": 1},
		)}},
	}),
	"one connection allowed by connection_limit filter, delay 0.5 s": playLimit(nil, testbed.Typed(
		"envoy.filters.network.connection_limit",
		"envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit",
		testbed.Message{"stat_prefix": "lim", "max_connections": 1, "delay": "0.5s"},
	)),
	"RBAC denies by source; client silent, backend speaks first": playRBAC("A", ""),
	// The host is one that says nothing by itself, so that its greeting cannot overtake the denial.
	"RBAC denies by source; client speaks":              playRBAC("echo", "hi"),
	"port 0, additional address, dual-stack, not bound": playAddresses,
}

func TestObservedListeners(t *testing.T) {
	t.Parallel()
	expect := testbed.Expecting(t, "listeners.json")
	for i, row := range testbed.Rows(t, "listeners.json") {
		t.Run(fmt.Sprintf("%d %s", i, row.Case(t)), func(t *testing.T) {
			play, known := listenerCases[row.Case(t)]
			if what, ok := strings.CutPrefix(row.Case(t), "PROXY protocol: "); ok {
				play = func(s *listenerStage) { playProxyProtocol(s, what) }
			} else if !known {
				t.Fatal("no test plays this case: add it to listenerCases")
			}
			t.Parallel()
			s := &listenerStage{T: t, ns: testbed.Isolated(t), subject: expect.Subject, expect: expect, row: row}
			for port, conf := range map[uint16]backend.Config{
				greetingA:  {Greeting: "A"},
				greetingB:  {Greeting: "B"},
				silentEcho: {Behaviour: backend.Echo},
			} {
				conf.Network = backend.TCP
				testbed.StartBackend(t, s.ns, conf, netip.AddrPortFrom(testbed.Loopback, port))
			}
			play(s)
		})
	}
}
