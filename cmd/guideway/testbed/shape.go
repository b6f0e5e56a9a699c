package testbed

import (
	"fmt"
	"maps"
	"strings"
)

// Shape gives the keys and nesting of a value decoded from JSON: from the path of each leaf to its type. An
// element of a list is named by its "@type", "name" or "cluster_name"; elements without one of these share a path, so
// that their number does not matter.
func Shape(v any) map[string]string {
	leaves := make(map[string]string)
	shape("", v, leaves)
	// A list that is empty in some elements has the shape it has in the others.
	for at, kind := range leaves {
		if kind == "[]" && hasBelow(leaves, at+"[") {
			delete(leaves, at)
		}
	}
	return leaves
}

func shape(at string, v any, leaves map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			leaves[at] = "{}"
		}
		for k, inner := range v {
			shape(at+"/"+k, inner, leaves)
		}
	case []any:
		if len(v) == 0 {
			leaves[at] = "[]"
		}
		for _, inner := range v {
			shape(at+"["+elementName(inner)+"]", inner, leaves)
		}
	case nil:
		leaves[at] = "null"
	default:
		leaves[at] = fmt.Sprintf("%T", v)
	}
}

func hasBelow(leaves map[string]string, prefix string) bool {
	for at := range leaves {
		if strings.HasPrefix(at, prefix) {
			return true
		}
	}
	return false
}

func elementName(v any) string {
	m, _ := v.(map[string]any)
	for _, key := range []string{"@type", "name", "cluster_name"} {
		if name, ok := m[key].(string); ok {
			return name
		}
	}
	return ""
}

// Without gives a value decoded from JSON without some keys, wherever they stand.
func Without(v any, drop func(key string, in map[string]any) bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for k, inner := range v {
			if drop(k, v) {
				delete(out, k)
			} else {
				out[k] = Without(inner, drop)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = Without(inner, drop)
		}
		return out
	}
	return v
}
