package xdp

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
)

// rememberedFlow is an entry of the maps of flows.
type rememberedFlow struct {
	flow     conntrack.Flow
	entry    bpf.Flow
	halfOpen bool
	nat      bool
}

// flowMaps are the maps in which the program remembers flows.
type flowMaps interface {
	// flows yields every flow, in no order; those that come or go meanwhile, perhaps.
	flows(yield func(rememberedFlow) bool) error
	// forget removes a flow that has been over for long.
	forget(rememberedFlow) error
}

// batch is how many entries are read by one system call.
const batch = 4096

func (k *kernelMaps) flows(yield func(rememberedFlow) bool) error {
	for _, m := range []struct {
		four, six *ebpf.Map
		half      bool
	}{{k.Flows4, k.Flows6, false}, {k.HalfOpen4, k.HalfOpen6, true}} {
		more, err := each(m.four, func(key *conntrack.Key4, f *bpf.Flow) bool {
			return yield(rememberedFlow{flow: key.Flow(), entry: *f, halfOpen: m.half})
		})
		if err == nil && more {
			more, err = each(m.six, func(key *conntrack.Key6, f *bpf.Flow) bool {
				return yield(rememberedFlow{flow: key.Flow(), entry: *f, halfOpen: m.half})
			})
		}
		if err != nil {
			return fmt.Errorf("read the remembered flows: %w", err)
		}
		if !more {
			return nil
		}
	}
	_, err := each(k.NATFlows, func(key *conntrack.Key6, f *bpf.NATFlow) bool {
		flow := key.Flow()
		return yield(rememberedFlow{flow: unmapped(flow), entry: bpf.Flow{Generation: f.Generation, Backend: f.Backend, Last: f.Last}, nat: true})
	})
	if err != nil {
		return fmt.Errorf("read the NAT flows: %w", err)
	}
	return nil
}

// unmapped turns a flow of mapped IPv4 addresses into one of IPv4.
func unmapped(f conntrack.Flow) conntrack.Flow {
	if k, ok := f.Key4(); ok {
		return k.Flow()
	}
	return f
}

// each reads a map in batches. It reports false if f did not want all.
func each[K, V any](m *ebpf.Map, f func(*K, *V) bool) (bool, error) {
	keys, values := make([]K, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return true, err
		}
		for i := range n {
			if !f(&keys[i], &values[i]) {
				return false, nil
			}
		}
		if err != nil { // the end
			return true, nil
		}
	}
}

func (k *kernelMaps) forget(f rememberedFlow) error {
	var err error
	k4, four := f.flow.Key4()
	k6 := f.flow.Key6()
	switch {
	case f.nat:
		return nil // its ports are given back by the program
	case four && f.halfOpen:
		err = k.HalfOpen4.Delete(k4[:])
	case four:
		err = k.Flows4.Delete(k4[:])
	case f.halfOpen:
		err = k.HalfOpen6.Delete(k6[:])
	default:
		err = k.Flows6.Delete(k6[:])
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// The keys of conntrack are those of the maps.
var (
	_ [unsafe.Sizeof(conntrack.Key4{})]byte = [16]byte{}
	_ [unsafe.Sizeof(conntrack.Key6{})]byte = [40]byte{}
)
