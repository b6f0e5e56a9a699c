package health

import (
	"time"

	"github.com/guideway/guideway/controlplane/model"
)

// ejection is the outlier record of one host: how often it was ejected, and how long the present
// ejection lasts. Pure; about 60 bytes.
type ejection struct {
	ejected bool
	// backoff multiplies the base time. It grows with each ejection and shrinks with each interval
	// the host stays in.
	backoff   int64
	jitter    time.Duration
	count     uint32
	at, until time.Time // last ejection and last return; zero if there was none
}

// eject starts an ejection. jitter lengthens it.
func (e *ejection) eject(c *model.Outlier, jitter time.Duration, now time.Time) {
	e.ejected, e.jitter, e.at = true, jitter, now
	e.count++
	if time.Duration(e.backoff)*c.BaseEjectionTime < maxEjectionTime(c)+c.BaseEjectionTime {
		e.backoff++
	}
}

// over reports whether the time of the present ejection is up.
func (e *ejection) over(c *model.Outlier, now time.Time) bool {
	lasts := min(time.Duration(e.backoff)*c.BaseEjectionTime, maxEjectionTime(c)) + e.jitter
	return now.Sub(e.at) >= lasts
}

// uneject ends the ejection.
func (e *ejection) uneject(now time.Time) { e.ejected, e.until = false, now }

// forgive lets a host that stayed in for an interval be ejected for a shorter time next.
func (e *ejection) forgive(c *model.Outlier, now time.Time) {
	if !e.ejected && !e.until.IsZero() && now.Sub(e.until) >= c.Interval && e.backoff > 0 {
		e.backoff--
	}
}

// maxEjectionTime is the configured cap, 300 s or the base time if there is none.
func maxEjectionTime(c *model.Outlier) time.Duration {
	if c.MaxEjectionTime > 0 {
		return c.MaxEjectionTime
	}
	return max(300*time.Second, c.BaseEjectionTime)
}

// mayEject reports whether one more host may be ejected when active of hosts are already.
func mayEject(c *model.Outlier, active, hosts int) bool {
	if c.AlwaysEjectOneHost && active == 0 {
		return true
	}
	return 100*(active+1) <= int(min(c.MaxEjectionPercent, 100))*hosts
}
