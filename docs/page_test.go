package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// page is a Markdown file, as far as the tests look at it.
type page struct {
	path    string // relative to this directory
	anchors map[string]bool
	blocks  []block
	// spans are code spans, links the targets of links and images, both outside of blocks.
	spans, links []located
}

// block is a fenced block. info is what follows the opening fence, such as "yaml" or "console".
type block struct {
	info, text string
	line       int // of the first line within
}

type located struct {
	text string
	line int
}

func (p *page) at(line int) string { return fmt.Sprintf("%s:%d", p.path, line) }

// pages reads the README and everything in this directory.
func pages(t *testing.T) []*page {
	t.Helper()
	files, err := filepath.Glob("*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d pages: %v", len(files), err)
	}
	var out []*page
	for _, f := range append(files, "../README.md") {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, parse(f, string(text)))
	}
	return out
}

var (
	spanPattern = regexp.MustCompile("`([^`]+)`")
	linkPattern = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

func parse(path, text string) *page {
	p := &page{path: path, anchors: map[string]bool{}}
	var open *block
	for i, line := range strings.Split(text, "\n") {
		fence, fenced := strings.CutPrefix(line, "```")
		switch {
		case fenced && open == nil:
			open = &block{info: fence, line: i + 2}
		case fenced:
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		default:
			if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
				p.addAnchor(strings.TrimSpace(title))
			}
			for _, m := range spanPattern.FindAllStringSubmatch(line, -1) {
				p.spans = append(p.spans, located{m[1], i + 1})
			}
			for _, m := range linkPattern.FindAllStringSubmatch(spanPattern.ReplaceAllString(line, "code"), -1) {
				p.links = append(p.links, located{m[1], i + 1})
			}
		}
	}
	return p
}

// addAnchor adds the link target that GitHub makes of a heading.
func (p *page) addAnchor(title string) {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	name := b.String()
	for n := 1; p.anchors[name]; n++ {
		name = fmt.Sprintf("%s-%d", b.String(), n)
	}
	p.anchors[name] = true
}

func TestParse(t *testing.T) {
	p := parse("x.md", "# A `b`: c_d\n## A\n## A\nsee [x](y.md#z) and `[no](link)`\n```yaml\na: 1\n# no heading\n```\n")
	for _, a := range []string{"a-b-c_d", "a", "a-1"} {
		if !p.anchors[a] {
			t.Errorf("no anchor %q in %v", a, p.anchors)
		}
	}
	if len(p.anchors) != 3 || len(p.links) != 1 || p.links[0] != (located{"y.md#z", 4}) || len(p.spans) != 2 {
		t.Errorf("%+v", p)
	}
	if len(p.blocks) != 1 || p.blocks[0] != (block{"yaml", "a: 1\n# no heading\n", 6}) {
		t.Errorf("%+v", p.blocks)
	}
}
