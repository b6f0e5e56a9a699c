package proxy

import (
	"encoding/json"
	"maps"
	"net"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// The recorded behaviour of Envoy, see the README there.
const observed = "../../cmd/guideway/testdata/observed/"

const observedFormat = "%RESPONSE_FLAGS% %RESPONSE_FLAGS_LONG% rx=%BYTES_RECEIVED% tx=%BYTES_SENT% code=%RESPONSE_CODE% " +
	"host=%UPSTREAM_HOST% cluster=%UPSTREAM_CLUSTER% attempts=%UPSTREAM_REQUEST_ATTEMPT_COUNT% " +
	"reason=%UPSTREAM_TRANSPORT_FAILURE_REASON% closed=%UPSTREAM_LOCAL_CLOSE_REASON%,%UPSTREAM_DETECTED_CLOSE_TYPE%," +
	"%DOWNSTREAM_LOCAL_CLOSE_REASON%,%DOWNSTREAM_DETECTED_CLOSE_TYPE%"

// hostPort hides the backends' ports, which are others in each run.
var hostPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)

type tcpRow struct {
	Case    string
	Cluster struct {
		ConnectTimeout  string `json:"connect_timeout"`
		CircuitBreakers struct {
			Thresholds []struct {
				MaxConnections *uint32 `json:"max_connections"`
			}
		} `json:"circuit_breakers"`
	}
	TCPProxy struct {
		IdleTimeout string `json:"idle_timeout"`
		MaxDuration string `json:"max_downstream_connection_duration"`
		MaxAttempts uint32 `json:"max_connect_attempts"`
	} `json:"tcp_proxy"`
	Seen  any
	Log   []string
	Stats map[string]int64
}

