package envoy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/guideway/guideway/controlplane/model"
)

// Invalid is a configuration that was refused, with all that is wrong with it.
type Invalid struct{ Problems []model.Problem }

// Error lists the problems, one a line.
func (e *Invalid) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the problems as errors.
func (e *Invalid) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// source is one text that a configuration was read from.
type source struct {
	file string
	root *tree
}

// report collects problems and warnings, and knows where paths stand in the sources. Later sources
// are merged over earlier ones as protobufs merge: lists are appended.
type report struct {
	sources  []source
	problems []finding
	warnings []finding
	// moreProblems and moreWarnings count what was left out of them.
	moreProblems, moreWarnings int
	// once holds the warnings that are given only once.
	once map[string]bool
	// allowUnknown makes unknown fields warnings; unknown counts them.
	allowUnknown bool
	unknown      int
	// left are places that are left out of the configuration on request.
	left []*path
}

// Bounds of what is listed: a mistake in a large file may be there in every endpoint.
const (
	maxProblems = 100
	maxWarnings = 500
)

// finding is a problem together with its structured path.
type finding struct {
	at *path
	model.Problem
}

// locate finds file and line of a path, or of its innermost part that is written down.
func (r *report) locate(p *path) (file string, line int) {
	if len(r.sources) == 0 {
		return "", 0
	}
	here := make([]*tree, len(r.sources))
	for i := range r.sources {
		here[i] = r.sources[i].root
	}
	file = r.sources[0].file
	for _, step := range p.steps() {
		found := false
		index := step.index
		// The last source that has a field wins; an index counts through the lists in order.
		for i, t := range here {
			var next *tree
			var at int
			switch {
			case t == nil:
			case step.name != "" && t.shape == isObject:
				next, at = t.get(step.name), t.keyLine(step.name)
			case step.name == "":
				items := t.elements()
				if index >= 0 && index < len(items) {
					next, at = items[index], items[index].line
				}
				index -= len(items)
			}
			here[i] = next
			if next != nil {
				file, line, found = r.sources[i].file, at, true
			}
		}
		if !found {
			break
		}
	}
	return file, line
}

func (r *report) finding(p *path, envoy, reason string) finding {
	file, line := r.locate(p)
	return finding{p, model.Problem{File: file, Line: line, Path: p.String(), Reason: reason, Envoy: envoy}}
}

// fail adds a problem. envoy is the tail of the message with which Envoy refuses the same, or "".
func (r *report) fail(p *path, envoy, reason string) {
	if len(r.problems) >= maxProblems {
		r.moreProblems++
		return
	}
	r.problems = append(r.problems, r.finding(p, envoy, reason))
}

// warn adds a warning.
func (r *report) warn(p *path, reason string) {
	if len(r.warnings) >= maxWarnings {
		r.moreWarnings++
		return
	}
	r.warnings = append(r.warnings, r.finding(p, "", reason))
}

// reported reports whether a problem is known for the path or for something around it. What is said
// later of such a place would only repeat it.
func (r *report) reported(p *path) bool {
	for i := range r.problems {
		if r.problems[i].at.covers(p) {
			return true
		}
	}
	return false
}

// skip leaves a place out of the walk over fields.
func (r *report) skip(p *path) { r.left = append(r.left, p) }

func (r *report) skips(p *path) bool {
	for _, q := range r.left {
		if q.covers(p) {
			return true
		}
	}
	return false
}

// err returns the problems as an *Invalid, sorted by file and line, or nil.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	out := sorted(r.problems)
	if r.moreProblems > 0 {
		out = append(out, model.Problem{Reason: fmt.Sprintf("and %d problems more", r.moreProblems)})
	}
	return &Invalid{out}
}

// allWarnings returns the warnings sorted by file and line.
func (r *report) allWarnings() []model.Problem {
	out := sorted(r.warnings)
	if r.moreWarnings > 0 {
		out = append(out, model.Problem{Reason: fmt.Sprintf("and %d warnings more", r.moreWarnings)})
	}
	return out
}

// sorted orders findings by line and drops repetitions.
func sorted(fs []finding) []model.Problem {
	out := make([]model.Problem, 0, len(fs))
	for _, f := range fs {
		out = append(out, f.Problem)
	}
	slices.SortStableFunc(out, func(a, b model.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return slices.Compact(out)
}

// cursor is a place in a message together with what the reader of an error needs to know of it.
type cursor struct {
	r *report
	p *path
	// label begins every message: `cluster "web"`.
	label string
}

func (c cursor) field(name string) cursor { c.p = c.p.field(name); return c }
func (c cursor) at(i int) cursor          { c.p = c.p.at(i); return c }

// named sets the label.
func (c cursor) named(format string, args ...any) cursor {
	c.label = fmt.Sprintf(format, args...)
	return c
}

func (c cursor) prefix() string {
	if c.label == "" {
		return ""
	}
	return c.label + ": "
}

// fail adds a problem that Envoy has no message for.
func (c cursor) fail(format string, args ...any) {
	c.failAs("", format, args...)
}

// failAs adds a problem with the tail of Envoy's own message.
func (c cursor) failAs(envoy, format string, args ...any) {
	// Once the list is full only their number counts, and looking each up would take its time.
	if len(c.r.problems) >= maxProblems || !c.r.reported(c.p) {
		c.r.fail(c.p, envoy, c.prefix()+fmt.Sprintf(format, args...))
	}
}

// warn adds a warning.
func (c cursor) warn(format string, args ...any) {
	c.r.warn(c.p, c.prefix()+fmt.Sprintf(format, args...))
}
