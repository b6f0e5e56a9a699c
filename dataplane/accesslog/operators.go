package accesslog

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// syntax says what may follow an operator's name.
type syntax uint8

const (
	bare           syntax = iota // nothing
	optionalArgs                 // (args)
	optionalLength               // (args) and :length
	requiredArgs                 // (args), which may not be empty
	requiredLength               // (args) and optional :length
)

func (s syntax) check(c command) error {
	switch {
	case s == bare && (c.hasArgs || c.length >= 0):
		return fmt.Errorf("%s does not take any parameters or length", c.name)
	case (s == requiredArgs || s == requiredLength) && c.args == "":
		return fmt.Errorf("%s requires parameters", c.name)
	case (s == optionalArgs || s == requiredArgs) && c.length >= 0:
		return fmt.Errorf("%s does not allow length to be specified.", c.name)
	}
	return nil
}

// definition describes one operator name; exactly one of op and make is set.
type definition struct {
	syntax syntax
	op     operator
	make   func(command) (operator, error)
	// dead marks operators that Envoy may fill at L4 and Guideway never does.
	dead bool
}

func (f *Format) newOperator(c command) (operator, error) {
	if c.name == "COALESCE" { // not in the table, which it would refer to
		return f.coalesce(c)
	}
	d, ok := definitions[c.name]
	if !ok {
		return nil, fmt.Errorf("Not supported field in StreamInfo: %s", c.name)
	}
	if err := d.syntax.check(c); err != nil {
		return nil, err
	}
	if d.dead {
		f.dead = append(f.dead, c.name)
	}
	if d.op != nil {
		return d.op, nil
	}
	op, err := d.make(c)
	if _, none := op.(missing); none && c.name == "METADATA" {
		f.dead = append(f.dead, c.name+"("+c.args+")")
	}
	return op, err
}

