package envoy

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestTables holds that the tables name messages and fields that exist, each field once.
func TestTables(t *testing.T) {
	for _, tab := range []table{bootstrapFields, listenerFields, filterFields, clusterFields, policyFields, healthFields, assignmentFields, sharedFields} {
		for name, e := range tab {
			mt, err := protoregistry.GlobalTypes.FindMessageByName(name)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			count := 0
			for _, kind := range compile(table{name: e}) {
				for f := range kind {
					count++
					if mt.Descriptor().Fields().ByName(f) == nil {
						t.Errorf("%s has no field %q", name, f)
					}
				}
			}
			if n := len(words(e.acted)) + len(words(e.leaf)) + len(e.ignored) + len(e.rejected); n != count {
				t.Errorf("%s: %d entries for %d fields", name, n, count)
			}
			for f := range e.harmless {
				if e.ignored[f] == "" && e.rejected[f] == "" {
					t.Errorf("%s.%s is called harmless and is neither ignored nor rejected", name, f)
				}
			}
		}
	}
}

// TestEveryFieldIsInATable holds that each message we read has a word on all its fields, so that the
// general refusal is for fields that a newer Envoy adds.
func TestEveryFieldIsInATable(t *testing.T) {
	for name, rules := range known {
		mt, err := protoregistry.GlobalTypes.FindMessageByName(name)
		if err != nil {
			continue // TestTables says so
		}
		for i := range mt.Descriptor().Fields().Len() {
			if f := mt.Descriptor().Fields().Get(i).Name(); rules[f].action == unheardOf {
				t.Errorf("%s.%s is in no table", name, f)
			}
		}
	}
}

// TestActedMessagesHaveTables holds that messages in acted fields have a table of their own.
func TestActedMessagesHaveTables(t *testing.T) {
	for name, rules := range known {
		mt, err := protoregistry.GlobalTypes.FindMessageByName(name)
		if err != nil {
			continue
		}
		for f, rule := range rules {
			fd := mt.Descriptor().Fields().ByName(f)
			if fd == nil || rule.action != acted {
				continue
			}
			md := fd.Message()
			if fd.IsMap() {
				md = fd.MapValue().Message()
			}
			if md != nil && md.ParentFile().Package() != "google.protobuf" && known[md.FullName()] == nil {
				t.Errorf("%s.%s is acted on, and %s has no table", name, f, md.FullName())
			}
		}
	}
}

func words(s string) []protoreflect.Name {
	var out []protoreflect.Name
	for f := range compile(table{"x": {acted: s}})["x"] {
		out = append(out, f)
	}
	return out
}
