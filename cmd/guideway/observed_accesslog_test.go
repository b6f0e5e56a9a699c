package main_test

import (
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// logTime is a time as START_TIME prints it by default.
var logTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)

// logDuration is the duration in a line of the default format: the third number after the code and flags.
var logDuration = regexp.MustCompile(`^(.*" 0 - \d+ \d+) \d+ `)

// masked gives log lines without what differs each time.
func masked(lines []string) []string {
	out := slices.Clone(lines)
	for i, l := range out {
		l = logTime.ReplaceAllString(l, "<time>")
		out[i] = logDuration.ReplaceAllString(l, "$1 <duration> ")
	}
	return out
}

// accessLogCases say what the client waits for between its five bytes and its end.
var accessLogCases = map[string]func(t *testing.T, log func() []string){
	"default format": nil,
	"JSON keeps types, sorts keys, prints null for a missing value": nil,
	"operator": nil,
	"several lines per connection": func(t *testing.T, log func() []string) {
		testbed.Eventually(t, "two periodic lines", func() bool {
			return strings.Count(strings.Join(log(), "\n"), "TcpPeriodic") == 2
		})
	},
}

func TestObservedAccessLog(t *testing.T) {
	t.Parallel()
	expect := testbed.Expecting(t, "access-log.json")
	for _, row := range testbed.Rows(t, "access-log.json") {
		name := row.Case(t)
		if row.Has("text") && name == "operator" {
			var text string
			row.Decode(t, "text", &text)
			name += " " + strings.Trim(text, "%")
		}
		t.Run(name, func(t *testing.T) {
			hold, known := accessLogCases[row.Case(t)]
			if !known {
				t.Fatal("no test plays this case: add it to accessLogCases")
			}
			t.Parallel()
			playAccessLog(t, expect, row, hold)
		})
	}
}

func playAccessLog(t *testing.T, expect *testbed.Expectations, row testbed.Row, hold func(*testing.T, func() []string)) {
	ns := testbed.Isolated(t)
	testbed.StartHosts(t, ns)
	const path = "{dir}/access.log"
	var log testbed.Message
	switch {
	case row.Has("json_format"):
		log = testbed.JSONLog(path, row.Message(t, "json_format"))
	case row.Has("text"):
		var text string
		row.Decode(t, "text", &text)
		log = testbed.TextLog(path, text)
	default:
		log = testbed.TextLog(path, "")
	}
	filter := testbed.TCPProxy("t", "c", row.Message(t, "options"), testbed.Message{"access_log": []any{log}})
	proxy := expect.Subject.Start(t, ns, testbed.Bootstrap(
		[]any{testbed.Listener("l", testbed.ListenPort, filter)},
		[]any{testbed.Cluster("c", testbed.PortEcho)},
	)).Ready()
	lines := func() []string { return testbed.Lines(filepath.Join(proxy.Dir, "access.log")) }

	c := testbed.ConnectTo(t, ns, netip.Addr{}, testbed.ListenAddress(testbed.ListenPort))
	c.Say("hello").Hear("hello")
	if hold != nil {
		hold(t, lines)
	}
	c.Close()

	var want []string
	row.Decode(t, "lines", &want)
	row = row.With(t, "lines", masked(want))
	expect.ExpectSoon(t, row, "lines", func() any { return masked(lines()) })
}