// definitions of all operators that Envoy 1.40 knows. Source: Envoy, access log command operators,
// and what it prints for TCP connections and UDP sessions.
var definitions = func() map[string]definition {
	remote := func(i *Info) netip.AddrPort { return i.Remote }
	local := func(i *Info) netip.AddrPort { return i.Local }
	direct := func(i *Info) netip.AddrPort { return i.Direct }
	directLocal := func(i *Info) netip.AddrPort { return i.DirectLocal }
	upstreamRemote := func(i *Info) netip.AddrPort { return i.UpstreamRemote }
	upstreamLocal := func(i *Info) netip.AddrPort { return i.UpstreamLocal }

	d := map[string]definition{
		"ACCESS_LOG_TYPE":     {op: text(func(i *Info) string { return i.Type.String() })},
		"BYTES_RECEIVED":      {op: number(func(i *Info) uint64 { return i.BytesReceived })},
		"BYTES_RETRANSMITTED": {op: number(func(i *Info) uint64 { return i.Retransmitted })},
		"BYTES_SENT":          {op: number(func(i *Info) uint64 { return i.BytesSent })},
		"COMMON_DURATION":     {syntax: requiredArgs, make: commonDuration},
		"CONNECTION_ID":       {op: number(func(i *Info) uint64 { return i.ConnectionID })},
		"CONNECTION_TERMINATION_DETAILS": {op: text(func(i *Info) string {
			return i.ConnectionTermination
		})},
		"CUSTOM_FLAGS": {op: constant("")},
		"DURATION":     {op: number(func(i *Info) uint64 { return uint64(max(i.Duration, 0) / time.Millisecond) })},
		"DYNAMIC_METADATA": {syntax: requiredLength, make: func(c command) (operator, error) {
			return metadata(c.args, c.length), nil
		}},
		"ENVIRONMENT":       {syntax: requiredLength, make: environment},
		"FILTER_CHAIN_NAME": {op: text(func(i *Info) string { return i.FilterChainName })},
		"HOSTNAME":          {op: hostname()},
		"LOCAL_REPLY_BODY":  {op: constant("")},
		"METADATA":          {syntax: optionalLength, make: typedMetadata},
		"REQUESTED_SERVER_NAME": {syntax: optionalArgs, make: func(c command) (operator, error) {
			source, rest, _ := strings.Cut(c.args, ":")
			host, _, _ := strings.Cut(rest, ":")
			if err := oneOf(c.name, source, "", "SNI_ONLY", "SNI_FIRST", "HOST_FIRST"); err != nil {
				return nil, err
			}
			if err := oneOf(c.name, host, "", "ORIG_OR_HOST", "HOST", "ORIG"); err != nil {
				return nil, err
			}
			return text(func(i *Info) string { return i.ServerName }), nil
		}},
		"RESPONSE_CODE": {op: number(zero)},
		"RESPONSE_CODE_DETAILS": {syntax: optionalArgs, make: func(c command) (operator, error) {
			get := func(i *Info) string { return i.ResponseCodeDetails }
			if c.args == "ALLOW_WHITESPACES" {
				return text(get), nil
			}
			return spaceless(get), nil
		}},
		"RESPONSE_FLAGS":         {op: flags(0)},
		"RESPONSE_FLAGS_LONG":    {op: flags(1)},
		"ROUTE_RESOLUTION_COUNT": {op: number(zero)},
		"STREAM_ID":              {op: streamID},
		"UNIQUE_ID":              {op: uniqueID},

		"START_TIME":       timeDefinition(func(i *Info) time.Time { return i.Start }, false),
		"START_TIME_LOCAL": timeDefinition(func(i *Info) time.Time { return i.Start }, true),
		"EMIT_TIME":        timeDefinition(func(*Info) time.Time { return time.Now() }, false),
		"EMIT_TIME_LOCAL":  timeDefinition(func(*Info) time.Time { return time.Now() }, true),

		"DOWNSTREAM_CX_RTT": {op: numberOp(func(i *Info) (int64, bool) {
			return int64(i.RTT / time.Millisecond), i.Type.tcp()
		})},
		"DOWNSTREAM_DETECTED_CLOSE_TYPE": {op: text(func(i *Info) string {
			return orNormal(i.DownstreamDetectedClose)
		})},
		"DOWNSTREAM_LOCAL_CLOSE_REASON": {op: text(func(i *Info) string { return i.DownstreamLocalClose })},
		"DOWNSTREAM_WIRE_BYTES_RECEIVED": {op: number(func(i *Info) uint64 {
			return i.DownstreamWireReceived
		})},
		"DOWNSTREAM_WIRE_BYTES_SENT": {op: number(func(i *Info) uint64 { return i.DownstreamWireSent })},

		"UPSTREAM_CLUSTER":       {op: text(func(i *Info) string { return i.UpstreamCluster })},
		"UPSTREAM_CLUSTER_RAW":   {op: text(func(i *Info) string { return i.UpstreamCluster })},
		"UPSTREAM_CONNECTION_ID": {op: number(func(i *Info) uint64 { return i.UpstreamConnectionID })},
		"UPSTREAM_CONNECTION_IDS_ATTEMPTED": {op: textOp(func(b []byte, i *Info) ([]byte, bool) {
			if i.UpstreamConnectionID == 0 {
				return b, false
			}
			return strconv.AppendUint(b, i.UpstreamConnectionID, 10), true
		})},
		"UPSTREAM_CONNECTION_POOL_READY_DURATION": {op: numberOp(func(i *Info) (int64, bool) {
			d := i.UpstreamConnected.Sub(i.UpstreamConnectStart)
			return int64(max(d, 0) / time.Millisecond), i.UpstreamAttempts > 0
		})},
		"UPSTREAM_DETECTED_CLOSE_TYPE": {op: textOp(func(b []byte, i *Info) ([]byte, bool) {
			if i.Type == NotSet {
				return b, false
			}
			return append(b, orNormal(i.UpstreamDetectedClose)...), true
		})},
		"UPSTREAM_HOST": {op: address(func(i *Info) netip.AddrPort { return i.UpstreamHost })},
		"UPSTREAM_HOSTS_ATTEMPTED": {op: attempted(func(b []byte, i *Info, n int) []byte {
			return i.UpstreamHostsAttempted[n].AppendTo(b)
		})},
		"UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT": {op: attempted(func(b []byte, i *Info, n int) []byte {
			return i.UpstreamHostsAttempted[n].Addr().AppendTo(b)
		})},
		"UPSTREAM_HOST_NAMES_ATTEMPTED": {op: attempted(func(b []byte, i *Info, n int) []byte {
			return appendHostName(b, attemptedName(i, n), i.UpstreamHostsAttempted[n], true)
		})},
		"UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT": {op: attempted(func(b []byte, i *Info, n int) []byte {
			return appendHostName(b, attemptedName(i, n), i.UpstreamHostsAttempted[n], false)
		})},
		"UPSTREAM_HOST_NAME":              {op: hostName(true)},
		"UPSTREAM_HOST_NAME_WITHOUT_PORT": {op: hostName(false)},
		"UPSTREAM_LOCAL_CLOSE_REASON":     {op: text(func(i *Info) string { return i.UpstreamLocalClose })},
		"UPSTREAM_REQUEST_ATTEMPT_COUNT":  {op: number(func(i *Info) uint64 { return uint64(i.UpstreamAttempts) })},
		"UPSTREAM_TRANSPORT_FAILURE_REASON": {op: spaceless(func(i *Info) string {
			return i.UpstreamFailure
		})},
		"UPSTREAM_WIRE_BYTES_RECEIVED": {op: number(func(i *Info) uint64 { return i.UpstreamWireReceived })},
		"UPSTREAM_WIRE_BYTES_SENT":     {op: number(func(i *Info) uint64 { return i.UpstreamWireSent })},

		"REQ":              {syntax: requiredLength, make: header},
		"REQUEST_HEADER":   {syntax: requiredLength, make: header},
		"RESP":             {syntax: requiredLength, make: header},
		"RESPONSE_HEADER":  {syntax: requiredLength, make: header},
		"TRAILER":          {syntax: requiredLength, make: header},
		"RESPONSE_TRAILER": {syntax: requiredLength, make: header},
		"QUERY_PARAM":      {syntax: requiredLength, op: missing{}},
		"QUERY_PARAMS":     choice(optionalLength, "ORIG", "DECODED"),
		"GRPC_STATUS": {syntax: optionalArgs, make: func(c command) (operator, error) {
			switch c.args {
			case "", "CAMEL_STRING", "SNAKE_STRING", "NUMBER":
				return missing{}, nil
			}
			return nil, fmt.Errorf("GrpcStatusFormatter only supports CAMEL_STRING, SNAKE_STRING or NUMBER. Got: %s", c.args)
		}},
		"PATH": {syntax: optionalLength, make: func(c command) (operator, error) {
			query, rest, _ := strings.Cut(c.args, ":")
			source, _, _ := strings.Cut(rest, ":")
			if err := oneOf(c.name, query, "", "WQ", "NQ"); err != nil {
				return nil, err
			}
			return missing{}, oneOf(c.name, source, "", "ORIG", "PATH", "ORIG_OR_PATH")
		}},
		"FILTER_STATE":          {syntax: optionalLength, make: filterState, dead: true},
		"UPSTREAM_FILTER_STATE": {syntax: optionalLength, make: filterState, dead: true},
		"CLUSTER_METADATA":      {syntax: requiredLength, op: missing{}, dead: true},
		"UPSTREAM_METADATA":     {syntax: requiredLength, op: missing{}, dead: true},
		"CEL":                   {syntax: requiredLength, op: missing{}, dead: true},
		"TLS_JA3_FINGERPRINT":   {op: missing{}, dead: true},
		"TLS_JA4_FINGERPRINT":   {op: missing{}, dead: true},
	}

	for prefix, get := range map[string]func(*Info) netip.AddrPort{
		"DOWNSTREAM_REMOTE":        remote,
		"DOWNSTREAM_LOCAL":         local,
		"DOWNSTREAM_DIRECT_REMOTE": direct,
		"DOWNSTREAM_DIRECT_LOCAL":  directLocal,
		"UPSTREAM_REMOTE":          upstreamRemote,
		"UPSTREAM_LOCAL":           upstreamLocal,
	} {
		d[prefix+"_ADDRESS"] = definition{op: address(get)}
		d[prefix+"_PORT"] = definition{op: port(get)}
		d[prefix+"_ADDRESS_WITHOUT_PORT"] = definition{syntax: optionalArgs, make: func(c command) (operator, error) {
			bits, err := strconv.Atoi(c.args)
			if err != nil {
				bits = -1
			}
			return addressOnly(get, bits), nil
		}}
	}
	// endpoint ids belong to internal listeners: set to nothing, not missing
	for _, name := range []string{"DOWNSTREAM_LOCAL", "DOWNSTREAM_DIRECT_LOCAL", "UPSTREAM_REMOTE"} {
		d[name+"_ADDRESS_ENDPOINT_ID"] = definition{op: constant("")}
	}
	for _, name := range []string{
		"DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED", "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
		"DOWNSTREAM_HEADER_BYTES_RECEIVED", "DOWNSTREAM_HEADER_BYTES_SENT", "REQUEST_HEADERS_BYTES",
		"RESPONSE_HEADERS_BYTES", "RESPONSE_TRAILERS_BYTES", "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
		"UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT", "UPSTREAM_HEADER_BYTES_RECEIVED",
		"UPSTREAM_HEADER_BYTES_SENT",
	} {
		d[name] = definition{op: number(zero)}
	}
	for _, name := range []string{
		"DOWNSTREAM_HANDSHAKE_DURATION", "DOWNSTREAM_TRANSPORT_FAILURE_REASON", "GRPC_STATUS_NUMBER",
		"PROTOCOL", "REQUEST_DURATION", "REQUEST_TX_DURATION", "RESPONSE_DURATION", "RESPONSE_TX_DURATION",
		"ROUNDTRIP_DURATION", "ROUTE_NAME", "ROUTE_RESOLUTION_TIME_US", "SPAN_ID", "TRACE_ID",
		"UPSTREAM_PROTOCOL", "UPSTREAM_SERVER_NAME", "VIRTUAL_CLUSTER_NAME",
	} {
		d[name] = definition{op: missing{}}
	}
	for side, names := range map[string][]string{
		"DOWNSTREAM": {
			"LOCAL_DNS_SAN", "LOCAL_EMAIL_SAN", "LOCAL_IP_SAN", "LOCAL_OTHERNAME_SAN", "LOCAL_SUBJECT",
			"LOCAL_URI_SAN", "PEER_CERT", "PEER_CHAIN_FINGERPRINTS_1", "PEER_CHAIN_FINGERPRINTS_256",
			"PEER_CHAIN_SERIALS", "PEER_DNS_SAN", "PEER_EMAIL_SAN", "PEER_FINGERPRINT_1",
			"PEER_FINGERPRINT_256", "PEER_IP_SAN", "PEER_ISSUER", "PEER_ISSUER_FINGERPRINT_256",
			"PEER_ISSUER_SERIAL", "PEER_OTHERNAME_SAN", "PEER_SERIAL", "PEER_SUBJECT", "PEER_URI_SAN",
			"TLS_CIPHER", "TLS_GROUP", "TLS_SESSION_ID", "TLS_VERSION",
		},
		"UPSTREAM": {
			"LOCAL_DNS_SAN", "LOCAL_IP_SAN", "LOCAL_URI_SAN", "PEER_CERT", "PEER_DNS_SAN", "PEER_IP_SAN",
			"PEER_ISSUER", "PEER_SUBJECT", "PEER_URI_SAN", "TLS_CIPHER", "TLS_GROUP", "TLS_SESSION_ID",
			"TLS_VERSION",
		},
	} {
		for _, name := range names {
			d[side+"_"+name] = definition{op: missing{}}
		}
		for _, name := range []string{"PEER_CERT_V_START", "PEER_CERT_V_END"} {
			d[side+"_"+name] = definition{syntax: optionalArgs, op: missing{}}
		}
	}
	return d
}()

