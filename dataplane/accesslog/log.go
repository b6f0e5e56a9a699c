package accesslog

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// Target says where lines go: the path of a file, or one of the two below.
type Target string

// The standard streams; the paths are those that Envoy users write.
const (
	Stdout Target = "/dev/stdout"
	Stderr Target = "/dev/stderr"
)

// Log is one configured access log: a format, a target and possibly a filter.
type Log struct {
	format *Format
	target Target
	filter Filter
	sink   *sink // nil until Open
}

// New makes a log; it opens nothing, so that a configuration can be checked without touching files.
// A nil filter writes all lines.
func New(format *Format, target Target, filter Filter) *Log {
	return &Log{format: format, target: target, filter: filter}
}

// Open opens the target, or joins it if files has it open already. It must return before the log is
// given to a data plane; lines written without it are dropped. Opening an open log does nothing.
func (l *Log) Open(files *Files) error {
	if l.sink != nil {
		return nil
	}
	s, err := files.open(l.target)
	if err != nil {
		return err
	}
	l.sink = s
	return nil
}

// Target returns where lines go.
func (l *Log) Target() Target { return l.target }

// lines holds buffers in which lines are formatted.
var lines = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// Write formats info and appends the line to the target's buffer. Safe for concurrent use. It never
// waits for the disk: a line that finds the buffer full is dropped and counted.
func (l *Log) Write(info *Info) {
	if l.sink == nil || l.filter != nil && !l.filter(info) {
		return
	}
	b := lines.Get().(*[]byte)
	*b = l.format.Append((*b)[:0], info)
	l.sink.write(*b)
	lines.Put(b)
}

// Filter decides whether a line is written. It must not keep the Info.
type Filter func(*Info) bool

// ResponseFlagFilter keeps lines with any of the flags by their short names; without names it keeps lines
// with any flag at all. Flags that only HTTP sets are known and never there.
func ResponseFlagFilter(names []string) (Filter, error) {
	if len(names) == 0 {
		return func(i *Info) bool { return i.Flags != 0 }, nil
	}
	var want Flag
	for _, name := range names {
		at := slices.IndexFunc(flagNames[:], func(n [2]string) bool { return n[0] == name })
		switch {
		case at >= 0:
			want |= 1 << at
		case !slices.Contains(httpFlags, name):
			return nil, errors.New("response flag " + name + " is unknown; use Envoy's short names such as UF, UH or NC")
		}
	}
	return func(i *Info) bool { return i.Flags&want != 0 }, nil
}

// httpFlags are the flags of Envoy's list that a TCP or UDP proxy never sets.
var httpFlags = []string{
	"LH", "UT", "LR", "UC", "DI", "FI", "RL", "UAEX", "RLSE", "DC", "SI", "IH", "DPE", "UMSDR", "RFCF",
	"NFCF", "UPE", "DF", "DO", "DR",
}

// TypeFilter keeps lines of the given types, or with exclude those of all others.
func TypeFilter(types []Type, exclude bool) Filter {
	return func(i *Info) bool { return slices.Contains(types, i.Type) != exclude }
}

// DurationFilter keeps lines by the connection's duration so far.
func DurationFilter(keep func(time.Duration) bool) Filter {
	return func(i *Info) bool { return keep(i.Duration) }
}

// And keeps what all filters keep.
func And(filters ...Filter) Filter {
	return func(i *Info) bool {
		for _, f := range filters {
			if !f(i) {
				return false
			}
		}
		return true
	}
}

// Or keeps what any filter keeps.
func Or(filters ...Filter) Filter {
	return func(i *Info) bool {
		for _, f := range filters {
			if f(i) {
				return true
			}
		}
		return false
	}
}
