package envoy

import (
	"fmt"
	"os"
	"strings"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	streamlogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	"github.com/guideway/guideway/dataplane/accesslog"
)

// accessLogs compiles the access logs of a listener or filter. Nothing is opened.
func (t *translator) accessLogs(logs []*accesslogv3.AccessLog, at cursor) []*accesslog.Log {
	var out []*accesslog.Log
	for i, l := range logs {
		where := at.at(i)
		config := where.field("typed_config")
		var format *accesslog.Format
		var target accesslog.Target
		switch m := t.extension(l.GetName(), l.GetTypedConfig(), where).(type) {
		case nil:
			continue
		case *filelogv3.FileAccessLog:
			target = accesslog.Target(m.GetPath())
			format = fileFormat(m, config)
		case *streamlogv3.StdoutAccessLog:
			target = accesslog.Stdout
			format = logFormat(m.GetLogFormat(), config.field("log_format"))
		case *streamlogv3.StderrAccessLog:
			target = accesslog.Stderr
			format = logFormat(m.GetLogFormat(), config.field("log_format"))
		default:
			name := m.ProtoReflect().Descriptor().FullName()
			config.failAs(noFactory(l.GetName(), string(name)),
				"access logger %q (%s) is not supported; use a file, stdout or stderr", l.GetName(), name)
			continue
		}
		if format == nil {
			continue
		}
		filter := logFilter(l.GetFilter(), where.field("filter"))
		if missing := format.Unsupported(); len(missing) > 0 {
			config.warn("operators that print as missing here: %s", strings.Join(missing, ", "))
		}
		out = append(out, accesslog.New(format, target, filter))
	}
	return out
}

// fileFormat reads the format of a file log in one of its four forms.
func fileFormat(m *filelogv3.FileAccessLog, at cursor) *accesslog.Format {
	switch f := m.GetAccessLogFormat().(type) {
	case *filelogv3.FileAccessLog_Format:
		if f.Format == "" {
			return accesslog.Default()
		}
		return textFormat(f.Format, at.field("format"))
	case *filelogv3.FileAccessLog_JsonFormat:
		return jsonFormat(f.JsonFormat.AsMap(), at.field("json_format"))
	case *filelogv3.FileAccessLog_TypedJsonFormat:
		return jsonFormat(f.TypedJsonFormat.AsMap(), at.field("typed_json_format"))
	}
	return logFormat(m.GetLogFormat(), at.field("log_format"))
}

// logFormat reads a SubstitutionFormatString; nil after a problem.
func logFormat(f *corev3.SubstitutionFormatString, at cursor) *accesslog.Format {
	var out *accesslog.Format
	switch v := f.GetFormat().(type) {
	case nil:
		return accesslog.Default()
	case *corev3.SubstitutionFormatString_TextFormat:
		out = textFormat(v.TextFormat, at.field("text_format"))
	case *corev3.SubstitutionFormatString_TextFormatSource:
		where := at.field("text_format_source")
		if text, ok := where.dataSource(v.TextFormatSource); ok {
			out = textFormat(text, where)
		}
	case *corev3.SubstitutionFormatString_JsonFormat:
		out = jsonFormat(v.JsonFormat.AsMap(), at.field("json_format"))
	}
	if out != nil && f.GetOmitEmptyValues() {
		out = out.OmitEmptyValues()
	}
	return out
}

func textFormat(text string, at cursor) *accesslog.Format {
	f, err := accesslog.ParseText(text)
	if err != nil {
		at.failAs(err.Error(), "format: %v", err)
		return nil
	}
	return f
}

func jsonFormat(fields map[string]any, at cursor) *accesslog.Format {
	f, err := accesslog.ParseJSON(fields)
	if err != nil {
		at.failAs(err.Error(), "format: %v", err)
		return nil
	}
	return f
}

// maxDataSource bounds what is read from a file for one field, in bytes.
const maxDataSource = 1 << 20

