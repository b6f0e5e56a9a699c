package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/guideway/guideway/controlplane/model"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// maxParseProblems bounds how many problems of one text are looked for.
const maxParseProblems = 20

// decoder turns a tree into a message. It checks names itself, so that it can tell path, line and a
// likely correction, and leaves values to protojson: it writes each value on a line of its own and
// so knows from the line in an error which value is meant.
type decoder struct {
	r *report
	// file is the name of the source, for problems.
	file string
	// base is what the tree will be merged into, for the indexes in paths; nil if nothing.
	base   *tree
	out    bytes.Buffer
	limit  int
	lines  []mark // by line of out, from 0
	refuse map[*tree]bool
	failed error // gave up
}

// mark is what stands on a line of the JSON text.
type mark struct {
	at    *path
	field protoreflect.FieldDescriptor // nil inside free-form values
	value *tree
	line  int
}

// decode fills m from t. Problems go to the report.
func (d *decoder) decode(t *tree, size int, m proto.Message) {
	// Aliases can multiply a text; a real configuration does not grow much.
	d.limit = 4<<20 + 20*size
	d.refuse = map[*tree]bool{}
	before := len(d.r.problems)
	for range maxParseProblems {
		d.out.Reset()
		d.lines = d.lines[:0]
		first := len(d.refuse) == 0
		named := len(d.r.problems)
		unknown := d.r.unknown
		d.message(t, d.base, m.ProtoReflect().Descriptor(), nil)
		if !first {
			d.r.problems = d.r.problems[:named] // names were reported the first time
			d.r.unknown = unknown
		}
		if d.failed != nil {
			d.r.problems = append(d.r.problems[:before], finding{nil, d.problem(mark{line: t.line}, d.failed.Error(), "")})
			return
		}
		proto.Reset(m)
		err := protojson.Unmarshal(d.out.Bytes(), m)
		if err == nil {
			return
		}
		at := d.mark(err)
		d.r.problems = append(d.r.problems, finding{at.at, d.explain(at, err)})
		if at.value == nil || d.refuse[at.value] {
			return // nothing to go on with
		}
		d.refuse[at.value] = true
	}
}

// newline starts a line of the JSON text that stands for a value.
func (d *decoder) newline(m mark) {
	d.out.WriteByte('\n')
	d.lines = append(d.lines, m)
}

// full reports whether the text has outgrown its bound, or something else made the decoder give up.
func (d *decoder) full() bool {
	if d.failed == nil && d.out.Len() > d.limit {
		d.failed = fmt.Errorf("aliases blow the configuration up to more than %d MiB; write values out where they differ", d.limit>>20)
	}
	return d.failed != nil
}

func (d *decoder) message(t, base *tree, md protoreflect.MessageDescriptor, p *path) {
	if d.full() {
		return
	}
	switch {
	case md.FullName() == "google.protobuf.Any" && t.shape == isObject:
		d.any(t, p)
		return
	case md.ParentFile().Package() == "google.protobuf" || t.shape != isObject:
		d.free(t)
		return
	}
	d.out.WriteByte('{')
	d.fields(t, base, md, p, false)
	d.out.WriteByte('}')
}

// fields writes the entries of an object that is a message. In an Any, "@type" has been written.
func (d *decoder) fields(t, base *tree, md protoreflect.MessageDescriptor, p *path, inAny bool) {
	first := !inAny
	for i := range t.keys {
		k := &t.keys[i]
		if inAny && k.name == "@type" || d.refuse[k.value] {
			continue
		}
		fd := md.Fields().ByJSONName(k.name)
		if fd == nil {
			fd = md.Fields().ByTextName(k.name)
		}
		if fd == nil {
			d.noField(k, md, p)
			continue
		}
		if !first {
			d.out.WriteByte(',')
		}
		first = false
		name := string(fd.Name())
		at := p.field(name)
		d.newline(mark{at, fd, k.value, k.line})
		d.quoted(k.name)
		d.out.WriteByte(':')
		below := base.get(name)
		switch {
		case fd.IsMap() && k.value.shape == isObject:
			d.mapping(k.value, fd, at)
		case fd.IsList() && k.value.shape != isNull:
			shift := 0
			if below != nil {
				shift = len(below.elements())
			}
			d.list(k.value, shift, fd, at)
		case !fd.IsMap() && !fd.IsList() && fd.Message() != nil:
			d.message(k.value, below, fd.Message(), at)
		default:
			d.free(k.value)
		}
		if d.full() {
			return
		}
	}
}

