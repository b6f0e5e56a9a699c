package health

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// play feeds a verdict letters: S success, D degraded, N network failure, T timeout, A definite
// failure, R retriable one, X definite with x-envoy-immediate-health-check-fail.
func play(v *verdict, r *rules, letters string, now time.Time) step {
	var st step
	for _, l := range letters {
		switch l {
		case 'S', 'D':
			st = v.succeed(r, l == 'D', now)
		case 'N':
			st = v.fail(r, failed(failedNetwork), now)
		case 'T':
			st = v.fail(r, failed(failedTimeout), now)
		case 'A':
			st = v.fail(r, failed(failedActive), now)
		case 'R':
			st = v.fail(r, outcome{kind: failedActive, retriable: true}, now)
		case 'X':
			st = v.fail(r, outcome{kind: failedActive, excluded: true}, now)
		default:
			panic("letter " + string(l))
		}
	}
	return st
}

func TestVerdict(t *testing.T) {
	const (
		bad      = "/failed_active_hc"
		timedOut = "/failed_active_hc/active_hc_timeout"
	)
	for _, c := range []struct {
		results string // the last one is what change and events are of
		flags   string
		change  change
		events  string
	}{
		{"S", "healthy", changed, "addHealthy first"},
		{"N", bad, unchanged, "failure first"},
		{"T", timedOut, unchanged, "failure first"},
		{"A", bad, unchanged, "failure first"},
		{"SN", "healthy", changePending, ""},
		{"ST", "healthy", changePending, ""},
		{"SNNN", bad, changed, "eject"},
		{"SNTT", timedOut, changed, "eject"},
		{"SNNT", timedOut, changed, "eject"},
		{"SNNTN", bad, unchanged, ""},
		{"SNNSNN", "healthy", changePending, ""},
		{"SNNSNNN", bad, changed, "eject"},
		{"SA", bad, changed, "eject"},
		{"SRR", "healthy", changePending, ""},
		{"SRRR", bad, changed, "eject"},
		{"SRNT", timedOut, changed, "eject"},
		{"SAS", bad, changePending, ""},
		{"SASS", "healthy", changed, "addHealthy"},
		{"SASAS", bad, changePending, ""},
		{"NS", bad, changePending, ""},
		{"NSS", "healthy", changed, "addHealthy"},
		{"NSNS", bad, changePending, ""},
		{"TS", timedOut, changePending, ""},
		{"TSS", "healthy", changed, "addHealthy"},
		{"TSN", bad, unchanged, ""},
		{"SS", "healthy", unchanged, ""},
		{"SD", "/degraded_active_hc", changed, "degraded"},
		{"SDD", "/degraded_active_hc", unchanged, ""},
		{"SDS", "healthy", changed, "noLongerDegraded"},
		{"D", "/degraded_active_hc", changed, "addHealthy degraded first"},
		{"SDA", "/failed_active_hc/degraded_active_hc", changed, "eject"},
		{"SDAS", "/failed_active_hc", changePending, "noLongerDegraded"},
		{"SX", "/failed_active_hc/excluded_via_immediate_hc_fail", changed, "eject"},
		{"SXSS", "healthy", changed, "addHealthy"},
	} {
		v := newVerdict(false)
		st := play(&v, &rules{healthy: 2, unhealthy: 3}, c.results, time.Time{})
		if v.flags.String() != c.flags || st.change != c.change || st.String() != c.events {
			t.Errorf("%s: flags %s, change %d, events %q; want %s, %d, %q", c.results, v.flags, st.change, st, c.flags, c.change, c.events)
		}
	}
}

// String lists the events of a step.
func (st step) String() string {
	var b []string
	for i, name := range []string{"eject", "failure", "addHealthy", "success", "degraded", "noLongerDegraded"} {
		if st.events&(1<<i) != 0 {
			b = append(b, name)
		}
	}
	if st.first && len(b) > 0 {
		b = append(b, "first")
	}
	return strings.Join(b, " ")
}

func TestVerdictPending(t *testing.T) {
	for _, results := range []string{"S", "N", "T", "A"} {
		v := newVerdict(true)
		if v.flags != dataplane.FailedActiveHC|dataplane.PendingActiveHC {
			t.Fatalf("begins with %s", v.flags)
		}
		st := play(&v, &rules{healthy: 2, unhealthy: 3}, results, time.Time{})
		if v.flags&dataplane.PendingActiveHC != 0 || st.change != changed {
			t.Errorf("%s: flags %s, change %d; want not pending, changed", results, v.flags, st.change)
		}
	}
}

func TestVerdictLogsAlways(t *testing.T) {
	var got []string
	v := newVerdict(false)
	r := &rules{healthy: 2, unhealthy: 2, logFailures: true, logSuccess: true}
	for _, l := range "SSNNNSS" {
		got = append(got, play(&v, r, string(l), time.Time{}).String())
	}
	want := []string{"addHealthy first", "success", "failure", "eject failure", "failure", "success", "addHealthy"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestHoldDown(t *testing.T) {
	start := time.Unix(1e9, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	type event struct {
		at      int
		result  string
		flags   string
		comment string
	}
	for _, c := range []struct {
		name   string
		hold   HoldDown
		events []event
	}{
		{"off", HoldDown{}, []event{
			{0, "S", "healthy", ""}, {1, "A", "/failed_active_hc", ""}, {1, "SS", "healthy", "at once"},
		}},
		{"doubles and is bounded", HoldDown{Base: 10 * time.Second, Max: 30 * time.Second}, []event{
			{0, "S", "healthy", "a first success is not held"},
			{100, "A", "/failed_active_hc", "out for 10 s"},
			{105, "SSSS", "/failed_active_hc", ""},
			{109, "S", "/failed_active_hc", ""},
			{110, "S", "healthy", "thresholds were met long ago"},
			{111, "A", "/failed_active_hc", "out for 20 s"},
			{130, "SS", "/failed_active_hc", ""},
			{131, "S", "healthy", ""},
			{132, "A", "/failed_active_hc", "out for 30 s, not 40"},
			{161, "SS", "/failed_active_hc", ""},
			{162, "S", "healthy", ""},
			{192, "A", "/failed_active_hc", "was up for 30 s: 10 s again"},
			{202, "SS", "healthy", ""},
		}},
		{"a failure meanwhile costs the threshold, not more time", HoldDown{Base: 10 * time.Second}, []event{
			{0, "S", "healthy", ""}, {1, "A", "/failed_active_hc", ""}, {10, "SSA", "/failed_active_hc", ""},
			{11, "S", "/failed_active_hc", "one of two"}, {11, "S", "healthy", ""},
		}},
	} {
		v := newVerdict(false)
		for i, e := range c.events {
			play(&v, &rules{healthy: 2, unhealthy: 2, hold: c.hold}, e.result, at(e.at))
			if v.flags.String() != e.flags {
				t.Errorf("%s: event %d (%s at %d s, %s): %s, want %s", c.name, i, e.result, e.at, e.comment, v.flags, e.flags)
			}
		}
	}
}

func ExampleHoldDown() {
	h := HoldDown{Base: time.Second, Max: 3 * time.Second}
	var s holdState
	now := time.Unix(0, 0)
	for range 3 {
		s.down(h, now)
		fmt.Println(s.until.Sub(now))
		s.up(now)
	}
	// Output:
	// 1s
	// 2s
	// 3s
}
