package health

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/stats"
)

func TestObservedTCP(t *testing.T) {
	row := observedRows(t, "TCP connect-only, thresholds 2 and 2; second host refuses")[0]
	b := serve(t, "127.0.0.1:0", quiet)
	r := newReplay(t, model.HealthCheck{TCP: &model.TCPCheck{}}, 2, false, b.addr, unusedAddr(t))
	r.until("start", samples(t, row["start"])[0])
	change := func(name string, do func()) {
		s := samples(t, row[name])
		r.until(name+", before it shows", s[0])
		do()
		r.until(name, s[1])
	}
	change("first host stops", func() { b.listen.Close() })
	change("first host returns", func() { b = serve(t, b.addr.String(), quiet) })

	var want []string
	for _, e := range decode[[]json.RawMessage](t, row["event_log"]) {
		var b bytes.Buffer
		json.Compact(&b, e)
		want = append(want, b.String())
	}
	got := r.log.String()
	got = strings.NewReplacer(fmt.Sprint(`"port_value":`, r.targets[0].Check.Port()), `"port_value":20001`, fmt.Sprint(`"port_value":`, r.targets[1].Check.Port()), `"port_value":20009`).Replace(got)
	got = regexp.MustCompile(`"timestamp":"[^"]*"`).ReplaceAllString(got, `"timestamp":"<time>"`)
	if want := strings.Join(want, "\n") + "\n"; got != want {
		t.Errorf("event log\n%sEnvoy wrote\n%s", got, want)
	}
}

func TestObservedTCPReceive(t *testing.T) {
	row := observedRows(t, "TCP send PING, receive +PONG: split answer with bytes around it; wrong answer; closed")[0]
	good := serve(t, "127.0.0.1:0", answerEach(4, "xx+PO", "NGyy"))
	wrong := serve(t, "127.0.0.1:0", answerEach(4, "-ERR"))
	closing := serve(t, "127.0.0.1:0", func(c net.Conn, r *bufio.Reader) { r.Peek(4); c.Close() })
	check := model.HealthCheck{ReuseConnection: true, TCP: &model.TCPCheck{Send: []byte("PING"), Receive: [][]byte{[]byte("+PONG")}}}
	r := newReplay(t, check, 2, false, good.addr, wrong.addr, closing.addr)
	r.gate.probes[r.targets[1].State].timeout = 50 * time.Millisecond
	r.step(0, 1, 2, 2) // the third host fails fast, and is asked twice meanwhile
	r.until("timeline", samples(t, row["timeline"])[0])
	r.step(0, 0)
	if got, want := len(good.texts()), decode[int](t, row["good_host_connections"]); got != want {
		t.Errorf("%d connections to the good host, Envoy makes %d", got, want)
	}
}

func TestObservedHTTP(t *testing.T) {
	for _, name := range []string{"HTTP, 200 only", "HTTP, expected 400..405, retriable 500..600"} {
		t.Run(name, func(t *testing.T) {
			row := observedRows(t, name)[0]
			type rng struct{ Start, End int64 }
			cfg := decode[struct {
				Path, Host string
				Expected   []rng `json:"expected_statuses"`
				Retriable  []rng `json:"retriable_statuses"`
			}](t, row["http_health_check"])
			check := model.HTTPCheck{Path: cfg.Path, Host: cfg.Host}
			for _, e := range cfg.Expected {
				check.Expected = append(check.Expected, model.StatusRange(e))
			}
			for _, e := range cfg.Retriable {
				check.Retriable = append(check.Retriable, model.StatusRange(e))
			}
			var mu sync.Mutex
			code, header := 200, ""
			if len(cfg.Expected) > 0 {
				code = 404 // what this backend begins with is not in the row, but it passes
			}
			b := serve(t, "127.0.0.1:0", func(c net.Conn, r *bufio.Reader) {
				for {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					mu.Lock()
					fmt.Fprintf(c, "HTTP/1.1 %d x\r\n%scontent-length: 0\r\n\r\n", code, header)
					mu.Unlock()
				}
			})
			r := newReplay(t, model.HealthCheck{ReuseConnection: true, HTTP: &check}, 3, false, b.addr)
			for i, step := range decode[[]observed](t, row["steps"]) {
				if start, ok := step["start"]; ok {
					r.until("start", samples(t, start)[0])
					if got, want := b.texts()[0], decode[string](t, row["request"]); got != want {
						t.Errorf("request %q, Envoy sends %q", got, want)
					}
					continue
				}
				s := samples(t, step["timeline"])
				r.until(fmt.Sprintf("step %d, before it shows", i), s[0])
				answer := decode[struct {
					Code   *int
					Header *string
				}](t, step["answer becomes"])
				mu.Lock()
				if answer.Code != nil {
					code = *answer.Code
				}
				if answer.Header != nil {
					header = *answer.Header
				}
				mu.Unlock()
				r.until(fmt.Sprintf("step %d", i), s[1])
			}
		})
	}
}

