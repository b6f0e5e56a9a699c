package maglev

import (
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

func streamedXXH64(s string, seed uint64) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	d.WriteString(s)
	return d.Sum64()
}

func TestSeededXXH64(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "s"))
		seed := rapid.Uint64().Draw(t, "seed")
		if got, want := seededXXH64(s, seed), streamedXXH64(s, seed); got != want {
			t.Fatalf("%016x, want %016x", got, want)
		}
	})
}

// The values are those of Envoy's test of its MurmurHash, and of
// std::hash<std::string> in libstdc++ 12.
func TestMurmur2(t *testing.T) {
	for text, want := range map[string]uint64{
		"":                     6142509188972423790,
		"foo":                  9631199822919835226,
		"bar":                  11474628671133349555,
		"foo\nbar":             16306510975912980159,
		"lyft":                 12847078931730529320,
		"a":                    0x454ddee488c1ed6b,
		"1234567":              0x6d7a4e79e8a2cbf6,
		"12345678":             0x8c5b90a33a04dca5,
		"10.0.0.1:80_0":        0xbd8f6461ecffb28c,
		"10.0.0.1:8080_117":    0x086b02d72d6ae074,
		"[2001:db8::1]:443_12": 0x8156fccbb1672d55,
		"\xff\xfe\x80":         0xca01bf8f2c418857,
	} {
		if got := murmur2([]byte(text)); got != want {
			t.Errorf("%q: %016x, want %016x", text, got, want)
		}
	}
}

// The tenth thousandth number is given by the C++ standard ([rand.predef]).
func TestMersenneTwister(t *testing.T) {
	var m mersenneTwister
	m.seed(5489)
	var last uint32
	for range 10000 {
		last = m.uint32()
	}
	if last != 4123659995 {
		t.Errorf("the 10000th number is %d, want 4123659995", last)
	}
}

// BenchmarkSeededXXH64 is why there is one of our own.
func BenchmarkSeededXXH64(b *testing.B) {
	const key = "10.20.30.250:8080"
	b.Run("how=streamed", func(b *testing.B) {
		for b.Loop() {
			streamedXXH64(key, 1)
		}
	})
	b.Run("how=ours", func(b *testing.B) {
		for b.Loop() {
			seededXXH64(key, 1)
		}
	})
}
