package model

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/guideway/guideway/dataplane"
	"google.golang.org/protobuf/proto"
)

// Config is one complete static configuration.
type Config struct {
	// Source is the Bootstrap message as read, for config_dump.
	Source    proto.Message
	Node      Node
	Admin     Admin
	Listeners []*Listener
	Clusters  []*Cluster
	// HTTP are listeners that the process answers itself.
	HTTP []*HTTPListener
	// Dynamic says where clusters and listeners come from besides; zero for a static configuration.
	Dynamic Dynamic
	// Runtime holds the layers of layered_runtime, lowest first.
	Runtime []RuntimeLayer
	// MaxConnections is the overload manager's bound, 0 for none.
	MaxConnections uint64
	// OverloadMonitor is set if that bound is configured (for its stats).
	OverloadMonitor     bool
	StatsFlushInterval  time.Duration
	StatsFlushOnAdmin   bool
	Stats               StatsConfig
	OutlierEventLogPath string
	// Guideway are the node's own settings (node.metadata.guideway).
	Guideway Settings
	// Warnings are fields that are accepted and not acted on.
	Warnings []Problem
	// UnknownFields counts unknown fields that were allowed.
	UnknownFields int
}

// Problem is one error or warning about a configuration.
type Problem struct {
	// File and Line (1-based) where the field stands; 0 if unknown.
	File string
	Line int
	// Path is the field path, as static_resources.clusters[0].maglev_lb_config.table_size.
	Path string
	// Reason says what is wrong and what to do.
	Reason string
	// Envoy is the tail of the message with which Envoy refuses the same, if it does; may be empty.
	Envoy string
}

// Error makes a Problem an error: "file:line: path: reason". A reason that names the place itself (the
// message around an unknown field) stands alone.
func (p Problem) Error() string {
	s := p.Reason
	if place, _, ok := strings.Cut(s, ": "); p.Path != "" && !(ok && strings.HasPrefix(p.Path, place)) {
		s = p.Path + ": " + s
	}
	switch {
	case p.File != "" && p.Line > 0:
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, s)
	case p.File != "":
		return p.File + ": " + s
	}
	return s
}

// Node identifies this instance.
type Node struct {
	ID, Cluster string
	Locality    dataplane.Locality
	Metadata    map[string]any
}

// Admin server settings. An invalid Address means no admin server.
type Admin struct {
	Address    netip.AddrPort
	AllowPaths []string // exact paths or prefixes ending in '*'; nil allows all
}

// Settings are Guideway's own, from node.metadata.guideway.
type Settings struct {
	Dataplane  string // auto, xdp, xdp-generic or proxy
	Interfaces []string
	// OuterSources are prefixes that XDP takes outer source addresses from.
	OuterSources []netip.Prefix
	HashSeed     uint64
}

// RuntimeLayer is one layer of the runtime.
type RuntimeLayer struct {
	Name  string
	Admin bool
	// Values as text, nested keys joined by dots.
	Values map[string]string
}

// StatsConfig is stats_config.
type StatsConfig struct {
	UseAllDefaultTags bool
	Tags              []TagSpecifier
	// Reject tells which stats are not made; nil keeps all.
	Reject func(name string) bool
	// Buckets by name: for histograms whose name Match accepts.
	Buckets []HistogramBuckets
}

// TagSpecifier is a custom tag: a regular expression, or a fixed value.
type TagSpecifier struct{ Name, Regex, Fixed string }

// HistogramBuckets sets the bounds of histograms, in the histogram's unit.
type HistogramBuckets struct {
	Match  func(name string) bool
	Bounds []float64
}

// HTTPListener is an HTTP listener that the process answers itself: control planes give every proxy one
// that tells whether it takes traffic, and one for metrics.
type HTTPListener struct {
	Name    string
	Source  proto.Message
	Address netip.AddrPort
	// HealthPath is answered 200 or, while the process is being drained, 503; "" for none.
	HealthPath string
	// Routes are tried in order; without one the answer is 404.
	Routes []HTTPRoute
	Hash   uint64
}

// HTTPRoute answers requests for a path (or all that begin with it) and a method ("" for any).
type HTTPRoute struct {
	Path   string
	Prefix bool
	Method string
	// Status is the answer, unless Target is where requests are forwarded to.
	Status int
	Target netip.AddrPort
}

// Dynamic holds where listeners and clusters come from; see package xds.
type Dynamic struct {
	LDS, CDS *ConfigSource
	ADS      proto.Message // *corev3.ApiConfigSource
}

// ConfigSource is a core.v3.ConfigSource that has passed validation.
type ConfigSource struct{ Message proto.Message }
