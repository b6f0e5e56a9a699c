// Package lb picks hosts: the load balancing policies of Envoy (MAGLEV and RING_HASH on package
// maglev, ROUND_ROBIN, LEAST_REQUEST, RANDOM) over priorities, localities, health and panic. A
// balancer is built for one state of a cluster's hosts and never changes, but for the schedules and
// counts that its policy needs. The package knows nothing of discovery and opens no sockets.
package lb
