package logging

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultFormat is Envoy's default --log-format.
const DefaultFormat = "[%Y-%m-%d %T.%e][%t][%l][%n] [%g:%#] %v"

// line is what a pattern prints.
type line struct {
	time      time.Time
	level     string
	component string
	file      string
	number    int
	message   string
}

// pattern is a compiled log format, in the notation of the spdlog library that Envoy uses.
type pattern []func([]byte, *line) []byte

func literal(s string) func([]byte, *line) []byte {
	return func(b []byte, _ *line) []byte { return append(b, s...) }
}

func clock(layout string) func([]byte, *line) []byte {
	return func(b []byte, l *line) []byte { return l.time.AppendFormat(b, layout) }
}

// padded prints a number with leading zeros.
func padded(width int, f func(*line) int) func([]byte, *line) []byte {
	return func(b []byte, l *line) []byte { return fmt.Appendf(b, "%0*d", width, f(l)) }
}

var patternFlags = map[byte]func([]byte, *line) []byte{
	'v': func(b []byte, l *line) []byte { return append(b, l.message...) },
	'_': func(b []byte, l *line) []byte { return append(b, strings.ReplaceAll(l.message, "\n", `\n`)...) },
	'j': func(b []byte, l *line) []byte {
		q := strconv.Quote(l.message)
		return append(b, q[1:len(q)-1]...)
	},
	'l': func(b []byte, l *line) []byte { return append(b, l.level...) },
	'L': func(b []byte, l *line) []byte { return append(b, strings.ToUpper(l.level[:1])...) },
	'n': func(b []byte, l *line) []byte { return append(b, l.component...) },
	'g': func(b []byte, l *line) []byte { return append(b, l.file...) },
	's': func(b []byte, l *line) []byte { return append(b, l.file[strings.LastIndexByte(l.file, '/')+1:]...) },
	'#': func(b []byte, l *line) []byte { return strconv.AppendInt(b, int64(l.number), 10) },
	't': func(b []byte, _ *line) []byte { return strconv.AppendInt(b, int64(unix.Gettid()), 10) },
	'P': func(b []byte, _ *line) []byte { return strconv.AppendInt(b, int64(os.Getpid()), 10) },
	'Y': clock("2006"), 'C': clock("06"), 'm': clock("01"), 'd': clock("02"), 'H': clock("15"), 'I': clock("03"),
	'M': clock("04"), 'S': clock("05"), 'T': clock("15:04:05"), 'X': clock("15:04:05"), 'R': clock("15:04"),
	'D': clock("01/02/06"), 'x': clock("01/02/06"), 'a': clock("Mon"), 'A': clock("Monday"), 'b': clock("Jan"),
	'h': clock("Jan"), 'B': clock("January"), 'c': clock("Mon Jan _2 15:04:05 2006"), 'p': clock("PM"),
	'r': clock("03:04:05 PM"), 'z': clock("-07:00"),
	'e': padded(3, func(l *line) int { return l.time.Nanosecond() / 1e6 }),
	'f': padded(6, func(l *line) int { return l.time.Nanosecond() / 1e3 }),
	'F': padded(9, func(l *line) int { return l.time.Nanosecond() }),
	'E': func(b []byte, l *line) []byte { return strconv.AppendInt(b, l.time.Unix(), 10) },
	'%': literal("%"),
	// Colours and the function name are accepted and print nothing.
	'^': literal(""), '$': literal(""), '!': literal(""),
}

// compile reads a format. Flags it does not know are printed as they stand; none is an error, as in
// Envoy. A width between % and the flag ("%8l", "%-8l") pads with blanks.
func compile(format string) pattern {
	var p pattern
	for len(format) > 0 {
		i := strings.IndexByte(format, '%')
		if i < 0 || i == len(format)-1 {
			return append(p, literal(format))
		}
		if i > 0 {
			p = append(p, literal(format[:i]))
		}
		rest := format[i+1:]
		left := strings.HasPrefix(rest, "-")
		digits := strings.TrimLeft(rest, "-")
		n := 0
		for n < len(digits) && digits[n] >= '0' && digits[n] <= '9' {
			n++
		}
		width, _ := strconv.Atoi(digits[:n])
		width = min(width, 64)
		flagAt := len(rest) - len(digits) + n
		if flagAt >= len(rest) {
			return append(p, literal(format[i:]))
		}
		f, known := patternFlags[rest[flagAt]]
		switch {
		case !known:
			p = append(p, literal(format[i:i+1+flagAt+1]))
		case width > 0:
			p = append(p, pad(f, width, left))
		default:
			p = append(p, f)
		}
		format = rest[flagAt+1:]
	}
	return p
}

func pad(f func([]byte, *line) []byte, width int, left bool) func([]byte, *line) []byte {
	return func(b []byte, l *line) []byte {
		text := string(f(nil, l))
		if left {
			return fmt.Appendf(b, "%-*s", width, text)
		}
		return fmt.Appendf(b, "%*s", width, text)
	}
}
