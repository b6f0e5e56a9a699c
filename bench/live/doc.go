// Package live measures what a balancer does to flows while something changes
// behind it: it holds TCP connections and UDP flows through any balancer to
// backends that say who they are (package backend), and counts the flows that
// break, move, stall or get answers out of order, new flows that fail, and how
// long connecting and answers take.
//
// It owns the flows, the books kept of them, scenario files and the report.
// What it must not know: which balancer it is, and how one is told of a change;
// a scenario says that, or a person, or package lab.
package live
