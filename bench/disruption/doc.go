// Package disruption counts, on paper and exactly, what a change of backends does
// to the keys of a load balancer: how many move, how many had to, and how even the
// load is then, for any scheme of package scheme, without and with connection
// tracking.
//
// It owns changes, scenarios, the counting and the wording of results. What it must
// not know: how schemes work, and how reports are drawn.
package disruption
