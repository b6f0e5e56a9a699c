package envoy

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane"
	"google.golang.org/protobuf/types/known/structpb"
)

// ours is the name under which Guideway's own settings stand in metadata.
const ours = "guideway"

// forwardings are the ways in which the XDP data plane reaches a host.
var forwardings = []string{"ipip", "gue", "l2", "nat"}

// dataplanes are the modes of an instance or a listener.
var dataplanes = []string{"auto", "xdp", "xdp-generic", "proxy"}

// settings reads a struct of our own: each key by its reader, and unknown keys are errors.
func settings(v *structpb.Value, at cursor, readers map[string]func(*structpb.Value, cursor)) {
	if v == nil {
		return
	}
	s := v.GetStructValue()
	if s == nil {
		at.fail("must be a map of settings")
		return
	}
	for _, name := range slices.Sorted(keysOf(s)) {
		where := at.field(name)
		if read := readers[name]; read != nil {
			read(s.GetFields()[name], where)
			continue
		}
		names := make([]string, 0, len(readers))
		for n := range readers {
			names = append(names, n)
		}
		slices.Sort(names)
		where.fail("unknown setting %q; there are %s", name, strings.Join(names, ", "))
	}
}

func keysOf(s *structpb.Struct) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range s.GetFields() {
			if !yield(k) {
				return
			}
		}
	}
}

// oneOf reads a word from a list.
func oneOf(into *string, words ...string) func(*structpb.Value, cursor) {
	return func(v *structpb.Value, at cursor) {
		s, ok := v.GetKind().(*structpb.Value_StringValue)
		if !ok || !slices.Contains(words, s.StringValue) {
			at.fail("must be one of %s", strings.Join(words, ", "))
			return
		}
		*into = s.StringValue
	}
}

// timeSpan reads a time above 0.
func timeSpan(into *time.Duration) func(*structpb.Value, cursor) {
	return func(v *structpb.Value, at cursor) {
		d, err := time.ParseDuration(v.GetStringValue())
		if err != nil || d <= 0 {
			at.fail("must be a duration above 0, such as \"60s\"")
			return
		}
		*into = d
	}
}

// holdDown reads {base, max}; max is ten times base unless set.
func holdDown(into *model.HoldDown) func(*structpb.Value, cursor) {
	return func(v *structpb.Value, at cursor) {
		settings(v, at, map[string]func(*structpb.Value, cursor){
			"base": timeSpan(&into.Base),
			"max":  timeSpan(&into.Max),
		})
		switch {
		case into.Base == 0:
			at.fail("needs base: how long a host stays out after its first failure, such as \"5s\"")
		case into.Max == 0:
			into.Max = 10 * into.Base
		case into.Max < into.Base:
			at.fail("max (%v) must not be below base (%v)", into.Max, into.Base)
		}
	}
}

// nodeSettings reads node.metadata.guideway.
func nodeSettings(metadata *structpb.Struct, at cursor) model.Settings {
	out := model.Settings{Dataplane: "auto"}
	settings(metadata.GetFields()[ours], at.field(ours), map[string]func(*structpb.Value, cursor){
		"dataplane": oneOf(&out.Dataplane, dataplanes...),
		"interfaces": func(v *structpb.Value, at cursor) {
			list, ok := v.GetKind().(*structpb.Value_ListValue)
			if !ok {
				at.fail("must be a list of interface names")
				return
			}
			for i, e := range list.ListValue.GetValues() {
				name := e.GetStringValue()
				if name == "" || len(name) > 15 || strings.ContainsAny(name, "/ ") {
					at.at(i).fail("must be the name of an interface")
					continue
				}
				out.Interfaces = append(out.Interfaces, name)
			}
		},
		"outer_sources": func(v *structpb.Value, at cursor) {
			list, ok := v.GetKind().(*structpb.Value_ListValue)
			if !ok {
				at.fail("must be a list of prefixes, such as [\"10.200.0.0/16\"]")
				return
			}
			for i, e := range list.ListValue.GetValues() {
				prefix, err := netip.ParsePrefix(e.GetStringValue())
				if err != nil || prefix != prefix.Masked() {
					at.at(i).fail("must be a prefix with no bits set behind it, such as 10.200.0.0/16")
					continue
				}
				out.OuterSources = append(out.OuterSources, prefix)
			}
		},
		"hash_seed": func(v *structpb.Value, at cursor) {
			switch k := v.GetKind().(type) {
			case *structpb.Value_NumberValue:
				// Numbers are floats in metadata: above 2^53 they would not be what was written.
				if k.NumberValue >= 0 && k.NumberValue <= 1<<53 && k.NumberValue == math.Trunc(k.NumberValue) {
					out.HashSeed = uint64(k.NumberValue)
					return
				}
			case *structpb.Value_StringValue:
				if n, err := strconv.ParseUint(k.StringValue, 0, 64); err == nil {
					out.HashSeed = n
					return
				}
			}
			at.fail("must be a whole number from 0 to 2^64-1; above 2^53 put it in quotes")
		},
	})
	return out
}

// foreign warns once of metadata that nothing reads: namespaces of others in clusters or endpoints.
func foreign(m *corev3.Metadata, kind string, at cursor, read ...string) {
	for name := range m.GetFilterMetadata() {
		if !slices.Contains(read, name) && !at.r.once[kind] {
			at.r.remember(kind)
			at.field("metadata").field("filter_metadata").warn("metadata of %ss is ignored but for %s", kind, strings.Join(read, " and "))
		}
	}
}

// clusterSettings reads a cluster's metadata.filter_metadata.guideway.
func clusterSettings(m *corev3.Metadata, at cursor) model.ClusterSettings {
	out := model.ClusterSettings{Track: "changed"}
	foreign(m, "cluster", at, ours)
	var draining, hash string
	at = at.field("metadata").field("filter_metadata").field(ours)
	s := m.GetFilterMetadata()[ours]
	if s == nil {
		return out
	}
	settings(structpb.NewStructValue(s), at, map[string]func(*structpb.Value, cursor){
		"forwarding":      oneOf(&out.Forwarding, forwardings...),
		"track":           oneOf(&out.Track, "changed", "all", "off"),
		"udp_draining":    oneOf(&draining, "keep", "move"),
		"hash":            oneOf(&hash, "five_tuple", "random"),
		"learning_window": timeSpan(&out.LearningWindow),
		"close_after":     timeSpan(&out.CloseAfter),
		"hold_down":       holdDown(&out.HoldDown),
	})
	if draining == "move" {
		out.UDPDraining = dataplane.MoveSessions
	}
	out.RandomHash = hash == "random"
	return out
}

// endpointForwarding reads an endpoint's metadata.filter_metadata.guideway.
func endpointForwarding(m *corev3.Metadata, at cursor) string {
	var forwarding string
	foreign(m, "endpoint", at, "envoy.lb", ours)
	if s := m.GetFilterMetadata()[ours]; s != nil {
		settings(structpb.NewStructValue(s), at.field("metadata").field("filter_metadata").field(ours),
			map[string]func(*structpb.Value, cursor){"forwarding": oneOf(&forwarding, forwardings...)})
	}
	return forwarding
}

// listenerDataplane reads a listener's metadata.filter_metadata.guideway.
func listenerDataplane(m *corev3.Metadata, at cursor) string {
	var plane string
	foreign(m, "listener", at, ours)
	if s := m.GetFilterMetadata()[ours]; s != nil {
		settings(structpb.NewStructValue(s), at.field("metadata").field("filter_metadata").field(ours),
			map[string]func(*structpb.Value, cursor){"dataplane": oneOf(&plane, dataplanes...)})
	}
	return plane
}
