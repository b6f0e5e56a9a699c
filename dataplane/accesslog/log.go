package accesslog

// Log is one configured access log: a format, a sink and possibly a filter.
type Log struct {
	format *Format
	sink   *Sink
	filter Filter
}

// Format is a compiled access log format.
type Format struct{}

// Sink is where lines go.
type Sink struct{}

// Filter decides whether a line is written; nil writes all.
type Filter func(*Info) bool

// Write formats info and appends the line to the sink. Safe for concurrent use; does not block on disk.
func (l *Log) Write(info *Info) {}
