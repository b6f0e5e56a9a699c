package maglev

// mersenneTwister is MT19937, the std::mt19937 of C++, as Matsumoto and
// Nishimura define it (ACM TOMACS 8(1), 1998). Envoy orders the probes of
// bounded load by it; math/rand/v2 has no such generator. Seed it before use.
type mersenneTwister struct {
	state [624]uint32
	next  int
}

func (m *mersenneTwister) seed(seed uint32) {
	m.state[0] = seed
	for i := 1; i < len(m.state); i++ {
		before := m.state[i-1]
		m.state[i] = 1812433253*(before^before>>30) + uint32(i)
	}
	m.next = len(m.state)
}

// twist replaces the whole state.
func (m *mersenneTwister) twist() {
	const n, middle = len(m.state), 397
	for i := range m.state {
		y := m.state[i]&0x80000000 | m.state[(i+1)%n]&0x7fffffff
		x := m.state[(i+middle)%n] ^ y>>1
		if y&1 != 0 {
			x ^= 0x9908b0df
		}
		m.state[i] = x
	}
	m.next = 0
}

// uint32 returns the next 32 bits.
func (m *mersenneTwister) uint32() uint32 {
	if m.next == len(m.state) {
		m.twist()
	}
	y := m.state[m.next]
	m.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// below returns a number from 0 to n-1, n being at least 1, all equally likely:
// what does not divide evenly is drawn again.
func (m *mersenneTwister) below(n uint32) uint32 {
	width := (uint64(1) << 32) / uint64(n)
	for {
		if x := uint64(m.uint32()) / width; x < uint64(n) {
			return uint32(x)
		}
	}
}