func readRows[T any](t *testing.T, file string) []T {
	t.Helper()
	text, err := os.ReadFile(observed + file)
	if err != nil {
		t.Fatal(err)
	}
	var rows []T
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// silent connects and says nothing.
func silent(b *bed, h *fakeHost) any { return saying("")(b, h) }

func saying(s string) func(b *bed, h *fakeHost) any {
	return func(b *bed, h *fakeHost) any {
		c := b.dial().say(s)
		got, then := c.hearOut()
		c.Close()
		return map[string]any{"client_gets": got, "then": then}
	}
}

// observedTCP says what client and backend do in each row of tcp.json.
var observedTCP = map[string]struct {
	host func(*testing.T) (addr string, h *fakeHost)
	play func(*bed, *fakeHost) any
}{
	"client half-closes, backend answers after that": {playing(answerAfterEnd), func(b *bed, h *fakeHost) any {
		c := b.dial().say("req")
		c.CloseWrite()
		got, then := c.hearOut()
		return map[string]any{"client_gets": got, "then": then}
	}},
	"backend half-closes, client sends after that": {playing(farewell), func(b *bed, h *fakeHost) any {
		c := b.dial()
		got, then := c.hearOut()
		c.say("late")
		h.heard("late")
		c.Close()
		late, ends := h.told(1)
		return map[string]any{"client_gets": got, "then": then, "backend_gets_after_its_end": late, "backend_sees": []any{ends[0]}}
	}},
	"backend refuses, client silent":        {at(refused), silent},
	"backend refuses, client has sent data": {at(refused), nil}, // in its own test: the bytes must be there first
	"backend refuses, three attempts":       {at(refused), silent},
	"backend does not answer":               {at(stalled), silent},
	"cluster without hosts":                 {at(nowhere), silent},
	"unknown cluster":                       {at(nowhere), silent},
	"idle timeout":                          {playing(echo), saying("x")},
	"maximum duration":                      {playing(echo), saying("x")},
	"backend resets":                        {playing(resetAtFirst), saying("data")},
	"backend closes at once":                {playing(closeAtOnce), silent},
	"connection breaker": {playing(echo), func(b *bed, h *fakeHost) any {
		first := b.dial().say("x").hear("x")
		got, then := b.dial().hearOut()
		first.Close()
		return map[string]any{"second_client_gets": got, "then": then}
	}},
	"client closes": {playing(echo), func(b *bed, h *fakeHost) any {
		b.dial().say("x").hear("x").Close()
		_, ends := h.told(1)
		return map[string]any{"backend_sees": ends[0]}
	}},
	"client leaves while connecting": {at(stalled), func(b *bed, h *fakeHost) any {
		c := b.dial()
		eventually(b.t, "the connect", func() bool { return b.cluster.Stats.UpstreamCxTotal.Value() == 1 })
		c.Close()
		return nil
	}},
}

func nowhere(testing.TB) string { return "" }

func at(addr func(testing.TB) string) func(*testing.T) (string, *fakeHost) {
	return func(t *testing.T) (string, *fakeHost) { return addr(t), nil }
}

func TestObservedTCP(t *testing.T) {
	for _, row := range readRows[tcpRow](t, "tcp.json") {
		t.Run(row.Case, func(t *testing.T) {
			t.Parallel()
			c, ok := observedTCP[row.Case]
			if !ok {
				t.Fatal("no test plays this row")
			}
			b := newBed(t)
			addr, h := c.host(t)
			if addr != "" {
				b.setHosts(addr)
			}
			b.proxy.IdleTimeout = duration(t, row.TCPProxy.IdleTimeout, b.proxy.IdleTimeout)
			b.proxy.MaxDuration = duration(t, row.TCPProxy.MaxDuration, 0)
			b.proxy.MaxConnectAttempts = max(row.TCPProxy.MaxAttempts, 1)
			b.cluster.ConnectTimeout = duration(t, row.Cluster.ConnectTimeout, 5*time.Second)
			if th := row.Cluster.CircuitBreakers.Thresholds; len(th) > 0 {
				b.cluster.Breakers.Default.MaxConnections = *th[0].MaxConnections
			}
			if row.Case == "unknown cluster" {
				b.proxy.Clusters = []dataplane.WeightedCluster{{Name: "nowhere", Weight: 1}}
			}
			b.proxy.AccessLog = append(b.proxy.AccessLog, b.logTo(observedFormat))
			b.apply()
			play := c.play
			if play == nil {
				play = refusedAfterData
			}
			seen := play(b, h)
			if want, ok := row.Seen.(map[string]any); ok {
				delete(want, "seconds")
				if !reflect.DeepEqual(seen, any(want)) {
					t.Errorf("seen\n%v, Envoy:\n%v", seen, want)
				}
			}
			b.checkEnd(row.Log, row.Stats)
		})
	}
}

// refusedAfterData holds the worker back until the client's bytes lie in the socket.
func refusedAfterData(b *bed, _ *fakeHost) any {
	gate := make(chan struct{})
	b.srv.workers[0].post(func() { <-gate })
	c := b.dial().say("data")
	close(gate)
	got, then := c.hearOut()
	return map[string]any{"client_gets": got, "then": then}
}

// checkEnd compares lines and stats with a row's once all connections have ended.
func (b *bed) checkEnd(lines []string, want map[string]int64) {
	b.t.Helper()
	// A row is recorded after the client left; what stays open is closed by the test's client.
	b.idle()
	got := b.lines(len(lines))
	for i := range got {
		got[i] = hostPort.ReplaceAllString(got[i], "<host>")
	}
	for i := range lines {
		lines[i] = hostPort.ReplaceAllString(lines[i], "<host>")
	}
	if !reflect.DeepEqual(got, lines) {
		b.t.Errorf("lines\n%s\nEnvoy:\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
	if v := b.values(); !maps.Equal(v, want) {
		for name, n := range want {
			if v[name] != n {
				b.t.Errorf("%s is %d, in Envoy %d", name, v[name], n)
			}
		}
		for name, n := range v {
			if _, ok := want[name]; !ok {
				b.t.Errorf("%s is %d, in Envoy 0", name, n)
			}
		}
	}
}

func playing(role func(*fakeHost, *net.TCPConn)) func(*testing.T) (string, *fakeHost) {
	return func(t *testing.T) (string, *fakeHost) {
		h := startHost(t, role)
		return h.addr(), h
	}
}

func duration(t *testing.T, s string, otherwise time.Duration) time.Duration {
	t.Helper()
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)
	durations = regexp.MustCompile(`(0 - \d+ \d+) \d+`)
)

// maskTimes hides start times and durations; a start time must be near the given one, if any.
func maskTimes(t *testing.T, s string, near time.Time) string {
	t.Helper()
	for _, x := range timestamp.FindAllString(s, -1) {
		at, err := time.Parse("2006-01-02T15:04:05.000Z", x)
		if err != nil || !near.IsZero() && near.Sub(at).Abs() > 30*time.Second {
			t.Errorf("start time %s, it is %v", x, near)
		}
	}
	return durations.ReplaceAllString(timestamp.ReplaceAllString(s, "<time>"), "$1 <ms>")
}
