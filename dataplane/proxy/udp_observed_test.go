package proxy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane/accesslog"
)

// observedUDP is a row of the recording of a running Envoy.
type observedUDP struct {
	Case   string
	Seen   any
	Stats  map[string]int64
	Format string
	Lines  []string
}

// TestObservedUDP does what was done to Envoy in each recorded case and compares what client and
// counters tell. (cmd/guideway replays the same file from configuration files.)
func TestObservedUDP(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "cmd", "guideway", "testdata", "observed", "udp.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []observedUDP
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		play := udpPlays[row.Case]
		if play == nil {
			t.Errorf("no play for case %q", row.Case)
			continue
		}
		t.Run(row.Case, func(t *testing.T) {
			t.Parallel()
			b := newUDPBed(t, 1)
			if seen := plainJSON(t, play(b, &row)); row.Seen != nil && !reflect.DeepEqual(seen, row.Seen) {
				t.Errorf("seen %v, want %v", seen, row.Seen)
			}
			if row.Case == "per-packet balancing" {
				// Recorded between sending the last answer and counting it.
				row.Stats["udp.u.downstream_sess_tx_datagrams"], row.Stats["udp.u.downstream_sess_tx_bytes"] = 12, 36
			}
			for _, name := range observedNames {
				want := row.Stats[name]
				if row.Stats == nil {
					break
				}
				ours := strings.Replace(name, "listener.127.0.0.1_10000.", "listener.l.", 1)
				b.untilStat(ours, want)
			}
		})
	}
}

// observedNames are all names in the recording, for each case: what is not in a row is 0.
var observedNames = []string{
	"cluster.c.circuit_breakers.default.cx_open",
	"cluster.c.udp.sess_rx_datagrams", "cluster.c.udp.sess_rx_datagrams_dropped", "cluster.c.udp.sess_rx_errors",
	"cluster.c.udp.sess_tx_datagrams", "cluster.c.udp.sess_tx_errors",
	"cluster.c.upstream_cx_none_healthy", "cluster.c.upstream_cx_overflow",
	"cluster.c.upstream_cx_rx_bytes_total", "cluster.c.upstream_cx_tx_bytes_total",
	"listener.127.0.0.1_10000.udp.downstream_rx_datagram_dropped",
	"udp.u.downstream_sess_active", "udp.u.downstream_sess_no_route", "udp.u.downstream_sess_rx_bytes",
	"udp.u.downstream_sess_rx_datagrams", "udp.u.downstream_sess_rx_errors", "udp.u.downstream_sess_total",
	"udp.u.downstream_sess_tx_bytes", "udp.u.downstream_sess_tx_datagrams", "udp.u.downstream_sess_tx_errors",
	"udp.u.idle_timeout",
}

