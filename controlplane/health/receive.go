package health

import "bytes"

// matcher looks for blocks of bytes in a stream, in their order, with anything before, between and
// behind them. It keeps no more of the stream than the block it waits for is long.
type matcher struct {
	blocks [][]byte
	tail   []byte // end of the stream so far that may begin blocks[0]
}

// newMatcher looks for blocks; they are not changed.
func newMatcher(blocks [][]byte) *matcher { return &matcher{blocks: blocks} }

// write takes the next part of the stream and reports whether all blocks were found.
func (m *matcher) write(p []byte) bool {
	m.tail = append(m.tail, p...)
	for len(m.blocks) > 0 {
		b := m.blocks[0]
		i := bytes.Index(m.tail, b)
		if i < 0 {
			if keep := len(b) - 1; len(m.tail) > keep {
				m.tail = append(m.tail[:0], m.tail[len(m.tail)-keep:]...)
			}
			return false
		}
		m.tail = m.tail[i+len(b):]
		m.blocks = m.blocks[1:]
	}
	return true
}
