package envoy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxDepth bounds nesting, as protobuf's own parsers do.
const maxDepth = 100

// shape is the kind of a tree.
type shape uint8

const (
	isNull shape = iota
	isBool
	isNumber
	isText
	isList
	isObject
)

// String names the shape for error messages.
func (s shape) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "a map"}[s]
}

// tree is a value read from YAML or JSON, with the line where it stands. Aliases share trees, so a
// tree takes memory in proportion to its text.
type tree struct {
	shape shape
	line  int
	// text is the value of a scalar: as in JSON for booleans and numbers, unquoted for strings.
	text string
	// bare is the word as written, if YAML 1.1 took it for a boolean (n, yes, off).
	bare  string
	items []*tree // of lists
	keys  []key   // of objects, in order
}

// key is an entry of an object.
type key struct {
	name  string
	line  int
	value *tree
}

// get returns the value of the key that is name in snake_case, or nil.
func (t *tree) get(name string) *tree {
	if t == nil || t.shape != isObject {
		return nil
	}
	for i := range t.keys {
		if t.keys[i].name == name || snake(t.keys[i].name) == name {
			return t.keys[i].value
		}
	}
	return nil
}

// elements returns the elements of a list; any other value is a list of one.
func (t *tree) elements() []*tree {
	if t.shape == isList {
		return t.items
	}
	return []*tree{t}
}

// keyLine returns the line of a key, or 0.
func (t *tree) keyLine(name string) int {
	if t == nil || t.shape != isObject {
		return 0
	}
	for i := range t.keys {
		if t.keys[i].name == name || snake(t.keys[i].name) == name {
			return t.keys[i].line
		}
	}
	return 0
}

