package scheme

import "github.com/guideway/guideway/maglev"

// envoyRing is Envoy's RING_HASH with its default bounds and XX_HASH.
type envoyRing struct{ minimum uint64 }

func (s envoyRing) Spec() string {
	if s.minimum == maglev.DefaultMinRingSize {
		return "envoy-ring"
	}
	return "envoy-ring:min=" + utoa(s.minimum)
}

func (s envoyRing) Kind() string   { return "envoy-ring" }
func (s envoyRing) Weighted() bool { return true }

func (s envoyRing) Place(backends []Backend, _ Placement) (Placement, error) {
	if err := check(backends); err != nil {
		return nil, err
	}
	options := maglev.RingOptions{MinSize: s.minimum, MaxSize: maglev.DefaultMaxRingSize, Hash: maglev.XXHash}
	r, err := maglev.BuildRing(options, hosts(backends), nil)
	if err != nil {
		return nil, err
	}
	return &envoyRingPlacement{r, len(backends)}, nil
}

type envoyRingPlacement struct {
	ring     *maglev.Ring
	backends int
}

func (p *envoyRingPlacement) Bytes() int { return 12 * p.ring.Len() }

func (p *envoyRingPlacement) Pick(keys []Key, owners []int32) {
	for i := range keys {
		owners[i] = int32(p.ring.Lookup(hashOf(&keys[i])))
	}
}

// Top goes on along the ring, as Envoy's retries do.
func (p *envoyRingPlacement) Top(dst []int32, key *Key, k int) []int32 {
	from, hash := len(dst), hashOf(key)
	k = min(k, p.backends)
	for attempt := uint32(0); len(dst)-from < k && int(attempt) < p.ring.Len(); attempt++ {
		dst = distinct(dst, from, int32(p.ring.LookupAttempt(hash, attempt)))
	}
	return dst
}
