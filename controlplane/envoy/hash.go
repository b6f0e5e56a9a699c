package envoy

import (
	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// hashMessage hashes what a message says: equal for equal content, whatever the order of maps or the
// encoding inside Any was. The fields in without are left out.
func hashMessage(m proto.Message, without ...protoreflect.Name) uint64 {
	c := proto.Clone(m)
	r := c.ProtoReflect()
	for _, name := range without {
		if fd := r.Descriptor().Fields().ByName(name); fd != nil {
			r.Clear(fd)
		}
	}
	canonical(r)
	b, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(c)
	if err != nil { // only invalid UTF-8 fails, and parsing has refused that
		return 0
	}
	return xxhash.Sum64(b)
}

// canonical encodes everything in Any again, deterministically.
func canonical(m protoreflect.Message) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner := unpack(a)
		if inner == nil {
			return
		}
		canonical(inner.ProtoReflect())
		if b, err := (proto.MarshalOptions{Deterministic: true, AllowPartial: true}).Marshal(inner); err == nil {
			a.Value = b
		}
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					canonical(v.Message())
					return true
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				canonical(v.List().Get(i).Message())
			}
		default:
			canonical(v.Message())
		}
		return true
	})
}
