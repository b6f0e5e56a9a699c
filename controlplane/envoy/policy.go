package envoy

import (
	"fmt"
	"math"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	ringv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"github.com/guideway/guideway/controlplane/model"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Envoy's defaults.
const (
	defaultTable   = 65537
	defaultMinRing = 1024
	defaultMaxRing = 8 << 20
	defaultChoices = 2
	defaultPanic   = 50
	maxPanic       = 100
)

// panicThreshold is the share of healthy hosts below which health is ignored, in whole percent. The
// runtime's word counts more, but it can change; the control loop asks for it.
func panicThreshold(c *clusterv3.Cluster) uint32 {
	if p := c.GetCommonLbConfig().GetHealthyPanicThreshold(); p != nil {
		return uint32(min(max(p.GetValue(), 0), maxPanic))
	}
	return defaultPanic
}

// policy reads how hosts are picked. typed is true for clusters in the cluster_type form.
func (t *translator) policy(c *clusterv3.Cluster, m *model.Cluster, typed bool, at cursor) {
	m.LB = model.LBPolicy{ChoiceCount: defaultChoices, ActiveRequestBias: 1}
	if c.GetLoadBalancingPolicy() != nil {
		t.typedPolicy(c, &m.LB, at)
		return
	}
	common := c.GetCommonLbConfig()
	m.LB.LocalityWeighted = common.GetLocalityWeightedLbConfig() != nil
	switch c.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN:
		m.LB.Policy = model.RoundRobin
	case clusterv3.Cluster_RANDOM:
		m.LB.Policy = model.Random
	case clusterv3.Cluster_LEAST_REQUEST:
		m.LB.Policy = model.LeastRequest
		least := c.GetLeastRequestLbConfig()
		choices(&m.LB, least.GetChoiceCount())
		bias(&m.LB, least.GetActiveRequestBias(), at.field("least_request_lb_config"))
	case clusterv3.Cluster_MAGLEV:
		m.LB.Policy = model.Maglev
		tableSize(&m.LB, c.GetMaglevLbConfig().GetTableSize(), "maglev_lb_config.table_size", at.field("maglev_lb_config"))
	case clusterv3.Cluster_RING_HASH:
		m.LB.Policy = model.RingHash
		ring := c.GetRingHashLbConfig()
		ringSize(&m.LB, ring.GetMinimumRingSize(), ring.GetMaximumRingSize(), at.field("ring_hash_lb_config"))
		m.LB.Murmur = ring.GetHashFunction() == clusterv3.Cluster_RingHashLbConfig_MURMUR_HASH_2
	case clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG:
		at.field("lb_policy").failAs("cluster: field load_balancing_policy need to be set", "lb_policy LOAD_BALANCING_POLICY_CONFIG needs load_balancing_policy")
	default:
		at.field("lb_policy").fail("lb_policy %s is not supported; use MAGLEV, RING_HASH, ROUND_ROBIN, LEAST_REQUEST or RANDOM", c.GetLbPolicy())
	}
	t.unusedPolicies(c, at)
	hashing, where := common.GetConsistentHashingLbConfig(), at.field("common_lb_config").field("consistent_hashing_lb_config")
	if hashing == nil {
		return
	}
	if hashing.GetUseHostnameForHashing() {
		if m.Discovery != model.StrictDNS || typed {
			where.field("use_hostname_for_hashing").failAs(
				fmt.Sprintf("Cannot use hostname for consistent hashing loadbalancing for cluster of type: '%s'", typeName(m.Discovery)),
				"common_lb_config.consistent_hashing_lb_config.use_hostname_for_hashing needs type STRICT_DNS; for STATIC or EDS set it in load_balancing_policy (Maglev.consistent_hashing_lb_config)")
		}
	}
	if !m.LB.Policy.Hashes() {
		where.warn("it has no effect: %s does not hash", m.LB.Policy)
		return
	}
	m.LB.UseHostname = hashing.GetUseHostnameForHashing()
	m.LB.BalanceFactor = hashing.GetHashBalanceFactor().GetValue()
}

