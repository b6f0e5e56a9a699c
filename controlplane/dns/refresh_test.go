package dns

import (
	"net/netip"
	"testing"
	"time"

	"github.com/guideway/guideway/controlplane/model"
)

func TestRefreshAfterSuccess(t *testing.T) {
	answer := func(ttl time.Duration, n int) Answer {
		return Answer{Addrs: make([]netip.Addr, n), TTL: ttl}
	}
	for _, c := range []struct {
		name string
		dns  model.DNS
		a    Answer
		want time.Duration
	}{
		{"default", model.DNS{}, answer(time.Second, 1), 5 * time.Second},
		{"rate", model.DNS{RefreshRate: 3 * time.Second}, answer(time.Second, 1), 3 * time.Second},
		{"ttl", model.DNS{RefreshRate: 3 * time.Second, RespectTTL: true}, answer(time.Minute, 1), time.Minute},
		{"ttl of 0 means the rate", model.DNS{RefreshRate: 3 * time.Second, RespectTTL: true}, answer(0, 1), 3 * time.Second},
		{"no address has no ttl", model.DNS{RefreshRate: 3 * time.Second, RespectTTL: true}, answer(time.Minute, 0), 3 * time.Second},
		{"jitter", model.DNS{RefreshRate: 3 * time.Second, Jitter: time.Second}, answer(0, 1), 4*time.Second - 1},
		{"jitter on ttl", model.DNS{RespectTTL: true, Jitter: time.Second}, answer(2*time.Second, 1), 3*time.Second - 1},
	} {
		r := newRefresh(&c.dns, func(n int64) int64 { return n - 1 })
		if got := r.succeeded(c.a); got != c.want {
			t.Errorf("%s: next lookup in %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRefreshAfterFailure(t *testing.T) {
	most := func(n int64) int64 { return n - 1 }
	least := func(int64) int64 { return 0 }
	for _, c := range []struct {
		name   string
		dns    model.DNS
		random func(int64) int64
		want   []time.Duration
	}{
		{"no rate of its own, and no jitter", model.DNS{RefreshRate: 3 * time.Second, Jitter: time.Second}, most, []time.Duration{3 * time.Second, 3 * time.Second}},
		{"doubles up to the maximum", model.DNS{FailureRefreshBase: 2 * time.Second, FailureRefreshMax: 7 * time.Second}, most, []time.Duration{2*time.Second - 1, 4*time.Second - 1, 7*time.Second - 1, 7*time.Second - 1}},
		{"from almost nothing", model.DNS{FailureRefreshBase: 2 * time.Second, FailureRefreshMax: 7 * time.Second}, least, []time.Duration{time.Millisecond, time.Millisecond}},
	} {
		r := newRefresh(&c.dns, c.random)
		for i, want := range c.want {
			if got := r.failed(); got != want {
				t.Errorf("%s: wait %d is %v, want %v", c.name, i, got, want)
			}
		}
		r.succeeded(Answer{})
		if got := r.failed(); got != c.want[0] {
			t.Errorf("%s: after a success %v, want %v as at first", c.name, got, c.want[0])
		}
	}
}
