package admin

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/guideway/guideway/dataplane"
)

func (s *Server) configDump(w http.ResponseWriter, r *http.Request) {
	params := r.URL.Query()
	var keep *regexp.Regexp
	if pattern := params.Get("name_regex"); pattern != "" {
		var err error
		if keep, err = regexp.Compile(pattern); err != nil {
			write(w, http.StatusBadRequest, bareText, fmt.Sprintf("INVALID_ARGUMENT: Error while parsing name_regex from %s: %s",
				pattern, regexError(err, pattern)))
			return
		}
	}
	sections := s.sections(params.Has("include_eds"), keep)
	resource, mask := params.Get("resource"), params.Get("mask")

	var parts []proto.Message
	switch {
	case resource != "":
		elements, status, problem := repeatedField(sections, resource)
		if problem != "" {
			write(w, status, bareText, problem)
			return
		}
		for _, e := range elements {
			if mask == "" {
				parts = append(parts, e)
				continue
			}
			trimmed, fits, err := applyMask(e, mask)
			if err != nil {
				write(w, http.StatusInternalServerError, bareText, err.Error())
				return
			}
			if !fits {
				write(w, http.StatusBadRequest, bareText, fmt.Sprintf("FieldMask %s could not be successfully used.", mask))
				return
			}
			parts = append(parts, trimmed)
		}
	case mask != "":
		for _, section := range sections {
			trimmed, fits, err := applyMask(section, mask)
			if err != nil {
				write(w, http.StatusInternalServerError, bareText, err.Error())
				return
			}
			if fits {
				parts = append(parts, trimmed)
			}
		}
		if len(parts) == 0 {
			write(w, http.StatusBadRequest, bareText, fmt.Sprintf("FieldMask %s could not be successfully applied to any configs.", mask))
			return
		}
	default:
		parts = sections
	}

	dump := &adminv3.ConfigDump{}
	for _, p := range parts {
		a, err := anypb.New(p)
		if err != nil {
			write(w, http.StatusInternalServerError, bareText, err.Error())
			return
		}
		dump.Configs = append(dump.Configs, a)
	}
	writeMessage(w, dump, false)
}

// sections are the parts of a dump in Envoy's order, with the named resources that keep accepts.
func (s *Server) sections(endpoints bool, keep *regexp.Regexp) []proto.Message {
	config := s.state.ConfigDump()
	var out []proto.Message
	if config.Bootstrap != nil {
		out = append(out, config.Bootstrap)
	}
	if config.Clusters != nil {
		out = append(out, filterNames(config.Clusters, keep))
	}
	if endpoints {
		out = append(out, filterNames(s.endpointsDump(), keep))
	}
	if config.Listeners != nil {
		out = append(out, filterNames(config.Listeners, keep))
	}
	return append(out, &adminv3.SecretsConfigDump{})
}

// filterNames returns a copy of a section without the list elements whose resource's name keep refuses.
func filterNames(section proto.Message, keep *regexp.Regexp) proto.Message {
	if keep == nil {
		return section
	}
	out := proto.Clone(section)
	m := out.ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if !f.IsList() || f.Message() == nil || !m.Has(f) {
			continue
		}
		list, kept := m.Get(f).List(), m.NewField(f).List()
		for j := range list.Len() {
			if keep.MatchString(resourceName(list.Get(j).Message())) {
				kept.Append(list.Get(j))
			}
		}
		if kept.Len() == 0 {
			m.Clear(f)
			continue
		}
		m.Set(f, protoreflect.ValueOfList(kept))
	}
	return out
}

// resourceName finds the name of a list element: its own, or that of the resource it wraps.
func resourceName(m protoreflect.Message) string {
	fields := m.Descriptor().Fields()
	for _, name := range []protoreflect.Name{"name", "cluster_name"} {
		if f := fields.ByName(name); f != nil && f.Kind() == protoreflect.StringKind && m.Get(f).String() != "" {
			return m.Get(f).String()
		}
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Message() == nil || f.IsList() || f.IsMap() || !m.Has(f) {
			continue
		}
		if a, isAny := m.Get(f).Message().Interface().(*anypb.Any); isAny {
			if inner, err := a.UnmarshalNew(); err == nil {
				return resourceName(inner.ProtoReflect())
			}
		}
	}
	return ""
}

// repeatedField returns the elements of the list field of that name, in whichever section has it.
func repeatedField(sections []proto.Message, name string) (elements []proto.Message, status int, problem string) {
	for _, section := range sections {
		m := section.ProtoReflect()
		f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if f == nil {
			continue
		}
		if !f.IsList() || f.Message() == nil {
			return nil, http.StatusBadRequest, fmt.Sprintf("%s is not a repeated field. Use ?mask=%s to get only this field", name, name)
		}
		list := m.Get(f).List()
		for i := range list.Len() {
			elements = append(elements, list.Get(i).Message().Interface())
		}
		return elements, http.StatusOK, ""
	}
	return nil, http.StatusNotFound, name + " not found in config dump"
}

