package xds

import (
	"math/rand/v2"
	"time"
)

// Clock tells the time and calls back. Callbacks may come on any goroutine.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f after d, unless stop is called before.
	AfterFunc(d time.Duration, f func()) (stop func())
}

// systemClock is the real one.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// backoff is Envoy's jittered exponential backoff: the n-th wait is uniform in [0, min(max, base*2^n)).
type backoff struct {
	base, max time.Duration
	next      time.Duration // bound of the next wait, 0 for base
}

// defaultBackoff is what Envoy waits between attempts to reach a management server.
func defaultBackoff() backoff { return backoff{base: 500 * time.Millisecond, max: 30 * time.Second} }

func (b *backoff) reset() { b.next = 0 }

func (b *backoff) wait() time.Duration {
	bound := max(b.next, b.base)
	bound = min(bound, b.max)
	b.next = min(2*bound, b.max)
	return rand.N(bound)
}

// pace spaces refusals. A server may answer each with the same resources at once; without a brake the
// two would go round hundreds of times a second. While a refusal is held back the server sends nothing
// of the type, so the pause stays short.
type pace struct {
	until time.Time     // no refusal before
	gap   time.Duration // to the one after the next
}

const (
	firstGap = 500 * time.Millisecond
	lastGap  = 4 * time.Second
)

// ready is the time that is left before a refusal may go, 0 if it may.
func (p *pace) ready(now time.Time) time.Duration { return max(p.until.Sub(now), 0) }

// refused notes that a refusal went out.
func (p *pace) refused(now time.Time) {
	if now.Sub(p.until) > 10*lastGap {
		p.gap = 0 // the last one is long ago
	}
	p.gap = min(max(2*p.gap, firstGap), lastGap)
	p.until = now.Add(p.gap)
}

// accepted notes that a response was accepted.
func (p *pace) accepted() { p.gap = 0 }

// bucket limits requests as rate_limit_settings say: rate tokens a second, up to size.
type bucket struct {
	size, rate float64
	tokens     float64
	at         time.Time
}

func newBucket(size, rate float64, now time.Time) *bucket {
	return &bucket{size: size, rate: rate, tokens: size, at: now}
}

// take takes a token, or tells how long it is to the next one.
func (b *bucket) take(now time.Time) (wait time.Duration, ok bool) {
	b.tokens = min(b.size, b.tokens+now.Sub(b.at).Seconds()*b.rate)
	b.at = now
	if b.tokens >= 1 {
		b.tokens--
		return 0, true
	}
	return time.Duration((1 - b.tokens) / b.rate * float64(time.Second)), false
}
