package disruption

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/guideway/guideway/bench/scheme"
)

// Keys returns n random flows of one service, always the same ones for a seed:
// TCP from any source address and port to 192.0.2.1:443.
func Keys(n int, seed uint64) []scheme.Key {
	r := rand.New(rand.NewPCG(seed, keyStream))
	keys := make([]scheme.Key, n)
	for i := range keys {
		x := r.Uint64()
		binary.BigEndian.PutUint32(keys[i][0:], uint32(x))
		copy(keys[i][4:8], []byte{192, 0, 2, 1})
		binary.BigEndian.PutUint16(keys[i][8:], uint16(x>>32))
		binary.BigEndian.PutUint16(keys[i][10:], 443)
		keys[i][12] = 6
	}
	return keys
}

// The streams of random numbers made from one seed.
const (
	keyStream = iota
	changeStream
)
