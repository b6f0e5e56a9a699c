package xdp

import (
	"fmt"
	"slices"
)

// span is a range of indices of a map.
type span struct{ first, n uint32 }

func (s span) end() uint32 { return s.first + s.n }

// spans hands out ranges of a map's indices.
type spans struct {
	what     string // for errors
	capacity uint32
	used     []span // sorted
}

// take returns a free range of n, the first there is.
func (s *spans) take(n uint32) (span, error) {
	if n == 0 {
		return span{}, nil
	}
	from := uint32(0)
	for i, u := range s.used {
		if u.first-from >= n {
			return s.insert(i, span{from, n}), nil
		}
		from = u.end()
	}
	if s.capacity-from >= n {
		return s.insert(len(s.used), span{from, n}), nil
	}
	return span{}, fmt.Errorf("no %d %s in a row are free of the %d that the map has: raise the capacity and restart after 'guideway detach'", n, s.what, s.capacity)
}

// reserve marks a range as used. It reports false if part of it is used already.
func (s *spans) reserve(x span) bool {
	if x.n == 0 {
		return true
	}
	if uint64(x.first)+uint64(x.n) > uint64(s.capacity) {
		return false
	}
	i, _ := slices.BinarySearchFunc(s.used, x, func(a, b span) int { return int(int64(a.first) - int64(b.first)) })
	if i > 0 && s.used[i-1].end() > x.first || i < len(s.used) && s.used[i].first < x.end() {
		return false
	}
	s.insert(i, x)
	return true
}

func (s *spans) insert(i int, x span) span {
	s.used = slices.Insert(s.used, i, x)
	return x
}

func (s *spans) free(x span) {
	if i := slices.Index(s.used, x); i >= 0 && x.n > 0 {
		s.used = slices.Delete(s.used, i, i+1)
	}
}
