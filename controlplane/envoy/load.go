package envoy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"github.com/guideway/guideway/controlplane/model"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// Options say what to load and how.
type Options struct {
	// Path of the configuration file; its extension tells the format: .yaml, .yml, .json, .pb or
	// .pb_text. May be empty if YAML is given.
	Path string
	// YAML is merged over the file: messages merge, lists are appended (--config-yaml).
	YAML string
	// AllowUnknownStatic makes unknown fields warnings (--allow-unknown-static-fields).
	AllowUnknownStatic bool
	// IgnoreFilters are names of network filters to leave out (--ignore-network-filters).
	IgnoreFilters []string
	// ServiceNode, ServiceCluster and ServiceZone override the node in the file.
	ServiceNode, ServiceCluster, ServiceZone string
}

// maxFile bounds the size of a configuration file, in bytes.
const maxFile = 256 << 20

// yamlName stands for the text of --config-yaml in problems.
const yamlName = "--config-yaml"

// Load reads a bootstrap and checks everything in it. The error is an *Invalid with all problems
// that were found, sorted by line. Load opens no sockets and looks up no names.
func Load(o Options) (*model.Config, error) {
	if o.Path == "" && o.YAML == "" {
		return nil, &Invalid{[]model.Problem{{
			Reason: "no configuration: give a file with --config-path or text with --config-yaml",
			Envoy:  "At least one of --config-path or --config-yaml or Options::configProto() should be non-empty",
		}}}
	}
	r := &report{allowUnknown: o.AllowUnknownStatic}
	boot := &bootstrapv3.Bootstrap{}
	if o.Path != "" {
		r.readFile(o.Path, boot)
	}
	if o.YAML != "" {
		over := &bootstrapv3.Bootstrap{}
		r.readText(yamlName, []byte(o.YAML), parseYAML, over)
		proto.Merge(boot, over)
	}
	if err := r.err(); err != nil {
		return nil, err // what the rest says would only confuse
	}
	return r.load(boot, o)
}

// readFile reads a file into m by its extension.
func (r *report) readFile(name string, m proto.Message) {
	refuse := func(format string, args ...any) {
		r.problems = append(r.problems, finding{nil, model.Problem{File: name, Reason: fmt.Sprintf(format, args...)}})
	}
	info, err := os.Stat(name)
	if err == nil && info.Size() > maxFile {
		refuse("the file has %d MiB; the limit is %d", info.Size()>>20, maxFile>>20)
		return
	}
	text, err := os.ReadFile(name)
	if err != nil {
		r.problems = append(r.problems, finding{nil, model.Problem{
			File: name, Reason: fmt.Sprintf("cannot read it: %v", errors.Unwrap(err)), Envoy: "Invalid path: " + name,
		}})
		return
	}
	switch ext := strings.ToLower(filepath.Ext(name)); ext {
	case ".json":
		r.readText(name, text, parseJSON, m)
	case ".pb":
		if err := proto.Unmarshal(text, m); err != nil {
			refuse("not a binary Bootstrap message: %v", err)
		}
	case ".pb_text":
		if err := prototext.Unmarshal(text, m); err != nil {
			refuse("not a Bootstrap message in text form: %v", err)
		}
	case ".yaml", ".yml":
		r.readText(name, text, parseYAML, m)
	default:
		// Envoy reads what has another name as YAML, after trying JSON's superset.
		r.readText(name, text, parseYAML, m)
	}
}

// readText reads YAML or JSON text into m.
func (r *report) readText(name string, text []byte, parse func([]byte) (*tree, error), m proto.Message) {
	t, err := parse(text)
	if err == nil && t.shape != isObject {
		err = &lineError{t.line, fmt.Sprintf("must be a map with the fields of %s, not %s", m.ProtoReflect().Descriptor().Name(), describe(t))}
	}
	if err != nil {
		p := model.Problem{File: name, Reason: err.Error()}
		if errors.Is(err, errEmpty) {
			p.Envoy = "Unable to convert YAML as JSON: "
		}
		var at *lineError
		if errors.As(err, &at) {
			p.Line = at.line
		}
		r.problems = append(r.problems, finding{nil, p})
		return
	}
	d := decoder{r: r, file: name}
	for i := range r.sources {
		d.base = r.sources[i].root
	}
	d.decode(t, len(text), m)
	r.sources = append(r.sources, source{name, t})
}

// load checks a bootstrap that parses and translates it.
func (r *report) load(boot *bootstrapv3.Bootstrap, o Options) (*model.Config, error) {
	r.checkSchema(nil, boot)
	r.checkPacked(nil, boot.ProtoReflect(), "")
	tr := newTranslator(r, boot, o.IgnoreFilters)
	cfg := tr.bootstrap(boot, o)
	r.checkFields(nil, boot.ProtoReflect(), "")
	if err := r.err(); err != nil {
		return nil, err
	}
	cfg.Warnings = r.allWarnings()
	cfg.UnknownFields = r.unknown
	return cfg, nil
}
