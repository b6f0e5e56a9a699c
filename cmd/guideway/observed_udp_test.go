package main_test

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// udpStats are the counters of udp.json.
var udpStats = regexp.MustCompile(`^(cluster\.c\.(upstream_|udp\.|circuit_breakers\.)|udp\.u\.|listener\.127\.0\.0\.1_10000\.(downstream_|udp\.))`)

// udpCase is what a UDP case needs and does. Hosts A and B answer "A:" or "B:" and the datagram.
type udpCase struct {
	hosts   []int
	cluster string // that the proxy names; default c
	long    bool   // hosts answer with 1602 bytes
	play    func(*udpStage) any
	// settled is laid over the recorded counters that were read too early.
	settled testbed.Message
}

// udpStage is where a UDP case is played.
type udpStage struct {
	*testing.T
	ns   *testbed.Namespace
	seen any // what was recorded
}

func (s *udpStage) client() *testbed.DatagramClient {
	s.Helper()
	return testbed.DatagramsTo(s.T, s.ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort))
}

// answer is what a client gets for a datagram, null for nothing. A host without an answer is one
// whose counters tell why, so it is not waited for as long as one that was recorded with one.
func answer(c *testbed.DatagramClient, expected any) any {
	if got, ok := c.Ask("x", testbed.AnswerTime(expected != nil)); ok {
		return got
	}
	return nil
}

// recorded is the i-th recorded answer, where the row has a list of them; else it is something.
func (s *udpStage) recorded(i int) any {
	if list, ok := s.seen.([]any); ok && i < len(list) {
		return list[i]
	}
	return "an answer"
}

// thrice is a client that sends three datagrams, and what it gets.
func thrice(s *udpStage) any {
	c := s.client()
	var seen []any
	for i := range 3 {
		seen = append(seen, answer(c, s.recorded(i)))
	}
	return seen
}

// sizes sends datagrams of growing size, and tells the sizes of the answers.
func sizes(s *udpStage) any {
	c := s.client()
	recorded, _ := s.seen.(map[string]any)
	seen := map[string]any{}
	for _, n := range []int{0, 1400, 1500, 1501, 2000, 8000} {
		size := fmt.Sprint(n)
		seen[size] = nil
		if got, ok := c.Ask(strings.Repeat("x", n), testbed.AnswerTime(recorded[size] != nil)); ok {
			seen[size] = len(got)
		}
	}
	return seen
}

// lengths is thrice, with the lengths of the answers.
func lengths(s *udpStage) any {
	seen := thrice(s).([]any)
	for i, a := range seen {
		if text, ok := a.(string); ok {
			seen[i] = fmt.Sprintf("%d bytes", len(text))
		}
	}
	return seen
}

var (
	hostA    = []int{20001}
	hostsAB  = []int{20001, 20002}
	udpCases = map[string]udpCase{
		"a session keeps its host": {hosts: hostsAB, play: func(s *udpStage) any {
			different := map[any]bool{}
			for _, a := range thrice(s).([]any) {
				different[a] = true
			}
			return len(different)
		}},
		"per-packet balancing": {hosts: hostsAB, play: func(s *udpStage) any {
			different := map[string]bool{}
			for range 4 {
				for _, a := range thrice(s).([]any) {
					different[fmt.Sprint(a)] = true
				}
			}
			return slices.Sorted(maps.Keys(different))
		}, settled: testbed.Message{
			// Envoy counts an answer after sending it. The recording was read in between: on one CPU,
			// where the woken client preempts the worker, one reading in four says 11, and the next says 12.
			"udp.u.downstream_sess_tx_bytes": 36, "udp.u.downstream_sess_tx_datagrams": 12,
		}},
		"no host":         {play: thrice},
		"unknown cluster": {hosts: hostA, cluster: "nowhere", play: thrice},
		"one session allowed, second client dropped": {hosts: hostA, play: func(s *udpStage) any {
			first, second := s.client(), s.client()
			return []any{answer(first, s.recorded(0)), answer(second, s.recorded(1)), answer(first, s.recorded(2))}
		}},
		"datagram sizes with the defaults (answer is 2 bytes longer)": {hosts: hostA, play: sizes},
		"datagram sizes with a larger downstream limit":               {hosts: hostA, play: sizes},
		"answer of 1602 bytes with the defaults":                      {hosts: hostA, long: true, play: lengths},
		"answer of 1602 bytes, upstream GRO off":                      {hosts: hostA, long: true, play: lengths},
		"idle timeout 1 s":                                            {hosts: hostA, play: thrice},
		"session access log":                                          {hosts: hostA, play: thrice},
	}
)

func TestObservedUDP(t *testing.T) {
	t.Parallel()
	expect := testbed.Expecting(t, "udp.json")
	for _, row := range testbed.Rows(t, "udp.json") {
		t.Run(row.Case(t), func(t *testing.T) {
			c, known := udpCases[row.Case(t)]
			if !known {
				t.Fatal("no test plays this case: add it to udpCases")
			}
			t.Parallel()
			playUDP(t, expect, row, c)
		})
	}
}

func playUDP(t *testing.T, expect *testbed.Expectations, row testbed.Row, c udpCase) {
	s := &udpStage{T: t, ns: testbed.Isolated(t)}
	if row.Has("seen") {
		s.seen = expect.Want(t, row, "seen")
	}
	for i, port := range hostsAB {
		conf := backend.Config{ID: string(rune('A' + i)), Network: backend.UDP}
		if c.long {
			conf.Reply = func(dst []byte, id string, _ []byte) []byte {
				return append(append(dst, id+":"...), make([]byte, 1600)...)
			}
		}
		testbed.StartBackend(t, s.ns, conf, netip.AddrPortFrom(testbed.Loopback, uint16(port)))
	}
	name := c.cluster
	if name == "" {
		name = "c"
	}
	options := row.Message(t, "udp_proxy")
	if row.Has("format") {
		var format string
		row.Decode(t, "format", &format)
		options["access_log"] = []any{testbed.TextLog("{dir}/access.log", format)}
		options["idle_timeout"] = "1s" // a session is logged when it ends
	}
	listener := testbed.UDPListener("l", testbed.ListenPort, testbed.UDPProxy("u", name, options))
	proxy := expect.Subject.Start(t, s.ns, testbed.Bootstrap(
		[]any{testbed.Merge(listener, row.Message(t, "listener"))},
		[]any{testbed.Merge(testbed.Cluster("c", c.hosts...), row.Message(t, "cluster"))},
	)).Ready()

	seen := c.play(s)
	if row.Has("seen") {
		expect.Expect(t, row, "seen", seen)
	}
	if row.Has("lines") {
		expect.ExpectSoon(t, row, "lines", func() any {
			return testbed.Lines(filepath.Join(proxy.Dir, "access.log"))
		})
	}
	if c.settled != nil {
		row = row.Correct(t, "stats", c.settled)
	}
	if row.Has("stats") {
		expect.ExpectSoon(t, row, "stats", func() any {
			return testbed.NonZero(proxy.Stats(), udpStats)
		})
	}
}
