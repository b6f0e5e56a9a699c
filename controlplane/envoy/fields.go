package envoy

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"
)

// A field of Envoy's is never ignored in silence. Each message that Guideway reads has an entry in
// one of the tables (fields_*.go), which says of each field what is done with it. The walk below
// visits every field that a configuration sets, into Any as well, and a field that is in no table is
// refused. So what is new in Envoy is an error until somebody has thought about it.

// notes maps fields to the reason why they are ignored or refused.
type notes map[protoreflect.Name]string

// entry is what a table says of one message.
type entry struct {
	// acted names the fields that Guideway does what Envoy does with.
	acted string
	// leaf names fields that are acted on and whose content somebody else checks.
	leaf string
	// ignored fields get one warning: they have no effect on where bytes go.
	ignored notes
	// rejected fields are errors: to ignore them would change where traffic goes or whether it flows.
	rejected notes
	// harmless tells values of an ignored or rejected field that say what Guideway does anyway.
	harmless map[protoreflect.Name]func(protoreflect.Value) bool
}

// table maps messages to what is done with their fields.
type table map[protoreflect.FullName]entry

// rule is an entry's word on one field.
type rule struct {
	action action
	why    string
	same   func(protoreflect.Value) bool
}

type action uint8

const (
	unheardOf action = iota
	acted
	leaf
	ignored
	rejected
)

// known are all tables, in the form the walk uses.
var known = compile(bootstrapFields, listenerFields, filterFields, clusterFields, policyFields,
	healthFields, assignmentFields, sharedFields, tlsFields)

func compile(tables ...table) map[protoreflect.FullName]map[protoreflect.Name]rule {
	all := map[protoreflect.FullName]map[protoreflect.Name]rule{}
	for _, t := range tables {
		for name, e := range t {
			if all[name] != nil {
				panic("two tables have " + string(name))
			}
			rules := map[protoreflect.Name]rule{}
			for _, f := range strings.Fields(e.acted) {
				rules[protoreflect.Name(f)] = rule{action: acted}
			}
			for _, f := range strings.Fields(e.leaf) {
				rules[protoreflect.Name(f)] = rule{action: leaf}
			}
			for f, why := range e.ignored {
				rules[f] = rule{ignored, why, e.harmless[f]}
			}
			for f, why := range e.rejected {
				rules[f] = rule{rejected, why, e.harmless[f]}
			}
			all[name] = rules
		}
	}
	return all
}

// isFalse is the value of a bool or BoolValue field.
func isFalse(v protoreflect.Value) bool { return !truth(v) }

func truth(v protoreflect.Value) bool {
	if m, ok := v.Interface().(protoreflect.Message); ok {
		v = m.Get(m.Descriptor().Fields().ByName("value"))
	}
	return v.Bool()
}

// checkFields walks all set fields of m and reports what the tables say of them. Places that have a
// problem already are passed over.
func (r *report) checkFields(p *path, m protoreflect.Message, label string) {
	if r.skips(p) {
		return
	}
	name := m.Descriptor().FullName()
	if name == "google.protobuf.Any" {
		r.checkAny(p, m, label)
		return
	}
	if n := len(m.GetUnknown()); n > 0 {
		r.unknownBytes(p, m, label)
	}
	if m.Descriptor().ParentFile().Package() == "google.protobuf" {
		return
	}
	rules, ok := known[name]
	if !ok {
		if !r.reported(p) {
			r.fail(p, "", fmt.Sprintf("%s%s (%s) is not supported by Guideway", label, p.last(), name))
		}
		return
	}
	if s := nameOf(m); s != "" {
		label += s + ": "
	}
	type set struct {
		fd protoreflect.FieldDescriptor
		v  protoreflect.Value
	}
	var fields []set
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		fields = append(fields, set{fd, v})
		return true
	})
	slices.SortFunc(fields, func(a, b set) int { return a.fd.Index() - b.fd.Index() })
	for _, f := range fields {
		at := p.field(string(f.fd.Name()))
		rule := rules[f.fd.Name()]
		if rule.same != nil && rule.same(f.v) || len(r.left) > 0 && r.skips(at) {
			continue
		}
		switch rule.action {
		case ignored:
			if !r.reported(at) {
				r.warn(at, fmt.Sprintf("%s%s is ignored: %s", label, f.fd.Name(), rule.why))
			}
		case rejected:
			if !r.reported(at) {
				r.fail(at, "", fmt.Sprintf("%s%s cannot be used: %s", label, f.fd.Name(), rule.why))
			}
		case unheardOf:
			if !r.reported(at) {
				r.fail(at, "", fmt.Sprintf("%s%s is not supported by Guideway; remove it", label, f.fd.Name()))
			}
		case leaf:
			r.deprecated(at, f.fd, label)
		case acted:
			r.deprecated(at, f.fd, label)
			r.descend(at, f.fd, f.v, label)
		}
	}
}

