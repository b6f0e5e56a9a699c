package model

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// TestEqualLooksAtEveryField changes one field after the other, those of a later version too.
func TestEqualLooksAtEveryField(t *testing.T) {
	fresh := func() *Assignment {
		return &Assignment{Localities: []LocalityEndpoints{{Endpoints: []Endpoint{{}}}}}
	}
	if !fresh().Equal(fresh()) {
		t.Fatal("equal ones are not")
	}
	each := func(of func(*Assignment) reflect.Value) {
		for i := range of(fresh()).NumField() {
			a := fresh()
			v := of(a)
			change(t, v.Field(i))
			if a.Equal(fresh()) || fresh().Equal(a) {
				t.Errorf("%s.%s is not compared", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
	each(func(a *Assignment) reflect.Value { return reflect.ValueOf(a).Elem() })
	each(func(a *Assignment) reflect.Value { return reflect.ValueOf(&a.Localities[0]).Elem() })
	each(func(a *Assignment) reflect.Value { return reflect.ValueOf(&a.Localities[0].Endpoints[0]).Elem() })
}

func change(t *testing.T, v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *string:
		*x = "x"
	case *bool:
		*x = true
	case *uint16:
		*x = 1
	case *uint32:
		*x = 1
	case *time.Duration:
		*x = 1
	case *dataplane.Health:
		*x = 1
	case *netip.AddrPort:
		*x = netip.MustParseAddrPort("10.0.0.1:1")
	case *netip.Addr:
		*x = netip.MustParseAddr("10.0.0.1")
	case *[]netip.AddrPort:
		*x = []netip.AddrPort{{}}
	case *dataplane.Locality:
		x.Zone = "z"
	case *[]Endpoint:
		*x = nil
	case *[]LocalityEndpoints:
		*x = nil
	default:
		t.Fatalf("a field of type %v: teach the test to change it", v.Type())
	}
}
