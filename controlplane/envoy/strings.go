package envoy

import (
	"regexp"
	"strings"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// stringMatch compiles a StringMatcher of Envoy's; nil after a problem.
func (c cursor) stringMatch(m *matcherv3.StringMatcher) func(string) bool {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return c.match("exact", p.Exact, m.GetIgnoreCase())
	case *matcherv3.StringMatcher_Prefix:
		return c.match("prefix", p.Prefix, m.GetIgnoreCase())
	case *matcherv3.StringMatcher_Suffix:
		return c.match("suffix", p.Suffix, m.GetIgnoreCase())
	case *matcherv3.StringMatcher_Contains:
		return c.match("contains", p.Contains, m.GetIgnoreCase())
	case *matcherv3.StringMatcher_SafeRegex:
		return c.match("safe_regex", p.SafeRegex.GetRegex(), false)
	}
	return c.match("", "", false)
}

// xdsStringMatch compiles a StringMatcher of xDS; nil after a problem.
func (c cursor) xdsStringMatch(m *xdsmatcherv3.StringMatcher) func(string) bool {
	switch p := m.GetMatchPattern().(type) {
	case *xdsmatcherv3.StringMatcher_Exact:
		return c.match("exact", p.Exact, m.GetIgnoreCase())
	case *xdsmatcherv3.StringMatcher_Prefix:
		return c.match("prefix", p.Prefix, m.GetIgnoreCase())
	case *xdsmatcherv3.StringMatcher_Suffix:
		return c.match("suffix", p.Suffix, m.GetIgnoreCase())
	case *xdsmatcherv3.StringMatcher_Contains:
		return c.match("contains", p.Contains, m.GetIgnoreCase())
	case *xdsmatcherv3.StringMatcher_SafeRegex:
		return c.match("safe_regex", p.SafeRegex.GetRegex(), false)
	}
	return c.match("", "", false)
}

func (c cursor) match(kind, pattern string, fold bool) func(string) bool {
	lower := func(s string) string { return s }
	if fold {
		lower = strings.ToLower
		pattern = strings.ToLower(pattern)
	}
	switch kind {
	case "exact":
		return func(s string) bool { return lower(s) == pattern }
	case "prefix":
		return func(s string) bool { return strings.HasPrefix(lower(s), pattern) }
	case "suffix":
		return func(s string) bool { return strings.HasSuffix(lower(s), pattern) }
	case "contains":
		return func(s string) bool { return strings.Contains(lower(s), pattern) }
	case "safe_regex":
		// Envoy matches the whole text.
		re, err := regexp.Compile(`^(?:` + pattern + `)$`)
		if err != nil {
			c.field("safe_regex").field("regex").fail("%v", err)
			return nil
		}
		return re.MatchString
	}
	c.fail("only exact, prefix, suffix, contains and safe_regex matches are supported")
	return nil
}
