package accesslog

import (
	"encoding/hex"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// operator evaluates one command operator.
type operator interface {
	// append appends the text form; false means that the value is missing, and nothing was appended.
	append(b []byte, info *Info) ([]byte, bool)
	// appendJSON appends the value as JSON, or nothing and false.
	appendJSON(b []byte, info *Info) ([]byte, bool)
}

// textOp yields text: quoted in JSON.
type textOp func(b []byte, info *Info) ([]byte, bool)

func (f textOp) append(b []byte, info *Info) ([]byte, bool) { return f(b, info) }

func (f textOp) appendJSON(b []byte, info *Info) ([]byte, bool) {
	start := len(b)
	b = append(b, '"')
	b, ok := f(b, info)
	if !ok {
		return b[:start], false
	}
	return append(escapeFrom(b, start+1), '"'), true
}

// numberOp yields a number.
type numberOp func(info *Info) (int64, bool)

func (f numberOp) append(b []byte, info *Info) ([]byte, bool) {
	n, ok := f(info)
	if !ok {
		return b, false
	}
	return strconv.AppendInt(b, n, 10), true
}

func (f numberOp) appendJSON(b []byte, info *Info) ([]byte, bool) { return f.append(b, info) }

// missing is always missing at L4, as HTTP and TLS operators are.
type missing struct{}

func (missing) append(b []byte, _ *Info) ([]byte, bool)     { return b, false }
func (missing) appendJSON(b []byte, _ *Info) ([]byte, bool) { return b, false }

// metadataOp yields a value of Info.Metadata: a whole namespace, or what lies below a path.
type metadataOp struct {
	namespace string
	path      []string
	length    int // bytes kept, -1 for all
}

func (m metadataOp) value(info *Info) (any, bool) {
	ns, ok := info.Metadata[m.namespace]
	if !ok {
		return nil, false
	}
	if len(m.path) == 0 {
		return ns, true
	}
	v, ok := ns[m.path[0]]
	for _, key := range m.path[1:] {
		if !ok {
			break
		}
		inner, isMap := v.(map[string]any)
		if !isMap {
			return nil, false
		}
		v, ok = inner[key]
	}
	return v, ok && v != nil
}

func (m metadataOp) append(b []byte, info *Info) ([]byte, bool) {
	v, ok := m.value(info)
	if !ok {
		return b, false
	}
	start := len(b)
	if s, isText := v.(string); isText {
		b = append(b, s...)
	} else {
		b = appendJSON(b, v)
	}
	return truncate(b, start, m.length), true
}

func (m metadataOp) appendJSON(b []byte, info *Info) ([]byte, bool) {
	v, ok := m.value(info)
	if !ok {
		return b, false
	}
	return appendJSON(b, v), true
}

// firstOp is COALESCE: the first of several operators that has a value.
type firstOp struct {
	ops    []operator
	length int
}

func (f firstOp) append(b []byte, info *Info) ([]byte, bool) {
	start := len(b)
	for _, op := range f.ops {
		var ok bool
		if b, ok = op.append(b, info); ok {
			return truncate(b, start, f.length), true
		}
	}
	return b, false
}

func (f firstOp) appendJSON(b []byte, info *Info) ([]byte, bool) {
	for _, op := range f.ops {
		var ok bool
		if b, ok = op.appendJSON(b, info); ok {
			return b, true
		}
	}
	return b, false
}

func truncate(b []byte, start, length int) []byte {
	if length >= 0 && len(b)-start > length {
		return b[:start+length]
	}
	return b
}

// text makes an operator of a field that is missing when empty.
func text(get func(*Info) string) operator {
	return textOp(func(b []byte, info *Info) ([]byte, bool) {
		s := get(info)
		return append(b, s...), s != ""
	})
}

// spaceless is text with blanks replaced, as Envoy does for texts that come from outside.
func spaceless(get func(*Info) string) operator {
	return textOp(func(b []byte, info *Info) ([]byte, bool) {
		s := get(info)
		start := len(b)
		b = append(b, s...)
		for i := start; i < len(b); i++ {
			if b[i] == ' ' || b[i] >= '\t' && b[i] <= '\r' {
				b[i] = '_'
			}
		}
		return b, s != ""
	})
}

// constant prints s even if it is empty.
func constant(s string) operator {
	return textOp(func(b []byte, _ *Info) ([]byte, bool) { return append(b, s...), true })
}

func number(get func(*Info) uint64) operator {
	return numberOp(func(info *Info) (int64, bool) { return int64(get(info)), true })
}

func zero(*Info) uint64 { return 0 }

// address prints "ip:port" or "[ip]:port".
func address(get func(*Info) netip.AddrPort) operator {
	return textOp(func(b []byte, info *Info) ([]byte, bool) {
		a := get(info)
		if !a.IsValid() {
			return b, false
		}
		return a.AppendTo(b), true
	})
}

// addressOnly prints the address, or its network if bits is not negative.
func addressOnly(get func(*Info) netip.AddrPort, bits int) operator {
	return textOp(func(b []byte, info *Info) ([]byte, bool) {
		a := get(info).Addr()
		if !a.IsValid() {
			return b, false
		}
		if p, err := a.Prefix(bits); err == nil {
			return p.AppendTo(b), true
		}
		return a.WithZone("").AppendTo(b), true
	})
}

func port(get func(*Info) netip.AddrPort) operator {
	return numberOp(func(info *Info) (int64, bool) {
		a := get(info)
		return int64(a.Port()), a.IsValid()
	})
}

// list prints the items of one connection, separated by commas; n tells how many there are.
func list(n func(*Info) int, item func(b []byte, info *Info, i int) []byte) operator {
	return textOp(func(b []byte, info *Info) ([]byte, bool) {
		count := n(info)
		for i := range count {
			if i > 0 {
				b = append(b, ',')
			}
			b = item(b, info, i)
		}
		return b, count > 0
	})
}

// instant prints a time; format is compiled, or nil for ISO 8601 with milliseconds.
func instant(get func(*Info) time.Time, format timeFormat, local bool) operator {
	return textOp(func(b []byte, info *Info) ([]byte, bool) {
		t := get(info)
		if t.IsZero() {
			return b, false
		}
		switch {
		case local:
			t = t.Local()
		default:
			t = t.UTC()
		}
		if format != nil {
			return format.append(b, t), true
		}
		if local {
			return t.AppendFormat(b, "2006-01-02T15:04:05.000-0700"), true
		}
		return t.AppendFormat(b, "2006-01-02T15:04:05.000Z"), true
	})
}

// elapsed prints the time between two points in units of unit; missing if a point is or the order is wrong.
func elapsed(from, to func(*Info) time.Time, unit time.Duration) operator {
	return numberOp(func(info *Info) (int64, bool) {
		a, b := from(info), to(info)
		if a.IsZero() || b.IsZero() || b.Before(a) {
			return 0, false
		}
		return int64(b.Sub(a) / unit), true
	})
}

// idSeed makes the stream ids of this process unlike those of another.
var idSeed = maphash.MakeSeed()

// streamID prints a UUID that all lines of one connection share.
var streamID = textOp(func(b []byte, info *Info) ([]byte, bool) {
	if info.Type == NotSet {
		return b, false
	}
	type key struct {
		id    uint64
		start int64
		peer  netip.AddrPort
		half  bool
	}
	k := key{id: info.ConnectionID, start: info.Start.UnixNano(), peer: info.Direct}
	high := maphash.Comparable(idSeed, k)
	k.half = true
	return appendUUID(b, high, maphash.Comparable(idSeed, k)), true
})

var uniqueID = textOp(func(b []byte, _ *Info) ([]byte, bool) {
	return appendUUID(b, rand.Uint64(), rand.Uint64()), true
})

// appendUUID appends a random (version 4) UUID made of 122 of the given bits (RFC 9562).
func appendUUID(b []byte, high, low uint64) []byte {
	var u [16]byte
	for i := range 8 {
		u[i], u[8+i] = byte(high>>(8*i)), byte(low>>(8*i))
	}
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	b = slices.Grow(b, 36)
	for i, from := range [...]int{0, 4, 6, 8, 10} {
		to := [...]int{4, 6, 8, 10, 16}[i]
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, u[from:to])
	}
	return b
}
