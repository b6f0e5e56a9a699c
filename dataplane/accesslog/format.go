package accesslog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Format is a compiled access log format. Immutable.
type Format struct {
	text      []piece // text formats
	json      *node   // JSON formats; nil for text
	omitEmpty bool
	dead      []string
}

// piece is a literal or, if op is set, an operator of a text.
type piece struct {
	literal string
	op      operator
}

// defaultText is Envoy's default format. Its HTTP operators print "-" at L4.
const defaultText = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" ` +
	`%RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
	`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" ` +
	`"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"` + "\n"

var defaultFormat = func() *Format {
	f, err := ParseText(defaultText)
	if err != nil {
		panic(err)
	}
	return f
}()

// Default is the format of an access log that has none configured. It ends its lines.
func Default() *Format { return defaultFormat }

// ParseText compiles a text format. A format that should end its lines holds the newline itself. Errors
// read like Envoy's.
func ParseText(format string) (*Format, error) {
	f := &Format{}
	var err error
	f.text, err = f.parse(format)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ParseJSON compiles a JSON format: values are strings with operators, numbers (float64), bools, nil,
// []any and nested maps, as structpb.Struct.AsMap returns them. Each line is one object with sorted
// keys and a newline. A value that is one operator alone keeps the operator's type, or null if missing.
func ParseJSON(format map[string]any) (*Format, error) {
	f := &Format{}
	n, err := f.compileJSON(format)
	if err != nil {
		return nil, err
	}
	f.json = n
	return f, nil
}

// OmitEmptyValues returns the format with omit_empty_values on: a missing value prints nothing
// instead of "-", and a JSON key is left out instead of being null.
func (f *Format) OmitEmptyValues() *Format {
	g := *f
	g.omitEmpty = true
	return &g
}

// Unsupported lists the operators of the format that Envoy could fill at L4 and Guideway never does,
// sorted; they print as missing. (HTTP operators are missing in Envoy too and are not listed.)
func (f *Format) Unsupported() []string {
	dead := slices.Clone(f.dead)
	slices.Sort(dead)
	return slices.Compact(dead)
}

// Append appends the line for info to b. It allocates only where b must grow or metadata is printed.
func (f *Format) Append(b []byte, info *Info) []byte {
	if f.json != nil {
		b, ok := f.json.append(b, info, f.omitEmpty)
		if !ok {
			b = append(b, "{}"...)
		}
		return append(b, '\n')
	}
	return appendPieces(b, f.text, info, f.omitEmpty)
}

func appendPieces(b []byte, pieces []piece, info *Info, omitEmpty bool) []byte {
	for i := range pieces {
		p := &pieces[i]
		if p.op == nil {
			b = append(b, p.literal...)
			continue
		}
		var ok bool
		if b, ok = p.op.append(b, info); !ok && !omitEmpty {
			b = append(b, '-')
		}
	}
	return b
}

// command is one parsed %NAME(args):length%.
type command struct {
	name    string
	args    string
	hasArgs bool
	length  int // -1 if absent
}

// parse splits a text into literals and operators.
func (f *Format) parse(format string) ([]piece, error) {
	var pieces []piece
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			pieces = append(pieces, piece{literal: literal.String()})
			literal.Reset()
		}
	}
	for pos := 0; pos < len(format); {
		i := strings.IndexByte(format[pos:], '%')
		if i < 0 {
			literal.WriteString(format[pos:])
			break
		}
		literal.WriteString(format[pos : pos+i])
		pos += i
		if strings.HasPrefix(format[pos:], "%%") {
			literal.WriteByte('%')
			pos += 2
			continue
		}
		cmd, n, ok := scanCommand(format[pos:])
		if !ok {
			return nil, fmt.Errorf("Incorrect configuration: %s. Couldn't find valid command at position %d", format, pos)
		}
		op, err := f.newOperator(cmd)
		if err != nil {
			return nil, err
		}
		flush()
		pieces = append(pieces, piece{op: op})
		pos += n
	}
	flush()
	return pieces, nil
}

// scanCommand reads the command at the start of s and returns its length in bytes. An argument ends at
// the first ')' after which the command can end, so that it may itself hold ')' and '%'.
func scanCommand(s string) (cmd command, n int, ok bool) {
	i := 1
	for i < len(s) && (s[i] >= 'A' && s[i] <= 'Z' || s[i] >= '0' && s[i] <= '9' || s[i] == '_') {
		i++
	}
	cmd.name = s[1:i]
	if cmd.name == "" || i == len(s) {
		return command{}, 0, false
	}
	if s[i] != '(' {
		cmd.length, n, ok = scanEnd(s, i)
		return cmd, n, ok
	}
	cmd.hasArgs = true
	for j := i + 1; j < len(s) && s[j] != '\n'; j++ {
		if s[j] != ')' {
			continue
		}
		if cmd.length, n, ok = scanEnd(s, j+1); ok {
			cmd.args = s[i+1 : j]
			return cmd, n, true
		}
	}
	return command{}, 0, false
}

// scanEnd reads ":digits%" or "%" at s[i:].
func scanEnd(s string, i int) (length, n int, ok bool) {
	if i >= len(s) {
		return 0, 0, false
	}
	length = -1
	if s[i] == ':' {
		digits := i + 1
		for i = digits; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		}
		v, err := strconv.ParseUint(s[digits:i], 10, 32)
		if err != nil {
			return 0, 0, false
		}
		length = int(v)
	}
	if i >= len(s) || s[i] != '%' {
		return 0, 0, false
	}
	return length, i + 1, true
}
