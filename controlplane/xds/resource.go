package xds

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/guideway/guideway/controlplane/envoy"
	"github.com/guideway/guideway/controlplane/model"
)

// Type is a kind of resource.
type Type uint8

// Types, in the order in which a client asks for them.
const (
	Clusters Type = iota
	Endpoints
	Listeners
	types
)

// URL is the type's name on the wire.
func (t Type) URL() string {
	return [...]string{
		"type.googleapis.com/envoy.config.cluster.v3.Cluster",
		"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
		"type.googleapis.com/envoy.config.listener.v3.Listener",
	}[t]
}

// String is the service's short name: cds, eds or lds.
func (t Type) String() string { return [...]string{"cds", "eds", "lds"}[t] }

// wildcard reports whether all resources of the type are asked for, not single names.
func (t Type) wildcard() bool { return t != Endpoints }

func typeOf(url string) (Type, bool) {
	for t := range types {
		if t.URL() == url {
			return t, true
		}
	}
	return 0, false
}

// Resource is one resource as it was received, checked and translated.
type Resource struct {
	Name, Version string
	// Message is the resource itself; nil if its bytes are damaged.
	Message proto.Message
	// One of these is set, by the type, unless Err is.
	Cluster    *model.Cluster
	Listener   *model.Listener
	Assignment model.Assignment
	// Err says why the resource is refused, in Envoy's words where Envoy refuses it as well.
	Err error
	// Notes are about fields that are accepted and not acted on.
	Notes envoy.Notes
	// TTL is the life of the resource unless it is renewed; 0 means for ever.
	TTL time.Duration
	// Heartbeat is set for a message that only renews the TTL.
	Heartbeat bool
}

// Update is what a source has found.
type Update struct {
	// Resources are new or changed ones, or equal ones sent again, in the order of the source.
	Resources []*Resource
	// Removed names those that are gone. With Full everything that is not in Resources is gone as well.
	Removed []string
	Full    bool
	Version string
}

// Watcher takes what a subscription finds; its methods run on the owner's goroutine.
type Watcher interface {
	// Update takes an update as far as it is good. The error refuses the rest; a *Refusal does so by
	// name.
	Update(Update) error
	// Missing tells that nothing has come within initial_fetch_timeout (or that a file cannot be read):
	// whoever waits for the first answer should go on without.
	Missing()
}

// Refusal is the error of an update of which only some resources are refused.
type Refusal struct {
	// Prefix begins the message: "Error adding/updating cluster(s)".
	Prefix  string
	Refused []Refused
}

// Refused is one refused resource.
type Refused struct {
	Name string
	Err  error
}

// Error joins the reasons as Envoy does.
func (e *Refusal) Error() string {
	parts := make([]string, len(e.Refused))
	for i, r := range e.Refused {
		parts[i] = r.Name + ": " + r.Err.Error()
	}
	return e.Prefix + " " + strings.Join(parts, ", ")
}

// refuses reports whether the error refuses the resource of that name.
func refuses(err error, name string) bool {
	if err == nil {
		return false
	}
	var some *Refusal
	if !errors.As(err, &some) {
		return true
	}
	for _, r := range some.Refused {
		if r.Name == name {
			return true
		}
	}
	return false
}

// parser turns what a source has sent into Resources. It is safe for concurrent use.
type parser struct {
	env atomic.Pointer[envoy.Env]
}

// unpack reads one resource of a state-of-the-world response, which may be wrapped in order to have a
// time to live.
func (p *parser) unpack(t Type, a *anypb.Any) (*Resource, error) {
	if a.MessageIs(&discoveryv3.Resource{}) {
		w := &discoveryv3.Resource{}
		if err := a.UnmarshalTo(w); err != nil {
			return nil, fmt.Errorf("a resource's wrapper is damaged: %w", err)
		}
		return p.unwrap(t, w)
	}
	if a.GetTypeUrl() != t.URL() {
		return nil, &foreignType{got: a.GetTypeUrl(), want: t.URL()}
	}
	return p.parse(t, "", a), nil
}

// unwrap reads one resource with its name, version and time to live.
func (p *parser) unwrap(t Type, w *discoveryv3.Resource) (*Resource, error) {
	var r *Resource
	switch packed := w.GetResource(); {
	case packed == nil:
		r = &Resource{Name: w.GetName(), Heartbeat: true}
	case packed.GetTypeUrl() != t.URL():
		return nil, &foreignType{got: packed.GetTypeUrl(), want: t.URL()}
	default:
		r = p.parse(t, w.GetName(), packed)
	}
	r.Version = w.GetVersion()
	r.TTL = w.GetTtl().AsDuration()
	return r, nil
}

// memo remembers what a stream's resources were parsed to, by their bytes: a state-of-the-world server
// sends all of a type when one changes. It belongs to the stream's goroutine.
type memo struct {
	env  *envoy.Env // what they were checked against
	last [types]map[uint64]known
}

type known struct {
	packed   *anypb.Any
	resource *Resource
}

// recall returns what equal bytes were parsed to, nil if there were none in the last response of the type.
func (m *memo) recall(t Type, a *anypb.Any) (uint64, *Resource) {
	key := xxhash.Sum64(a.GetValue())
	if k, ok := m.last[t][key]; ok && k.packed.GetTypeUrl() == a.GetTypeUrl() && bytes.Equal(k.packed.GetValue(), a.GetValue()) {
		return key, k.resource
	}
	return key, nil
}

// foreignType is the error of a response with a resource of another type, of which nothing is taken.
type foreignType struct{ got, want string }

func (e *foreignType) Error() string {
	return fmt.Sprintf("%s does not match the message-wide type URL %s", e.got, e.want)
}

// parse checks and translates one resource. name is the name it came under, "" if it has only its own.
func (p *parser) parse(t Type, name string, a *anypb.Any) *Resource {
	r := &Resource{Name: name}
	m, err := a.UnmarshalNew()
	if err != nil {
		r.Err = fmt.Errorf("the resource's bytes are damaged: %w", err)
		return r
	}
	p.translate(r, m)
	return r
}

// translate fills a Resource from its message.
func (p *parser) translate(r *Resource, m proto.Message) {
	r.Message = m
	env := p.env.Load()
	own := ""
	switch m := m.(type) {
	case *clusterv3.Cluster:
		own = m.GetName()
		r.Cluster, r.Notes, r.Err = env.TranslateCluster(m)
	case *listenerv3.Listener:
		own = m.GetName()
		r.Listener, r.Notes, r.Err = env.TranslateListener(m)
	case *endpointv3.ClusterLoadAssignment:
		own = m.GetClusterName()
		r.Assignment, r.Notes, r.Err = env.TranslateAssignment(m)
	}
	if r.Name == "" {
		r.Name = own
	}
	var invalid *envoy.Invalid
	if errors.As(r.Err, &invalid) {
		r.Err = &Invalid{invalid}
	}
}

// Invalid is the reason why a resource is refused: its problems, for the server in Envoy's words where
// Envoy has the like.
type Invalid struct{ *envoy.Invalid }

// Error joins the problems in one line.
func (e *Invalid) Error() string {
	parts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		parts[i] = p.Envoy
		if p.Envoy == "" {
			parts[i] = p.Error()
		}
	}
	return strings.Join(parts, "; ")
}
