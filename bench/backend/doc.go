// Package backend runs backends that say who they are, for measuring and
// testing load balancers: each TCP connection and each datagram is answered
// with the identity of the backend that got it.
//
// A backend listens on any number of addresses, IPv4 and IPv6, TCP and UDP. Its
// behaviour can be changed while it runs: it can echo, fall silent, reset, refuse,
// drain and return, which is what the hosts behind a balancer do in real life.
// A backend on a wildcard address with no identity of its own answers with the address
// it was reached at, so one process stands in for every host of a subnet.
//
// The package knows nothing of balancers; it imports nothing of this module.
package backend