// unusedPolicies warns of settings for another policy than the one in force.
func (t *translator) unusedPolicies(c *clusterv3.Cluster, at cursor) {
	uses := map[clusterv3.Cluster_LbPolicy]string{
		clusterv3.Cluster_MAGLEV: "maglev_lb_config", clusterv3.Cluster_RING_HASH: "ring_hash_lb_config",
		clusterv3.Cluster_LEAST_REQUEST: "least_request_lb_config", clusterv3.Cluster_ROUND_ROBIN: "round_robin_lb_config",
	}
	set := ""
	switch c.GetLbConfig().(type) {
	case *clusterv3.Cluster_MaglevLbConfig_:
		set = "maglev_lb_config"
	case *clusterv3.Cluster_RingHashLbConfig_:
		set = "ring_hash_lb_config"
	case *clusterv3.Cluster_LeastRequestLbConfig_:
		set = "least_request_lb_config"
	case *clusterv3.Cluster_RoundRobinLbConfig_:
		set = "round_robin_lb_config"
	}
	if set != "" && set != uses[c.GetLbPolicy()] {
		at.field(set).warn("%s has no effect with lb_policy %s", set, c.GetLbPolicy())
	}
}

// typedPolicy reads load_balancing_policy: the first policy that is supported counts.
func (t *translator) typedPolicy(c *clusterv3.Cluster, lb *model.LBPolicy, at cursor) {
	var partial []string
	common := c.GetCommonLbConfig()
	if common.GetZoneAwareLbConfig() != nil {
		partial = append(partial, "zone_aware_lb_config")
	}
	if common.GetLocalityWeightedLbConfig() != nil {
		partial = append(partial, "locality_weighted_lb_config")
	}
	if common.GetConsistentHashingLbConfig() != nil {
		partial = append(partial, "consistent_hashing_lb_config")
	}
	if len(partial) > 0 {
		at.field("common_lb_config").failAs(
			"cluster: load_balancing_policy cannot be combined with partial fields (zone_aware_lb_config, locality_weighted_lb_config, consistent_hashing_lb_config) of common_lb_config",
			"load_balancing_policy cannot be combined with %s in common_lb_config; set it in the policy", strings.Join(partial, ", "))
	}
	at = at.field("load_balancing_policy").field("policies")
	var names []string
	for i, p := range c.GetLoadBalancingPolicy().GetPolicies() {
		config := p.GetTypedExtensionConfig()
		names = append(names, config.GetName())
		where := at.at(i).field("typed_extension_config").field("typed_config")
		m := unpack(config.GetTypedConfig())
		if m == nil || !t.onePolicy(m, lb, where) {
			if kind, _ := strings.CutPrefix(config.GetTypedConfig().GetTypeUrl(), "type.googleapis.com/"); strings.HasPrefix(kind, "envoy.extensions.load_balancing_policies.") {
				// Envoy would take it, and pick other hosts than the next in the list.
				where.fail("load balancing policy %q (%s) is not supported; use maglev, ring_hash, round_robin, least_request or random", config.GetName(), kind)
				return
			}
			continue
		}
		t.r.checkFields(where.p, m.ProtoReflect(), where.prefix())
		return
	}
	at.failAs(fmt.Sprintf("cluster: didn't find a registered load balancer factory implementation for cluster: '%s' with names from [%s]", c.GetName(), strings.Join(names, ", ")),
		"none of the load balancing policies [%s] is supported; use maglev, ring_hash, round_robin, least_request or random", strings.Join(names, ", "))
}

// onePolicy reads one typed policy; false if it is not one of ours.
func (t *translator) onePolicy(m proto.Message, lb *model.LBPolicy, at cursor) bool {
	switch p := m.(type) {
	case *maglevv3.Maglev:
		lb.Policy = model.Maglev
		tableSize(lb, p.GetTableSize(), "table_size", at)
		lb.LocalityWeighted = p.GetLocalityWeightedLbConfig() != nil
		hashing(lb, p.GetConsistentHashingLbConfig(), at.field("consistent_hashing_lb_config"))
	case *ringv3.RingHash:
		lb.Policy = model.RingHash
		ringSize(lb, p.GetMinimumRingSize(), p.GetMaximumRingSize(), at)
		lb.Murmur = p.GetHashFunction() == ringv3.RingHash_MURMUR_HASH_2
		lb.LocalityWeighted = p.GetLocalityWeightedLbConfig() != nil
		lb.UseHostname = p.GetUseHostnameForHashing()
		lb.BalanceFactor = p.GetHashBalanceFactor().GetValue()
		hashing(lb, p.GetConsistentHashingLbConfig(), at.field("consistent_hashing_lb_config"))
	case *roundv3.RoundRobin:
		lb.Policy = model.RoundRobin
		lb.LocalityWeighted = p.GetLocalityLbConfig().GetLocalityWeightedLbConfig() != nil
	case *randomv3.Random:
		lb.Policy = model.Random
		lb.LocalityWeighted = p.GetLocalityLbConfig().GetLocalityWeightedLbConfig() != nil
	case *leastv3.LeastRequest:
		lb.Policy = model.LeastRequest
		lb.LocalityWeighted = p.GetLocalityLbConfig().GetLocalityWeightedLbConfig() != nil
		choices(lb, p.GetChoiceCount())
		bias(lb, p.GetActiveRequestBias(), at)
		lb.FullScan = p.GetEnableFullScan().GetValue() || p.GetSelectionMethod() == leastv3.LeastRequest_FULL_SCAN
	default:
		return false
	}
	return true
}

