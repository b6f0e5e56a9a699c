package scheme

// modulo is hash mod n over the list of backends, or over the sum of the
// weights, as nftables' "jhash ... mod N map" is usually written.
type modulo struct{}

func (modulo) Spec() string   { return "modulo" }
func (modulo) Kind() string   { return "modulo" }
func (modulo) Weighted() bool { return true }

func (modulo) Place(backends []Backend, _ Placement) (Placement, error) {
	if err := check(backends); err != nil {
		return nil, err
	}
	if equalWeights(backends) {
		return moduloEven(len(backends)), nil
	}
	divisor := uint32(0)
	for _, b := range backends {
		divisor = gcd(divisor, b.Weight)
	}
	var table moduloTable
	for i, b := range backends {
		if uint64(len(table))+uint64(b.Weight/divisor) > maxTableEntries {
			return nil, errTooManyEntries("modulo", "weights")
		}
		for range b.Weight / divisor {
			table = append(table, uint16(i))
		}
	}
	return table, nil
}

// moduloEven is the number of backends.
type moduloEven uint64

func (p moduloEven) Bytes() int { return 8 }

func (p moduloEven) Pick(keys []Key, owners []int32) {
	for i := range keys {
		owners[i] = int32(hashOf(&keys[i]) % uint64(p))
	}
}

// moduloTable has each backend as often as its weight says.
type moduloTable []uint16

func (p moduloTable) Bytes() int { return 2 * len(p) }

func (p moduloTable) Pick(keys []Key, owners []int32) {
	for i := range keys {
		owners[i] = int32(p[hashOf(&keys[i])%uint64(len(p))])
	}
}

func gcd(a, b uint32) uint32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
