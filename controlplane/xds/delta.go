package xds

import (
	"maps"
	"slices"
)

// delta is the incremental form: requests say what changed in the subscription, responses what changed
// in the resources, and each response is acknowledged by its own nonce.
type delta struct {
	typ   Type
	names map[string]bool
	// versions of the resources that the client has; they outlive streams.
	versions  map[string]string
	system    string // system_version_info of the last accepted response
	add, drop map[string]bool
	begun     bool // there was a request on this stream
	acks      []ack
}

type ack struct {
	nonce string
	err   error
}

func newDelta(t Type) *delta {
	return &delta{typ: t, names: map[string]bool{}, versions: map[string]string{}, add: map[string]bool{}, drop: map[string]bool{}}
}

func (d *delta) restart() {
	d.begun, d.acks = false, nil
	clear(d.add)
	clear(d.drop)
}

func (d *delta) want(name string) {
	if d.names[name] && !d.drop[name] {
		return // the server tells of changes without being asked again
	}
	d.names[name] = true
	delete(d.drop, name)
	d.add[name] = true
}

func (d *delta) unwant(name string) {
	delete(d.names, name)
	delete(d.versions, name)
	if d.add[name] {
		delete(d.add, name)
		return
	}
	d.drop[name] = true
}

func (d *delta) answer(r *Response, err error) {
	d.acks = append(d.acks, ack{r.Nonce, err})
	if r.Err != nil {
		return
	}
	for _, x := range r.Resources {
		if !refuses(err, x.Name) && (d.typ.wildcard() || d.names[x.Name]) {
			d.versions[x.Name] = x.Version
		}
	}
	for _, name := range r.Removed {
		delete(d.versions, name)
	}
	if err == nil {
		d.system = r.Version
	}
}

func (d *delta) ignore(r *Response) { d.acks = append(d.acks, ack{nonce: r.Nonce}) }

// anew: a subscription to a name that is subscribed already makes the server send it again.
func (d *delta) anew() {
	if d.begun && !d.typ.wildcard() {
		maps.Copy(d.add, d.names)
	}
}

func (d *delta) due() bool {
	if !d.begun {
		return len(d.names) > 0
	}
	return len(d.add) > 0 || len(d.drop) > 0 || len(d.acks) > 0
}

func (d *delta) refusing() bool {
	return d.begun && len(d.add) == 0 && len(d.drop) == 0 && len(d.acks) > 0 && d.acks[0].err != nil
}

func (d *delta) accepted() string { return d.system }

func (d *delta) next() *Request {
	r := &Request{Type: d.typ}
	switch {
	case !d.begun:
		d.begun = true
		if !d.typ.wildcard() {
			r.Subscribe = slices.Sorted(maps.Keys(d.names))
		}
		if len(d.versions) > 0 {
			r.InitialVersions = maps.Clone(d.versions)
		}
		clear(d.add)
		clear(d.drop)
	case len(d.add) > 0 || len(d.drop) > 0:
		if !d.typ.wildcard() {
			r.Subscribe = slices.Sorted(maps.Keys(d.add))
			r.Unsubscribe = slices.Sorted(maps.Keys(d.drop))
		}
		clear(d.add)
		clear(d.drop)
	default:
		r.Nonce, r.Err = d.acks[0].nonce, d.acks[0].err
		d.acks = d.acks[1:]
	}
	return r
}
