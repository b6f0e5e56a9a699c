// Package maglev builds Maglev tables and hash rings that are, entry for
// entry, those of Envoy for the same hosts, weights, size and options, and
// compares them.
//
// It owns everything between a set of weighted hosts and "which host has this
// hash": the text that is hashed for an address, weights and localities, the
// table and the ring, priorities and panic, bounded load, digests, and the
// difference of two tables. It is pure: no I/O, no clock, no randomness, no
// goroutines. It knows nothing of health checks, configuration files, flows or
// packets; callers turn those into the plain numbers it takes.
package maglev
