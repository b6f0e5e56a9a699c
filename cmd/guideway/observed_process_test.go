package main_test

import (
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// baseBootstrap is a good configuration; the cases that need a bad one spoil it.
func baseBootstrap() testbed.Message {
	return bootWith(testbed.TCPProxy("t", "c"))
}

func bootWith(filters ...any) testbed.Message {
	return boot(testbed.Listener("l", testbed.ListenPort, filters...), testbed.Cluster("c", testbed.PortEcho))
}

func boot(listener testbed.Message, clusters ...any) testbed.Message {
	return testbed.Bootstrap([]any{listener}, clusters)
}

// processCases give the configuration for each case that is a start with an exit code.
var processCases = map[string]func() any{
	"good": func() any { return baseBootstrap() },
	"tcp_proxy names a cluster that does not exist": func() any { return bootWith(testbed.TCPProxy("t", "nowhere")) },
	"port in use, validating":                       portInUse,
	"port in use, serving":                          portInUse,
	"unknown field":                                 unknownField,
	"unknown field, allowed":                        unknownField,
	"broken YAML":                                   func() any { return "a: [\n" },
	"empty file":                                    func() any { return "" },
	"missing file":                                  func() any { return baseBootstrap() },
	"no configuration":                              func() any { return baseBootstrap() },
	"unknown flag":                                  func() any { return baseBootstrap() },
	"bad log level":                                 func() any { return baseBootstrap() },
	"bad mode":                                      func() any { return baseBootstrap() },
	"init_only":                                     func() any { return baseBootstrap() },
	"listener without chains": func() any {
		l := testbed.Listener("l", testbed.ListenPort)
		delete(l, "filter_chains")
		return boot(l, testbed.Cluster("c"))
	},
	"chain without filters": func() any {
		l := testbed.Listener("l", testbed.ListenPort)
		l["filter_chains"] = []any{testbed.Message{}}
		return boot(l, testbed.Cluster("c"))
	},
	"two clusters of one name": func() any {
		return boot(testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c")), testbed.Cluster("c"), testbed.Cluster("c"))
	},
	"two listeners of one name": func() any {
		return testbed.Bootstrap([]any{
			testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c")),
			testbed.Listener("l", testbed.ListenPort+1, testbed.TCPProxy("t", "c")),
		}, []any{testbed.Cluster("c")})
	},
	"unknown access log operator": func() any {
		return bootWith(testbed.TCPProxy("t", "c", testbed.Message{"access_log": []any{testbed.TextLog("{dir}/access.log", "%NOPE%")}}))
	},
	"unknown message type":           func() any { return bootWith(testbed.Typed("x", "envoy.no.Such", nil)) },
	"message type that is no filter": func() any { return bootWith(testbed.Typed("x", "envoy.config.cluster.v3.Cluster", nil)) },
	"EDS cluster without a source": func() any {
		return boot(testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c")),
			testbed.Message{"name": "c", "type": "EDS"})
	},
	"ADS without a node": func() any {
		xds := testbed.Cluster("xds", testbed.PortEcho)
		xds["typed_extension_protocol_options"] = testbed.Message{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": testbed.Message{
				"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": testbed.Message{"http2_protocol_options": testbed.Message{}},
			},
		}
		b := testbed.Bootstrap([]any{}, []any{xds})
		b["dynamic_resources"] = testbed.Message{
			"ads_config": testbed.Message{
				"api_type": "GRPC", "transport_api_version": "V3",
				"grpc_services": []any{testbed.Message{"envoy_grpc": testbed.Message{"cluster_name": "xds"}}},
			},
			"cds_config": testbed.Message{"ads": testbed.Message{}, "resource_api_version": "V3"},
		}
		return b
	},
}

func portInUse() any {
	return boot(testbed.Listener("l", testbed.PortEcho, testbed.TCPProxy("t", "c")), testbed.Cluster("c"))
}

func unknownField() any {
	c := testbed.Cluster("c")
	c["nope"] = 1
	return boot(testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c")), c)
}

// processScripts play the cases in which the program serves first.
var processScripts = map[string]func(*testing.T, *testbed.Expectations, testbed.Row, *testbed.Namespace){
	"SIGTERM with an open connection":                 playSignal(syscall.SIGTERM),
	"SIGINT with an open connection":                  playSignal(syscall.SIGINT),
	"/drain_listeners?graceful with --drain-time-s 2": playDrain,
}

func TestObservedProcess(t *testing.T) {
	t.Parallel()
	expect := testbed.Expecting(t, "process.json")
	for _, row := range testbed.Rows(t, "process.json") {
		name := row.Case(t)
		t.Run(strings.Trim(name, "/"), func(t *testing.T) {
			config, isStart := processCases[name]
			script, isScript := processScripts[name]
			if !isStart && !isScript {
				t.Fatal("no test plays this case: add it to processCases or processScripts")
			}
			t.Parallel()
			ns := testbed.Isolated(t)
			testbed.StartBackend(t, ns, backend.Config{Network: backend.TCP, Behaviour: backend.Echo},
				netip.AddrPortFrom(testbed.Loopback, testbed.PortEcho))
			if isScript {
				script(t, expect, row, ns)
				return
			}
			playStart(t, expect, row, ns, config())
		})
	}
}

func playStart(t *testing.T, expect *testbed.Expectations, row testbed.Row, ns *testbed.Namespace, config any) {
	dir := t.TempDir()
	path := testbed.WriteConfig(t, dir, config)
	var arguments string
	row.Decode(t, "arguments", &arguments)
	arguments = strings.NewReplacer("{config}", path, "<dir>", dir).Replace(arguments)
	p := expect.Subject.Exec(t, ns, dir, strings.Fields(arguments)...)
	expect.Expect(t, row, "exit", p.Wait())
	withDir := func(s string) string { return strings.ReplaceAll(s, dir, "<dir>") }
	expect.Expect(t, row, "stdout", strings.TrimSuffix(withDir(p.Stdout()), "\n"))

	stderr := blanks(withDir(p.Stderr()))
	messages, _ := expect.Want(t, row, "stderr").([]any)
	for _, m := range messages {
		if want := reason(m.(string)); !strings.Contains(stderr, want) {
			t.Errorf("nothing on stderr ends with %q:\n%s", want, stderr)
		}
	}
	if len(messages) == 0 && strings.Contains(stderr, "[critical]") {
		t.Errorf("a critical message where none was recorded:\n%s", stderr)
	}
}

var (
	runsOfBlanks = regexp.MustCompile(`\s+`)
	// logPrefix is what comes before the reason: level, logger, and the file.
	logPrefix = regexp.MustCompile(`^\[critical\]\[main\] (error initializing configuration '[^']*': )?`)
	// protobufPosition is where protobuf's JSON parser saw an error in Envoy's own rendering of the file.
	protobufPosition = regexp.MustCompile(`^.*: (no such field: '[^']*'\) has unknown fields)$`)
	// protobufInput is the whole of the input, which Envoy appends.
	protobufInput = regexp.MustCompile(`(could not find @type '[^']*'\)): .*$`)
)

func blanks(s string) string { return runsOfBlanks.ReplaceAllString(s, " ") }

// reason is the tail of a recorded message that says what is wrong, with single blanks.
func reason(message string) string {
	message = strings.TrimSpace(logPrefix.ReplaceAllString(blanks(message), ""))
	message = protobufPosition.ReplaceAllString(message, "$1")
	return protobufInput.ReplaceAllString(message, "$1")
}

func playSignal(sig syscall.Signal) func(*testing.T, *testbed.Expectations, testbed.Row, *testbed.Namespace) {
	return func(t *testing.T, expect *testbed.Expectations, row testbed.Row, ns *testbed.Namespace) {
		p := expect.Subject.Start(t, ns, baseBootstrap()).Ready()
		c := testbed.ConnectTo(t, ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort)).Say("x").Hear("x")
		sent := time.Now()
		p.Signal(sig)
		_, then, _ := c.HearOut()
		expect.Expect(t, row, "client_sees", then)
		expect.Expect(t, row, "exit", p.Wait())
		const lateness = 1500 * time.Millisecond // of a loaded machine
		expect.Expect(t, row, "within a second", time.Since(sent) < time.Second+lateness)
		rest := p.Stderr()
		for _, line := range expect.Want(t, row, "log").([]any) {
			_, after, found := strings.Cut(rest, line.(string))
			if !found {
				t.Fatalf("the log has no %q, or not in this order:\n%s", line, p.Stderr())
			}
			rest = after
		}
	}
}

func playDrain(t *testing.T, expect *testbed.Expectations, row testbed.Row, ns *testbed.Namespace) {
	b := testbed.Bootstrap([]any{
		testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "c")),
		testbed.UDPListener("u", testbed.ListenPort, testbed.UDPProxy("u", "c")),
	}, []any{testbed.Cluster("c", testbed.PortEcho)})
	p := expect.Subject.Start(t, ns, b, "--drain-time-s", "2").Ready()
	to := testbed.ListenAddress(testbed.ListenPort)
	old := testbed.ConnectTo(t, ns, netip.Addr{}, to).Say("x").Hear("x")

	began := time.Now()
	p.Post("/drain_listeners?graceful")
	testbed.ConnectTo(t, ns, netip.Addr{}, to).Say("y").Hear("y").Close()
	const field = "new connections (seconds, what)"
	at := func(seconds any, what any) any { return testbed.Message{"seconds": seconds, "what": what} }
	seen := []any{at(testbed.Seconds(time.Since(began)), "accepts")}
	testbed.Eventually(t, "new connections are refused", func() bool {
		c, err := testbed.TryConnect(t, ns, netip.Addr{}, to)
		if err == nil {
			c.Close()
			return false
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	seen = append(seen, at(testbed.Seconds(time.Since(began)), "refuses"))
	var recorded [][2]any
	row.Decode(t, field, &recorded)
	want := []any{}
	for _, r := range recorded {
		want = append(want, at(r[0], r[1]))
	}
	expect.Expect(t, row.With(t, field, want), field, seen)

	old.Say("z").Hear("z")
	_, then, _ := old.HearUntilQuiet(0, 300*time.Millisecond)
	expect.Expect(t, row, "old connection", then)
	expect.Expect(t, row, "ready", p.Get("/ready").Body)
	expect.Expect(t, row, "listeners", strings.Split(strings.TrimSuffix(p.Get("/listeners").Body, "\n"), "\n"))
	managed := regexp.MustCompile(`^listener_manager\.`)
	expect.ExpectSoon(t, row, "stats", func() any { return testbed.NonZero(p.Stats(), managed) })
	old.Close()
}
