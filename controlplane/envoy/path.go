package envoy

import (
	"strconv"
	"strings"
)

// path is a place in a message: a chain of field names, indexes and map keys, innermost last. nil
// is the message itself. Chains share their beginnings.
type path struct {
	parent *path
	name   string // of a field or map key; "" for an index
	index  int
}

func (p *path) field(name string) *path { return &path{parent: p, name: name} }
func (p *path) at(i int) *path          { return &path{parent: p, index: i} }

// String is the usual notation: static_resources.clusters[0].name.
func (p *path) String() string {
	if p == nil {
		return ""
	}
	before := p.parent.String()
	switch {
	case p.name == "":
		return before + "[" + strconv.Itoa(p.index) + "]"
	case strings.ContainsAny(p.name, ".[]\" "):
		return before + "[" + strconv.Quote(p.name) + "]"
	case before == "":
		return p.name
	}
	return before + "." + p.name
}

// steps returns the chain, outermost first.
func (p *path) steps() []*path {
	n := 0
	for q := p; q != nil; q = q.parent {
		n++
	}
	s := make([]*path, n)
	for q := p; q != nil; q = q.parent {
		n--
		s[n] = q
	}
	return s
}

// last returns the innermost name, without an index.
func (p *path) last() string {
	for ; p != nil; p = p.parent {
		if p.name != "" {
			return p.name
		}
	}
	return ""
}

// covers reports whether q is p or inside it.
func (p *path) covers(q *path) bool {
	a, b := p.steps(), q.steps()
	if len(a) > len(b) {
		return false
	}
	for i := range a {
		if a[i].name != b[i].name || a[i].index != b[i].index {
			return false
		}
	}
	return true
}
