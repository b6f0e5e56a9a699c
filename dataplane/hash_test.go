package dataplane

import (
	"net/netip"
	"testing"
)

func TestHashOf(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.1.2.3:1000"), netip.MustParseAddrPort("10.1.2.3:1001")
	dst := netip.MustParseAddrPort("192.0.2.1:80")
	hash := func(p HashPolicy, src netip.AddrPort) uint64 {
		h, ok := p.HashOf(TCP, src, dst)
		if !ok {
			t.Fatalf("%+v gives no hash", p)
		}
		return h
	}
	if hash(HashPolicy{Kind: HashSourceIP}, a) != hash(HashPolicy{Kind: HashSourceIP}, b) {
		t.Error("source_ip depends on the port")
	}
	if hash(HashPolicy{}, a) == hash(HashPolicy{}, b) {
		t.Error("the 5-tuple hash does not depend on the port")
	}
	if hash(HashPolicy{}, a) == hash(HashPolicy{Seed: 1}, a) {
		t.Error("the 5-tuple hash does not depend on the seed")
	}
	if got := hash(HashPolicy{Kind: HashKey, Key: "a"}, a); got != 0xd24ec4f1a98c6e5b { // XXH64("a"), seed 0
		t.Errorf("key hash %#x", got)
	}
	if _, ok := (HashPolicy{Kind: HashNone}).HashOf(TCP, a, dst); ok {
		t.Error("no policy gives a hash")
	}
}
