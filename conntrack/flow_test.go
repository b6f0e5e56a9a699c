package conntrack

import (
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"testing"
)

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// The vectors were computed from their bytes by the xxHash author's C library
// (through Python's xxhash), not by this package; testdata/README.md has the
// program.
func TestFiveTupleVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/five_tuple.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name, Src, Dst, Bytes, Seed, Hash string
		Proto                             Proto
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 40 {
		t.Fatalf("%d vectors, want at least 40", len(vectors))
	}
	for _, v := range vectors {
		t.Run(v.Name+"/seed "+v.Seed, func(t *testing.T) {
			f := Flow{Proto: v.Proto, Src: addrPort(v.Src), Dst: addrPort(v.Dst)}
			k6 := f.Key6()
			b := k6[:]
			if k4, ok := f.Key4(); ok {
				b = k4[:]
			}
			if got := hex.EncodeToString(b); got != v.Bytes {
				t.Errorf("bytes %s, want %s", got, v.Bytes)
			}
			seed, err := strconv.ParseUint(v.Seed, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			want, err := strconv.ParseUint(v.Hash, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			if got := Hash5Tuple(seed, f); got != want {
				t.Errorf("hash %016x, want %016x", got, want)
			}
		})
	}
}

func TestHash5TupleDoesNotAllocate(t *testing.T) {
	for _, f := range []Flow{
		{Proto: TCP, Src: addrPort("10.1.2.3:4567"), Dst: addrPort("10.0.0.1:80")},
		{Proto: UDP, Src: addrPort("[2001:db8::1]:4567"), Dst: addrPort("[2001:db8::2]:53")},
	} {
		for _, seed := range []uint64{0, 7} {
			if n := testing.AllocsPerRun(100, func() { Hash5Tuple(seed, f) }); n != 0 {
				t.Errorf("%v, seed %d: %v allocations", f, seed, n)
			}
		}
	}
}

// Keys and flows are the same thing: no two flows share a key, none is lost.
func FuzzKeys(f *testing.F) {
	f.Add(make([]byte, 40))
	f.Add([]byte("\x0a\x00\x00\x01\x0a\x00\x00\x02\x12\x34\x00\x50\x06\x00\x00\x00"))
	mapped := Flow{Src: addrPort("[::ffff:10.0.0.1]:1"), Dst: addrPort("[::ffff:10.0.0.2]:2")}.Key6()
	f.Add(mapped[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		switch {
		case len(b) >= 40:
			k := Key6(b[:40])
			k[37], k[38], k[39] = 0, 0, 0
			flow := k.Flow()
			if back := flow.Key6(); back != k {
				t.Fatalf("%x became %x", k, back)
			}
			k4, is4 := flow.Key4()
			if is4 != (flow.Src.Addr().Is4In6() && flow.Dst.Addr().Is4In6()) {
				t.Fatalf("%v has an IPv4 key: %v", flow, is4)
			}
			if is4 && Hash5Tuple(3, flow) != Hash5Tuple(3, k4.Flow()) {
				t.Fatalf("%v and %v have different hashes", flow, k4.Flow())
			}
		case len(b) >= 16:
			k := Key4(b[:16])
			k[13], k[14], k[15] = 0, 0, 0
			if back, ok := k.Flow().Key4(); !ok || back != k {
				t.Fatalf("%x became %x", k, back)
			}
		}
	})
}

// What no packet has must not panic either.
func TestKeysOfOddFlows(t *testing.T) {
	if (Flow{}).Key6() != (Key6{}) {
		t.Error("the key of no flow is not zero")
	}
	mixed := Flow{Src: addrPort("10.0.0.1:1"), Dst: addrPort("[2001:db8::1]:2"), Proto: UDP}
	if _, ok := mixed.Key4(); ok {
		t.Error("a flow to an IPv6 address has an IPv4 key")
	}
	if got := mixed.Key6().Flow().Src.Addr().String(); got != "::ffff:10.0.0.1" {
		t.Errorf("source %s", got)
	}
	scoped := Flow{Src: addrPort("[fe80::1%2]:1"), Dst: addrPort("[fe80::2]:2"), Proto: UDP}
	bare := Flow{Src: addrPort("[fe80::1]:1"), Dst: addrPort("[fe80::2]:2"), Proto: UDP}
	if Hash5Tuple(1, scoped) != Hash5Tuple(1, bare) {
		t.Error("a scope changes the hash")
	}
}

// Flows that differ in one port spread over slots: no folding, no weak bits.
func TestHash5TupleSpreads(t *testing.T) {
	const slots, flows = 101, 65536
	var n [slots]int
	for port := range flows {
		src := netip.AddrPortFrom(netip.MustParseAddr("10.1.2.3"), uint16(port))
		n[Hash5Tuple(0, Flow{Proto: TCP, Src: src, Dst: addrPort("10.0.0.1:80")})%slots]++
	}
	for i, c := range n {
		// 649 expected, standard deviation 25.
		if c < 649-6*25 || c > 649+6*25 {
			t.Errorf("slot %d has %d flows of %d", i, c, flows)
		}
	}
}

func randomFlow(r *rand.Rand, proto Proto) Flow {
	src := netip.AddrFrom4([4]byte{10, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
	return Flow{Proto: proto, Src: netip.AddrPortFrom(src, uint16(r.Uint32())), Dst: addrPort("192.0.2.1:443")}
}