// list writes a repeated field. Like Envoy's parser it takes a single value for a list of one.
func (d *decoder) list(t *tree, shift int, fd protoreflect.FieldDescriptor, p *path) {
	d.out.WriteByte('[')
	first := true
	for i, item := range t.elements() {
		if d.refuse[item] {
			continue
		}
		if !first {
			d.out.WriteByte(',')
		}
		first = false
		at := p.at(i + shift)
		d.newline(mark{at, fd, item, item.line})
		if fd.Message() != nil {
			d.message(item, nil, fd.Message(), at)
		} else {
			d.free(item)
		}
		if d.full() {
			return
		}
	}
	d.out.WriteByte(']')
}

func (d *decoder) mapping(t *tree, fd protoreflect.FieldDescriptor, p *path) {
	d.out.WriteByte('{')
	first := true
	for _, k := range t.keys {
		if d.refuse[k.value] {
			continue
		}
		if !first {
			d.out.WriteByte(',')
		}
		first = false
		at := p.field(k.name)
		d.newline(mark{at, fd.MapValue(), k.value, k.line})
		d.quoted(k.name)
		d.out.WriteByte(':')
		if md := fd.MapValue().Message(); md != nil {
			d.message(k.value, nil, md, at)
		} else {
			d.free(k.value)
		}
		if d.full() {
			return
		}
	}
	d.out.WriteByte('}')
}

