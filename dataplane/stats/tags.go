package stats

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Tag is one tag of a stat, by its raw name (envoy.cluster_name).
type Tag struct{ Name, Value string }

// TagSpec is a configured tag: a regular expression whose first group is cut out of the name and whose
// second, or else first, group is the value; or a fixed value for all stats. With neither it names one of
// the default tags.
type TagSpec struct{ Name, Regex, Fixed string }

// TagExtractor finds tags in names. Immutable; safe for concurrent use.
type TagExtractor struct {
	// always run for every stat, byToken for those whose names begin with the token; in order.
	always  []extractor
	byToken map[string][]extractor
}

// extractor is one rule; exactly one of tokens, regex and fixed is used.
type extractor struct {
	tag    string
	tokens []string // of a pattern like "tcp.$.**"
	regex  *regexp.Regexp
	fixed  string
	// contains must be part of a name for the regex to match; not is a value that is none.
	contains, not string
}

var defaultTags = func() *TagExtractor {
	t, err := NewTagExtractor(true, nil)
	if err != nil {
		panic(err)
	}
	return t
}()

// NewTagExtractor compiles stats_config: Envoy's default tags if wanted, and the given ones after them.
func NewTagExtractor(useDefaults bool, specs []TagSpec) (*TagExtractor, error) {
	t := &TagExtractor{byToken: map[string][]extractor{}}
	if useDefaults {
		for _, d := range defaultRules {
			t.add(d.compile(), d.token())
		}
	}
	for i, spec := range specs {
		switch {
		case spec.Name == "":
			return nil, fmt.Errorf("stats_tags[%d]: tag_name is missing", i)
		case spec.Fixed != "":
			t.add(extractor{tag: spec.Name, fixed: spec.Fixed}, "")
		case spec.Regex != "":
			re, err := regexp.Compile(spec.Regex)
			if err != nil {
				return nil, fmt.Errorf("stats_tags[%d].regex: %w", i, err)
			}
			if re.NumSubexp() == 0 {
				return nil, fmt.Errorf("stats_tags[%d].regex: %q has no group to cut out of the name; put the tag in parentheses", i, spec.Regex)
			}
			t.add(extractor{tag: spec.Name, regex: re}, leadingToken(spec.Regex))
		default:
			found := false
			for _, d := range defaultRules {
				if d.tag == spec.Name {
					t.add(d.compile(), d.token())
					found = true
				}
			}
			if !found {
				return nil, fmt.Errorf("No regex specified for tag specifier and no default regex for name: '%s'", spec.Name)
			}
		}
	}
	return t, nil
}

func (t *TagExtractor) add(e extractor, token string) {
	if token == "" {
		t.always = append(t.always, e)
		return
	}
	t.byToken[token] = append(t.byToken[token], e)
}

var anchoredToken = regexp.MustCompile(`^\^([a-zA-Z0-9_]+)\\\.`)

// leadingToken returns the first token of a name that a regex demands, or "".
func leadingToken(regex string) string {
	if m := anchoredToken.FindStringSubmatch(regex); m != nil {
		return m[1]
	}
	return ""
}

// span is a part of a name that is cut out.
type span struct{ from, to int }

// Extract returns the name without what the rules cut out, and the tags in the order of the rules.
func (t *TagExtractor) Extract(name string) (string, []Tag) {
	var spans []span
	var tags []Tag
	token, _, _ := strings.Cut(name, ".")
	for _, list := range [2][]extractor{t.always, t.byToken[token]} {
		for i := range list {
			e := &list[i]
			value, cut, ok := e.match(name)
			if !ok {
				continue
			}
			tags = append(tags, Tag{e.tag, value})
			if cut.to > cut.from {
				spans = append(spans, cut)
			}
		}
	}
	if len(spans) == 0 {
		return name, tags
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	var b strings.Builder
	at := 0
	for _, s := range spans {
		if s.from > at {
			b.WriteString(name[at:s.from])
		}
		at = max(at, s.to)
	}
	b.WriteString(name[at:])
	return b.String(), tags
}

func (e *extractor) match(name string) (value string, cut span, ok bool) {
	switch {
	case e.fixed != "":
		return e.fixed, span{}, true
	case e.tokens != nil:
		return matchTokens(e.tokens, name)
	case e.contains != "" && !strings.Contains(name, e.contains):
		return "", span{}, false
	}
	m := e.regex.FindStringSubmatchIndex(name)
	if m == nil || m[2] < 0 {
		return "", span{}, false
	}
	value = name[m[2]:m[3]]
	if len(m) > 4 && m[4] >= 0 {
		value = name[m[4]:m[5]]
	}
	if e.not != "" && value == e.not {
		return "", span{}, false
	}
	return value, span{m[2], m[3]}, true
}

// matchTokens matches a name against tokens: "$" is the value, "*" any one token, "**" (last, or before
// further tokens) any number of them, at least one. The value goes with the dot after it, or if it is
// the last with the one before it.
func matchTokens(tokens []string, name string) (value string, cut span, ok bool) {
	rest, at := name, 0
	for i, want := range tokens {
		if want == "**" {
			return value, cut, value != "" && rest != "" && endsWith(rest, tokens[i+1:])
		}
		if at > len(name) {
			return "", span{}, false
		}
		token, after, more := strings.Cut(rest, ".")
		switch want {
		case "*":
		case "$":
			value, cut = token, span{at, min(at+len(token)+1, len(name))}
			if !more {
				cut.from--
			}
		default:
			if token != want {
				return "", span{}, false
			}
		}
		at += len(token) + 1
		rest = after
	}
	return value, cut, value != "" && at > len(name)
}

// endsWith matches the tokens after a "**" at the end of a name.
func endsWith(rest string, tokens []string) bool {
	for i := len(tokens) - 1; i >= 0; i-- {
		dot := strings.LastIndexByte(rest, '.')
		if tokens[i] != "*" && rest[dot+1:] != tokens[i] {
			return false
		}
		if dot < 0 {
			return i == 0
		}
		rest = rest[:dot]
	}
	return true
}
