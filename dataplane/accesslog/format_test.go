package accesslog

import (
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// connection is the one that Envoy logged in the recorded cases: 5 bytes each way over loopback.
func connection() *Info {
	start := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	host := netip.MustParseAddrPort("127.0.0.1:20001")
	return &Info{
		Type: TCPConnectionEnd, ConnectionID: 1, Start: start, Duration: 5 * time.Millisecond,
		BytesReceived: 5, BytesSent: 5,
		UpstreamWireReceived: 5, UpstreamWireSent: 5, DownstreamWireReceived: 5, DownstreamWireSent: 5,
		Remote: netip.MustParseAddrPort("127.0.0.1:40000"), Local: netip.MustParseAddrPort("127.0.0.1:10000"),
		Direct: netip.MustParseAddrPort("127.0.0.1:40000"), DirectLocal: netip.MustParseAddrPort("127.0.0.1:10000"),
		UpstreamHost: host, UpstreamRemote: host, UpstreamLocal: netip.MustParseAddrPort("127.0.0.1:50000"),
		UpstreamCluster: "c", UpstreamConnectionID: 2, UpstreamAttempts: 1,
		UpstreamHostsAttempted: []netip.AddrPort{host},
		UpstreamConnectStart:   start.Add(100 * time.Microsecond), UpstreamConnected: start.Add(200 * time.Microsecond),
	}
}

type recordedCase struct {
	Case       string
	Lines      []string
	Text       string
	JSONFormat map[string]any `json:"json_format"`
}

// TestRecorded holds every format against the lines that Envoy 1.40 wrote for it.
func TestRecorded(t *testing.T) {
	raw, err := os.ReadFile("../../cmd/guideway/testdata/observed/access-log.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []recordedCase
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 30 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		format, err := Default(), error(nil)
		switch {
		case c.JSONFormat != nil:
			format, err = ParseJSON(c.JSONFormat)
		case c.Text != "":
			format, err = ParseText(c.Text + "\n")
		}
		if err != nil {
			t.Errorf("%s %s: %v", c.Case, c.Text, err)
			continue
		}
		var got strings.Builder
		for _, info := range recordedInfos(len(c.Lines)) {
			got.Write(format.Append(nil, info))
		}
		if want := strings.Join(c.Lines, "\n") + "\n"; got.String() != want {
			t.Errorf("%s %s\n got %s\nwant %s", c.Case, c.Text, got.String(), want)
		}
	}
}

// recordedInfos are the events of the recorded connection: its end alone, or all five of its lines.
func recordedInfos(lines int) []*Info {
	if lines == 1 {
		return []*Info{connection()}
	}
	start := &Info{Type: TCPConnectionStart}
	connected := connection()
	connected.Type, connected.BytesReceived, connected.BytesSent = TCPUpstreamConnected, 0, 0
	periodic := connection()
	periodic.Type = TCPPeriodic
	return []*Info{start, connected, periodic, periodic, connection()}
}

// TestOperators lists what Envoy 1.40 prints for operators that the recorded cases do not have.
func TestOperators(t *testing.T) {
	failed := connection()
	failed.Flags = FlagUpstreamRetryLimit | FlagUpstreamConnectionFailure
	failed.UpstreamFailure = "delayed_connect_error: Connection refused"
	failed.UpstreamRemote, failed.UpstreamLocal = netip.AddrPort{}, netip.AddrPort{}
	failed.UpstreamConnectionID, failed.UpstreamConnected = 0, time.Time{}
	failed.DownstreamLocalClose = "tcp_initializion_failure:0"
	failed.UpstreamDetectedClose = "RemoteReset"
	udp := &Info{Type: UDPSessionEnd, Metadata: map[string]map[string]any{"udp.proxy.session": {
		"bytes_received": uint64(3), "bytes_sent": uint64(9), "cluster_name": "c",
		"datagrams_received": uint64(3), "datagrams_sent": uint64(3), "errors_sent": uint64(0),
	}}}
	listener := &Info{
		Type: NotSet, Flags: FlagNoRoute, ResponseCodeDetails: "filter chain not found",
		Local: netip.MustParseAddrPort("[2001:db8::1]:80"),
	}
	for _, c := range []struct {
		info         *Info
		format, want string
	}{
		{failed, "%RESPONSE_FLAGS% %RESPONSE_FLAGS_LONG%", "UF,URX UpstreamConnectionFailure,UpstreamRetryLimitExceeded"},
		{failed, "%UPSTREAM_TRANSPORT_FAILURE_REASON%", "delayed_connect_error:_Connection_refused"},
		{failed, "%UPSTREAM_HOST% %UPSTREAM_REMOTE_ADDRESS% %UPSTREAM_LOCAL_PORT%", "127.0.0.1:20001 - -"},
		{failed, "%UPSTREAM_CONNECTION_ID% %UPSTREAM_CONNECTION_IDS_ATTEMPTED% %UPSTREAM_CONNECTION_POOL_READY_DURATION%", "0 - 0"},
		{failed, "%DOWNSTREAM_LOCAL_CLOSE_REASON%,%DOWNSTREAM_DETECTED_CLOSE_TYPE%", "tcp_initializion_failure:0,Normal"},
		{failed, "%UPSTREAM_LOCAL_CLOSE_REASON%,%UPSTREAM_DETECTED_CLOSE_TYPE%", "-,RemoteReset"},
		{failed, "%COMMON_DURATION(US_CX_BEG:US_CX_END:us)%", "-"},
		{connection(), "%COMMON_DURATION(US_CX_BEG:US_CX_END:us)% %COMMON_DURATION(DS_RX_BEG:US_CX_END:ns)%", "100 200000"},
		{connection(), "%COMMON_DURATION(US_CX_END:US_CX_BEG:us)% %COMMON_DURATION(FOO:BAR)%", "- -"},
		{connection(), "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(24)%", "127.0.0.0/24"},
		{connection(), "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(99)%", "127.0.0.1"},
		{connection(), "%CUSTOM_FLAGS%|%LOCAL_REPLY_BODY%|%UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID%", "||"},
		{connection(), "%DOWNSTREAM_CX_RTT% %BYTES_RETRANSMITTED% %REQUEST_HEADERS_BYTES%", "0 0 0"},
		{connection(), "%UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT%", "127.0.0.1"},
		{connection(), "%TLS_JA3_FINGERPRINT% %DOWNSTREAM_PEER_CERT_V_START(%F)% %QUERY_PARAM(a):3%", "- - -"},
		{connection(), "%REQ(A?B):3% %TRAILER(x)% %CEL(x)% %FILTER_STATE(x:PLAIN)%", "- - - -"},
		{connection(), `%COALESCE({"operators":["REQUESTED_SERVER_NAME",{"command":"REQ","param":"x"},"UPSTREAM_HOST"]}):9%`, "127.0.0.1"},
		{connection(), "100%% %%%BYTES_SENT%%%", "100% %5%"},
		{connection(), "%START_TIME(%s.%3f)% %START_TIME_LOCAL(%s)%", "1767323045.678 1767323045"},
		{udp, "%DYNAMIC_METADATA(udp.proxy.session)%", `{"bytes_received":3,"bytes_sent":9,"cluster_name":"c","datagrams_received":3,"datagrams_sent":3,"errors_sent":0}`},
		{udp, "%DYNAMIC_METADATA(udp.proxy.session:bytes_sent)% %DYNAMIC_METADATA(udp.proxy.session:nope)%", "9 -"},
		{udp, "%METADATA(DYNAMIC:udp.proxy.session):16% %DYNAMIC_METADATA(x:y:z)%", `{"bytes_received -`},
		{udp, "%UPSTREAM_CLUSTER% %DOWNSTREAM_CX_RTT% %UPSTREAM_DETECTED_CLOSE_TYPE%", "- - Normal"},
		{listener, "%ACCESS_LOG_TYPE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%", "NotSet NR filter_chain_not_found"},
		{listener, "%RESPONSE_CODE_DETAILS(ALLOW_WHITESPACES)%", "filter chain not found"},
		{listener, "%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT(32)%", "[2001:db8::1]:80 2001:db8::/32"},
		{listener, "%DOWNSTREAM_DETECTED_CLOSE_TYPE% %UPSTREAM_DETECTED_CLOSE_TYPE% %STREAM_ID%", "Normal - -"},
		{&Info{}, "%START_TIME% %UPSTREAM_HOST_NAME% %UPSTREAM_HOSTS_ATTEMPTED%", "- - -"},
	} {
		f, err := ParseText(c.format)
		if err != nil {
			t.Errorf("%s: %v", c.format, err)
			continue
		}
		if got := string(f.Append(nil, c.info)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.format, got, c.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("GUIDEWAY_TEST", "value")
	f, err := ParseJSON(map[string]any{"a": "%ENVIRONMENT(GUIDEWAY_TEST):3%", "b": "%ENVIRONMENT(GUIDEWAY_NOT_SET)%"})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.Append(nil, &Info{})); got != `{"a":"val","b":"-"}`+"\n" {
		t.Error(got)
	}
}

// TestStreamID wants one id for all lines of a connection, another for the next connection, and UUIDs.
func TestStreamID(t *testing.T) {
	f, err := ParseText("%STREAM_ID%")
	if err != nil {
		t.Fatal(err)
	}
	a, b := connection(), connection()
	b.Type, b.Duration = TCPPeriodic, time.Hour
	first, again := string(f.Append(nil, a)), string(f.Append(nil, b))
	if first != again {
		t.Errorf("one connection, two ids: %s %s", first, again)
	}
	b.ConnectionID++
	if other := string(f.Append(nil, b)); other == first || len(other) != 36 || other[14] != '4' {
		t.Errorf("ids %s and %s", first, other)
	}
}

// TestJSON compares with what Envoy 1.40 wrote for the same format.
func TestJSON(t *testing.T) {
	format := map[string]any{
		"n": "%REQUESTED_SERVER_NAME%", "m": "a %REQUESTED_SERVER_NAME% b", "o": map[string]any{"x": "%PROTOCOL%"},
		"l": []any{"%PROTOCOL%", 1.5, nil, "y", 1e20, 123456789012.0}, "z": nil,
		"e": "q\"\\/é<>&\x01\n", "s": "", "b": 1e-7, "nest": map[string]any{"a": map[string]any{"b": "%DURATION%"}},
		"p": "%%", "d": "%%%BYTES_SENT%", "ab": "%BYTES_SENT%%BYTES_RECEIVED%",
	}
	f, err := ParseJSON(format)
	if err != nil {
		t.Fatal(err)
	}
	const rest = `"nest":{"a":{"b":5}},`
	want := `{"ab":"55","b":1e-07,"d":"%5","e":"q\"\\/é<>&\u0001\n","l":[null,1.5,null,"y",1e+20,123456789012],` +
		`"m":"a - b","n":null,` + rest + `"o":{"x":null},"p":"%","s":"","z":null}` + "\n"
	if got := string(f.Append(nil, connection())); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	want = `{"ab":"55","b":1e-07,"d":"%5","e":"q\"\\/é<>&\u0001\n","l":[1.5,"y",1e+20,123456789012],` +
		`"m":"a  b",` + rest + `"p":"%","s":""}` + "\n"
	if got := string(f.OmitEmptyValues().Append(nil, connection())); got != want {
		t.Errorf("without empty values\n got %s\nwant %s", got, want)
	}
}

// TestErrors has Envoy's messages.
func TestErrors(t *testing.T) {
	for format, want := range map[string]string{
		"%NOPE%":                     "Not supported field in StreamInfo: NOPE",
		"%":                          "Incorrect configuration: %. Couldn't find valid command at position 0",
		"%foo%":                      "Incorrect configuration: %foo%. Couldn't find valid command at position 0",
		"100%":                       "Incorrect configuration: 100%. Couldn't find valid command at position 3",
		"%REQ(x%":                    "Incorrect configuration: %REQ(x%. Couldn't find valid command at position 0",
		"%START_TIME:abc%":           "Incorrect configuration: %START_TIME:abc%. Couldn't find valid command at position 0",
		"%REQ(x)y%":                  "Incorrect configuration: %REQ(x)y%. Couldn't find valid command at position 0",
		"%REQ():5%":                  "REQ requires parameters",
		"%REQ(a?b?c)%":               "More than 1 alternative header specified in token: a?b?c",
		"%BYTES_SENT:0%":             "BYTES_SENT does not take any parameters or length",
		"%BYTES_SENT(x)%":            "BYTES_SENT does not take any parameters or length",
		"%START_TIME:5%":             "START_TIME does not allow length to be specified.",
		"%START_TIME(%1n)%":          "Invalid header configuration. Format string contains newline.",
		"%DYNAMIC_METADATA%":         "DYNAMIC_METADATA requires parameters",
		"%METADATA(x)%":              "x is not supported type of metadata",
		"%FILTER_STATE%":             "Invalid filter state configuration, key cannot be empty.",
		"%COMMON_DURATION(a:b:c)%":   "Invalid common duration precision: c.",
		"%COMMON_DURATION(x)%":       "Invalid common duration configuration: x.",
		"%PATH(x)%":                  "Invalid PATH option: 'x', only 'WQ'/'NQ' are allowed",
		"%QUERY_PARAMS(BAD)%":        "Invalid QUERY_PARAMS option: 'BAD', only 'ORIG'/'DECODED' are allowed",
		"%REQUESTED_SERVER_NAME(x)%": "Invalid REQUESTED_SERVER_NAME option: 'x', only 'SNI_ONLY'/'SNI_FIRST'/'HOST_FIRST' are allowed",
		"%REQUESTED_SERVER_NAME(HOST_FIRST:FOO)%": "Invalid REQUESTED_SERVER_NAME option: 'FOO', only 'ORIG_OR_HOST'/'HOST'/'ORIG' are allowed",
		"%PATH(WQ:FOO)%":                    "Invalid PATH option: 'FOO', only 'ORIG'/'PATH'/'ORIG_OR_PATH' are allowed",
		`%COALESCE({"operators":[]})%`:      "COALESCE: 'operators' array must not be empty",
		`%COALESCE({})%`:                    "COALESCE: JSON configuration must contain 'operators' array",
		`%COALESCE({"operators":["REQ"]})%`: "COALESCE: failed to parse operator at index 0: REQ requires parameters",
		"%COMMON_DURATION(a:b):5%":          "COMMON_DURATION does not allow length to be specified.",
		"%UPSTREAM_FILTER_STATE(x:FIELD)%":  "Invalid filter state serialize type, FIELD should be used with the field name.",
		"%GRPC_STATUS(BAD)%":                "GrpcStatusFormatter only supports CAMEL_STRING, SNAKE_STRING or NUMBER. Got: BAD",
		"%UPSTREAM_LOCAL_SUBJECT%":          "Not supported field in StreamInfo: UPSTREAM_LOCAL_SUBJECT",
		"%DOWNSTREAM_PEER_SERIAL:3%":        "DOWNSTREAM_PEER_SERIAL does not take any parameters or length",
		"%DOWNSTREAM_PEER_CERT_V_END:3%":    "DOWNSTREAM_PEER_CERT_V_END does not allow length to be specified.",
	} {
		if _, err := ParseText(format); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", format, err, want)
		}
		if _, err := ParseJSON(map[string]any{"x": []any{map[string]any{"y": format}}}); err == nil {
			t.Errorf("%s is no error inside JSON", format)
		}
	}
	if _, err := ParseJSON(map[string]any{"x": struct{}{}}); err == nil {
		t.Error("a struct is no error inside JSON")
	}
}

func TestUnsupported(t *testing.T) {
	f, err := ParseText("%CEL(x)% %REQ(x)% %TLS_JA3_FINGERPRINT% %CEL(y)% %METADATA(CLUSTER:a)% %METADATA(DYNAMIC:a)%")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.Unsupported(), []string{"CEL", "METADATA(CLUSTER:a)", "TLS_JA3_FINGERPRINT"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestTimeFormats has what Envoy 1.40 printed for 2026-11-30 18:56:42.621601 UTC, a Monday.
func TestTimeFormats(t *testing.T) {
	at := time.Date(2026, 11, 30, 18, 56, 42, 621601000, time.UTC)
	for format, want := range map[string]string{
		"%Y/%m/%dT%H:%M:%S%z %s":                                                       "2026/11/30T18:56:42+0000 1796065002",
		"%3f|%f|%6f|%9f|%1f|%E3S|%E*S|%E4Y|%Ez|%E*f|%E3f|%E0f":                         "621|621601000|621601|621601000|6|42.621|42.621601|2026|+00:00|621601|621|",
		"%s|%s.%3f|%3s|%9s|%6s":                                                        "1796065002|1796065002.621|1796065002|1796065002|1796065002",
		"%p %P %r %R %S %t %T %u %U %V %w %W %x %X %y %Y %C %Z %z %:z %:::z %%":        "PM pm 06:56:42 PM 18:56 42 \t 18:56:42 1 48 49 1 48 11/30/26 18:56:42 26 2026 20 UTC +0000 +00:00 +00 %",
		"%q %Q %L %N %i %J %K %O %v %o %1 %0 %E %Oy %-d %_d %^a %#a %0e %5d %Od plain": "%q %Q %L %N %i %J %K %O %v %o %1 %0 %E 26 30 30 MON MON 30 00030 30 plain",
		"%a %A %b %B %c %D %F %g %G %h %I %j %k %l":                                    "Mon Monday Nov November Mon Nov 30 18:56:42 2026 11/30/26 2026-11-30 26 2026 Nov 06 334 18  6",
	} {
		f, err := parseTimeFormat(format)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		if got := string(f.append(nil, at)); got != want {
			t.Errorf("%s\n got %q\nwant %q", format, got, want)
		}
	}
}

func FuzzParseText(f *testing.F) {
	for _, s := range []string{defaultText, "%REQ(a?b):5%", "%START_TIME(%Y %E3S %9f)%", `%COALESCE({"operators":["HOSTNAME"]})%`, "%%", "%DYNAMIC_METADATA(a:b):3%"} {
		f.Add(s)
	}
	info := connection()
	f.Fuzz(func(t *testing.T, s string) {
		format, err := ParseText(s)
		if err != nil {
			return
		}
		format.Append(nil, info)
		asJSON, err := ParseJSON(map[string]any{"x": s})
		if err != nil {
			t.Fatalf("a text that compiles does not inside JSON: %v", err)
		}
		if line := asJSON.Append(nil, info); !json.Valid(line) {
			t.Fatalf("no JSON: %q", line)
		}
	})
}

// TestAppendDoesNotAllocate guards the cost of a line on a data-plane worker.
func TestAppendDoesNotAllocate(t *testing.T) {
	f, err := ParseJSON(map[string]any{"a": "%START_TIME(%F %T.%3f)%", "b": "x %BYTES_SENT%", "c": "%UPSTREAM_HOST%", "d": "%RESPONSE_FLAGS%"})
	if err != nil {
		t.Fatal(err)
	}
	info := connection()
	b := make([]byte, 0, 4096)
	for name, format := range map[string]*Format{"default": Default(), "JSON": f} {
		if n := testing.AllocsPerRun(100, func() { b = format.Append(b[:0], info) }); n != 0 {
			t.Errorf("%s: %v allocations a line", name, n)
		}
	}
}

func BenchmarkDefault(b *testing.B) {
	info := connection()
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = Default().Append(buf[:0], info)
	}
}