// maskTree is a field mask as a tree; a leaf keeps all below it.
type maskTree map[string]maskTree

func parseMask(mask string) maskTree {
	root := maskTree{}
	for _, path := range strings.Split(mask, ",") {
		at := root
		for _, name := range strings.Split(strings.TrimSpace(path), ".") {
			if at[name] == nil {
				at[name] = maskTree{}
			}
			at = at[name]
		}
	}
	return root
}

// applyMask returns a copy of m with only the fields of a mask; fits is false if a path of the mask names a
// field that m's type does not have. Paths go on through wrapped (Any) messages and lists.
func applyMask(m proto.Message, mask string) (trimmed proto.Message, fits bool, err error) {
	trimmed = proto.Clone(m)
	fits, err = trim(trimmed.ProtoReflect(), parseMask(mask))
	return trimmed, fits, err
}

func trim(m protoreflect.Message, tree maskTree) (fits bool, err error) {
	if len(tree) == 0 {
		return true, nil
	}
	if a, isAny := m.Interface().(*anypb.Any); isAny {
		inner, err := a.UnmarshalNew()
		if err != nil {
			return false, fmt.Errorf("the mask goes through a message of unknown type: %w", err)
		}
		if fits, err := trim(inner.ProtoReflect(), tree); !fits || err != nil {
			return fits, err
		}
		return true, a.MarshalFrom(inner)
	}
	fields := m.Descriptor().Fields()
	for name := range tree {
		if fields.ByName(protoreflect.Name(name)) == nil {
			return false, nil
		}
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		below, wanted := tree[string(f.Name())]
		switch {
		case !m.Has(f):
		case !wanted:
			m.Clear(f)
		case len(below) == 0:
		case f.Message() == nil || f.IsMap():
			return false, nil
		case f.IsList():
			list := m.Mutable(f).List()
			for j := range list.Len() {
				if fits, err := trim(list.Get(j).Message(), below); !fits || err != nil {
					return fits, err
				}
			}
		default:
			if fits, err := trim(m.Mutable(f).Message(), below); !fits || err != nil {
				return fits, err
			}
		}
	}
	return true, nil
}

// endpointsDump is the endpoints of all clusters as they are now: with resolved addresses, weights and health.
func (s *Server) endpointsDump() *adminv3.EndpointsConfigDump {
	dump := &adminv3.EndpointsConfigDump{}
	for _, c := range s.sortedClusters(nil) {
		a, err := anypb.New(assignment(c))
		if err != nil {
			continue // not possible: the message is ours
		}
		if c.Discovery == "EDS" {
			dump.DynamicEndpointConfigs = append(dump.DynamicEndpointConfigs,
				&adminv3.EndpointsConfigDump_DynamicEndpointConfig{EndpointConfig: a, VersionInfo: c.EDSVersion})
		} else {
			dump.StaticEndpointConfigs = append(dump.StaticEndpointConfigs,
				&adminv3.EndpointsConfigDump_StaticEndpointConfig{EndpointConfig: a})
		}
	}
	return dump
}

// assignment describes a cluster's hosts, which are in order of priority and locality.
func assignment(c Cluster) *endpointv3.ClusterLoadAssignment {
	name := c.EDSServiceName
	if name == "" {
		name = c.Name
	}
	out := &endpointv3.ClusterLoadAssignment{
		ClusterName: name,
		Policy:      &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(c.OverprovisioningFactor)},
	}
	var last LocalityKey
	var group *endpointv3.LocalityLbEndpoints
	for _, h := range c.Hosts {
		key := LocalityKey{h.Priority, h.Locality}
		if group == nil || key != last {
			last = key
			group = &endpointv3.LocalityLbEndpoints{
				Locality:            locality(h.Locality),
				Priority:            h.Priority,
				LoadBalancingWeight: wrapperspb.UInt32(c.LocalityWeight[key]),
			}
			out.Endpoints = append(out.Endpoints, group)
		}
		endpoint := &endpointv3.Endpoint{
			Address:           socketAddress(h.Address),
			HealthCheckConfig: &endpointv3.Endpoint_HealthCheckConfig{},
			Hostname:          h.Hostname,
		}
		for _, a := range h.AdditionalAddresses {
			endpoint.AdditionalAddresses = append(endpoint.AdditionalAddresses, &endpointv3.Endpoint_AdditionalAddress{Address: socketAddress(a)})
		}
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: endpoint},
			HealthStatus:        coarseHealth(h.Health),
			LoadBalancingWeight: wrapperspb.UInt32(h.Weight),
		})
	}
	return out
}

// coarseHealth is a host's health from all causes.
func coarseHealth(h dataplane.Health) corev3.HealthStatus {
	switch {
	case h.Draining():
		return corev3.HealthStatus_DRAINING
	case h.Failed():
		return corev3.HealthStatus_UNHEALTHY
	case h.Degraded():
		return corev3.HealthStatus_DEGRADED
	}
	return corev3.HealthStatus_HEALTHY
}