// TestObservedNewHost: flags of a host before and after its first check times out. Membership belongs
// to the control loop, but follows from the flags.
func TestObservedNewHost(t *testing.T) {
	for _, row := range observedRows(t, "host added to an EDS cluster with a health check") {
		pending := strings.Contains(string(row["cluster"]), "ignore_new_hosts_until_first_hc")
		up := serve(t, "127.0.0.1:0", answerEach(4, "PONG"))
		mute := serve(t, "127.0.0.1:0", quiet)
		check := model.HealthCheck{TCP: &model.TCPCheck{Send: []byte("PING"), Receive: [][]byte{[]byte("PONG")}}}
		r := newReplay(t, check, 2, pending, up.addr, mute.addr)
		r.gate.probes[r.targets[1].State].timeout = 50 * time.Millisecond
		compare := func(when string) {
			t.Helper()
			parts := decode[[]json.RawMessage](t, row[when])
			counts := decode[map[string]int](t, parts[1])
			got := r.now()
			excluded := 0
			for _, f := range r.flags {
				if f.Excluded() {
					excluded++
				}
			}
			if want := decode[[]string](t, parts[0]); !reflect.DeepEqual(got.Flags, want) || got.Healthy != counts["cluster.c.membership_healthy"] || excluded != counts["cluster.c.membership_excluded"] {
				t.Errorf("pending %t, %s: flags %q, %d healthy, %d excluded; Envoy has %q, %v", pending, when, got.Flags, got.Healthy, excluded, want, counts)
			}
		}
		r.step(0)
		compare("before its first result")
		r.step(1)
		compare("after it timed out")
	}
}

func TestObservedNoTraffic(t *testing.T) {
	row := observedRows(t, "no_traffic_interval left at 60 s, interval 0.3 s")[0]
	synctest.Test(t, func(t *testing.T) {
		cfg := common()
		cfg.Check.Interval = 300 * time.Millisecond
		var traffic atomic.Bool
		w := watch(t, cfg, Deps{HasTraffic: traffic.Load})
		defer w.stop(t)
		w.fake.auto = func(*Target) outcome { return pass }
		w.set(target(1))
		compare := func(when string) {
			t.Helper()
			synctest.Wait()
			if want := decode[map[string]uint64](t, row[when])["cluster.c.health_check.attempt"]; w.counter("attempt") != want {
				t.Errorf("%s: %d attempts, Envoy has made %d", when, w.counter("attempt"), want)
			}
		}
		time.Sleep(time.Second)
		compare("after 1 s without traffic")
		traffic.Store(true)
		time.Sleep(1500 * time.Millisecond)
		compare("1.5 s after the first connection")
		time.Sleep(time.Minute)
		if w.counter("attempt") < 2 {
			t.Error("never checked again")
		}
	})
}

