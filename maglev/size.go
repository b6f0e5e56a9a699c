package maglev

import "fmt"

const (
	// DefaultTableSize is Envoy's size of a table, in slots.
	DefaultTableSize = 65537
	// MaxTableSize is the largest size Envoy's schema allows, in slots.
	MaxTableSize = 5000011
)

// CheckTableSize says whether a table may have this many slots: a prime number
// up to [MaxTableSize]. The error names the nearest sizes that may be used.
func CheckTableSize(size uint64) error {
	switch {
	case size > MaxTableSize:
		return fmt.Errorf("table size %d is too large (the largest is %d)", size, MaxTableSize)
	case isPrime(size):
		return nil
	case size < 2:
		return fmt.Errorf("%d is not a prime number (nearest prime: 2)", size)
	}
	// MaxTableSize is prime, so there is a prime on either side.
	below, above := size-1, size+1
	for !isPrime(below) {
		below--
	}
	for !isPrime(above) {
		above++
	}
	return fmt.Errorf("%d is not a prime number (nearest primes: %d, %d)", size, below, above)
}

func isPrime(n uint64) bool {
	if n < 2 {
		return false
	}
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}
