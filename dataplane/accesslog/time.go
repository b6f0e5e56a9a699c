package accesslog

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// timeFormat is a compiled START_TIME format. The dialect is Envoy's: strftime as glibc has it in the C
// locale (with its flags and widths), the extensions of absl::FormatTime (%E3S, %E*S, %E3f, %E4Y, %Ez,
// %:z), and Envoy's own %f and %3f (fractions of a second, 9 digits or as many as said). What is no
// conversion is printed as it stands.
type timeFormat []timePart

type timePart struct {
	literal string
	verb    string // conversion with its modifiers, without '%'; "" for a literal
	letter  byte
	flag    byte // '-', '_', '0', '^' or '#'; 0 for none
	width   int  // 0 for none
	digits  int  // of a fraction; -1 for as many as it has
}

// newlineFormat finds what would print a newline, which Envoy refuses.
var newlineFormat = regexp.MustCompile(`%[-_0^#]*[1-9]*(E|O)?n`)

// conversion is one strftime conversion: flags, width, modifier, letter; or a fraction, or an absl extension.
var conversion = regexp.MustCompile(`^%(?:` +
	`(?P<frac>[1-9]?)f|[1-9]?s|` +
	`E(?P<absl>\*|[0-9]+)(?P<abslverb>[Sf])|E4Y|E?(?P<zone>:{0,3})z|E[z]|` +
	`(?P<flag>[-_0^#]?)(?P<width>[0-9]*)[EO]?(?P<letter>[aAbBcCdDeFgGhHIjklmMpPrRSTtuUVwWxXyYZ%]))`)

func parseTimeFormat(s string) (timeFormat, error) {
	if newlineFormat.MatchString(s) {
		return nil, fmt.Errorf("Invalid header configuration. Format string contains newline.")
	}
	var f timeFormat
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			f = append(f, timePart{literal: literal.String()})
			literal.Reset()
		}
	}
	for len(s) > 0 {
		if s[0] != '%' {
			literal.WriteByte(s[0])
			s = s[1:]
			continue
		}
		m := conversion.FindStringSubmatch(s)
		if m == nil {
			literal.WriteByte('%')
			s = s[1:]
			continue
		}
		flush()
		f = append(f, newTimePart(m))
		s = s[len(m[0]):]
	}
	flush()
	return f, nil
}

func newTimePart(m []string) timePart {
	group := func(name string) string { return m[conversion.SubexpIndex(name)] }
	verb := m[0][1:]
	p := timePart{verb: verb, letter: verb[len(verb)-1]}
	switch {
	case p.letter == 'f' && group("abslverb") == "":
		p.digits = 9
		if d := group("frac"); d != "" {
			p.digits, _ = strconv.Atoi(d)
		}
	case group("abslverb") != "":
		p.letter = group("abslverb")[0]
		if p.letter == 'S' {
			p.letter = 'E' // seconds with a fraction
		}
		p.digits = -1
		if d := group("absl"); d != "*" {
			p.digits, _ = strconv.Atoi(d)
			p.digits = min(p.digits, 9)
		}
	case group("letter") != "":
		if f := group("flag"); f != "" {
			p.flag = f[0]
		}
		p.width, _ = strconv.Atoi(group("width"))
		p.width = min(p.width, 64)
	case p.letter == 'z' && strings.HasPrefix(verb, "E"):
		p.verb = ":z"
	}
	return p
}

func (f timeFormat) append(b []byte, t time.Time) []byte {
	for i := range f {
		if f[i].verb == "" {
			b = append(b, f[i].literal...)
			continue
		}
		b = f[i].append(b, t)
	}
	return b
}

