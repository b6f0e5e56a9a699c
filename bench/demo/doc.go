// Package demo shows a newcomer what Guideway does: it starts three backends that say who they are and a
// balancer in front of them, holds connections and UDP flows through it, drains one backend, and counts
// what moved.
package demo
