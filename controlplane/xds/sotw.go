package xds

import (
	"maps"
	"slices"
)

// sotw is the state-of-the-world form: each request names everything that is wanted, and acknowledges
// the last response by its nonce.
type sotw struct {
	typ     Type
	version string // last accepted; outlives streams
	nonce   string // of the last response of this stream
	names   map[string]bool
	// left holds names that were asked for on this stream and are not any more. A server that keeps
	// account of what a client has got may not send such a resource again unless it is asked as if
	// nothing was known.
	left    map[string]bool
	blank   bool // the next request has no version
	pending bool
	begun   bool // there was a request on this stream
	refusal error
}

func newSotw(t Type) *sotw { return &sotw{typ: t, names: map[string]bool{}, left: map[string]bool{}} }

func (s *sotw) restart() {
	s.nonce, s.refusal, s.begun, s.blank = "", nil, false, false
	clear(s.left)
	s.pending = len(s.names) > 0
}

func (s *sotw) want(name string) {
	if s.left[name] {
		delete(s.left, name)
		s.blank = true
	}
	s.names[name] = true
	s.pending = true
}

func (s *sotw) unwant(name string) {
	delete(s.names, name)
	if s.begun {
		s.left[name] = true
		s.pending = true
	} else {
		s.pending = len(s.names) > 0
	}
}

func (s *sotw) answer(r *Response, err error) {
	s.nonce, s.refusal, s.pending = r.Nonce, err, true
	if err == nil {
		s.version = r.Version
	}
}

// ignore: an empty response to a subscription that has just ended is as good as accepted; there is
// nothing left to ask for.
func (s *sotw) ignore(r *Response) {
	s.nonce = r.Nonce
	if len(r.Resources) == 0 {
		s.version = r.Version
	}
}

func (s *sotw) anew()            { s.blank, s.pending = true, true }
func (s *sotw) due() bool        { return s.pending }
func (s *sotw) refusing() bool   { return s.refusal != nil }
func (s *sotw) accepted() string { return s.version }

func (s *sotw) next() *Request {
	r := &Request{Type: s.typ, Version: s.version, Nonce: s.nonce, Err: s.refusal}
	if s.blank {
		r.Version = ""
	}
	if !s.typ.wildcard() {
		r.Names = slices.Sorted(maps.Keys(s.names))
	}
	s.pending, s.blank, s.refusal, s.begun = false, false, nil, true
	return r
}