func plainJSON(t *testing.T, v any) (out any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// unanswered sends a datagram that is dropped, and waits until the stat that says so has grown.
func (c *udpClient) unanswered(b *udpBed, s, stat string) any {
	c.Helper()
	before := b.value(stat)
	c.send(s)
	b.untilStat(stat, before+1)
	if !c.silent() {
		c.Errorf("an answer to a datagram that was counted as dropped (%s)", stat)
	}
	return nil
}

func thrice(f func() any) any { return []any{f(), f(), f()} }

var udpPlays = map[string]func(*udpBed, *observedUDP) any{
	"a session keeps its host": func(b *udpBed, _ *observedUDP) any {
		b.setHosts(b.host("A"), b.host("B"))
		b.apply()
		c, seen := b.client(), map[string]bool{}
		for range 3 {
			seen[c.ask("x")] = true
		}
		return len(seen)
	},
	"per-packet balancing": func(b *udpBed, _ *observedUDP) any {
		b.setHosts(b.host("A"), b.host("B"))
		b.listener.UDP.PerPacket = true
		b.apply()
		seen := map[string]bool{}
		for range 4 {
			c := b.client()
			for range 3 {
				seen[c.ask("x")] = true
			}
		}
		if !seen["A:x"] || !seen["B:x"] || len(seen) != 2 {
			return seen
		}
		return []string{"A:x", "B:x"}
	},
	"no host": func(b *udpBed, _ *observedUDP) any {
		b.apply()
		c := b.client()
		return thrice(func() any { return c.unanswered(b, "x", "cluster.c.upstream_cx_none_healthy") })
	},
	"unknown cluster": func(b *udpBed, _ *observedUDP) any {
		b.setHosts(b.host("A"))
		b.listener.UDP.Route = routeTo("nowhere")
		b.apply()
		c := b.client()
		return thrice(func() any { return c.unanswered(b, "x", "udp.u.downstream_sess_no_route") })
	},
	"one session allowed, second client dropped": func(b *udpBed, _ *observedUDP) any {
		b.setHosts(b.host("A"))
		b.cluster.Breakers.Default.MaxConnections = 1
		b.apply()
		first, second := b.client(), b.client()
		return []any{first.ask("x"), second.unanswered(b, "x", "cluster.c.upstream_cx_overflow"), first.ask("x")}
	},
	"datagram sizes with the defaults (answer is 2 bytes longer)": func(b *udpBed, _ *observedUDP) any {
		return playSizes(b)
	},
	"datagram sizes with a larger downstream limit": func(b *udpBed, _ *observedUDP) any {
		b.listener.UDP.MaxRxDownstream = 9000
		return playSizes(b)
	},
	"answer of 1602 bytes with the defaults": func(b *udpBed, _ *observedUDP) any {
		b.setHosts(b.hostWith("127.0.0.1:0", longAnswer))
		b.apply()
		c := b.client()
		return thrice(func() any { return fmt.Sprintf("%d bytes", len(c.ask("x"))) })
	},
	"answer of 1602 bytes, upstream GRO off": func(b *udpBed, _ *observedUDP) any {
		b.setHosts(b.hostWith("127.0.0.1:0", longAnswer))
		b.listener.UDP.UpstreamGRO = false
		b.apply()
		c := b.client()
		return thrice(func() any { return c.unanswered(b, "x", "cluster.c.udp.sess_rx_datagrams_dropped") })
	},
	"idle timeout 1 s": func(b *udpBed, _ *observedUDP) any {
		b.setHosts(b.host("A"))
		b.listener.UDP.IdleTimeout = time.Second
		b.apply()
		c := b.client()
		seen := thrice(func() any { return c.ask("x") })
		b.untilStat("udp.u.idle_timeout", 1)
		return seen
	},
	"session access log": func(b *udpBed, row *observedUDP) any {
		// The recording's host had a fixed port.
		h := b.host("A")
		b.setHosts(h)
		lines := b.logTo(&b.listener.UDP.AccessLog, row.Format+"\n")
		b.apply()
		c := b.client()
		thrice(func() any { return c.ask("x") })
		b.untilStat("udp.u.downstream_sess_tx_datagrams", 3)
		b.srv.DrainListeners(nil, 0)
		b.until("the line", func() bool { return lines() != "" })
		want := strings.ReplaceAll(strings.Join(row.Lines, "\n")+"\n", "127.0.0.1:20001", h.Address.String())
		if got := lines(); got != want {
			b.Errorf("logged %q, want %q", got, want)
		}
		return nil
	},
}

func longAnswer([]byte) []byte { return make([]byte, 1602) }

func playSizes(b *udpBed) any {
	b.setHosts(b.host("A"))
	b.apply()
	c, seen := b.client(), map[string]any{}
	for _, n := range []int{0, 1400, 1500, 1501, 2000, 8000} {
		p := strings.Repeat("x", n)
		if n > int(b.listener.UDP.MaxRxDownstream) {
			seen[fmt.Sprint(n)] = c.unanswered(b, p, "listener.l.udp.downstream_rx_datagram_dropped")
			continue
		}
		seen[fmt.Sprint(n)] = len(c.ask(p))
	}
	return seen
}

// logTo makes an access log in a file, and returns what reads it.
func (b *udpBed) logTo(logs *[]*accesslog.Log, format string) func() string {
	b.Helper()
	f, err := accesslog.ParseText(format)
	if err != nil {
		b.Fatal(err)
	}
	files := accesslog.NewFiles(b.store, 10*time.Millisecond)
	b.Cleanup(files.Close)
	path := filepath.Join(b.TempDir(), "access.log")
	l := accesslog.New(f, accesslog.Target(path), nil)
	if err := l.Open(files); err != nil {
		b.Fatal(err)
	}
	*logs = append(*logs, l)
	return func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		return string(text)
	}
}
