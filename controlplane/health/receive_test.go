package health

import (
	"bytes"
	"testing"
)

// found is the obvious way: the whole stream at once.
func found(stream []byte, blocks [][]byte) bool {
	for _, b := range blocks {
		i := bytes.Index(stream, b)
		if i < 0 {
			return false
		}
		stream = stream[i+len(b):]
	}
	return true
}

func TestMatcher(t *testing.T) {
	blocks := func(bs ...string) (out [][]byte) {
		for _, b := range bs {
			out = append(out, []byte(b))
		}
		return out
	}
	for _, c := range []struct {
		stream string
		blocks [][]byte
		want   bool
	}{
		{"", nil, true},
		{"+PONG", blocks("+PONG"), true},
		{"xx+PONGyy", blocks("+PONG"), true},
		{"+PON", blocks("+PONG"), false},
		{"abcabd", blocks("abd"), true},
		{"one..two", blocks("one", "two"), true},
		{"two..one", blocks("one", "two"), false},
		{"onetwo", blocks("one", "two"), true},
		{"aa", blocks("a", "a", "a"), false},
		{"aXaYa", blocks("a", "a", "a"), true},
	} {
		for cut := range len(c.stream) + 1 { // in two parts, cut everywhere
			m := newMatcher(c.blocks)
			got := m.write([]byte(c.stream[:cut]))
			got = m.write([]byte(c.stream[cut:])) || got
			if got != c.want {
				t.Errorf("%q in %q cut at %d: %t, want %t", c.blocks, c.stream, cut, got, c.want)
			}
		}
	}
}

func FuzzMatcher(f *testing.F) {
	f.Add([]byte("xx+PO NG"), []byte("+PO"), []byte("NG"), uint8(3))
	f.Fuzz(func(t *testing.T, stream, a, b []byte, part uint8) {
		if len(a) == 0 || len(b) == 0 {
			return // the configuration has no empty blocks
		}
		blocks := [][]byte{a, b}
		m, got := newMatcher(blocks), false
		for rest := stream; len(rest) > 0 && !got; {
			n := min(int(part)+1, len(rest))
			got = m.write(rest[:n])
			rest = rest[n:]
			if !got && len(m.tail) >= max(len(a), len(b)) {
				t.Fatalf("keeps %d bytes", len(m.tail))
			}
		}
		if want := found(stream, blocks); got != want {
			t.Errorf("%q in %q: %t, want %t", blocks, stream, got, want)
		}
	})
}
