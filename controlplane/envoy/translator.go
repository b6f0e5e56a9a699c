package envoy

import (
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/guideway/guideway/controlplane/model"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// translator turns messages into the model; it holds what the bootstrap says for all of them.
type translator struct {
	r    *report
	boot *bootstrapv3.Bootstrap
	// ignore holds names of network filters to leave out.
	ignore map[string]bool
	// api is set for resources that came by xDS.
	api     bool
	runtime map[string]string
	// seed of 5-tuple hashes.
	seed uint64
}

func newTranslator(r *report, boot *bootstrapv3.Bootstrap, ignore []string) *translator {
	t := &translator{r: r, boot: boot, ignore: map[string]bool{}}
	for _, name := range ignore {
		t.ignore[name] = true
	}
	return t
}

// Env is what a bootstrap says for resources that come by xDS.
type Env struct {
	// Config is what Load returned.
	Config *model.Config
	// RejectUnknown makes unknown fields errors (--reject-unknown-dynamic-fields); otherwise they are
	// warnings.
	RejectUnknown bool
	// IgnoreFilters are names of network filters to leave out.
	IgnoreFilters []string
}

// Notes is what there is to say of something that was accepted.
type Notes struct {
	// Warnings are fields that are not acted on, and doubtful settings.
	Warnings []model.Problem
	// UnknownFields counts fields that Guideway does not know, for server.dynamic_unknown_fields.
	UnknownFields int
}

// ReadMessage reads a message from a file in any of the formats of Options.Path, by its extension, for
// xDS from files. The error is an *Invalid.
func ReadMessage(file string, m proto.Message, rejectUnknown bool) (Notes, error) {
	r := &report{allowUnknown: !rejectUnknown}
	r.readFile(file, m)
	return Notes{r.allWarnings(), r.unknown}, r.err()
}

func bootOf(c *model.Config) *bootstrapv3.Bootstrap {
	boot, _ := c.Source.(*bootstrapv3.Bootstrap)
	return boot
}

// translate runs f with a translator for one resource, and collects what it reports.
func (e Env) translate(m proto.Message, f func(*translator, cursor)) (Notes, error) {
	return e.translateChecking(m, f)
}

// translateChecking looks at the fields of checked: all of the message or that part of it that needs
// looking at.
func (e Env) translateChecking(checked proto.Message, f func(*translator, cursor)) (Notes, error) {
	r := &report{allowUnknown: !e.RejectUnknown}
	t := newTranslator(r, bootOf(e.Config), e.IgnoreFilters)
	t.api = true
	t.seed = e.Config.Guideway.HashSeed
	t.runtime = mergedRuntime(e.Config.Runtime)
	r.checkSchema(nil, checked)
	r.checkPacked(nil, checked.ProtoReflect(), "")
	f(t, cursor{r: r})
	r.checkFields(nil, checked.ProtoReflect(), "")
	return Notes{r.allWarnings(), r.unknown}, r.err()
}

// TranslateCluster checks and translates a cluster that came by xDS. The error is an *Invalid.
func (e Env) TranslateCluster(m *clusterv3.Cluster) (c *model.Cluster, notes Notes, err error) {
	notes, err = e.translate(m, func(t *translator, at cursor) { c = t.cluster(m, at) })
	if err != nil {
		return nil, notes, err
	}
	return c, notes, nil
}

// TranslateListener checks and translates a listener that came by xDS. The error is an *Invalid.
func (e Env) TranslateListener(m *listenerv3.Listener) (l *model.Listener, notes Notes, err error) {
	notes, err = e.translate(m, func(t *translator, at cursor) {
		if m.GetName() == "" {
			at.field("name").fail("a listener that comes by LDS needs a name")
		}
		l = t.listener(m, at)
	})
	if err != nil {
		return nil, notes, err
	}
	return l, notes, nil
}

// TranslateAssignment checks and translates the endpoints of an EDS cluster. The error is an *Invalid.
func (e Env) TranslateAssignment(m *endpointv3.ClusterLoadAssignment) (a model.Assignment, notes Notes, err error) {
	read := func(t *translator, at cursor) {
		a = t.assignment(m, model.EDS, at.named("assignment %q", m.GetClusterName()))
	}
	notes, err = e.translateChecking(withoutPlain(m), read)
	if err != nil || len(notes.Warnings) > 0 {
		notes, err = e.translate(m, read) // with the right places in what it says
	}
	return a, notes, err
}

// duration reads an optional duration.
func duration(d *durationpb.Duration, absent time.Duration) time.Duration {
	if d == nil {
		return absent
	}
	return d.AsDuration()
}
