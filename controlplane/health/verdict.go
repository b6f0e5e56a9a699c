package health

import (
	"time"

	"github.com/guideway/guideway/dataplane"
)

// verdict is what the checks so far say about one host: a state machine without clock, network or
// random numbers. About 40 bytes.
type verdict struct {
	flags dataplane.Health
	// checked is set by the first result, which decides alone if it is a success.
	checked bool
	// passes and fails count results in a row that pull the other way than flags.
	passes, fails uint32
	hold          holdState
}

// rules are the thresholds a verdict follows.
type rules struct {
	healthy, unhealthy      uint32
	logFailures, logSuccess bool
	hold                    HoldDown
}

// change tells how one result moved a verdict; the next interval depends on it.
type change uint8

const (
	unchanged     change = iota
	changePending        // pulls the other way, the threshold is not reached
	changed
)

// eventSet names the event log lines of one result. Lines are written in order of the bits.
type eventSet uint8

const (
	eventEject eventSet = 1 << iota
	eventFailure
	eventAddHealthy
	eventSuccess
	eventDegraded
	eventNoLongerDegraded
)

// step is the effect of one result.
type step struct {
	change change
	events eventSet
	first  bool
}

// newVerdict is that of a host never checked: failed, and pending where new hosts do not count yet.
func newVerdict(pending bool) verdict {
	v := verdict{flags: dataplane.FailedActiveHC}
	if pending {
		v.flags |= dataplane.PendingActiveHC
	}
	return v
}

// succeed takes a success.
func (v *verdict) succeed(r *rules, degraded bool, now time.Time) step {
	st := step{first: !v.checked}
	v.fails = 0
	if v.flags&dataplane.FailedActiveHC != 0 {
		v.passes++
		if (st.first || v.passes >= r.healthy) && v.hold.over(now) {
			v.flags &^= dataplane.FailedActiveHC | dataplane.ActiveHCTimeout | dataplane.ExcludedViaImmediateHC
			v.hold.up(now)
			st.change = changed
			st.events |= eventAddHealthy
		} else {
			st.change = changePending
		}
	}
	if st.change != changed && r.logSuccess {
		st.events |= eventSuccess
	}
	v.clearPending(&st)
	if is := v.flags&dataplane.DegradedActiveHC != 0; is != degraded {
		v.flags ^= dataplane.DegradedActiveHC
		if degraded {
			st.events |= eventDegraded
		} else {
			st.events |= eventNoLongerDegraded
		}
		if st.change == unchanged {
			st.change = changed
		}
	}
	v.checked = true
	return st
}

// fail takes a failure: one of the network counts up to the threshold, and so does a retriable one;
// any other decides alone.
func (v *verdict) fail(r *rules, o outcome, now time.Time) step {
	st := step{first: !v.checked}
	v.passes = 0
	if o.excluded {
		v.flags |= dataplane.ExcludedViaImmediateHC
	}
	if v.flags&dataplane.FailedActiveHC == 0 {
		v.fails++
		if (!o.kind.network() && !o.retriable) || v.fails >= r.unhealthy {
			v.flags |= dataplane.FailedActiveHC
			v.hold.down(r.hold, now)
			st.change = changed
			st.events |= eventEject
		} else {
			st.change = changePending
		}
	}
	if o.kind == failedTimeout && v.flags&dataplane.FailedActiveHC != 0 {
		v.flags |= dataplane.ActiveHCTimeout
	} else {
		v.flags &^= dataplane.ActiveHCTimeout
	}
	v.clearPending(&st)
	if st.first || r.logFailures {
		st.events |= eventFailure
	}
	v.checked = true
	return st
}

// clearPending ends the wait for a first result; the excluded hosts change with it.
func (v *verdict) clearPending(st *step) {
	if v.flags&dataplane.PendingActiveHC != 0 {
		v.flags &^= dataplane.PendingActiveHC
		st.change = changed
	}
}