// descend walks the messages in a field.
func (r *report) descend(p *path, fd protoreflect.FieldDescriptor, v protoreflect.Value, label string) {
	switch {
	case fd.IsMap():
		if fd.MapValue().Message() == nil {
			return
		}
		var keys []protoreflect.MapKey
		v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys = append(keys, k)
			return true
		})
		slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			r.checkFields(p.field(k.String()), v.Map().Get(k).Message(), label)
		}
	case fd.Message() == nil:
	case fd.IsList():
		for i := range v.List().Len() {
			r.checkFields(p.at(i), v.List().Get(i).Message(), label)
		}
	default:
		r.checkFields(p, v.Message(), label)
	}
}

// checkAny walks what is packed.
func (r *report) checkAny(p *path, m protoreflect.Message, label string) {
	packed, ok := m.Interface().(*anypb.Any)
	if !ok || packed.GetTypeUrl() == "" {
		return
	}
	inner, err := packed.UnmarshalNew()
	if err != nil {
		r.fail(p, fmt.Sprintf("could not find @type '%s'", packed.GetTypeUrl()),
			fmt.Sprintf("%stype %q is not known to Guideway, or its bytes are damaged (%v)", label, packed.GetTypeUrl(), err))
		return
	}
	r.checkFields(p, inner.ProtoReflect(), label)
}

// unknownBytes reports fields that a newer sender knows. Only binary forms can have them.
func (r *report) unknownBytes(p *path, m protoreflect.Message, label string) {
	r.unknown++
	reason := fmt.Sprintf("%sfields that are unknown in %s", label, m.Descriptor().FullName())
	if r.allowUnknown {
		r.warn(p, reason+" are ignored")
	} else {
		r.fail(p, "has unknown fields", reason)
	}
}

// deprecated warns once of each deprecated field that is used.
func (r *report) deprecated(p *path, fd protoreflect.FieldDescriptor, label string) {
	options, ok := fd.Options().(*descriptorpb.FieldOptions)
	if !ok || !options.GetDeprecated() || r.once[string(fd.FullName())] {
		return
	}
	r.remember(string(fd.FullName()))
	r.warn(p, fmt.Sprintf("%s%s is deprecated in Envoy's API; it still works", label, fd.Name()))
}

func (r *report) remember(what string) {
	if r.once == nil {
		r.once = map[string]bool{}
	}
	r.once[what] = true
}

// unpack returns the message in an Any, or nil if its type is unknown; the walk reports that.
func unpack(a *anypb.Any) proto.Message {
	if a.GetTypeUrl() == "" {
		return nil
	}
	m, err := a.UnmarshalNew()
	if err != nil {
		return nil
	}
	return m
}

// checkPacked runs the validators on what is packed in Any, anywhere in m.
func (r *report) checkPacked(p *path, m protoreflect.Message, label string) {
	if packed, ok := m.Interface().(*anypb.Any); ok {
		inner := unpack(packed)
		if inner == nil || known[inner.ProtoReflect().Descriptor().FullName()] == nil {
			return
		}
		r.violationsIn(p, inner, label)
		m = inner.ProtoReflect()
	}
	if s := nameOf(m); s != "" {
		label += s + ": "
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := p.field(string(fd.Name()))
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
					r.checkPacked(at.field(k.String()), v.Message(), label)
					return true
				})
			}
		case fd.Message() == nil || fd.Message().ParentFile().Package() == "google.protobuf" && fd.Message().Name() != "Any":
		case fd.IsList():
			for i := range v.List().Len() {
				r.checkPacked(at.at(i), v.List().Get(i).Message(), label)
			}
		default:
			r.checkPacked(at, v.Message(), label)
		}
		return true
	})
}
