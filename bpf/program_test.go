package bpf

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/guideway/guideway/conntrack"
)

// The verifier gives up after a million instructions that it followed.
const verifierLimit = 1_000_000

// TestVerifierHasRoom loads the program with each switch turned over, one at a
// time, and none: the verifier must accept it with plenty of room, and the
// program must still balance what it is left with.
func TestVerifierHasRoom(t *testing.T) {
	requireRoot(t)
	all := DefaultSwitches()
	all.Capture = 1
	cases := map[string]Switches{"default": DefaultSwitches(), "all": all, "least": {Ipv4: 1, Ipip: 1}}
	for i := range reflect.TypeFor[Switches]().NumField() {
		f := reflect.TypeFor[Switches]().Field(i)
		if f.Type.Kind() != reflect.Uint8 || f.Name == "Zero" || f.Name == "Capture" {
			continue
		}
		s := all
		v := reflect.ValueOf(&s).Elem().Field(i)
		v.SetUint(1 - v.Uint())
		cases["without "+f.Name] = s
	}
	for name, s := range cases {
		p, err := Load(Options{Switches: &s, Capacity: Capacity{Flows: 1024, HalfOpen: 1024, NATFlows: 1024}})
		if err != nil {
			t.Errorf("%s: %+v", name, err)
			continue
		}
		info, err := p.XDP.Info()
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := info.VerifiedInstructions(); ok && n > verifierLimit/4 {
			t.Errorf("%s: the verifier followed %d instructions", name, n)
		} else if name == "all" || name == "least" {
			t.Logf("%s: the verifier followed %d instructions", name, n)
		}
		if s.Ipv4 == 1 && s.Ipip == 1 {
			b := &bed{t: t, Program: p, tables: map[uint32]*ebpf.Map{}}
			st, _ := oneTable(t, conntrack.TrackChanged, 1, 0, 0, 0)
			b.put(vip4, kindTCP, Service{}, image(t, st), []Backend{ways[0].backend()})
			packet := ip{src: client4.Addr(), dst: vip4.Addr(), proto: kindTCP}.bytes(tcp(client4, vip4, tcpACK, "x"))
			if verdict, out := b.run(frame(packet)); verdict != "tx" || !bytes.Equal(out[34:], hop(packet)) {
				t.Errorf("%s: %s\n% x", name, verdict, out)
			}
			b.closeTables()
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFrags loads the program for frames in several buffers.
func TestFrags(t *testing.T) {
	requireRoot(t)
	p, err := Load(Options{Frags: true, Capacity: Capacity{Flows: 1024, HalfOpen: 1024, NATFlows: 1024}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestCapture looks at the samples of a packet before and after.
func TestCapture(t *testing.T) {
	b := newBed(t, func(s *Switches) { s.Capture = 1 })
	b.reset()
	s, _ := oneTable(t, conntrack.TrackChanged, 1, 0, 0, 0)
	b.put(vip4, kindTCP, Service{Id: 7, Backends: 4, Flags: ServiceCapture}, image(t, s), []Backend{ways[0].backend()})
	r, err := ringbuf.NewReader(b.Samples)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, n := range []int{0, 500} {
		in := frame(ip{src: client4.Addr(), dst: vip4.Addr(), proto: kindTCP}.bytes(tcp(client4, vip4, tcpACK, string(make([]byte, n)))))
		_, out := b.run(in)
		for after, packet := range [][]byte{in, out} {
			r.SetDeadline(time.Now().Add(5 * time.Second))
			record, err := r.Read()
			if err != nil {
				t.Fatal(err)
			}
			var c Sample
			if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &c); err != nil {
				t.Fatal(err)
			}
			want := Sample{
				Time: uint64(time.Hour), Service: 7, Backend: 4, Length: uint32(len(packet)),
				Captured: uint32(min(len(packet), len(c.Bytes))), Ifindex: thisInterface, After: uint8(after),
			}
			if after == 1 {
				want.Action = 3
			}
			copy(want.Bytes[:], packet)
			copy(c.Bytes[want.Captured:], want.Bytes[want.Captured:]) // not written
			if c != want {
				t.Errorf("sample %+v, want %+v", c, want)
			}
		}
	}
}
