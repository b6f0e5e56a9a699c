package maglev

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Host is one host as table and ring building see it.
type Host struct {
	// Key is the string that is hashed for the host; [HostKey] gives the one
	// of a host whose configuration names no other.
	Key string
	// Addr is the text of the host's address. It is not hashed. It puts hosts
	// of equal keys in order, and tells them apart when tables are compared.
	Addr string
	// Weight is the host's load balancing weight, at least 1.
	Weight uint32
	// Locality is the index of the host's locality in the list that is given
	// along with the hosts. Without such a list it has no meaning.
	Locality int
}

// Locality is a locality of weighted hosts.
type Locality struct {
	// Weight is the locality's load balancing weight. The hosts of a locality
	// without weight get nothing.
	Weight uint32
	// Empty says that the locality has no host at all, not even an unhealthy
	// one that is not part of the build. Such a locality does not count. One
	// whose hosts are all unhealthy does.
	Empty bool
}

var (
	errHostWeights     = errors.New("the sum of weights of all upstream hosts in a locality exceeds 4294967295: use smaller weights")
	errLocalityWeights = errors.New("the sum of weights of all localities at the same priority exceeds 4294967295: use smaller weights")
)

// A share is a host's part of the whole, in host-set order: as given, or
// locality by locality if there are localities.
type share struct {
	host   uint32  // index into the list of hosts
	weight float64 // normalised: the shares of all hosts add up to about 1
}

// normalise turns weights into shares. A nil list of localities means that
// there are none; an empty one means that nothing has a weight.
//
// Which slots a host gets depends on the last bit of these numbers, so the
// order of operations is part of the result: weight times the locality's
// share, then divided by the sum of weights.
func normalise(hosts []Host, localities []Locality) ([]share, error) {
	shares := make([]share, 0, len(hosts))
	if localities == nil {
		var sum uint64
		for i := range hosts {
			if hosts[i].Weight == 0 {
				return nil, errNoWeight(hosts, i)
			}
			sum += uint64(hosts[i].Weight)
		}
		if sum > math.MaxUint32 {
			return nil, errHostWeights
		}
		for i := range hosts {
			shares = append(shares, share{uint32(i), float64(hosts[i].Weight) / float64(sum)})
		}
		return shares, nil
	}

	var total uint64
	for _, l := range localities {
		if !l.Empty {
			total += uint64(l.Weight)
		}
	}
	if total > math.MaxUint32 {
		return nil, errLocalityWeights
	}
	sums := make([]uint64, len(localities))
	for i := range hosts {
		h := &hosts[i]
		if h.Weight == 0 {
			return nil, errNoWeight(hosts, i)
		}
		if h.Locality < 0 || h.Locality >= len(localities) {
			return nil, fmt.Errorf("host %q is in locality %d of %d", h.Key, h.Locality, len(localities))
		}
		if localities[h.Locality].Empty {
			return nil, fmt.Errorf("host %q is in locality %d, which is declared empty", h.Key, h.Locality)
		}
		sums[h.Locality] += uint64(h.Weight)
	}
	for _, sum := range sums {
		if sum > math.MaxUint32 {
			return nil, errHostWeights
		}
	}
	for i := range hosts {
		h := &hosts[i]
		if localities[h.Locality].Weight == 0 {
			continue
		}
		part := float64(localities[h.Locality].Weight) / float64(total)
		shares = append(shares, share{uint32(i), float64(h.Weight) * part / float64(sums[h.Locality])})
	}
	slices.SortStableFunc(shares, func(a, b share) int {
		return hosts[a.host].Locality - hosts[b.host].Locality
	})
	return shares, nil
}

func errNoWeight(hosts []Host, i int) error {
	return fmt.Errorf("host %q has no weight: the smallest is 1", hosts[i].Key)
}
