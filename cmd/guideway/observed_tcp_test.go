package main_test

import (
	"net/netip"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// tcpLogFormat is the access log format of tcp.json.
const tcpLogFormat = "%RESPONSE_FLAGS% %RESPONSE_FLAGS_LONG% rx=%BYTES_RECEIVED% tx=%BYTES_SENT% code=%RESPONSE_CODE% " +
	"host=%UPSTREAM_HOST% cluster=%UPSTREAM_CLUSTER% attempts=%UPSTREAM_REQUEST_ATTEMPT_COUNT% " +
	"reason=%UPSTREAM_TRANSPORT_FAILURE_REASON% closed=%UPSTREAM_LOCAL_CLOSE_REASON%,%UPSTREAM_DETECTED_CLOSE_TYPE%," +
	"%DOWNSTREAM_LOCAL_CLOSE_REASON%,%DOWNSTREAM_DETECTED_CLOSE_TYPE%"

// tcpStats are the counters of tcp.json.
var tcpStats = regexp.MustCompile(`^(cluster\.c\.upstream_|tcp\.t\.|listener\.127\.0\.0\.1_10000\.downstream_)`)

// tcpCase is what a TCP case needs and does.
type tcpCase struct {
	hosts   []int  // ports of the cluster's hosts
	cluster string // that the proxy names; default c
	play    func(*tcpStage) testbed.Message
	// told is set where the row tells in prose what the client does, and log and counters are what it saw.
	told bool
}

// tcpStage is where a TCP case is played.
type tcpStage struct {
	*testing.T
	ns    *testbed.Namespace
	hosts *testbed.Hosts
	proxy *testbed.Proxy
}

func (s *tcpStage) connect() *testbed.Client {
	s.Helper()
	return testbed.ConnectTo(s.T, s.ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort))
}

// hearOut hears the connection to its end, then closes it.
func hearOut(c *testbed.Client) testbed.Message {
	got, then, after := c.HearOut()
	c.Close()
	return testbed.Message{"client_gets": got, "then": then, "seconds": testbed.Seconds(after)}
}

func silent(s *tcpStage) testbed.Message { return hearOut(s.connect()) }

func says(text string) func(*tcpStage) testbed.Message {
	return func(s *tcpStage) testbed.Message { return hearOut(s.connect().Say(text)) }
}

var tcpCases = map[string]tcpCase{
	"client half-closes, backend answers after that": {
		hosts: []int{testbed.PortHalfClose},
		play: func(s *tcpStage) testbed.Message {
			c := s.connect().Say("req")
			c.CloseWrite()
			return hearOut(c)
		},
	},
	"backend half-closes, client sends after that": {
		hosts: []int{testbed.PortFarewell},
		play: func(s *tcpStage) testbed.Message {
			c := s.connect()
			got, then, _ := c.HearOut()
			c.Say("late")
			late := s.hosts.Told(testbed.PortFarewell).Got
			c.Close()
			return testbed.Message{
				"client_gets": got, "then": then, "backend_gets_after_its_end": late,
				"backend_sees": []string{s.hosts.Told(testbed.PortFarewell).How},
			}
		},
	},
	"backend refuses, client silent": {hosts: []int{testbed.PortNobody}, play: silent},
	"backend refuses, client has sent data": {
		hosts: []int{testbed.PortNobody},
		play: func(s *tcpStage) testbed.Message {
			var c *testbed.Client
			// Else the refusal could be there before the data.
			s.proxy.Paused(func() { c = s.connect().Say("data") })
			return hearOut(c)
		},
	},
	"backend refuses, three attempts": {hosts: []int{testbed.PortNobody}, play: silent},
	"backend does not answer":         {hosts: []int{testbed.PortStall}, play: silent},
	"cluster without hosts":           {play: silent},
	"unknown cluster":                 {hosts: []int{testbed.PortEcho}, cluster: "nowhere", play: silent},
	"idle timeout":                    {hosts: []int{testbed.PortEcho}, play: says("x")},
	"maximum duration":                {hosts: []int{testbed.PortEcho}, play: says("x")},
	"backend resets":                  {hosts: []int{testbed.PortReset}, play: says("data")},
	"backend closes at once":          {hosts: []int{testbed.PortClose}, play: silent},
	"connection breaker": {
		hosts: []int{testbed.PortEcho},
		play: func(s *tcpStage) testbed.Message {
			first := s.connect().Say("x").Hear("x")
			got, then, _ := s.connect().HearOut()
			first.Close()
			return testbed.Message{"second_client_gets": got, "then": then}
		},
	},
	"client closes": {
		hosts: []int{testbed.PortEcho},
		play: func(s *tcpStage) testbed.Message {
			s.connect().Say("x").Hear("x").Close()
			return testbed.Message{"backend_sees": s.hosts.Told(testbed.PortEcho).How}
		},
	},
	"client leaves while connecting": {
		hosts: []int{testbed.PortStall}, told: true,
		play: func(s *tcpStage) testbed.Message {
			c := s.connect()
			testbed.Eventually(s.T, "the proxy is connecting", func() bool {
				return s.proxy.Stats()["cluster.c.upstream_cx_total"] == 1
			})
			c.Close()
			return nil
		},
	},
}

func TestObservedTCP(t *testing.T) {
	t.Parallel()
	expect := testbed.Expecting(t, "tcp.json")
	for _, row := range testbed.Rows(t, "tcp.json") {
		t.Run(row.Case(t), func(t *testing.T) {
			c, known := tcpCases[row.Case(t)]
			if !known {
				t.Fatal("no test plays this case: add it to tcpCases")
			}
			t.Parallel()
			playTCP(t, expect, row, c)
		})
	}
}

func playTCP(t *testing.T, expect *testbed.Expectations, row testbed.Row, c tcpCase) {
	s := &tcpStage{T: t, ns: testbed.Isolated(t)}
	s.hosts = testbed.StartHosts(t, s.ns)
	name := c.cluster
	if name == "" {
		name = "c"
	}
	filter := testbed.TCPProxy("t", name, row.Message(t, "tcp_proxy"),
		testbed.Message{"access_log": []any{testbed.TextLog("{dir}/access.log", tcpLogFormat)}})
	s.proxy = expect.Subject.Start(t, s.ns, testbed.Bootstrap(
		[]any{testbed.Listener("l", testbed.ListenPort, filter)},
		[]any{testbed.Merge(testbed.Cluster("c", c.hosts...), row.Message(t, "cluster"))},
	)).Ready()

	seen := c.play(s)
	if !c.told {
		expect.Expect(t, row, "seen", seen)
	}
	expect.ExpectSoon(t, row, "log", func() any {
		return testbed.Lines(filepath.Join(s.proxy.Dir, "access.log"))
	})
	expect.ExpectSoon(t, row, "stats", func() any {
		return testbed.NonZero(s.proxy.Stats(), tcpStats)
	})
}