// snake turns a JSON name (lowerCamelCase) into a field name. Names that are in snake_case stay.
func snake(s string) string {
	if strings.ToLower(s) == s {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// lineError is a syntax error with its line.
type lineError struct {
	line int
	text string
}

func (e *lineError) Error() string { return e.text }

// errEmpty is what an empty document yields.
var errEmpty = errors.New("the configuration is empty")

// parseYAML reads one document. The rules for scalars are those of Envoy's reader, which are YAML
// 1.1's: a bare n, y, on, off, yes or no is a boolean, 010 is eight and 0x10 is sixteen.
func parseYAML(text []byte) (*tree, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, yamlError(err)
	}
	if doc.Kind == 0 || len(doc.Content) == 0 {
		return nil, errEmpty
	}
	c := yamlReader{done: map[*yaml.Node]*tree{}}
	t, err := c.read(doc.Content[0], 0)
	if err != nil {
		return nil, err
	}
	if t.shape == isNull {
		return nil, errEmpty
	}
	return t, nil
}

// yamlError takes the line out of a parser's message.
func yamlError(err error) error {
	s := strings.TrimPrefix(err.Error(), "yaml: ")
	s = strings.TrimPrefix(s, "go-yaml load error: ")
	line := 0
	if i := strings.Index(s, "line "); i >= 0 {
		digits := s[i+5:]
		n := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
		if n < 0 {
			n = len(digits)
		}
		line, _ = strconv.Atoi(digits[:n])
	}
	return &lineError{line, "not valid YAML: " + strings.TrimSpace(s)}
}

// yamlReader turns yaml nodes into trees. A nil entry in done is a node being read.
type yamlReader struct{ done map[*yaml.Node]*tree }

func (c *yamlReader) read(n *yaml.Node, depth int) (*tree, error) {
	if depth > maxDepth {
		return nil, &lineError{n.Line, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if t, seen := c.done[n]; seen {
		if t == nil {
			return nil, &lineError{n.Line, fmt.Sprintf("anchor %q contains itself", n.Anchor)}
		}
		return t, nil
	}
	t := &tree{line: n.Line}
	// Only anchors can be met again.
	if n.Anchor != "" {
		c.done[n] = nil
	}
	switch n.Kind {
	case yaml.ScalarNode:
		readScalar(n, t)
	case yaml.SequenceNode:
		t.shape = isList
		t.items = make([]*tree, 0, len(n.Content))
		for _, child := range n.Content {
			item, err := c.read(child, depth+1)
			if err != nil {
				return nil, err
			}
			t.items = append(t.items, item)
		}
	case yaml.MappingNode:
		t.shape = isObject
		seen := make(map[string]int, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind == yaml.AliasNode {
				k = k.Alias
			}
			if k.Kind != yaml.ScalarNode {
				return nil, &lineError{k.Line, "a key must be a word, not a list or map"}
			}
			if k.Value == "<<" && k.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0 {
				return nil, &lineError{k.Line, "merge keys (<<) are no part of Envoy's YAML; repeat the fields, or use an alias for the whole value"}
			}
			if first, twice := seen[k.Value]; twice {
				return nil, &lineError{k.Line, fmt.Sprintf("key %q is given twice (first at line %d); one of the two would be lost", k.Value, first)}
			}
			seen[k.Value] = k.Line
			value, err := c.read(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			t.keys = append(t.keys, key{k.Value, k.Line, value})
		}
	default:
		return nil, &lineError{n.Line, "not a value"}
	}
	if n.Anchor != "" {
		c.done[n] = t
	}
	return t, nil
}

// readScalar follows Envoy's order: quoted is text; then boolean, integer, float, text.
func readScalar(n *yaml.Node, t *tree) {
	s := n.Value
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	t.shape, t.text = isText, s
	if quoted || n.Tag == "!" {
		return
	}
	switch s {
	case "", "~", "null", "Null", "NULL":
		t.shape, t.text = isNull, ""
		return
	}
	if v, ok := yaml11Bool(s); ok {
		t.shape, t.text = isBool, strconv.FormatBool(v)
		if t.text != s {
			t.bare = s
		}
		return
	}
	if v, ok := yamlInt(s); ok {
		t.shape, t.text = isNumber, strconv.FormatInt(v, 10)
		return
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && isDecimal(s) {
		t.shape, t.text = isNumber, strconv.FormatFloat(f, 'g', -1, 64)
	}
}

// yaml11Bool knows y, yes, true, on and their opposites: lower case, UPPER case or Capitalised.
func yaml11Bool(s string) (value, ok bool) {
	lower := strings.ToLower(s)
	if s != lower && s != strings.ToUpper(s) && s != strings.ToUpper(s[:1])+lower[1:] {
		return false, false
	}
	switch lower {
	case "y", "yes", "true", "on":
		return true, true
	case "n", "no", "false", "off":
		return false, true
	}
	return false, false
}

// yamlInt reads decimal, 0x hexadecimal and 0 octal numbers.
func yamlInt(s string) (int64, bool) {
	digits := strings.TrimLeft(s, "+-")
	if digits == "" || len(s)-len(digits) > 1 || strings.ContainsAny(s, "_bBoO") && !strings.HasPrefix(strings.ToLower(digits), "0x") {
		return 0, false
	}
	if strings.Contains(s, "_") {
		return 0, false
	}
	v, err := strconv.ParseInt(s, 0, 64)
	return v, err == nil
}

// isDecimal keeps words that Go reads as numbers, such as "infinity" or "0x1p4", texts.
func isDecimal(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool {
		return !(r >= '0' && r <= '9') && !strings.ContainsRune("+-.eE", r)
	}) < 0
}

// parseJSON reads one JSON value, keeping lines.
func parseJSON(text []byte) (*tree, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errEmpty
	}
	r := jsonReader{text: text, dec: json.NewDecoder(bytes.NewReader(text)), line: 1}
	r.dec.UseNumber()
	t, err := r.value(0)
	if err == nil {
		if _, err = r.dec.Token(); err == io.EOF {
			return t, nil
		} else if err == nil {
			err = errors.New("text after the end of the value")
		}
	}
	var at *lineError
	if errors.As(err, &at) {
		return nil, err
	}
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends too early")
	}
	return nil, &lineError{r.lineAt(r.dec.InputOffset()), "not valid JSON: " + err.Error()}
}

type jsonReader struct {
	text   []byte
	dec    *json.Decoder
	line   int
	offset int64
}

// lineAt counts lines up to an offset; offsets only grow.
func (r *jsonReader) lineAt(offset int64) int {
	if offset > r.offset {
		r.line += bytes.Count(r.text[r.offset:offset], []byte{'\n'})
		r.offset = offset
	}
	return r.line
}

func (r *jsonReader) value(depth int) (*tree, error) {
	tok, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	t := &tree{line: r.lineAt(r.dec.InputOffset())}
	if depth > maxDepth {
		return nil, &lineError{t.line, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	switch v := tok.(type) {
	case nil:
	case bool:
		t.shape, t.text = isBool, strconv.FormatBool(v)
	case json.Number:
		t.shape, t.text = isNumber, v.String()
	case string:
		t.shape, t.text = isText, v
	case json.Delim:
		if v == '[' {
			t.shape = isList
			for r.dec.More() {
				item, err := r.value(depth + 1)
				if err != nil {
					return nil, err
				}
				t.items = append(t.items, item)
			}
		} else {
			t.shape = isObject
			seen := map[string]int{}
			for r.dec.More() {
				tok, err := r.dec.Token()
				if err != nil {
					return nil, err
				}
				name := tok.(string)
				line := r.lineAt(r.dec.InputOffset())
				if first, twice := seen[name]; twice {
					return nil, &lineError{line, fmt.Sprintf("key %q is given twice (first at line %d); one of the two would be lost", name, first)}
				}
				seen[name] = line
				value, err := r.value(depth + 1)
				if err != nil {
					return nil, err
				}
				t.keys = append(t.keys, key{name, line, value})
			}
		}
		if _, err := r.dec.Token(); err != nil {
			return nil, err
		}
	}
	return t, nil
}