// dataSource reads a text that stands in the configuration, a file or the environment.
func (c cursor) dataSource(d *corev3.DataSource) (string, bool) {
	switch s := d.GetSpecifier().(type) {
	case *corev3.DataSource_InlineString:
		return s.InlineString, true
	case *corev3.DataSource_InlineBytes:
		return string(s.InlineBytes), true
	case *corev3.DataSource_EnvironmentVariable:
		v, ok := os.LookupEnv(s.EnvironmentVariable)
		if !ok {
			c.field("environment_variable").failAs("Environment variable doesn't exist: "+s.EnvironmentVariable, "environment variable %q is not set", s.EnvironmentVariable)
		}
		return v, ok
	case *corev3.DataSource_Filename:
		info, err := os.Stat(s.Filename)
		if err == nil && (info.Size() > maxDataSource || !info.Mode().IsRegular()) {
			err = fmt.Errorf("not a regular file of at most %d bytes", maxDataSource)
		}
		var text []byte
		if err == nil {
			text, err = os.ReadFile(s.Filename)
		}
		if err != nil {
			c.field("filename").fail("cannot read %q: %v", s.Filename, err)
			return "", false
		}
		return string(text), true
	}
	return "", false
}

// logFilter compiles a filter; nil writes all lines.
func logFilter(f *accesslogv3.AccessLogFilter, at cursor) accesslog.Filter {
	switch s := f.GetFilterSpecifier().(type) {
	case *accesslogv3.AccessLogFilter_AndFilter:
		return accesslog.And(logFilters(s.AndFilter.GetFilters(), at.field("and_filter").field("filters"))...)
	case *accesslogv3.AccessLogFilter_OrFilter:
		return accesslog.Or(logFilters(s.OrFilter.GetFilters(), at.field("or_filter").field("filters"))...)
	case *accesslogv3.AccessLogFilter_ResponseFlagFilter:
		out, err := accesslog.ResponseFlagFilter(s.ResponseFlagFilter.GetFlags())
		if err != nil {
			at.field("response_flag_filter").fail("%v", err)
		}
		return out
	case *accesslogv3.AccessLogFilter_LogTypeFilter:
		return accesslog.TypeFilter(logTypes(s.LogTypeFilter.GetTypes()), s.LogTypeFilter.GetExclude())
	case *accesslogv3.AccessLogFilter_DurationFilter:
		c := s.DurationFilter.GetComparison()
		limit := time.Duration(c.GetValue().GetDefaultValue()) * time.Millisecond
		switch c.GetOp() {
		case accesslogv3.ComparisonFilter_EQ:
			return accesslog.DurationFilter(func(d time.Duration) bool { return d.Truncate(time.Millisecond) == limit })
		case accesslogv3.ComparisonFilter_GE:
			return accesslog.DurationFilter(func(d time.Duration) bool { return d.Truncate(time.Millisecond) >= limit })
		case accesslogv3.ComparisonFilter_LE:
			return accesslog.DurationFilter(func(d time.Duration) bool { return d.Truncate(time.Millisecond) <= limit })
		default:
			return accesslog.DurationFilter(func(d time.Duration) bool { return d.Truncate(time.Millisecond) != limit })
		}
	}
	return nil // the walk over fields reports others
}

func logFilters(fs []*accesslogv3.AccessLogFilter, at cursor) []accesslog.Filter {
	var out []accesslog.Filter
	for i, f := range fs {
		if g := logFilter(f, at.at(i)); g != nil {
			out = append(out, g)
		}
	}
	return out
}

// logTypes translates line types; those of HTTP never occur.
func logTypes(ts []accesslogdatav3.AccessLogType) []accesslog.Type {
	names := map[accesslogdatav3.AccessLogType]accesslog.Type{
		accesslogdatav3.AccessLogType_NotSet:               accesslog.NotSet,
		accesslogdatav3.AccessLogType_TcpUpstreamConnected: accesslog.TCPUpstreamConnected,
		accesslogdatav3.AccessLogType_TcpConnectionStart:   accesslog.TCPConnectionStart,
		accesslogdatav3.AccessLogType_TcpPeriodic:          accesslog.TCPPeriodic,
		accesslogdatav3.AccessLogType_TcpConnectionEnd:     accesslog.TCPConnectionEnd,
		accesslogdatav3.AccessLogType_UdpPeriodic:          accesslog.UDPPeriodic,
		accesslogdatav3.AccessLogType_UdpSessionEnd:        accesslog.UDPSessionEnd,
	}
	var out []accesslog.Type
	for _, t := range ts {
		if v, ok := names[t]; ok {
			out = append(out, v)
		}
	}
	return out
}
