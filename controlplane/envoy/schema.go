package envoy

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// checkSchema runs the validators that are generated from the constraints in Envoy's protobufs. They
// do not look into Any; see fields.go for that.
func (r *report) checkSchema(p *path, m proto.Message) { r.violationsIn(p, m, "") }

func (r *report) violationsIn(p *path, m proto.Message, label string) {
	v, ok := m.(interface{ ValidateAll() error })
	if !ok {
		return
	}
	err := v.ValidateAll()
	if err == nil {
		return
	}
	r.violations(p, m.ProtoReflect(), err, nil, label)
}

// violation is the interface of all generated validation errors.
type violation interface {
	Field() string
	Reason() string
	Cause() error
	ErrorName() string
}

// violations walks a tree of validation errors down to its leaves. chain is what Envoy would print
// before the leaf.
func (r *report) violations(p *path, m protoreflect.Message, err error, chain []string, label string) {
	var many interface{ AllErrors() []error }
	if errors.As(err, &many) {
		for _, e := range many.AllErrors() {
			r.violations(p, m, e, chain, label)
		}
		return
	}
	var v violation
	if !errors.As(err, &v) {
		r.fail(p, "", label+err.Error())
		return
	}
	if m != nil {
		if name := nameOf(m); name != "" {
			label += name + ": "
		}
	}
	at, below := step(p, m, v.Field())
	link := link(m, v)
	chain = append(chain[:len(chain):len(chain)], link)
	if v.Cause() != nil {
		r.violations(at, below, v.Cause(), chain, label)
		return
	}
	r.fail(at, "Proto constraint validation failed ("+strings.Join(chain, " | caused by ")+")", label+plain(at.last(), v.Reason()))
}

// nameOf says which cluster, listener or endpoint a message is, for the reader of an error.
func nameOf(m protoreflect.Message) string {
	switch x := m.Interface().(type) {
	case interface {
		GetName() string
		GetAltStatName() string
	}:
		return fmt.Sprintf("cluster %q", x.GetName())
	case listenerMessage:
		if x.GetName() != "" {
			return fmt.Sprintf("listener %q", x.GetName())
		} else if s := addressText(x.GetAddress()); s != "" {
			return "listener " + s
		}
	case endpointMessage:
		if s := addressText(x.GetEndpoint().GetAddress()); s != "" {
			return "endpoint " + s
		}
	}
	return ""
}

var indexed = regexp.MustCompile(`^(\w+)\[(.*)\]$`)

// step follows a field name as the validators print it (Go's name, perhaps with an index or a map
// key) down from m.
func step(p *path, m protoreflect.Message, name string) (*path, protoreflect.Message) {
	var index string
	found := indexed.FindStringSubmatch(name)
	if found != nil {
		name, index = found[1], found[2]
	}
	if m == nil {
		return p.field(snake(strings.ToLower(name[:1]) + name[1:])), nil
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if goName(string(fd.Name())) != name {
			continue
		}
		at := p.field(string(fd.Name()))
		switch {
		case fd.IsList() && found != nil:
			n, _ := strconv.Atoi(index)
			if fd.Message() == nil || n >= m.Get(fd).List().Len() {
				return at.at(n), nil
			}
			return at.at(n), m.Get(fd).List().Get(n).Message()
		case fd.IsMap() && found != nil:
			return at.field(index), nil
		case fd.Message() != nil && !fd.IsList() && !fd.IsMap():
			return at, m.Get(fd).Message()
		}
		return at, nil
	}
	// A oneof.
	for i := range m.Descriptor().Oneofs().Len() {
		if od := m.Descriptor().Oneofs().Get(i); goName(string(od.Name())) == name {
			return p.field(string(od.Name())), nil
		}
	}
	return p.field(name), nil
}

// goName is the name that protoc-gen-go gives a field.
func goName(s string) string {
	var b strings.Builder
	up := true
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '_' && (i+1 == len(s) || s[i+1] < 'a' || s[i+1] > 'z'):
			b.WriteByte(c)
			up = false
			continue
		case c == '_':
			up = true
			continue
		case up && c >= 'a' && c <= 'z':
			c -= 'a' - 'A'
		}
		b.WriteByte(c)
		up = c >= '0' && c <= '9'
	}
	return b.String()
}

// link is one part of the chain of causes as Envoy prints it, where the C++ generator words things in
// its own way: nested messages go by their last name, oneofs by the name in the file.
func link(m protoreflect.Message, v violation) string {
	if m != nil && v.Cause() == nil {
		for i := range m.Descriptor().Oneofs().Len() {
			if od := m.Descriptor().Oneofs().Get(i); goName(string(od.Name())) == v.Field() {
				return fmt.Sprintf("field: %q, reason: is required", od.Name())
			}
		}
	}
	name := v.ErrorName()
	name = name[strings.LastIndex(name, "_")+1:]
	return fmt.Sprintf("%s.%s: %s", name, v.Field(), strings.ReplaceAll(v.Reason(), "runes", "characters"))
}

var plainForms = []struct {
	re   *regexp.Regexp
	form string
}{
	{regexp.MustCompile(`^value must be greater than or equal to (.+)$`), "%s must be at least $1"},
	{regexp.MustCompile(`^value must be less than or equal to (.+)$`), "%s must be at most $1"},
	{regexp.MustCompile(`^value must be greater than (.+)$`), "%s must be above $1"},
	{regexp.MustCompile(`^value must be less than (.+)$`), "%s must be below $1"},
	{regexp.MustCompile(`^value must equal (.+)$`), "%s must be $1"},
	{regexp.MustCompile(`^value must be inside range (.+)$`), "%s must be in the range $1"},
	{regexp.MustCompile(`^value length must be at least 1 .+$`), "%s must not be empty"},
	{regexp.MustCompile(`^value length must be (.+)$`), "%s must be $1 long"},
	{regexp.MustCompile(`^value is required$`), "%s is required"},
	{regexp.MustCompile(`^value must contain at least 1 .*$`), "%s must not be empty"},
	{regexp.MustCompile(`^value must contain (.+)$`), "%s must have $1"},
	{regexp.MustCompile(`^value must be one of the defined enum values$`), "%s is a number that stands for nothing; use a name"},
}

// plain words a validator's reason for people.
func plain(field, reason string) string {
	for _, f := range plainForms {
		if f.re.MatchString(reason) {
			return f.re.ReplaceAllString(reason, fmt.Sprintf(f.form, field))
		}
	}
	return field + ": " + reason
}