// TestObservedConfiguredHealth: flags that configuration sets are no concern of the checker, but their
// text and what follows from them are.
func TestObservedConfiguredHealth(t *testing.T) {
	row := observedRows(t, "configured health_status")[0]
	flags := map[string]dataplane.Health{
		"HEALTHY": 0, "UNKNOWN": 0, "UNHEALTHY": dataplane.FailedEDSHealth, "TIMEOUT": dataplane.FailedEDSHealth,
		"DRAINING": dataplane.EDSStatusDraining, "DEGRADED": dataplane.DegradedEDSHealth,
	}
	got := map[string]int{"cluster.c.membership_change": 1}
	for status, want := range decode[map[string]string](t, row["text"]) {
		f := flags[status]
		if f.String() != want {
			t.Errorf("%s shows as %s, Envoy shows %s", status, f, want)
		}
		got["cluster.c.membership_total"]++
		for name, is := range map[string]bool{"healthy": f.Healthy(), "degraded": f.Degraded(), "excluded": f.Excluded()} {
			if is {
				got["cluster.c.membership_"+name]++
			}
		}
	}
	if want := decode[map[string]int](t, row["membership"]); !reflect.DeepEqual(got, want) {
		t.Errorf("membership %v, Envoy has %v", got, want)
	}
}

func TestObservedOutliers(t *testing.T) {
	for _, row := range observedRows(t, "connect failures and outlier detection") {
		opts := decode[struct {
			Consecutive5xx uint32 `json:"consecutive_5xx"`
			Local          uint32 `json:"consecutive_local_origin_failure"`
			Split          bool   `json:"split_external_local_origin_errors"`
			Percent        uint32 `json:"max_ejection_percent"`
		}](t, row["outlier_detection"])
		cfg := defaults()
		cfg.MaxEjectionPercent, cfg.SplitLocalOrigin = opts.Percent, opts.Split
		cfg.Interval, cfg.BaseEjectionTime = s, s
		if opts.Consecutive5xx > 0 {
			cfg.Consecutive5xx = opts.Consecutive5xx
		}
		if opts.Local > 0 {
			cfg.ConsecutiveLocalOrigin = opts.Local
		}
		synctest.Test(t, func(t *testing.T) {
			o := newOutliers(t, cfg, 2, never)
			for range 6 { // 12 connections to two hosts in turn; the second one refuses while it is in
				o.connect(1, "S")
				if o.flag(2) == 0 {
					o.connect(2, "R")
				}
			}
			shown := func() []string {
				return []string{o.flag(1).String(), o.flag(2).String()}
			}
			parts := decode[[]json.RawMessage](t, row["after 12 connections"])
			if got, want := shown(), decode[[]string](t, parts[0]); !reflect.DeepEqual(got, want) {
				t.Errorf("flags %q, Envoy has %q", got, want)
			}
			want := decode[map[string]int64](t, parts[1])
			got := map[string]int64{}
			for _, f := range reflect.VisibleFields(reflect.TypeFor[outlierStats]()) {
				name := "cluster.c." + f.Tag.Get("stat")
				switch v := reflect.ValueOf(o.Detector.stats).FieldByIndex(f.Index).Interface().(type) {
				case *stats.Counter:
					got[name] = int64(v.Value())
				case *stats.Gauge:
					got[name] = v.Value()
				}
				if got[name] == 0 {
					delete(got, name)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("stats %v, Envoy has %v", got, want)
			}
			time.Sleep(3 * s)
			if got, want := shown(), decode[[]string](t, row["after the ejection time"]); !reflect.DeepEqual(got, want) {
				t.Errorf("after the ejection: flags %q, Envoy has %q", got, want)
			}
			o.stop(t)
			var log bytes.Buffer
			for _, e := range decode[[]json.RawMessage](t, row["event_log"]) {
				json.Compact(&log, e)
				log.WriteByte('\n')
			}
			wrote := strings.ReplaceAll(o.log.String(), o.targets[1].Address.String(), "127.0.0.1:"+strconv.Itoa(20009))
			wrote = regexp.MustCompile(`"timestamp":"[^"]*"`).ReplaceAllString(wrote, `"timestamp":"<time>"`)
			if wrote != log.String() {
				t.Errorf("event log\n%sEnvoy wrote\n%s", wrote, &log)
			}
		})
	}
}
