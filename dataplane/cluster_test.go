package dataplane

import "testing"

func TestClusterHashPolicy(t *testing.T) {
	source, key, five, none := HashPolicy{Kind: HashSourceIP}, HashPolicy{Kind: HashKey, Key: "k"}, HashPolicy{Seed: 7}, HashPolicy{Kind: HashNone}
	for _, tc := range []struct {
		name     string
		cluster  Cluster
		in, want HashPolicy
	}{
		{"nothing set", Cluster{}, five, five},
		{"random instead of the 5-tuple", Cluster{RandomHash: true}, five, none},
		{"random leaves a configured policy", Cluster{RandomHash: true}, key, key},
		{"the cluster's own source address", Cluster{HashSourceIP: true, RandomHash: true}, five, source},
		{"the cluster's own before the proxy's", Cluster{HashSourceIP: true}, key, source},
	} {
		if got := tc.cluster.HashPolicy(tc.in); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}