func orNormal(s string) string {
	if s == "" {
		return "Normal"
	}
	return s
}

func flags(form int) operator {
	return textOp(func(b []byte, info *Info) ([]byte, bool) { return info.Flags.appendTo(b, form), true })
}

// oneOf is Envoy's check of an option.
func oneOf(name, got string, allowed ...string) error {
	var shown []string
	for _, a := range allowed {
		if got == a {
			return nil
		}
		if a != "" {
			shown = append(shown, "'"+a+"'")
		}
	}
	return fmt.Errorf("Invalid %s option: '%s', only %s are allowed", name, got, strings.Join(shown, "/"))
}

// choice defines an HTTP operator with an optional argument out of a list.
func choice(s syntax, allowed ...string) definition {
	return definition{syntax: s, make: func(c command) (operator, error) {
		return missing{}, oneOf(c.name, c.args, append([]string{""}, allowed...)...)
	}}
}

// header checks REQ(A?B) and its like.
func header(c command) (operator, error) {
	if strings.Count(c.args, "?") > 1 {
		return nil, fmt.Errorf("More than 1 alternative header specified in token: %s", c.args)
	}
	return missing{}, nil
}

func filterState(c command) (operator, error) {
	key, rest, _ := strings.Cut(c.args, ":")
	kind, field, _ := strings.Cut(rest, ":")
	switch {
	case key == "":
		return nil, fmt.Errorf("Invalid filter state configuration, key cannot be empty.")
	case kind != "" && kind != "PLAIN" && kind != "TYPED" && kind != "FIELD":
		return nil, fmt.Errorf("Invalid filter state serialize type, only support PLAIN/TYPED/FIELD.")
	case (kind == "FIELD") != (field != ""):
		return nil, fmt.Errorf("Invalid filter state serialize type, FIELD should be used with the field name.")
	}
	return missing{}, nil
}