func (p *timePart) append(b []byte, t time.Time) []byte {
	start := len(b)
	switch p.letter {
	case 'f':
		return appendFraction(b, t.Nanosecond(), p.digits)
	case 'E':
		b = appendPadded(b, t.Second(), '0', 2)
		if dot := len(b); p.digits != 0 {
			b = appendFraction(append(b, '.'), t.Nanosecond(), p.digits)
			if len(b) == dot+1 {
				b = b[:dot]
			}
		}
		return b
	case 's':
		return strconv.AppendInt(b, t.Unix(), 10)
	case 'z':
		return appendZone(b, t, strings.Count(p.verb, ":"))
	case 'd':
		return p.number(b, t.Day(), '0', 2)
	case 'e':
		return p.number(b, t.Day(), ' ', 2)
	case 'H':
		return p.number(b, t.Hour(), '0', 2)
	case 'k':
		return p.number(b, t.Hour(), ' ', 2)
	case 'I':
		return p.number(b, (t.Hour()+11)%12+1, '0', 2)
	case 'l':
		return p.number(b, (t.Hour()+11)%12+1, ' ', 2)
	case 'j':
		return p.number(b, t.YearDay(), '0', 3)
	case 'm':
		return p.number(b, int(t.Month()), '0', 2)
	case 'M':
		return p.number(b, t.Minute(), '0', 2)
	case 'S':
		return p.number(b, t.Second(), '0', 2)
	case 'u':
		return p.number(b, (int(t.Weekday())+6)%7+1, '0', 1)
	case 'w':
		return p.number(b, int(t.Weekday()), '0', 1)
	case 'U': // weeks begin on Sunday
		return p.number(b, (t.YearDay()+6-int(t.Weekday()))/7, '0', 2)
	case 'W': // weeks begin on Monday
		return p.number(b, (t.YearDay()+6-(int(t.Weekday())+6)%7)/7, '0', 2)
	case 'V':
		_, week := t.ISOWeek()
		return p.number(b, week, '0', 2)
	case 'G':
		year, _ := t.ISOWeek()
		return p.number(b, year, '0', 1)
	case 'g':
		year, _ := t.ISOWeek()
		return p.number(b, year%100, '0', 2)
	case 'Y':
		return p.number(b, t.Year(), '0', 1)
	case 'y':
		return p.number(b, t.Year()%100, '0', 2)
	case 'C':
		return p.number(b, t.Year()/100, '0', 2)
	case 't':
		b = append(b, '\t')
	case '%':
		b = append(b, '%')
	case 'P':
		b = t.AppendFormat(b, "pm")
	default:
		b = t.AppendFormat(b, layouts[p.letter])
	}
	return p.text(b, start)
}

// layouts of texts in the C locale.
var layouts = [256]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'p': "PM", 'Z': "MST",
	'c': "Mon Jan _2 15:04:05 2006", 'D': "01/02/06", 'x': "01/02/06", 'F': "2006-01-02",
	'r': "03:04:05 PM", 'R': "15:04", 'T': "15:04:05", 'X': "15:04:05",
}

// number appends n with the padding of the flag, else its own.
func (p *timePart) number(b []byte, n int, pad byte, width int) []byte {
	switch p.flag {
	case '-':
		width = 0
	case '_':
		pad = ' '
	case '0':
		pad = '0'
	}
	if p.width > 0 {
		width = p.width
		if pad == ' ' && p.flag == 0 {
			pad = '0'
			if p.letter == 'e' || p.letter == 'k' || p.letter == 'l' {
				pad = ' '
			}
		}
	}
	return appendPadded(b, n, pad, width)
}

// text applies case flags and the width to b[start:].
func (p *timePart) text(b []byte, start int) []byte {
	switch {
	case p.flag == '#' && (p.letter == 'p' || p.letter == 'Z'):
		for i := start; i < len(b); i++ {
			if b[i] >= 'A' && b[i] <= 'Z' {
				b[i] += 'a' - 'A'
			}
		}
	case p.flag == '^' || p.flag == '#':
		for i := start; i < len(b); i++ {
			if b[i] >= 'a' && b[i] <= 'z' {
				b[i] -= 'a' - 'A'
			}
		}
	}
	if missing := p.width - (len(b) - start); missing > 0 {
		pad := byte(' ')
		if p.flag == '0' {
			pad = '0'
		}
		for range missing {
			b = append(b, pad)
		}
		copy(b[start+missing:], b[start:len(b)-missing])
		for i := range missing {
			b[start+i] = pad
		}
	}
	return b
}

func appendPadded(b []byte, n int, pad byte, width int) []byte {
	digits := 1
	for v := n; v >= 10; v /= 10 {
		digits++
	}
	for range width - digits {
		b = append(b, pad)
	}
	return strconv.AppendInt(b, int64(n), 10)
}

// appendFraction appends the first digits of a fraction of a second; -1 means all but trailing zeros.
func appendFraction(b []byte, ns, digits int) []byte {
	start := len(b)
	b = appendPadded(b, ns, '0', 9)
	if digits >= 0 {
		return b[:start+digits]
	}
	end := len(b)
	for end > start && b[end-1] == '0' {
		end--
	}
	return b[:end]
}

// appendZone appends the offset from UTC: +hhmm, or with one, two or three colons +hh:mm, +hh:mm:ss, or
// the shortest of these.
func appendZone(b []byte, t time.Time, colons int) []byte {
	_, offset := t.Zone()
	sign := byte('+')
	if offset < 0 {
		sign, offset = '-', -offset
	}
	h, m, s := offset/3600, offset/60%60, offset%60
	b = appendPadded(append(b, sign), h, '0', 2)
	if colons == 3 && m == 0 && s == 0 {
		return b
	}
	if colons > 0 {
		b = append(b, ':')
	}
	b = appendPadded(b, m, '0', 2)
	if colons == 2 || colons == 3 && s != 0 {
		b = appendPadded(append(b, ':'), s, '0', 2)
	}
	return b
}
