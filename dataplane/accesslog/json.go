package accesslog

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// node is one compiled JSON value; exactly one of its parts is set.
type node struct {
	literal []byte   // a constant, as JSON
	op      operator // one operator alone: keeps its type
	text    []piece  // operators among literals: always a string
	object  []member
	array   []*node
	kind    nodeKind
}

type nodeKind uint8

const (
	literalNode nodeKind = iota
	operatorNode
	textNode
	objectNode
	arrayNode
)

// member is one key of an object; key is quoted and has its colon.
type member struct {
	key   []byte
	value *node
}

func (f *Format) compileJSON(v any) (*node, error) {
	switch v := v.(type) {
	case string:
		pieces, err := f.parse(v)
		switch {
		case err != nil:
			return nil, err
		case len(pieces) == 1 && pieces[0].op != nil:
			return &node{kind: operatorNode, op: pieces[0].op}, nil
		case len(pieces) <= 1:
			literal := ""
			if len(pieces) == 1 {
				literal = pieces[0].literal
			}
			return &node{literal: appendQuoted(nil, literal)}, nil
		}
		return &node{kind: textNode, text: pieces}, nil
	case map[string]any:
		n := &node{kind: objectNode}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			value, err := f.compileJSON(v[k])
			if err != nil {
				return nil, err
			}
			n.object = append(n.object, member{append(appendQuoted(nil, k), ':'), value})
		}
		return n, nil
	case []any:
		n := &node{kind: arrayNode}
		for _, e := range v {
			value, err := f.compileJSON(e)
			if err != nil {
				return nil, err
			}
			n.array = append(n.array, value)
		}
		return n, nil
	case nil, bool, float64, int, int64, uint64:
		return &node{literal: appendJSON(nil, v)}, nil
	}
	return nil, fmt.Errorf("a JSON access log format cannot hold a %T", v)
}

// append appends the value. With omitEmpty it appends nothing and returns false for a null, and for an
// object or array that held something and has nothing left.
func (n *node) append(b []byte, info *Info, omitEmpty bool) ([]byte, bool) {
	switch n.kind {
	case operatorNode:
		b, ok := n.op.appendJSON(b, info)
		if !ok && !omitEmpty {
			return append(b, "null"...), true
		}
		return b, ok
	case textNode:
		b = append(b, '"')
		start := len(b)
		b = appendPieces(b, n.text, info, omitEmpty)
		return append(escapeFrom(b, start), '"'), true
	case objectNode:
		start := len(b)
		b = append(b, '{')
		for i := range n.object {
			before := len(b)
			if before > start+1 {
				b = append(b, ',')
			}
			b = append(b, n.object[i].key...)
			var ok bool
			if b, ok = n.object[i].value.append(b, info, omitEmpty); !ok {
				b = b[:before]
			}
		}
		if len(b) == start+1 && len(n.object) > 0 {
			return b[:start], false
		}
		return append(b, '}'), true
	case arrayNode:
		start := len(b)
		b = append(b, '[')
		for _, e := range n.array {
			before := len(b)
			if before > start+1 {
				b = append(b, ',')
			}
			var ok bool
			if b, ok = e.append(b, info, omitEmpty); !ok {
				b = b[:before]
			}
		}
		if len(b) == start+1 && len(n.array) > 0 {
			return b[:start], false
		}
		return append(b, ']'), true
	}
	if omitEmpty && string(n.literal) == "null" {
		return b, false
	}
	return append(b, n.literal...), true
}

// appendQuoted appends s as a JSON string.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	start := len(b)
	b = append(b, s...)
	return append(escapeFrom(b, start), '"')
}

// escapeFrom escapes b[start:] for the inside of a JSON string; plain text stays where it is.
func escapeFrom(b []byte, start int) []byte {
	plain := true
	for _, c := range b[start:] {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain || utf8.Valid(b[start:]) && !needsEscape(b[start:]) {
		return b
	}
	raw := string(b[start:])
	b = b[:start]
	for _, r := range raw {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r < ' ':
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

func needsEscape(s []byte) bool {
	for _, c := range s {
		if c < ' ' || c == '"' || c == '\\' {
			return true
		}
	}
	return false
}

// appendJSON appends a metadata value as JSON with sorted keys.
func appendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return appendQuoted(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case uint32:
		return strconv.AppendUint(b, uint64(v), 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.AppendInt(b, int64(v), 10)
		}
		if math.IsNaN(v) || math.IsInf(v, 0) { // not expressible in JSON
			return append(b, "null"...)
		}
		return strconv.AppendFloat(b, v, 'g', -1, 64)
	case map[string]any:
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendQuoted(b, k), ':')
			b = appendJSON(b, v[k])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, e)
		}
		return append(b, ']')
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return append(b, "null"...)
	}
	return append(b, raw...)
}