func metadata(args string, length int) operator {
	namespace, path, found := strings.Cut(args, ":")
	m := metadataOp{namespace: namespace, length: length}
	if found {
		m.path = strings.Split(path, ":")
	}
	return m
}

// typedMetadata is METADATA(TYPE:namespace:key...), of which only DYNAMIC is known here.
func typedMetadata(c command) (operator, error) {
	kind, rest, _ := strings.Cut(c.args, ":")
	switch kind {
	case "DYNAMIC":
		return metadata(rest, c.length), nil
	case "CLUSTER", "ROUTE", "UPSTREAM_HOST", "LISTENER", "VIRTUAL_HOST", "LISTENER_FILTER_CHAIN":
		return missing{}, nil
	}
	return nil, fmt.Errorf("%s is not supported type of metadata", kind)
}

func environment(c command) (operator, error) {
	v, ok := os.LookupEnv(c.args)
	if !ok {
		v = "-" // unlike other missing values also in JSON
	} else if c.length >= 0 && len(v) > c.length {
		v = v[:c.length]
	}
	return constant(v), nil
}

func hostname() operator {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return constant("-")
	}
	return constant(name)
}

func timeDefinition(get func(*Info) time.Time, local bool) definition {
	return definition{syntax: optionalArgs, make: func(c command) (operator, error) {
		if c.args == "" {
			return instant(get, nil, local), nil
		}
		format, err := parseTimeFormat(c.args)
		if err != nil {
			return nil, err
		}
		return instant(get, format, local), nil
	}}
}

