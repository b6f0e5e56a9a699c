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
	n := p.depth()
	s := make([]*path, n)
	for q := p; q != nil; q = q.parent {
		n--
		s[n] = q
	}
	return s
}

func (p *path) depth() int {
	n := 0
	for ; p != nil; p = p.parent {
		n++
	}
	return n
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
	n := q.depth() - p.depth()
	if n < 0 {
		return false
	}
	for ; n > 0; n-- {
		q = q.parent
	}
	for ; p != q; p, q = p.parent, q.parent { // equal pointers have equal beginnings
		if p.name != q.name || p.index != q.index {
			return false
		}
	}
	return true
}
