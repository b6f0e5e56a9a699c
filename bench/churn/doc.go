// Package churn measures, on paper, what tracking costs while backends come and go: the share of packets
// that have to look their flow up, and of flows that are remembered, against the number of changes an hour.
//
// It drives a real conntrack.Tracker under a simulated clock, and leaves out only what cannot make a
// difference; simulate.go says what, and why that is exact.
//
// It owns the traffic, the changes and the counting. What it must not know: any rule of conntrack but which
// slots look flows up, which it checks against the Tracker's own count.
package churn