// timePoints of COMMON_DURATION that are known at L4; any other name is a point that is never reached.
var timePoints = map[string]func(*Info) time.Time{
	"DS_RX_BEG": func(i *Info) time.Time { return i.Start },
	"US_CX_BEG": func(i *Info) time.Time { return i.UpstreamConnectStart },
	"US_CX_END": func(i *Info) time.Time { return i.UpstreamConnected },
}

func commonDuration(c command) (operator, error) {
	parts := strings.Split(c.args, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return nil, fmt.Errorf("Invalid common duration configuration: %s.", c.args)
	}
	unit := time.Millisecond
	if len(parts) == 3 {
		switch parts[2] {
		case "ms":
		case "us":
			unit = time.Microsecond
		case "ns":
			unit = time.Nanosecond
		default:
			return nil, fmt.Errorf("Invalid common duration precision: %s.", parts[2])
		}
	}
	from, to := timePoints[parts[0]], timePoints[parts[1]]
	if from == nil || to == nil {
		return missing{}, nil
	}
	return elapsed(from, to, unit), nil
}

// coalesce is COALESCE({"operators": ["NAME", {"command": "REQ", "param": "x", "max_length": 3}]}).
func (f *Format) coalesce(c command) (operator, error) {
	if c.args == "" {
		return nil, fmt.Errorf("COALESCE requires parameters")
	}
	var config struct {
		Operators []json.RawMessage `json:"operators"`
	}
	if err := json.Unmarshal([]byte(c.args), &config); err != nil {
		return nil, fmt.Errorf("COALESCE: failed to parse JSON configuration: %w", err)
	}
	switch {
	case config.Operators == nil:
		return nil, fmt.Errorf("COALESCE: JSON configuration must contain 'operators' array")
	case len(config.Operators) == 0:
		return nil, fmt.Errorf("COALESCE: 'operators' array must not be empty")
	}
	first := firstOp{length: c.length}
	for i, raw := range config.Operators {
		var entry struct {
			Command   string `json:"command"`
			Param     string `json:"param"`
			MaxLength *int   `json:"max_length"`
		}
		if json.Unmarshal(raw, &entry.Command) != nil {
			if err := json.Unmarshal(raw, &entry); err != nil {
				return nil, fmt.Errorf("COALESCE: failed to parse operator at index %d: neither a name nor an object: %w", i, err)
			}
		}
		inner := command{name: entry.Command, args: entry.Param, hasArgs: entry.Param != "", length: -1}
		if entry.MaxLength != nil {
			inner.length = *entry.MaxLength
		}
		op, err := f.newOperator(inner)
		if err != nil {
			return nil, fmt.Errorf("COALESCE: failed to parse operator at index %d: %w", i, err)
		}
		first.ops = append(first.ops, op)
	}
	return first, nil
}

func attempted(item func(b []byte, info *Info, n int) []byte) operator {
	return list(func(i *Info) int { return len(i.UpstreamHostsAttempted) }, item)
}

func attemptedName(i *Info, n int) string {
	if n < len(i.UpstreamHostNamesAttempted) {
		return i.UpstreamHostNamesAttempted[n]
	}
	return ""
}

func hostName(withPort bool) operator {
	return textOp(func(b []byte, i *Info) ([]byte, bool) {
		if !i.UpstreamHost.IsValid() {
			return b, false
		}
		return appendHostName(b, i.UpstreamHostName, i.UpstreamHost, withPort), true
	})
}

// appendHostName appends a host's name, or its address if it has none.
func appendHostName(b []byte, name string, addr netip.AddrPort, withPort bool) []byte {
	if name == "" {
		if withPort {
			return addr.AppendTo(b)
		}
		return addr.Addr().AppendTo(b)
	}
	if !withPort {
		if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.HasSuffix(name, "]") {
			name = name[:i]
		}
	}
	return append(b, name...)
}
