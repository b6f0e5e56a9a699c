package dns

import (
	"time"

	"github.com/guideway/guideway/controlplane/model"
)

// refresh tells how long to wait until a name is looked up again.
type refresh struct {
	rate, jitter time.Duration
	respectTTL   bool
	failure      backoff
	random       func(n int64) int64 // in [0, n)
}

func newRefresh(s *model.DNS, random func(n int64) int64) refresh {
	r := refresh{rate: s.RefreshRate, jitter: s.Jitter, respectTTL: s.RespectTTL, random: random}
	if r.rate <= 0 {
		r.rate = 5 * time.Second
	}
	r.failure = backoff{base: s.FailureRefreshBase, max: s.FailureRefreshMax, fixed: r.rate}
	return r
}

// succeeded is the wait after an answer: its TTL if that is respected and known, else the rate, and
// jitter upon either.
func (r *refresh) succeeded(a Answer) time.Duration {
	r.failure.step = 0
	wait := r.rate
	if r.respectTTL && len(a.Addrs) > 0 && a.TTL > 0 {
		wait = a.TTL
	}
	if r.jitter > 0 {
		wait += time.Duration(r.random(int64(r.jitter)))
	}
	return wait
}

// failed is the wait after a lookup that failed, without jitter beyond that of the backoff.
func (r *refresh) failed() time.Duration { return r.failure.next(r.random) }

// backoff is dns_failure_refresh_rate: a random wait below a bound that doubles from base to max; a
// fixed one if base is not set.
type backoff struct {
	base, max, fixed time.Duration
	step             time.Duration // the next bound, 0 for base
}

// next returns the next wait. It is at least 1 ms, or failures would follow each other without end.
func (b *backoff) next(random func(n int64) int64) time.Duration {
	if b.base <= 0 {
		return b.fixed
	}
	limit := b.max
	if limit <= 0 {
		limit = 10 * b.base
	}
	if b.step == 0 {
		b.step = b.base
	}
	wait := time.Duration(random(int64(b.step)))
	if b.step < limit/2 {
		b.step *= 2
	} else {
		b.step = limit
	}
	return max(min(wait, limit), time.Millisecond)
}