// any writes a google.protobuf.Any: "@type" and the fields of that type, or its "value".
func (d *decoder) any(t *tree, p *path) {
	url := t.get("@type")
	if url == nil || url.shape != isText {
		d.free(t)
		return
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByURL(url.text)
	if err != nil {
		m := mark{p.field("@type"), nil, url, url.line}
		d.r.problems = append(d.r.problems, finding{m.at, d.problem(m,
			fmt.Sprintf("%s: type %q is not known to Guideway; remove what stands here, or correct the type", parentOf(p), url.text),
			fmt.Sprintf("Unable to parse JSON as proto (INVALID_ARGUMENT: could not find @type '%s')", url.text))})
		d.out.WriteString("{}")
		return
	}
	d.out.WriteByte('{')
	d.newline(mark{p, nil, t, url.line})
	d.out.WriteString(`"@type":`)
	d.quoted(url.text)
	if mt.Descriptor().ParentFile().Package() == "google.protobuf" {
		for _, k := range t.keys {
			if k.name == "@type" {
				continue
			}
			d.out.WriteByte(',')
			d.newline(mark{p.field(k.name), nil, k.value, k.line})
			d.quoted(k.name)
			d.out.WriteByte(':')
			d.free(k.value)
		}
	} else {
		d.fields(t, nil, mt.Descriptor(), p, true)
	}
	d.out.WriteByte('}')
}

func parentOf(p *path) string {
	if s := p.String(); s != "" {
		return s
	}
	return "here"
}

// free writes a value as it stands, all on one line.
func (d *decoder) free(t *tree) {
	if d.full() {
		return
	}
	switch t.shape {
	case isNull:
		d.out.WriteString("null")
	case isBool, isNumber:
		d.out.WriteString(t.text)
	case isText:
		d.quoted(t.text)
	case isList:
		d.out.WriteByte('[')
		for i, item := range t.items {
			if i > 0 {
				d.out.WriteByte(',')
			}
			d.free(item)
		}
		d.out.WriteByte(']')
	case isObject:
		d.out.WriteByte('{')
		for i, k := range t.keys {
			if i > 0 {
				d.out.WriteByte(',')
			}
			d.quoted(k.name)
			d.out.WriteByte(':')
			d.free(k.value)
		}
		d.out.WriteByte('}')
	}
}

func (d *decoder) quoted(s string) {
	b, err := json.Marshal(s)
	if err != nil { // strings always marshal
		panic(err)
	}
	d.out.Write(b)
}

// noField reports a name that the message does not have.
func (d *decoder) noField(k *key, md protoreflect.MessageDescriptor, p *path) {
	if d.r.allowUnknown {
		if d.r.unknown++; d.r.unknown <= maxParseProblems {
			m := mark{at: p.field(k.name), line: k.line}
			d.r.warnings = append(d.r.warnings, finding{m.at, d.problem(m, fmt.Sprintf("unknown field %q is ignored", k.name), "")})
		}
		return
	}
	reason := fmt.Sprintf("unknown field %q", k.name)
	if better := nearest(k.name, md); better != "" {
		reason += fmt.Sprintf(" (did you mean %q?)", better)
	}
	if p != nil {
		reason = p.String() + ": " + reason
	}
	m := mark{at: p.field(k.name), line: k.line}
	d.r.problems = append(d.r.problems, finding{m.at, d.problem(m, reason,
		fmt.Sprintf("no such field: '%s') has unknown fields", k.name))})
}

// nearest returns the field name that is most like a wrong one, or "" if none is.
func nearest(name string, md protoreflect.MessageDescriptor) string {
	name = snake(name)
	best, score := "", 0.0
	for i := range md.Fields().Len() {
		candidate := string(md.Fields().Get(i).Name())
		if s := similarity(name, candidate); s > score {
			best, score = candidate, s
		}
	}
	if score < 0.6 {
		return ""
	}
	return best
}

// similarity is 1 minus the edit distance over the longer length; missing letters count for half, since
// names are more often shortened than misspelt.
func similarity(a, b string) float64 {
	if len(a) > 80 || len(b) > 80 {
		return 0
	}
	row := make([]float64, len(b)+1)
	for j := range row {
		row[j] = float64(j) / 2
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = float64(i + 1)
		for j := range len(b) {
			change := 1.0
			if a[i] == b[j] {
				change = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+change, row[j+1]+1, row[j]+0.5)
		}
	}
	return 1 - row[len(b)]/float64(max(len(a), len(b)))
}

func (d *decoder) problem(m mark, reason, envoy string) (p model.Problem) {
	p.File, p.Line, p.Path, p.Reason, p.Envoy = d.file, m.line, m.at.String(), reason, envoy
	return p
}

var position = regexp.MustCompile(`\(line (\d+):\d+\): `)

// mark finds what an error of protojson is about.
func (d *decoder) mark(err error) mark {
	found := position.FindStringSubmatch(err.Error())
	if found == nil {
		return mark{}
	}
	n, _ := strconv.Atoi(found[1])
	if n -= 2; n < 0 || n >= len(d.lines) { // the first line has nothing but a brace
		return mark{}
	}
	return d.lines[n]
}

// explain words an error of protojson for people.
func (d *decoder) explain(m mark, err error) model.Problem {
	raw := strings.NewReplacer("\u00a0", " ").Replace(err.Error())
	raw = strings.TrimPrefix(raw, "proto: ")
	if loc := position.FindStringIndex(raw); loc != nil {
		raw = raw[loc[1]:]
	}
	reason := raw
	if v := m.value; v != nil && m.field != nil && !strings.Contains(raw, "oneof") {
		if words := expectation(m.field, v); words != "" {
			reason = words
		}
		if v.bare != "" {
			reason += fmt.Sprintf("; YAML reads a bare %s as a boolean, so put it in quotes: %q", v.bare, v.bare)
		}
	}
	envoy := "Unable to parse JSON as proto"
	if v := m.value; v != nil && m.field != nil && m.field.Enum() != nil && v.shape == isText && !strings.Contains(raw, "oneof") {
		envoy = fmt.Sprintf("unknown enum value: '%s') has unknown fields", v.text)
	}
	return d.problem(m, reason, envoy)
}

// expectation says what a field wants instead of v, or "".
func expectation(fd protoreflect.FieldDescriptor, v *tree) string {
	switch {
	case fd.Enum() != nil && v.shape == isText:
		var names []string
		for i := range fd.Enum().Values().Len() {
			names = append(names, string(fd.Enum().Values().Get(i).Name()))
		}
		return fmt.Sprintf("%q is not one of %s", v.text, strings.Join(names, ", "))
	case fd.Kind() == protoreflect.StringKind && (v.shape == isBool || v.shape == isNumber):
		s := fmt.Sprintf("must be a string, not %s", describe(v))
		if v.bare == "" {
			s += "; put it in quotes"
		}
		return s
	case fd.Kind() == protoreflect.BoolKind:
		return fmt.Sprintf("must be true or false, not %s", describe(v))
	case fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Duration":
		s := fmt.Sprintf("must be a duration in seconds with the letter s, such as \"0.25s\", not %s", describe(v))
		if v.shape == isNumber {
			s += fmt.Sprintf("; write %q", v.text+"s")
		}
		return s
	case fd.Message() != nil && fd.Message().ParentFile().Package() != "google.protobuf" && v.shape != isObject:
		return fmt.Sprintf("must be a map with the fields of %s, not %s", fd.Message().Name(), describe(v))
	case isInteger(fd) && v.shape != isObject && v.shape != isList:
		return fmt.Sprintf("must be a whole number in range (%s), not %s", strings.ToLower(kindName(fd)), describe(v))
	}
	return ""
}

func describe(v *tree) string {
	switch v.shape {
	case isText:
		return strconv.Quote(v.text)
	case isBool, isNumber:
		if v.bare != "" {
			return v.bare
		}
		return v.text
	}
	return v.shape.String()
}

func kindName(fd protoreflect.FieldDescriptor) string {
	if fd.Message() != nil {
		return strings.TrimSuffix(string(fd.Message().Name()), "Value")
	}
	return fd.Kind().String()
}

func isInteger(fd protoreflect.FieldDescriptor) bool {
	switch kindName(fd) {
	case "uint32", "uint64", "int32", "int64", "UInt32", "UInt64", "Int32", "Int64":
		return true
	}
	return false
}