// hashing reads the settings that MAGLEV and RING_HASH share.
func hashing(lb *model.LBPolicy, c *commonv3.ConsistentHashingLbConfig, at cursor) {
	if c == nil {
		return
	}
	lb.UseHostname = c.GetUseHostnameForHashing()
	lb.BalanceFactor = c.GetHashBalanceFactor().GetValue()
	policies := c.GetHashPolicy()
	if len(policies) == 0 {
		return
	}
	where := at.field("hash_policy")
	if len(policies) == 1 {
		if p, ok := policies[0].GetPolicySpecifier().(*routev3.RouteAction_HashPolicy_ConnectionProperties_); ok && p.ConnectionProperties.GetSourceIp() {
			lb.HashSourceIP = true
			return
		}
	}
	where.fail("only one connection_properties.source_ip: true is supported here; or set hash_policy in the filter")
}

func choices(lb *model.LBPolicy, n *wrapperspb.UInt32Value) {
	if n != nil {
		lb.ChoiceCount = n.GetValue()
	}
}

func bias(lb *model.LBPolicy, b *corev3.RuntimeDouble, at cursor) {
	if b == nil {
		return
	}
	if lb.ActiveRequestBias = b.GetDefaultValue(); lb.ActiveRequestBias < 0 || math.IsNaN(lb.ActiveRequestBias) {
		at.field("active_request_bias").fail("active_request_bias must not be negative")
	}
}

// tableSize checks the size of a Maglev table. field is how the size is called in messages.
func tableSize(lb *model.LBPolicy, size *wrapperspb.UInt64Value, field string, at cursor) {
	lb.TableSize = defaultTable
	if size == nil {
		return
	}
	n := size.GetValue()
	if !isPrime(n) {
		envoy := "The table size of maglev must be prime number"
		if n == 1 {
			envoy = "" // it crashes
		}
		at.field("table_size").failAs(envoy,
			"%s %d is not a prime number (%s)", field, n, primesNear(n))
		return
	}
	lb.TableSize = uint32(min(n, math.MaxUint32))
}

func ringSize(lb *model.LBPolicy, low, high *wrapperspb.UInt64Value, at cursor) {
	lb.MinRing, lb.MaxRing = defaultMinRing, defaultMaxRing
	if low != nil {
		lb.MinRing = low.GetValue()
	}
	if high != nil {
		lb.MaxRing = high.GetValue()
	}
	if lb.MinRing > lb.MaxRing {
		at.field("minimum_ring_size").failAs(fmt.Sprintf("ring hash: minimum_ring_size (%d) > maximum_ring_size (%d)", lb.MinRing, lb.MaxRing),
			"minimum_ring_size %d is above maximum_ring_size %d", lb.MinRing, lb.MaxRing)
	}
}

// isPrime is trial division; sizes are at most 5,000,011, and what is larger has been refused.
func isPrime(n uint64) bool {
	if n < 2 || n > math.MaxUint32 {
		return false
	}
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

// primesNear names the primes on both sides of n.
func primesNear(n uint64) string {
	if n > 5000011 {
		return "the largest allowed is 5000011"
	}
	var near []string
	for p := n; p > 2; {
		if p--; isPrime(p) {
			near = append(near, fmt.Sprint(p))
			break
		}
	}
	for p := n + 1; p <= 5000011; p++ {
		if isPrime(p) {
			near = append(near, fmt.Sprint(p))
			break
		}
	}
	if len(near) == 1 {
		return "nearest prime: " + near[0]
	}
	return "nearest primes: " + strings.Join(near, ", ")
}
