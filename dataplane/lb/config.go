package lb

// Policy is a load balancing policy.
type Policy uint8

// Policies.
const (
	RoundRobin Policy = iota
	LeastRequest
	Random
	RingHash
	Maglev
)

// String returns the name of the policy as in lb_policy.
func (p Policy) String() string {
	return [...]string{"ROUND_ROBIN", "LEAST_REQUEST", "RANDOM", "RING_HASH", "MAGLEV"}[p]
}

// Hashes reports whether the policy uses a flow's hash.
func (p Policy) Hashes() bool { return p == RingHash || p == Maglev }

// Config is a policy with its settings.
type Config struct {
	Policy Policy
	// LocalityWeighted turns locality weights on.
	LocalityWeighted bool
	// TableSize of Maglev, a prime.
	TableSize uint32
	// MinRing, MaxRing and Murmur (MURMUR_HASH_2) of RingHash.
	MinRing, MaxRing uint64
	Murmur           bool
	// UseHostname hashes host names; BalanceFactor in percent, 0 for off.
	UseHostname   bool
	BalanceFactor uint32
	// ChoiceCount and ActiveRequestBias of LeastRequest; FullScan looks at every host.
	ChoiceCount       uint32
	ActiveRequestBias float64
	FullScan          bool
	// HashSourceIP is set when the policy itself hashes the source address (TCP), whatever the filter says.
	HashSourceIP bool
}
